"""Which tile a kernel is fastest with, by trying, for `mode="max-autotune"`.

The one idea: what is tried is few, since a kernel's tile follows from its shape (`blocks`): some
tiles around that one, for kernels that run long enough to matter. Each is timed on memory of the
size that is expected. A product of matrices is also timed beside the library's, and to the time of
that is added what a kernel of its own would take for the rest of ours. What came out is kept, in
memory and on disk: a machine is asked once.
"""

from __future__ import annotations

import ctypes
import json
import math
from collections.abc import Callable, Sequence
from dataclasses import fields
from functools import cache
from typing import TYPE_CHECKING, Any, Final

import torch

from pliant.base.isolation import FATAL
from pliant.base.values import dataclass, replace
from pliant.loop.ir import MEMORY, Kernel, LoopValue, Op, loops, values
from pliant.sym.expr import ONE, substitute
from pliant.targets.kernel_cache import from_environment, key_of
from pliant.targets.target import Hint
from pliant.targets.triton.blocks import PRODUCTS, Blocks
from pliant.targets.triton.kernel_source import PrintedKernel
from pliant.targets.triton.tiling import MatrixProduct, Tiling

if TYPE_CHECKING:
    from pliant.targets.triton.launch import CudaKernel

LONG_RUNNING: Final = 1 << 25  # bytes: what a GPU copies in some ten microseconds
LAUNCHES: Final = 10  # timed together
ROUNDS: Final = 3
MARGIN: Final = 0.97
"""Of the time of what would be run otherwise: less than that is noise."""


@dataclass(frozen=True, slots=True)
class TileTrial:
    """What is expected of a launch, to time it: how many elements of each tensor it touches, and
    how many products are summed for each element of a product of matrices."""

    touched: tuple[int, ...]
    depth: int = 0


@dataclass(frozen=True, slots=True)
class TileChoice:
    """The fastest tile and its seconds; and those of the library, if that is faster, else 0."""

    blocks: Blocks
    seconds: float
    library: float = 0.0


def trial_of(kernel: Kernel, printed: PrintedKernel, hint: Hint) -> TileTrial | None:
    """The trial for the expected sizes; None if what is touched depends on data."""
    last = {loop.var: loop.extent - 1 for loop in loops(kernel.body)}
    touched = dict.fromkeys(printed.buffers, 1)
    for value in values(kernel.body):
        if value.op is Op.AS_INDEX or value.buffer not in (None, *printed.buffers):
            return None
        if value.op in MEMORY and value.index is not None and value.buffer is not None:
            place = hint(substitute(value.index + value.buffer.base, last))
            touched[value.buffer] = max(touched[value.buffer], place + 1)
    product = printed.tiling.product
    return TileTrial(tuple(touched.values()), 0 if product is None else hint(product.loop.extent))


