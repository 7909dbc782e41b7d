"""Launching: the variant of a kernel for the arguments of a call, and the size of its grid.

The one idea: a launch is chosen by few properties of the arguments (`KernelVariant`), so that a
kernel is compiled a few times, whatever sizes it meets. On a GPU the native launcher works them out
and asks `CudaKernel.variant` once for each combination; `choose` is the same in Python, for tests.
"""

from __future__ import annotations

import math
import os
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any, Final

import torch

from pliant._native import cuda_load
from pliant.base import events
from pliant.base.isolation import FATAL
from pliant.base.late import Late
from pliant.loop.types import FLOAT8
from pliant.targets.triton import gpu_code
from pliant.targets.triton.blocks import FEW_ROWS, WHOLE, Blocks, blocks_for, power_of_two
from pliant.targets.triton.gpu_code import GpuCode
from pliant.targets.triton.index_text import NARROW
from pliant.targets.triton.kernel_source import PrintedKernel
from pliant.targets.triton.variants import AT_ONCE, KernelVariant, number_multiple, variant_of

if TYPE_CHECKING:
    from pliant.targets.triton import compile as compiler
    from pliant.targets.triton import interpret, tuning
else:  # which import Triton; kernels that are on disk do without
    compiler = Late("pliant.targets.triton.compile")
    interpret = Late("pliant.targets.triton.interpret")
    tuning = Late("pliant.targets.triton.tuning")  # which one mode needs

THREADS: Final = 8  # that compile at the same time; more have to wait for each other
_IMPORTING: Final = threading.Lock()
"""Modules of Triton import each other, which is not safe in several threads at the same time."""
MOST_PROGRAMS: Final = 2**62  # more than a launch can have, which is tested there
INTERPRETED: Final = 3  # processors that are assumed where kernels are interpreted
EXTENTS: Final = 3  # the first numbers of a launch: outer iterations, rows, columns

_AS_BYTES: Final = frozenset([t.dtype for t in FLOAT8])


class InterpretedKernel:
    """A kernel on CPU tensors, for tests. Called with tensors and the numbers of a launch."""

    def __init__(self, printed: PrintedKernel, key: str, whole: int = WHOLE) -> None:
        self.printed = printed
        self.whole = whole
        self.functions = compiler.functions(printed.source, key, interpreted=True)

    def __call__(self, *args: Any) -> None:
        tensors, numbers = args[: len(self.printed.buffers)], args[len(self.printed.buffers) :]
        programs, variant = choose(self.printed, tensors, numbers, self.whole)
        if programs <= 0:
            return
        arguments = numbers[EXTENTS : EXTENTS + len(self.printed.arguments)]
        function = compiler.function_for(self.functions, variant)
        pointers = [t.view(torch.uint8) if t.dtype in _AS_BYTES else t for t in tensors]
        interpret.run(function, programs, (*pointers, *arguments), compiler.constants(variant))


