"""Reading a tensor at some places only, and at places that the data say.

The one idea: elements that stand outside of a tensor are never loaded. What is read for a condition
is read through a body that adds the condition to every load (and to every fault), so that the index
may be anything where the condition is false. Whoever uses a value read so selects by the same
condition.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from pliant.base.values import dataclass
from pliant.loop.define import BodyAround, Definition, Index, LoopBody, broadcast_index
from pliant.loop.ir import LoopValue, Op
from pliant.loop.types import Type
from pliant.ops.elementwise import check_always_fits
from pliant.ops.indexed_tensor import At, IndexedTensor
from pliant.ops.lowering import Lowering, NotLowered, Number
from pliant.sym.cond import ge
from pliant.sym.expr import ONE, ZERO, Expr, as_expr

INDEX_TYPES = frozenset({Type.I64, Type.I32})


class Masked(BodyAround):
    """A body whose loads and faults happen only where `mask` is true."""

    __slots__ = ("mask",)

    def __init__(self, body: LoopBody, mask: LoopValue) -> None:
        super().__init__(body)
        self.mask = mask

    def read(self, of: Definition, place: Expr, mask: LoopValue | None = None) -> LoopValue:
        combined = self.mask if mask is None else self.body(Op.AND, self.mask, mask)
        return self.body.read(of, place, combined)

    def fault(self, when: LoopValue) -> None:
        self.body.fault(self.body(Op.AND, self.mask, when))

    def once(self, key: object, index: Index, make: Callable[[], LoopValue]) -> LoopValue:
        # With the mask: the same element read for another condition may not be loaded.
        return self.body.once((key, self.mask), index, make)


def masked(b: LoopBody, mask: LoopValue) -> Masked:
    """Never one around another: reads behind many conditions would go through all of them."""
    if isinstance(b, Masked):
        return Masked(b.body, b.body(Op.AND, b.mask, mask))
    return Masked(b, mask)


def usual(t: Type) -> Type:
    """The type, unless it is one that eager has few operators for: it says which."""
    if t in (Type.U16, Type.U32, Type.U64):
        raise NotLowered(f"tensors of {t}")
    return t


def reading(
    low: Lowering, sizes: Sequence[Expr], t: Type, at: At, *xs: IndexedTensor, times: int = 1
) -> IndexedTensor:
    """A tensor each of whose elements needs `times` elements of each of `xs`."""
    usual(t)
    cost = 2 + times * sum([x.cost for x in xs])
    return replace(low.generate(sizes, t, at, cost), reads=times * sum([x.reads for x in xs]))


def compared(b: LoopBody, op: Op, i: Expr | int, j: Expr | int) -> LoopValue:
    """A comparison of two indices."""
    return b(op, b.iota(i), b.iota(j))


def all_of(b: LoopBody, conditions: Sequence[LoopValue]) -> LoopValue | None:
    """Their conjunction; None if there are none, so that it always holds."""
    every: LoopValue | None = None
    for condition in conditions:
        every = condition if every is None else b(Op.AND, every, condition)
    return every


def read_where(
    b: LoopBody,
    x: IndexedTensor,
    index: Index,
    inside: LoopValue | None,
    otherwise: Callable[[], LoopValue],
) -> LoopValue:
    """The element where the condition holds, which is where the index has to be valid."""
    if inside is None:
        return x.at(b, index)
    return b(Op.SELECT, inside, x.at(masked(b, inside), index), otherwise())


def zero(b: LoopBody, t: Type) -> LoopValue:
    return b.constant({"bool": False, "float": 0.0}.get(t.kind, 0), t)


def position(
    low: Lowering, b: LoopBody, value: LoopValue, size: Expr, wraps: bool
) -> tuple[Expr, LoopValue | None]:
    """The index that an element of an index tensor stands for, and the condition for reading there
    (None: always). Out of range is a fault; then the index is some valid one, if there is any."""
    chosen, n = b.cast(value, Type.I64), b.iota(size)
    zero = b.constant(0, Type.I64)
    if wraps:
        chosen = b(Op.SELECT, b(Op.LT, chosen, zero), b(Op.ADD, chosen, n), chosen)
    # Without a sign, what is below 0 is above everything.
    outside = b(Op.GE, b.cast(chosen, Type.U64), b.cast(n, Type.U64))
    b.fault(outside)
    # A clamped index is always safe to read, which spares the load a mask.
    if low.known(ge(size, 1)):
        return b.as_index(b(Op.SELECT, outside, zero, chosen)), None
    return b.as_index(chosen), b(Op.NOT, outside)


def index_tensor(x: IndexedTensor) -> IndexedTensor:
    """The tensor, if its elements are indices."""
    if x.type not in INDEX_TYPES:
        raise NotLowered(f"indices of type {x.type}")
    return x


def require_checked_indices(sizes: Sequence[Expr], *indices: IndexedTensor) -> None:
    """Where nothing is read or written, because of the size of some other dimension, PyTorch checks
    the indices all the same."""
    if any(size is ZERO for size in sizes) and not any(ZERO in index.sizes for index in indices):
        raise NotLowered("indices of nothing")


def same_rank(x: IndexedTensor, index: IndexedTensor) -> None:
    """Indices without elements may have any number of dimensions: PyTorch doesn't look at them."""
    if max(len(x.sizes), 1) != max(len(index.sizes), 1):
        raise NotLowered("indices of another rank")


