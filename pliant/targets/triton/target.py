"""A GPU as a target: Triton compiles kernels, and programs of a grid work on tiles."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import torch

from pliant.base.late import Late
from pliant.base.values import dataclass, replace
from pliant.loop.body import FLAG
from pliant.loop.ir import Kernel, Op, values
from pliant.loop.types import FLOAT, INTEGER
from pliant.sym.expr import ONE, Expr, product_of
from pliant.targets.target import Hint, KernelSource, LaunchParameters, Slower
from pliant.targets.triton import launch
from pliant.targets.triton.blocks import FEW_AT_ONCE, FEW_ROWS, MOST_ROWS, WHOLE
from pliant.targets.triton.kernel_source import PrintedKernel, printed
from pliant.targets.triton.printer import NAME
from pliant.targets.triton.tiling import NotTiled, Pass, Tiling, tiled
from pliant.targets.triton.variants import number_multiple

if TYPE_CHECKING:
    from pliant.targets.triton import tuning
else:
    tuning = Late("pliant.targets.triton.tuning")  # which one mode needs

FEW_PROGRAMS: Final = 128  # a GPU has about as many processors
MANY_COLUMNS: Final = 1 << 15
MANY_FAR_COLUMNS: Final = 1 << 10  # that are not next to each other in memory
_DIVISIONS: Final = frozenset({Op.FLOOR_DIV, Op.TRUNC_DIV, Op.REMAINDER, Op.FMOD})


@dataclass(frozen=True, slots=True)
class TritonSource(KernelSource):
    """The source of a kernel, the kernel that it is of, and the numbers of a launch that are
    expected (see `launch_parameters`). `trial`: what is expected, if tiles are to be tried."""

    kernel: Kernel
    expected: tuple[int, ...]
    trial: tuning.TileTrial | None = None

    @property
    def readable(self) -> bool:
        return True

    @property
    def printed(self) -> PrintedKernel:
        return replace(printed(self.kernel), source=self.text)


def _triton(source: KernelSource) -> TritonSource:
    assert isinstance(source, TritonSource)
    return source


_LABELS: Final[dict[str, str]] = {}
"""The label of each kernel, by key. The first one stays: it becomes the function's name in the
source, by which Triton caches machine code, so that equal kernels should have equal names."""


@dataclass(frozen=True, slots=True)
class TritonTarget:
    """A GPU, or, for tests, CPU tensors and Triton's interpreter. Rows of up to `whole` columns are
    in a tile as a whole. `measures`: of long-running kernels several tiles are tried."""

    place: torch.device
    whole: int = WHOLE
    measures: bool = False

    @property
    def device(self) -> str:
        return self.place.type

    @property
    def launch_step(self) -> str:
        return "cuda_kernel" if self.device == "cuda" else "python_kernel"

    @property
    def overlaps_launches(self) -> bool:
        return True

    @property
    def updates_at_once(self) -> bool:
        return True

    @property
    def names_kernels(self) -> bool:
        return True

    @property
    def multiplies(self) -> bool:
        """On the generation of GPUs that it was measured on."""
        return self.device != "cuda" or torch.cuda.get_device_capability(self.place)[0] == 9

    def refusal(self, kernel: Kernel, hint: Hint) -> str | None:
        if torch.are_deterministic_algorithms_enabled() and _adds_floats(kernel):
            return "sums in an order of their own, and deterministic algorithms are asked for"
        raises = any(buffer.name == FLAG.name for buffer in kernel.buffers)
        if raises and any(v.op in _DIVISIONS and v.type in INTEGER for v in values(kernel.body)):
            return "an integer divided by 0 is an error on the CPU only"
        try:
            tiling = tiled(kernel)
        except NotTiled as reason:
            return f"Triton kernels don't have {reason} yet"
        if _is_thin(tiling, hint):
            return "few long rows, which Triton kernels don't share among programs yet"
        return None

    def arrange(self, kernel: Kernel, hint: Hint) -> Kernel:
        """The kernel itself: `tiling` decides what its loops are for."""
        return kernel

    def generate(self, kernel: Kernel, hint: Hint) -> KernelSource:
        text = printed(kernel).source
        key = hashlib.sha256(text.encode()).hexdigest()
        label = _LABELS.setdefault(key, kernel.label)
        text = text.replace(f"\ndef {NAME}", f"\ndef pliant_{label}") if label else text
        expected = tuple([hint(number) for number in self._numbers(kernel)])
        trial = tuning.trial_of(kernel, printed(kernel), hint) if self.measures else None
        return TritonSource(key, text, kernel, expected, trial)

    def compile(self, source: KernelSource) -> Any:
        """The variant for the sizes that are expected is compiled now, others when needed."""
        if self.device == "cpu":
            return (launch.InterpretedKernel(_triton(source).printed, source.key, self.whole),)
        return self._handle(self._kernel(source), source)

    def start(self, sources: Sequence[KernelSource]) -> list[Callable[[], Any]]:
        """Compiles in several threads: most of the time Triton does not hold Python's lock."""
        if self.device != "cuda":
            return [partial(self.compile, source) for source in sources]
        kernels = [(self._kernel(source), source) for source in sources]
        expected = [(kernel, _triton(source).expected) for kernel, source in kernels]
        launch.compile_together(expected)  # what fails is raised where the handle is asked for
        return [partial(self._handle, kernel, source) for kernel, source in kernels]

    def _kernel(self, source: KernelSource) -> launch.CudaKernel:
        return launch.CudaKernel(_triton(source).printed, source.key, self.place, self.whole)

    def _handle(self, kernel: launch.CudaKernel, source: KernelSource) -> Any:
        expected, trial = _triton(source).expected, _triton(source).trial
        choice = None if trial is None else tuning.choose_tile(kernel, expected, trial)
        if choice is not None:
            if choice.library:
                times = f"{choice.library * 1e6:.0f} us, a kernel {choice.seconds * 1e6:.0f}"
                raise Slower(f"PyTorch's product takes {times}")
            kernel.use_blocks(expected, choice.blocks)
        kernel.expect(expected)
        wide = [argument.wide for argument in kernel.printed.arguments]
        return kernel.printed.tiling.by_rows, wide, kernel.variant, number_multiple(kernel.printed)

    def launch_parameters(self, kernel: Kernel, hint: Hint) -> LaunchParameters:
        """Iterations of the outer loops, rows, columns; the arguments of the kernel; bounds."""
        return self._numbers(kernel)

    def _numbers(self, kernel: Kernel) -> tuple[Expr, ...]:
        kernel_text = printed(kernel)
        tiling = kernel_text.tiling
        rows = ONE if tiling.rows is None else tiling.rows.extent
        # The launcher computes the grid from these, and chooses the tile.
        extents = (
            product_of([loop.extent for loop in tiling.outer]),
            rows,
            ONE if tiling.columns is None else tiling.columns,
        )
        return (
            *extents,
            *[argument.expr for argument in kernel_text.arguments],
            *kernel_text.bounds,
        )


def _adds_floats(kernel: Kernel) -> bool:
    """Whether it adds floats atomically, in an order that differs from run to run."""
    return any(v.op is Op.ATOMIC_ADD and v.type in FLOAT for v in values(kernel.body))


def _is_thin(tiling: Tiling, hint: Hint) -> bool:
    """Whether it is a row kernel with work for a few programs only, each of which takes long: most
    of the GPU would be idle."""
    if not tiling.by_rows or tiling.columns is None:
        return False
    assert tiling.rows is not None
    rows = hint(product_of([loop.extent for loop in (*tiling.outer, tiling.rows)]))
    columns = hint(tiling.columns)
    if not tiling.across:
        # The blocks of a row that is scanned wait for each other.
        scans = any(isinstance(item, Pass) and item.scans for item in tiling.body)
        return rows < FEW_PROGRAMS and columns >= (WHOLE + 1 if scans else MANY_COLUMNS)
    # A tile of such a kernel has that many rows.
    programs = rows // (FEW_AT_ONCE if rows < FEW_ROWS else MOST_ROWS)
    far_columns = MANY_FAR_COLUMNS * (1 if programs < FEW_PROGRAMS // 4 else 8)
    return programs < FEW_PROGRAMS and columns >= far_columns