def candidates(tiling: Tiling, usual: Blocks) -> tuple[Blocks, ...]:
    """The tiles to try, the usual one first."""
    if tiling.product is not None:
        return tuple(dict.fromkeys((usual, *PRODUCTS)))
    tiles = [replace(usual, warps=min(max(n, 1), 16)) for n in (usual.warps // 2, usual.warps * 2)]
    if usual.suffix == "_whole":
        tiles.append(replace(usual, rows=usual.rows * 2, warps=tiles[1].warps))
    else:
        tiles.append(replace(usual, columns=usual.columns * 2))
        tiles.append(replace(usual, columns=max(usual.columns // 2, 1)))
    return tuple(dict.fromkeys((usual, *tiles)))


_KNOWN: Final[dict[str, TileChoice]] = {}


def choose_tile(kernel: CudaKernel, numbers: Sequence[int], trial: TileTrial) -> TileChoice | None:
    """The fastest tile for launches with these numbers; None where trying isn't worth it."""
    buffers = kernel.printed.buffers
    sizes = [n * b.type.dtype.itemsize for n, b in zip(trial.touched, buffers, strict=True)]
    if kernel.printed.tiling.product is None and sum(sizes) < LONG_RUNNING:
        return None
    device = torch.cuda.get_device_name(kernel.place)
    key = key_of(kernel.printed.source, "tile", device, torch.__version__, json.dumps([*numbers]))
    if key not in _KNOWN:
        choice = _on_disk(key)
        tried = candidates(kernel.printed.tiling, kernel.usual_blocks(numbers))
        if choice is None or choice.blocks not in tried:
            try:
                choice = _measured(kernel, numbers, trial)
            except FATAL:
                raise
            except Exception:  # no memory for it, or the program records a graph now
                return None
            _to_disk(key, choice)
        _KNOWN[key] = choice
    return _KNOWN[key]


def _measured(kernel: CudaKernel, numbers: Sequence[int], trial: TileTrial) -> TileChoice:
    printed = kernel.printed
    sizes = zip(trial.touched, printed.buffers, strict=True)
    memory = [_filled(count, buffer.type.dtype, kernel.place) for count, buffer in sizes]
    usual = kernel.usual_blocks(numbers)
    launches = kernel.launches(candidates(printed.tiling, usual), numbers, memory)
    times = {blocks: seconds_of(launch) for blocks, launch in launches.items()}
    # Where no tile fits into shared memory, the library has the product.
    best = min(times, key=lambda blocks: times[blocks], default=usual)
    times.setdefault(best, math.inf)
    if usual in times and times[best] > MARGIN * times[usual]:
        best = usual
    product = printed.tiling.product
    if product is None:
        return TileChoice(best, times[best])
    library = _library(product, printed.tiling, numbers, trial, memory)
    return TileChoice(best, times[best], library if library < times[best] else 0.0)


def _filled(count: int, dtype: torch.dtype, place: torch.device) -> torch.Tensor:
    """Memory with numbers of all kinds: a GPU is faster with zeros. No random ones, which the
    program would miss."""
    numbers = torch.arange(count, device=place) * 2654435761 % 2039
    return ((numbers - 1019) / 512).to(dtype) if dtype.is_floating_point else numbers.to(dtype)


def seconds_of(call: Callable[[], Any]) -> float:
    """The time of a call on the GPU, the best of some."""
    call()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for _ in range(LAUNCHES):
            call()
    best = math.inf
    for _ in range(ROUNDS):
        start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        start.record()
        graph.replay()
        end.record()
        end.synchronize()
        best = min(best, start.elapsed_time(end))
    return best / LAUNCHES / 1e3


# --------------------------------------------------------------------------------------------------
# The library


def _library(
    product: MatrixProduct,
    tiling: Tiling,
    numbers: Sequence[int],
    trial: TileTrial,
    memory: Sequence[torch.Tensor],
) -> float:
    """The seconds that PyTorch's product takes, and a kernel for what ours computes with that."""
    _, rows, columns, *_ = numbers
    dtype, place = product.left.load.type.dtype, memory[0].device
    left = _filled(rows * trial.depth, dtype, place)
    right = _filled(columns * trial.depth, dtype, place)
    # Laid out as the operands are.
    by_rows = product.left.inner is ONE
    left = left.view(rows, trial.depth) if by_rows else left.view(trial.depth, rows).t()
    by_rows = product.right.inner is not ONE
    right = right.view(trial.depth, columns) if by_rows else right.view(columns, trial.depth).t()
    out, other = [torch.empty(rows, columns, dtype=dtype, device=place) for _ in range(2)]
    seconds = seconds_of(lambda: torch.mm(left, right, out=out))
    # A kernel of its own would read and write at least so much.
    return seconds if is_plain(tiling) else seconds + seconds_of(lambda: other.copy_(out))


def is_plain(tiling: Tiling) -> bool:
    """Whether it computes no more than the library does: a product and a bias, rounded."""
    body = [value for value in tiling.body if isinstance(value, LoopValue)]
    plain = all(value.op in (Op.LOAD, Op.STORE, Op.CAST, Op.ADD) for value in body)
    assert tiling.rows is not None
    loads = [value for value in body if value.op is Op.LOAD]
    along = any(v.index is not None and tiling.rows.var in v.index.symbols for v in loads)
    return plain and not along and len([value for value in body if value.op is Op.STORE]) == 1


# --------------------------------------------------------------------------------------------------
# On disk


def _to_disk(key: str, choice: TileChoice) -> None:
    if (cache := from_environment()) is not None:
        blocks = choice.blocks
        shape = {field.name: getattr(blocks, field.name) for field in fields(Blocks)}
        told = {"blocks": shape, "seconds": choice.seconds, "library": choice.library}
        cache.store(key, json.dumps(told).encode())


def _on_disk(key: str) -> TileChoice | None:
    cache = from_environment()
    content = cache.load(key) if cache is not None else None
    try:
        told: Any = json.loads(content or b"")
        return TileChoice(Blocks(**told["blocks"]), told["seconds"], told["library"])
    except (ValueError, TypeError, KeyError, RecursionError):
        return None


# --------------------------------------------------------------------------------------------------
# Launches from Python


@cache
def _driver() -> Any:
    return ctypes.CDLL("libcuda.so.1")


@dataclass(frozen=True, slots=True, eq=False)
class TimedLaunch:
    """A launch with the same arguments each time it is called."""

    address: int
    programs: int
    threads: int
    shared: int
    cells: Sequence[int]
    scratch: torch.Tensor | None  # memory for the programs, held

    def __call__(self) -> None:
        cells = [ctypes.c_uint64(cell) for cell in self.cells]
        arguments = (ctypes.c_void_p * len(cells))(*map(ctypes.addressof, cells))
        stream = ctypes.c_void_p(torch.cuda.current_stream().cuda_stream)
        result = _driver().cuLaunchKernel(
            *(ctypes.c_void_p(self.address), self.programs, 1, 1, self.threads, 1, 1),
            *(self.shared, stream, arguments, None),
        )
        if result:
            raise RuntimeError(f"cuLaunchKernel failed with CUDA error {result}")