def require_gain_over_copy(low: Lowering, x: IndexedTensor) -> None:
    """For a result whose neighbours are not neighbours in memory: gathering them costs more than
    PyTorch's copy, unless x is computed on the way."""
    if x.memory is not None and x.memory.strides and x.memory.strides[-1] is ONE:
        raise NotLowered("a copy that PyTorch makes faster")


def stored(low: Lowering, x: IndexedTensor, times: int) -> IndexedTensor:
    """The tensor in memory, if each element is read so often that computing it would cost more."""
    if x.memory is not None or times <= 1 or x.cost <= 2:
        return x
    return low.realize(x)


def fitting(x: Number, t: Type) -> Number:
    """The number, if `Tensor.fill_` takes it for this type: it refuses what overflows."""
    check_always_fits(x, t)
    return x


def normal_dim(dim: int, rank: int) -> int:
    """Not negative; of a tensor without dimensions, 0."""
    return dim % max(rank, 1)


def is_one(low: Lowering, size: Expr | int) -> bool:
    """Surely 1."""
    size = as_expr(size)
    return low.simplify(size).value == 1


def divisor(size: Expr) -> Expr:
    """The size, to divide by: where it is 0, nothing is computed."""
    return ONE if size is ZERO else size


@dataclass(frozen=True, slots=True, eq=False)
class Picked:
    """What index tensors for some dimensions pick: their dimensions, broadcast, stand where the
    first of them was if they are next to each other, else in front: from `first` to `last`."""

    indices: tuple[IndexedTensor | None, ...]  # for each dimension
    common: tuple[Expr, ...]
    first: int
    last: int

    @property
    def tensors(self) -> dict[int, IndexedTensor]:
        return {d: index for d, index in enumerate(self.indices) if index is not None}

    def mixed(
        self, low: Lowering, place: Index, chosen: Callable[[int, Index], Expr | LoopValue]
    ) -> list[Expr | LoopValue]:
        """The index that an index of what is picked stands for; `chosen` gives the element of the
        index tensor of a dimension."""
        within, around = (
            place[self.first : self.last],
            iter([*place[: self.first], *place[self.last :]]),
        )
        return [
            next(around) if index is None else chosen(d, spread_index(low, index.sizes, within))
            for d, index in enumerate(self.indices)
        ]


def picked(low: Lowering, x: IndexedTensor, indices: Sequence[IndexedTensor | None]) -> Picked:
    if len(indices) > len(x.sizes):
        raise NotLowered("more indices than dimensions, which is an error")
    padded = (*indices, *[None] * (len(x.sizes) - len(indices)))
    dims = [d for d, index in enumerate(padded) if index is not None]
    chosen = [index_tensor(index) for index in padded if index is not None]
    if not chosen:
        raise NotLowered("no index")
    # On a GPU a kernel can only assert, after which the process can't use the GPU any more.
    if low.device != "cpu" and not all(low.known(ge(x.sizes[d], 1)) for d in dims):
        raise NotLowered("an index into what may be empty, which PyTorch refuses before it runs")
    common = low.broadcast([index.sizes for index in chosen])
    together = dims == list(range(dims[0], dims[-1] + 1))
    first = dims[0] if together else 0
    return Picked(padded, common, first, first + len(common))


def surely_spread(low: Lowering, sizes: Sequence[Expr], onto: Sequence[Expr]) -> None:
    """Gives up unless it is known that a tensor can be broadcast to these sizes, and which of its
    dimensions are: `spread_index` takes any that isn't sure to be 1 for as long as the other
    one."""
    if len(sizes) > len(onto):
        raise NotLowered("more dimensions than there are")
    if low.broadcast([tuple(sizes), tuple(onto)]) != tuple(map(low.simplify, onto)):
        raise NotLowered("more elements than there are, which is an error")


def spread_index(low: Lowering, sizes: Sequence[Expr], index: Index) -> Index:
    """The index into a tensor of these sizes that is broadcast to one with this index."""
    return broadcast_index(index, [is_one(low, size) for size in sizes])
