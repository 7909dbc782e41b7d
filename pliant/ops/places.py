"""Reading a tensor at some places only, and at places that the data say.

The one idea: elements that stand outside of a tensor are never loaded. What is read under a
condition is read through a body that adds the condition to every load (and to every fault), so that
the index may be anything where the condition is false. The value is then selected by the same
condition: `pad` is

    inside = 0 <= i - 1 < n
    SELECT(inside, load x[i - 1] if inside, 0)
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from pliant.base.values import dataclass, replace
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
    """A body with `mask` on its loads and faults. Masks are joined instead of nested, so that reads
    under many conditions don't go through a body for each."""
    if isinstance(b, Masked):
        return Masked(b.body, b.body(Op.AND, b.mask, mask))
    return Masked(b, mask)


def usual(t: Type) -> Type:
    """The type. Raises `NotLowered` for types that eager PyTorch has few operators for, so that it
    refuses the others itself."""
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
    """The comparison `i op j` of two indices, as a bool."""
    return b(op, b.iota(i), b.iota(j))


def all_of(b: LoopBody, conditions: Sequence[LoopValue]) -> LoopValue | None:
    """The conjunction of the conditions; None, which stands for true, if there are none."""
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
    """The element of x at an index where `inside` holds (None: everywhere), else `otherwise()`. The
    index has to be valid only where the condition holds."""
    if inside is None:
        return x.at(b, index)
    return b(Op.SELECT, inside, x.at(masked(b, inside), index), otherwise())


def zero(b: LoopBody, t: Type) -> LoopValue:
    return b.constant({"bool": False, "float": 0.0}.get(t.kind, 0), t)


def position(
    low: Lowering, b: LoopBody, value: LoopValue, size: Expr, wraps: bool
) -> tuple[Expr, LoopValue | None]:
    """The index that `value`, an element of an index tensor, stands for in a dimension of this
    size, and the condition for reading there (None: always). `wraps`: negative ones count from the
    end. Out of range is a fault, and the index 0 is read instead, if the dimension isn't empty."""
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
    """The tensor. Raises `NotLowered` if its elements are no indices."""
    if x.type not in INDEX_TYPES:
        raise NotLowered(f"indices of type {x.type}")
    return x


def require_checked_indices(sizes: Sequence[Expr], *indices: IndexedTensor) -> None:
    """Give up if nothing is read or written because some dimension is empty, and there are indices
    nonetheless: PyTorch checks these all the same."""
    if any(size is ZERO for size in sizes) and not any(ZERO in index.sizes for index in indices):
        raise NotLowered("indices of nothing")


def same_rank(x: IndexedTensor, index: IndexedTensor) -> None:
    """Give up unless x and index have the same number of dimensions, a scalar counting as one. (An
    empty index may have any number: PyTorch doesn't look at it, and runs it.)"""
    if max(len(x.sizes), 1) != max(len(index.sizes), 1):
        raise NotLowered("indices of another rank")


def require_gain_over_copy(low: Lowering, x: IndexedTensor) -> None:
    """Give up if x is in memory, for an operator whose result has neighbours that aren't close in
    x: gathering them takes longer than PyTorch's copy. It pays if x is computed on the way."""
    if x.memory is not None and x.memory.strides and x.memory.strides[-1] is ONE:
        raise NotLowered("a copy that PyTorch makes faster")


def stored(low: Lowering, x: IndexedTensor, times: int) -> IndexedTensor:
    """The tensor, stored if each element is read `times` times and computing it so often would cost
    more."""
    if x.memory is not None or times <= 1 or x.cost <= 2:
        return x
    return low.realize(x)


def fitting(x: Number, t: Type) -> Number:
    """The number, if `Tensor.fill_` takes it for this type: it refuses what overflows."""
    check_always_fits(x, t)
    return x


def normal_dim(dim: int, rank: int) -> int:
    """The dimension as a number that isn't negative; 0 for a tensor without dimensions."""
    return dim % max(rank, 1)


def is_one(low: Lowering, size: Expr | int) -> bool:
    """Whether a size is known to be 1."""
    size = as_expr(size)
    return low.simplify(size).value == 1


def divisor(size: Expr) -> Expr:
    """The size as a divisor: 1 instead of the constant 0, where nothing is computed anyway."""
    return ONE if size is ZERO else size


@dataclass(frozen=True, slots=True, eq=False)
class Picked:
    """What `x[indices]` picks. The index tensors are broadcast to the sizes `common`, which are the
    dimensions `first` to `last` of the result: where the first of them stands in `indices` if they
    are next to each other, else in front (NumPy's rule). `x[:, i, j]` with vectors i and j of n
    elements has sizes (x.size(0), n), and `x[i, :, j]` has (n, x.size(1))."""

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
        """The index into x for an index `place` of the result. `chosen(d, index)` gives the element
        of the index tensor for dimension d."""
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
    # Trailing dimensions without an index are taken whole.
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
    """Give up unless it is known that a tensor of these `sizes` can be broadcast `onto` others, and
    along which dimensions: `spread_index` takes a size that isn't known to be 1 for the whole."""
    if len(sizes) > len(onto):
        raise NotLowered("more dimensions than there are")
    if low.broadcast([tuple(sizes), tuple(onto)]) != tuple(map(low.simplify, onto)):
        raise NotLowered("more elements than there are, which is an error")


def spread_index(low: Lowering, sizes: Sequence[Expr], index: Index) -> Index:
    """The index into a tensor of these sizes that is broadcast to one with this index."""
    return broadcast_index(index, [is_one(low, size) for size in sizes])