class CudaKernel:
    """A kernel on a GPU. The launcher asks for each variant once, and remembers the answer."""

    def __init__(
        self, printed: PrintedKernel, key: str, place: torch.device, whole: int = WHOLE
    ) -> None:
        self.printed = printed
        self.key = key
        self.place = place
        self.whole = whole
        self.loaded: dict[KernelVariant, tuple[int, ...]] = {}
        self.launched = False  # whether the variant that is expected has been loaded
        self.failed: dict[KernelVariant, Exception] = {}
        self.compiling: dict[KernelVariant, Callable[[], Any]] = {}  # in other threads
        self.tiles: dict[tuple[int, bool], Blocks] = {}  # that were found to be fastest

    def variant(self, wide: bool, bits: int, columns: int, few: bool) -> tuple[int, ...]:
        """The address of a function, its threads and shared memory in bytes, its tile, how many
        programs a launch has at most, and how many bytes of memory each of them needs for itself.
        For indices of 64 bits or not, arguments that are the multiples that matter (as bits), and
        rows of up to so many columns; `few`: there are less than `FEW_ROWS`."""
        variant = self._described(wide, bits, columns, few)
        if variant in self.failed:  # the graph runs with PyTorch's operators for such sizes
            raise self.failed[variant]
        if variant not in self.loaded:
            self.loaded[variant] = self._load_or_tell(variant)
        return self.loaded[variant]

    def _described(self, wide: bool, bits: int, columns: int, few: bool) -> KernelVariant:
        count = len(self.printed.buffers) + len(self.printed.arguments)
        fulfilled = [bool(bits >> at & 1) for at in range(count)]
        blocks = self.tiles.get((columns, few)) or self._blocks(columns, few)
        return variant_of(self.printed, blocks, wide, fulfilled)

    def _blocks(self, columns: int, few: bool) -> Blocks:
        return blocks_for(self.printed.tiling, columns, self.whole, few)

    def usual_blocks(self, numbers: Sequence[int]) -> Blocks:
        """The tile for launches with these numbers, if nothing is measured."""
        _, _, columns, few = self._expected(numbers)
        return self._blocks(columns, few)

    def use_blocks(self, numbers: Sequence[int], blocks: Blocks) -> None:
        """Use this tile for launches with such numbers."""
        _, _, columns, few = self._expected(numbers)
        self.tiles[columns, few] = blocks

    @cached_property
    def functions(self) -> dict[str, Any]:
        """Triton's, of the source."""
        with _IMPORTING:
            return compiler.functions(self.printed.source, self.key, interpreted=False)

    def compile(self, variant: KernelVariant) -> GpuCode:
        """Machine code, from the disk or by Triton: in any thread."""
        return gpu_code.load(self._name(variant)) or self._make(variant)

    def _make(self, variant: KernelVariant) -> GpuCode:
        functions = self.functions
        function = compiler.function_for(functions, variant)
        machine = compiler.nvidia(self._capability())
        code = compiler.machine_code(self.printed, function, variant, machine)
        gpu_code.store(self._name(variant), code)
        return code

    def _name(self, variant: KernelVariant) -> str | None:
        return gpu_code.name_of(self.printed, variant, f"sm_{self._capability()}")

    def _capability(self) -> int:
        major, minor = torch.cuda.get_device_capability(self.place)
        return 10 * major + minor

    def _load_or_tell(self, variant: KernelVariant) -> tuple[int, ...]:
        try:
            return self._load(variant)
        except FATAL:
            raise
        except Exception as error:
            self.failed[variant] = error
            # Before, the graph is still being compiled, and whoever does that reports the failure.
            if self.launched:
                reason = f"{type(error).__name__}: {error}"
                operators = ("the graph",)
                function = "a compiled function"
                events.emit(
                    events.KernelFailed(
                        function=function, operators=operators, reason=reason, error=error
                    )
                )
            raise

    def _load(self, variant: KernelVariant) -> tuple[int, ...]:
        code = self.compiling.pop(variant, partial(self.compile, variant))()
        try:
            address = self._address(code)
        except RuntimeError:
            # It may be whole and from the disk, and still not for this driver.
            code = self._make(variant)
            address = self._address(code)
        blocks, processors = variant.blocks, 0
        if blocks.resident:
            processors = torch.cuda.get_device_properties(self.place).multi_processor_count
        most = most_programs(blocks, processors)
        return address, code.threads, code.shared, blocks.rows, blocks.columns, most, code.scratch

    def _address(self, code: GpuCode) -> int:
        index = torch.cuda.current_device() if self.place.index is None else self.place.index
        return cuda_load(code.binary, code.name, code.shared, index)

    def expect(self, numbers: Sequence[int]) -> None:
        """Load the variant for launches with these numbers, supposing that tensors are aligned."""
        self.variant(*self._expected(numbers))
        self.launched = True

    def start(self, numbers: Sequence[int], pool: ThreadPoolExecutor) -> None:
        """Start to compile that variant in another thread."""
        variant = self._described(*self._expected(numbers))
        self.compiling[variant] = pool.submit(self.compile, variant).result

    def launches(
        self,
        tiles: Sequence[Blocks],
        numbers: Sequence[int],
        tensors: Sequence[torch.Tensor],
    ) -> dict[Blocks, tuning.TimedLaunch]:
        """A launch for each of these tiles that there is code for."""
        arguments = numbers[EXTENTS : EXTENTS + len(self.printed.arguments)]
        divisor = number_multiple(self.printed)
        fulfilled = [True] * len(tensors) + [number % divisor == 0 for number in arguments]
        variants = {b: variant_of(self.printed, b, False, fulfilled) for b in tiles}
        with ThreadPoolExecutor(THREADS, "pliant-triton") as pool:
            for variant in variants.values():
                self.compiling[variant] = pool.submit(self.compile, variant).result
        launches = {}
        for blocks, variant in variants.items():
            try:
                address, threads, shared, _, _, most, scratch = self._load(variant)
            except FATAL:
                raise
            except Exception:  # it needs more shared memory than there is, say
                continue
            programs = min(programs_of(self.printed, blocks, numbers), most)
            memory = torch.empty(programs * scratch, dtype=torch.uint8, device=self.place)
            cells = [*[t.data_ptr() for t in tensors], *arguments, memory.data_ptr(), 0]
            launches[blocks] = tuning.TimedLaunch(address, programs, threads, shared, cells, memory)
        return launches

    def _expected(self, numbers: Sequence[int]) -> tuple[bool, int, int, bool]:
        arguments = numbers[EXTENTS : EXTENTS + len(self.printed.arguments)]
        # Triton makes wider loads where it knows what an argument is a multiple of.
        divisor = number_multiple(self.printed)
        fulfilled = [True] * len(self.printed.buffers)
        fulfilled += [number % divisor == 0 for number in arguments]
        bits = sum([1 << at for at, holds in enumerate(fulfilled) if holds])
        outer, rows, columns = numbers[:EXTENTS]
        wide = max(narrow_numbers(self.printed, numbers)) >= NARROW
        return wide, bits, power_of_two(columns), outer * rows < FEW_ROWS


