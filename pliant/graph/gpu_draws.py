"""Draws on CUDA that kernels make themselves, as eager PyTorch's kernels do.

The one idea: a draw becomes two nodes. `python.reserve` takes numbers off PyTorch's generator, in
eager's order, and defines three symbols: the seed, the first value of the counter, and how many
neighbours a thread of eager's kernel would take at a time. `pliant.philox_below` computes the
numbers from these (`ops.philox`).

That eager's kernels draw so is nowhere promised. So it is tried before the first draw, on the
device and for the type at hand; where it isn't so, PyTorch draws.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import torch

from pliant.base.checks import SuppositionFailed
from pliant.base.isolation import FATAL
from pliant.base.values import dataclass
from pliant.fake.tensor import Fake, make
from pliant.graph.ir import Node, UnbackedSymbol
from pliant.graph.opaque_calls import opaque_function
from pliant.loop.define import contiguous
from pliant.ops.philox import limit_of, numbers_of, philox_below, to_float32
from pliant.sym.expr import ZERO, Expr, ceildiv, minimum, product_of, symbol

if TYPE_CHECKING:
    from pliant.graph.aliases import AliasWorld

aten = torch.ops.aten
BLOCK: Final = 256  # threads in a block of eager PyTorch's kernels
PER_CALL: Final = 4  # numbers that a thread draws at a time
TOGETHER: Final = 16  # bytes that a thread of dropout loads at a time


@dataclass(frozen=True, slots=True)
class Generator:
    """PyTorch's default generator of a GPU, for draws of which each takes up to `blocks` blocks."""

    index: int
    blocks: int

    def take(self, count: int) -> tuple[int, int]:
        """Take the numbers that a draw of so many elements takes. Returns the seed, as a signed
        number, and the counter."""
        if torch.cuda.is_current_stream_capturing():
            # There the generator's state is on the device: PyTorch's kernels read it.
            raise SuppositionFailed("random numbers while a CUDA graph is recorded")
        generator = torch.cuda.default_generators[self.index]
        seed, offset = generator.initial_seed(), generator.get_offset()
        threads = BLOCK * min(-(-count // BLOCK), self.blocks)
        calls = -(-count // (threads * PER_CALL)) if count else 0
        generator.set_offset(offset + calls * PER_CALL)
        return (seed ^ 1 << 63) - (1 << 63), offset // PER_CALL


@dataclass(frozen=True, slots=True)
class Reserve:
    """The function of a node that takes the numbers of a dropout of elements of `itemsize`."""

    generator: Generator
    itemsize: int

    def __call__(
        self, count: int, offset: int, memory: torch.Tensor | None = None
    ) -> tuple[int, int, int]:
        """For `count` elements that begin `offset` elements behind the first of `memory`, or of
        memory that is aligned."""
        address = (0 if memory is None else memory.data_ptr()) + offset * self.itemsize
        width = TOGETHER // self.itemsize
        while width > 1 and (address % (width * self.itemsize) or count % width):
            width //= 2
        return (*self.generator.take(count), width)


def dropout(world: AliasWorld, x: Fake, p: float) -> tuple[Fake, float] | None:
    """What a dropout of `x` keeps, as bools, and what that is multiplied by; None if it is PyTorch
    that has to draw."""
    generator = generator_of(x.device)
    sizes, strides = world.numbers(x.size()), world.numbers(x.stride())
    place = None if generator is None else _memory_of(world, x)
    count = product_of(sizes)
    if generator is None or place is None or strides != contiguous(sizes) or count is ZERO:
        return None
    if not draws_so(generator, x.dtype):
        return None
    reserve = Reserve(generator, x.dtype.itemsize)
    seed, start, width = _reserved(world, reserve, (count, *place))
    # Eager's kernel has the probability in the type in which it computes.
    kept = 1.0 - p if x.dtype is torch.float64 else to_float32(1.0 - p)
    threads = BLOCK * minimum(ceildiv(count, BLOCK), generator.blocks)
    args = (list(sizes), seed, start, threads, width, limit_of(kept), x.device)
    mask = make(world._self, x.size(), x.stride(), 0, torch.bool, x.device)
    world.add(Node("pliant.philox_below.default", philox_below, args, {}), [mask])
    return mask, 1.0 / kept if x.dtype is torch.float64 else to_float32(1.0 / kept)


def _memory_of(world: AliasWorld, x: Fake) -> tuple[Any, ...] | None:
    """Where eager PyTorch has the elements of a tensor: how far behind the start of memory that is
    aligned; or behind the first element of an input, and that input. None if that isn't known."""
    base, offset = world.alias(x).base, world.number(x.storage_offset())
    first = base.value
    if base.input is None:
        made = first.node is not None and first.node.name.startswith(("aten.", "pliant."))
        return (offset,) if made else None
    # What an input was before a write can't be looked at after it.
    usual = base.version == 0 and first.dtype is x.dtype
    return (offset - first.offset, first) if usual else None


def _reserved(world: AliasWorld, reserve: Reserve, args: tuple[Any, ...]) -> tuple[Expr, ...]:
    """Record that numbers are taken off the generator. Returns the symbols of what that gives."""
    before = len(world.function.nodes)
    symbols = tuple([symbol(f"{name}{before}") for name in ("seed", "counter", "width")])
    world.known.update(symbols)
    plain = tuple([a.value if isinstance(a, Expr) and a.value is not None else a for a in args])
    node = Node("python.reserve", opaque_function(reserve, plain, {}), plain, {}, effect=True)
    node.defines = tuple([UnbackedSymbol(s, "int") for s in symbols])
    node.stack = world.stack
    world.function.nodes.append(node)
    return symbols


# --------------------------------------------------------------------------------------------------
# What eager PyTorch does


_TRIED: Final[dict[tuple[Generator, torch.dtype], bool]] = {}


def generator_of(device: torch.device) -> Generator | None:
    """The generator of a device; None if it is no GPU."""
    if device.type != "cuda":
        return None
    index = torch.cuda.current_device() if device.index is None else device.index
    properties = torch.cuda.get_device_properties(index)
    per_processor = properties.max_threads_per_multi_processor // BLOCK
    return Generator(index, properties.multi_processor_count * per_processor)


def draws_so(generator: Generator, dtype: torch.dtype) -> bool:
    """Whether PyTorch's dropout draws as is supposed here: found out once."""
    known = _TRIED.get((generator, dtype))
    if known is None:
        if torch.cuda.is_current_stream_capturing():
            return False
        try:
            known = _tried(generator, dtype)
        except FATAL:
            raise
        except Exception:  # there may be no memory for it now
            return False
        _TRIED[generator, dtype] = known
    return known


def _tried(generator: Generator, dtype: torch.dtype) -> bool:
    state = torch.cuda.default_generators[generator.index]
    before, width = state.get_offset(), TOGETHER // dtype.itemsize
    # More elements than threads take in one turn; numbers of them for each width, from 1 on.
    least = 2 * generator.blocks * BLOCK * max(width, PER_CALL) + 8
    counts = [least + more for more in (1, 2, 4, 8)] + [1, 1000]
    with (
        torch._C._DisableTorchDispatch(),
        torch._C.DisableTorchFunction(),
        torch._C._DisableAutocast(),
        torch.no_grad(),
        torch.cuda.device(generator.index),
    ):
        try:
            return all(_drawn_as_expected(generator, dtype, count) for count in counts)
        finally:
            state.set_offset(before)


def _drawn_as_expected(generator: Generator, dtype: torch.dtype, count: int) -> bool:
    """Whether a dropout of so many elements gives what is computed here, looking at some."""
    state = torch.cuda.default_generators[generator.index]
    x = torch.ones(count, dtype=dtype, device=f"cuda:{generator.index}")
    first = state.get_offset()
    seed, start, width = Reserve(generator, dtype.itemsize)(count, 0, x)
    last = state.get_offset()
    state.set_offset(first)
    _, mask = aten.native_dropout.default(x, 0.25, True)
    elements = torch.arange(0, count, max(count // 4096, 1))
    threads = BLOCK * min(-(-count // BLOCK), generator.blocks)
    expected = numbers_of(elements, seed, start, threads, width) < limit_of(0.75)
    return state.get_offset() == last and torch.equal(mask[elements.to(x.device)].cpu(), expected)
