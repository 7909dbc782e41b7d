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
from pliant.targets.triton.blocks import FEW_ROWS, WHOLE, blocks_for, power_of_two
from pliant.targets.triton.gpu_code import GpuCode
from pliant.targets.triton.printer import PrintedKernel
from pliant.targets.triton.variants import MULTIPLE, KernelVariant

if TYPE_CHECKING:
    from pliant.targets.triton import compile as compiler
    from pliant.targets.triton import interpret
else:  # which import Triton; kernels that are on disk do without
    compiler = Late("pliant.targets.triton.compile")
    interpret = Late("pliant.targets.triton.interpret")

NARROW: Final = 2**31 - 2**20
"""Below this, numbers are within 32 bits, those of lanes behind the end of a tensor as well."""
THREADS: Final = 8  # that compile at the same time; more have to wait for each other
_IMPORTING: Final = threading.Lock()
"""Modules of Triton import each other, which is not safe in several threads at the same time."""
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

    def variant(self, wide: bool, multiples: int, columns: int, few: bool) -> tuple[int, ...]:
        """The address of a function, its threads and shared memory in bytes, and its tile: for
        indices of 64 bits or not, arguments that are multiples of 16 (as bits), and rows of up to
        so many columns; `few`: there are less than `FEW_ROWS`."""
        variant = self._described(wide, multiples, columns, few)
        if variant in self.failed:  # the graph runs with PyTorch's operators for such sizes
            raise self.failed[variant]
        if variant not in self.loaded:
            self.loaded[variant] = self._load_or_tell(variant)
        return self.loaded[variant]

    def _described(self, wide: bool, multiples: int, columns: int, few: bool) -> KernelVariant:
        count = len(self.printed.buffers) + len(self.printed.arguments)
        divisible = _that_matter(self.printed, [bool(multiples >> at & 1) for at in range(count)])
        return KernelVariant(
            blocks_for(self.printed.tiling, columns, self.whole, few), wide, divisible
        )

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
        blocks = variant.blocks
        return address, code.threads, code.shared, blocks.rows, blocks.columns

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

    def _expected(self, numbers: Sequence[int]) -> tuple[bool, int, int, bool]:
        arguments = numbers[EXTENTS : EXTENTS + len(self.printed.arguments)]
        multiples = [True] * len(self.printed.buffers)
        multiples += [number % MULTIPLE == 0 for number in arguments]
        # Triton makes wider loads where it knows that an argument is a multiple of 16.
        bits = sum([1 << at for at, multiple in enumerate(multiples) if multiple])
        outer, rows, columns = numbers[:EXTENTS]
        return False, bits, power_of_two(columns), outer * rows < FEW_ROWS


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
    programs = outer * math.ceil(max(rows, 0) / blocks.rows)
    if not printed.tiling.by_rows:
        programs *= math.ceil(max(columns, 0) / blocks.columns)
    arguments = numbers[EXTENTS : EXTENTS + len(printed.arguments)]
    # Arguments that have 64 bits in any case don't matter.
    narrow = [number for number, a in zip(arguments, printed.arguments, strict=False) if not a.wide]
    bounds = numbers[EXTENTS + len(printed.arguments) :]
    # No index into a tensor is larger than its memory is long.
    elements = [t.untyped_storage().nbytes() // t.element_size() for t in tensors]
    # Indices of 32 bits are faster, and right as long as nothing in the kernel exceeds them.
    limit = max([programs, outer, rows, columns, *map(abs, narrow), *bounds, *elements])
    multiples = [t.data_ptr() % MULTIPLE == 0 for t in tensors]
    multiples += [number % MULTIPLE == 0 for number in arguments]
    return programs, KernelVariant(blocks, limit >= NARROW, _that_matter(printed, multiples))


def _that_matter(printed: PrintedKernel, multiples: Sequence[bool]) -> tuple[bool, ...]:
    """Without those of arguments that have 64 bits in any case. They are numbers that a kernel
    computes with, not places in memory: a seed needs no kernel of its own."""
    wide = [False] * len(printed.buffers) + [argument.wide for argument in printed.arguments]
    return tuple([multiple and not w for multiple, w in zip(multiples, wide, strict=True)])