def compile_together(kernels: Sequence[tuple[CudaKernel, Sequence[int]]]) -> None:
    """Compile the variants that are expected of several kernels. What fails is raised when the
    variant is asked for."""
    threads = min(len(kernels), THREADS, len(os.sched_getaffinity(0)))
    if threads < 2:
        return
    with ThreadPoolExecutor(threads, "pliant-triton") as pool:
        for kernel, numbers in kernels:
            kernel.start(numbers, pool)


def choose(
    printed: PrintedKernel,
    tensors: Sequence[torch.Tensor],
    numbers: Sequence[int],
    whole: int = WHOLE,
) -> tuple[int, KernelVariant]:
    """How many programs a launch with these arguments has, and which variant it runs."""
    outer, rows, columns = numbers[:EXTENTS]
    blocks = blocks_for(printed.tiling, columns, whole, outer * rows < FEW_ROWS)
    programs = programs_of(printed, blocks, numbers)
    arguments = numbers[EXTENTS : EXTENTS + len(printed.arguments)]
    # No index into a tensor is larger than its memory is long.
    elements = [t.untyped_storage().nbytes() // t.element_size() for t in tensors]
    # Indices of 32 bits are faster, and right as long as nothing in the kernel exceeds them.
    limit = max([programs, *narrow_numbers(printed, numbers), *elements])
    divisor = number_multiple(printed)
    fulfilled = [t.data_ptr() % AT_ONCE == 0 for t in tensors]
    fulfilled += [number % divisor == 0 for number in arguments]
    variant = variant_of(printed, blocks, limit >= NARROW, fulfilled)
    return min(programs, most_programs(blocks, INTERPRETED)), variant


def narrow_numbers(printed: PrintedKernel, numbers: Sequence[int]) -> list[int]:
    """The numbers of a launch that have to be within 32 bits for indices of 32 bits."""
    count = EXTENTS + len(printed.arguments)
    arguments = zip(numbers[EXTENTS:count], printed.arguments, strict=False)
    # Arguments that have 64 bits in any case don't matter.
    narrow = [abs(number) for number, argument in arguments if not argument.wide]
    return [*numbers[:EXTENTS], *narrow, *numbers[count:]]


def programs_of(printed: PrintedKernel, blocks: Blocks, numbers: Sequence[int]) -> int:
    """How many tiles there are."""
    outer, rows, columns = numbers[:EXTENTS]
    programs = outer * math.ceil(max(rows, 0) / blocks.rows)
    if not printed.tiling.by_rows:
        programs *= math.ceil(max(columns, 0) / blocks.columns)
    return programs


def most_programs(blocks: Blocks, processors: int) -> int:
    """How many programs a launch has at most."""
    return blocks.resident * processors if blocks.resident else MOST_PROGRAMS
