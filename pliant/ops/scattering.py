"""Writes to places that are in other tensors: scatter, index_add, index_put and their like.

The one idea: the tensor is copied, and the copy is written to, update after update. Dimensions in
which an update stays where it is (`rows`) are independent of each other and run in lanes or in
threads; along the others updates are made in order, as eager PyTorch makes them on one thread, so
that of several updates of one place the last one stays, and sums are added up in the same order.
(A GPU makes them at once, if the order can't be seen in the result but by how sums are rounded.)

Where eager PyTorch keeps sums of halves in f32, so does the copy, and is rounded afterwards. So
`x.scatter_add(0, index, src)` for matrices is

    copy = x
    for j: (rows, in parallel)
      for i: (over, in order)
        copy[index[i, j], j] += src[i, j]
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, Final

import torch

from pliant.base.operators import register
from pliant.fake import shapes
from pliant.fake.layout import (
    broadcast,
    is_plain,
    like_strides,
)
from pliant.fake.meta import check_masks
from pliant.fake.overload import Overload
from pliant.fake.results import New, Recipe, Same
from pliant.fake.rule import Args, Kwargs, dense, new
from pliant.fake.tensor import Fake
from pliant.loop.define import (
    Index,
    LoopBody,
    Scan,
    Scanned,
    Scattered,
    Update,
    contiguous,
)
from pliant.loop.fuse import owner, probe
from pliant.loop.ir import LoopValue, Op
from pliant.loop.types import FLOAT, HALF, INTEGER, SIGNED, Type, largest, smallest
from pliant.ops.elementwise import check_always_fits, check_fits
from pliant.ops.indexed_tensor import IndexedTensor, MemoryLayout, in_memory
from pliant.ops.indexing import index_shape, picks
from pliant.ops.lowering import Lowering, NotLowered, Number, computed_in, lowers
from pliant.ops.places import (
    compared,
    index_tensor,
    is_one,
    normal_dim,
    picked,
    position,
    reading,
    require_checked_indices,
    same_rank,
    spread_index,
    stored,
    surely_spread,
    usual,
)
from pliant.ops.scans import in_each
from pliant.sym.cond import eq, ge
from pliant.sym.expr import ONE, ZERO, Expr, product_of

CombineTwo = Callable[[LoopBody, LoopValue, LoopValue], LoopValue]


# --------------------------------------------------------------------------------------------------
# What all have in common


def scattered(
    low: Lowering,
    x: IndexedTensor,
    sizes: Sequence[Expr],
    rows: Sequence[int],
    at: Callable[[LoopBody, Index], Update],
    combine: CombineTwo | None = None,
    type: Type | None = None,
) -> IndexedTensor:
    """x with an update `at(body, index)` for each index of a tensor of these sizes. Updates that
    differ along the dimensions `rows` never go to the same place. `combine` as in `Scattered`. The
    result is of `type` (by default that of x)."""
    in_place = low.target
    if in_place is not None and (type or x.type) is x.type:
        # Tried in place first: the definition says whether it may have to raise.
        result = updated(low, in_place, x.sizes, sizes, rows, at, combine)
        assert result.memory is not None
        if not probe(result.memory.of).faults:
            return result
        # An index out of range has to raise before anything is written, so that this goes to a
        # copy.
        low.definitions.pop()
    copy = low.realize(low.cast(_copied(x), type or x.type), low.result.strides).memory
    assert copy is not None
    return updated(low, copy, x.sizes, sizes, rows, at, combine)


def updated(
    low: Lowering,
    memory: MemoryLayout,
    shape: tuple[Expr, ...],
    sizes: Sequence[Expr],
    rows: Sequence[int],
    at: Callable[[LoopBody, Index], Update],
    combine: CombineTwo | None = None,
) -> IndexedTensor:
    """The same for a tensor of this shape in `memory`, which is overwritten."""
    rows = [d for d in rows if sizes[d] is not ONE]
    over = [d for d in range(len(sizes)) if d not in rows and sizes[d] is not ONE]
    # Rows that are inside of what is scattered: neighbours in memory, for lanes.
    inner = [d for d in rows if d > max(over, default=-1)] if over else []

    def make(b: LoopBody, row: Index, place: Index) -> Update:
        index = dict(zip(rows, row, strict=True)) | dict(zip(over, place, strict=True))
        return at(b, tuple([index.get(d, ZERO) for d in range(len(sizes))]))

    each, together = tuple([sizes[d] for d in rows]), tuple([sizes[d] for d in over])
    body = Scattered(each, together, make, combine, len(inner), adds=combine is added)
    # Memory that is a part of other memory: the definition is in that, at the offset.
    into = owner(memory.of)
    definition = low.define(shape, into.type, body, memory.strides, into, memory.offset)
    return in_memory(definition, shape, memory.strides, memory.offset)


def places_in(
    low: Lowering, index: IndexedTensor, size: Expr, wraps: bool, ahead: bool
) -> Callable[[LoopBody, Index], Expr | LoopValue]:
    """The elements of an index tensor for a dimension of this size. `ahead`: if the scatter works
    in place, all of them are checked before any is used, since an index out of range has to raise
    before anything is written."""
    if low.target is None or not ahead:
        return index.at

    def at(b: LoopBody, place: Index) -> LoopValue:
        return b.iota(position(low, b, index.at(b, place), size, wraps)[0])

    # A kernel of its own, which is run and tested before the one that writes.
    checked = low.realize(low.generate(index.sizes, Type.I64, at, index.cost + 2))
    return lambda b, place: b.as_index(checked.at(b, place))


def _copied(x: IndexedTensor) -> IndexedTensor:
    """x as an expression that isn't in memory, so that realizing it makes a copy."""
    return IndexedTensor(x.sizes, x.type, x.at, x.cost, x.reads)


def _along(x: IndexedTensor) -> IndexedTensor:
    """A tensor without dimensions as one with a dimension of size 1."""
    if x.sizes:
        return x
    return IndexedTensor((ONE,), x.type, lambda b, index: x.at(b, ()), x.cost, x.reads)


def place_of(
    low: Lowering, b: LoopBody, x: IndexedTensor, index: Sequence[Expr | LoopValue], wraps: bool
) -> tuple[Index, LoopValue | None]:
    """An index into x whose parts are expressions or values, as expressions, and the condition for
    it to be within x (None: always)."""
    places: list[Expr] = []
    inside: LoopValue | None = None
    for item, size in zip(index, x.sizes, strict=True):
        if isinstance(item, Expr):
            places.append(item)
            continue
        place, valid = position(low, b, item, size, wraps)
        places.append(place)
        if valid is not None:
            inside = valid if inside is None else b(Op.AND, inside, valid)
    return tuple(places), inside


def _plain(b: LoopBody, op: Op, on_bools: Op, old: LoopValue, new: LoopValue) -> LoopValue:
    """An operation on numbers of one type, computed as that type is; of bools, another one."""
    t = old.type
    if t is Type.BOOL:
        return b(on_bools, old, new)
    working = computed_in(t)
    return b.cast(b(op, b.cast(old, working), b.cast(new, working)), t)


def added(b: LoopBody, old: LoopValue, new: LoopValue) -> LoopValue:
    return _plain(b, Op.ADD, Op.OR, old, new)


def multiplied(b: LoopBody, old: LoopValue, new: LoopValue) -> LoopValue:
    return _plain(b, Op.MUL, Op.AND, old, new)


def _better(op: Op, on_bools: Op) -> CombineTwo:
    """The `combine` of a maximum or minimum: the new one if it is better or a nan, but not if the
    old one is a nan and the new one isn't."""

    def combine(b: LoopBody, old: LoopValue, new: LoopValue) -> LoopValue:
        if old.type is Type.BOOL:
            return b(on_bools, old, new)
        # Comparisons with nan are false, so an old nan stays.
        take = b(op, new, old)
        if old.type in FLOAT:
            take = b(Op.OR, take, b(Op.ISNAN, new))
        return b(Op.SELECT, take, new, old)

    return combine


# --------------------------------------------------------------------------------------------------
# Scatter: an index for each element


def _scatter(
    low: Lowering,
    x: IndexedTensor,
    dim: int,
    index: IndexedTensor,
    src: IndexedTensor,
    combine: CombineTwo | None = None,
    type: Type | None = None,
    into: MemoryLayout | None = None,
) -> IndexedTensor:
    """`scatter` along `dim` of x: element `place` of `src` goes to `place` with the element of
    `index` in dimension `dim`. `into`: memory that has the elements of x already and may be
    overwritten."""
    index_tensor(index)
    same_rank(x, index)
    if src.sizes:
        same_rank(index, src)
    usual(x.type)
    flat, dim = not x.sizes, normal_dim(dim, len(x.sizes))
    target, chosen, source = _along(x), _along(index), _along(src)
    # A number goes to all places.
    is_scalar = all(size is ONE for size in source.sizes) and not src.sizes
    which = places_in(low, chosen, target.sizes[dim], False, (type or x.type) is x.type)

    def at(b: LoopBody, place: Index) -> Update:
        target_place, inside = place_of(
            low, b, target, [*place[:dim], which(b, place), *place[dim + 1 :]], wraps=False
        )
        value = source.at(b, (ZERO,) if is_scalar else place)
        return Update(() if flat else target_place, value, inside)

    rows = [d for d in range(len(target.sizes)) if d != dim]
    if into is not None:
        return updated(low, into, x.sizes, chosen.sizes, rows, at, combine)
    return scattered(low, x, chosen.sizes, rows, at, combine, type)


def _number(low: Lowering, value: Number, t: Type) -> IndexedTensor:
    check_always_fits(value, t)
    return low.indexed(value, t)


_REDUCED: Final[dict[str, CombineTwo]] = {"add": added, "multiply": multiplied}


def _scatter_shape(op: Overload, args: Args, kwargs: Kwargs, device: torch.device) -> Recipe | None:
    t, dim, index, source = args[:4]
    if type(source) is Fake:
        alike = source.dtype is t.dtype and source.dim() == index.dim()
        if not alike or not all(a <= b for a, b in zip(index.size(), source.size(), strict=True)):
            return None
    if not picks(t, dim, index):
        return None
    return Same(op.written[0]) if op.written else dense(t.size(), t.dtype, device)


@lowers("aten.scatter.src", "aten.scatter.value", shape=_scatter_shape, writes_target=True)
def scatter(
    low: Lowering, x: IndexedTensor, dim: int, index: IndexedTensor, src: IndexedTensor | Number
) -> IndexedTensor:
    if isinstance(src, IndexedTensor):
        return _scatter(low, x, dim, index, low.cast(src, x.type))
    return _scatter(low, x, dim, index, _number(low, src, x.type))


@lowers("aten.scatter.reduce", "aten.scatter.value_reduce", writes_target=True)
def scatter_and_reduce(
    low: Lowering, x: IndexedTensor, dim: int, index: IndexedTensor, src: Any, *, reduce: str
) -> IndexedTensor:
    source = src if isinstance(src, IndexedTensor) else _number(low, src, x.type)
    return _accumulated(low, x, dim, index, source, _REDUCED[reduce])


@lowers("aten.scatter_add.default", shape=_scatter_shape, writes_target=True)
def scatter_add(
    low: Lowering, x: IndexedTensor, dim: int, index: IndexedTensor, src: IndexedTensor
) -> IndexedTensor:
    return _accumulated(low, x, dim, index, src, added)


def _accumulated(
    low: Lowering,
    x: IndexedTensor,
    dim: int,
    index: IndexedTensor,
    src: IndexedTensor,
    combine: CombineTwo,
    into: MemoryLayout | None = None,
) -> IndexedTensor:
    """`scatter` with a `combine`, in f32 for halves."""
    if src.type is not x.type:
        raise NotLowered("of several types")
    working = computed_in(x.type)
    source = low.cast(src, working)
    return low.cast(_scatter(low, x, dim, index, source, combine, working, into), x.type)


_REDUCTIONS: Final[dict[str, tuple[CombineTwo, Callable[[Type], Any]]]] = {
    "sum": (added, lambda t: 0),
    "mean": (added, lambda t: 0),
    "prod": (multiplied, lambda t: 1),
    "amax": (_better(Op.GT, Op.OR), lambda t: _extreme(t, -1)),
    "amin": (_better(Op.LT, Op.AND), lambda t: _extreme(t, 1)),
}


def _extreme(t: Type, sign: int) -> Any:
    if t is Type.BOOL:
        return sign > 0
    if t in INTEGER:
        return largest(t) if sign > 0 else smallest(t)
    return sign * math.inf


@lowers("aten.scatter_reduce.two", shape=_scatter_shape, writes_target=True)
def scatter_reduce(
    low: Lowering,
    x: IndexedTensor,
    dim: int,
    index: IndexedTensor,
    src: IndexedTensor,
    reduce: str,
    *,
    include_self: bool = True,
) -> IndexedTensor:
    """Without `include_self`, places that get updates begin with the identity of the reduction,
    which a scatter of its own puts there; others keep the elements of x."""
    combine, first = _REDUCTIONS[reduce]
    if reduce == "mean" and x.type is Type.BOOL:
        raise NotLowered("a mean of bools")
    index = stored(low, index, 2)
    if reduce == "mean" or not include_self:  # in several steps
        low.target = None
    into = None
    if not include_self:
        working = computed_in(x.type)
        blank = low.indexed(first(x.type), working)
        begun = _scatter(low, x, dim, index, blank, None, working).memory
        assert begun is not None
        into = begun
    result = _accumulated(low, x, dim, index, src, combine, into)
    return _mean(low, x, result, dim, index, src, include_self) if reduce == "mean" else result


def _mean(
    low: Lowering,
    x: IndexedTensor,
    total: IndexedTensor,
    dim: int,
    index: IndexedTensor,
    src: IndexedTensor,
    include_self: bool,
) -> IndexedTensor:
    """The totals divided by how many elements each place got. These are counted by a scatter of
    ones, and as eager PyTorch does, in the type of the tensor."""
    t, working = x.type, computed_in(x.type)
    # How many elements each place is the mean of: its own, if that counts, and all that went there.
    counts = _everywhere(low, x.sizes, int(include_self), working)
    counts = low.cast(_scatter(low, counts, dim, index, low.indexed(1, working), added, working), t)

    def divided(b: LoopBody, sum: LoopValue, count: LoopValue) -> LoopValue:
        count = b.cast(count, working)
        empty = b(Op.EQ, count, b.cast(b.constant(0, Type.I64), working))
        count = b(Op.SELECT, empty, b.cast(b.constant(1, Type.I64), working), count)
        op = Op.DIV if working in FLOAT else Op.FLOOR_DIV
        return b.cast(b(op, b.cast(sum, working), count), t)

    return low.map(divided, t, total, counts)


def _everywhere(low: Lowering, sizes: tuple[Expr, ...], number: int, t: Type) -> IndexedTensor:
    scalar = low.indexed(number, t)
    return IndexedTensor(sizes, t, lambda b, index: scalar.at(b, ()), 0)


# --------------------------------------------------------------------------------------------------
# An index for each slice


def _slices(
    low: Lowering,
    x: IndexedTensor,
    dim: int,
    index: IndexedTensor,
    source: IndexedTensor | None,
    value: IndexedTensor,
    combine: CombineTwo | None = None,
    type: Type | None = None,
    wraps: bool = False,
) -> IndexedTensor:
    """x with slices along `dim` updated from those of the source (None: from the number `value`),
    at the places that the vector `index` says."""
    usual(x.type)
    flat, dim = not x.sizes, normal_dim(dim, len(x.sizes))
    target, chosen = _along(x), _along(index)
    new = None if source is None else _along(source)
    which = places_in(low, chosen, target.sizes[dim], wraps, (type or x.type) is x.type)

    def at(b: LoopBody, place: Index) -> Update:
        mixed = [*place[:dim], which(b, (place[dim],)), *place[dim + 1 :]]
        target_place, inside = place_of(low, b, target, mixed, wraps)
        element = value.at(b, ()) if new is None else new.at(b, place)
        return Update(() if flat else target_place, element, inside)

    # As many slices as there are indices, each as large as those of x.
    sizes = [chosen.sizes[0] if d == dim else size for d, size in enumerate(target.sizes)]
    if new is not None and (
        len(new.sizes) != len(sizes)
        or not all(low.known(eq(n, m)) for n, m in zip(sizes, new.sizes, strict=True))
    ):
        raise NotLowered("slices of other sizes, which may be an error")
    rows = [d for d in range(len(sizes)) if d != dim]
    return scattered(low, x, sizes, rows, at, combine, type)


def _index_add_shape(
    op: Overload, args: Args, kwargs: Kwargs, device: torch.device
) -> Recipe | None:
    t, dim, index, source = args
    alike = source.dtype is t.dtype and source.dim() == t.dim() > 0 and index.dim() == 1
    if not alike or index.dtype is not torch.int64 or not -t.dim() <= dim < t.dim():
        return None
    expected = list(t.size())
    expected[dim] = index.size(0)
    if not shapes.same(source.size(), expected):
        return None
    return Same(op.written[0]) if op.written else dense(t.size(), t.dtype, device)


@lowers("aten.index_add.default", shape=_index_add_shape, writes_target=True)
def index_add(
    low: Lowering,
    x: IndexedTensor,
    dim: int,
    index: IndexedTensor,
    source: IndexedTensor,
    *,
    alpha: Number = 1,
) -> IndexedTensor:
    """`x[index[i]] += alpha * source[i]`, slice by slice along `dim`. Eager PyTorch does it in one
    of three ways, by rank, dimension and alpha, which differ in where they round."""
    index_tensor(index)
    t, rank = x.type, len(x.sizes)
    if source.type is not t or not isinstance(alpha, int | float):
        raise NotLowered("a sum of several types, or with an unknown factor")
    if len(source.sizes) != rank:
        raise NotLowered("a number, which is an error")
    check_fits(alpha, t)
    dim, plain = normal_dim(dim, rank), alpha == 1
    if t is Type.BOOL and not plain:
        raise NotLowered("multiples of bools")
    # Here halves are added up in f32, and rounded at the end; below they are after each addition.
    if rank > 1 and plain and dim in (0, rank - 1) and index.type is Type.I64:
        wide = computed_in(t)
        source = low.cast(source, wide)
        return low.cast(_slices(low, x, dim, index, source, source, added, wide), t)
    if plain:
        return _slices(low, x, dim, index, source, source, added)
    if rank > 1 and t in HALF:
        raise NotLowered("multiples of halves")
    if rank > 1:
        return _slices(low, x, dim, index, source, source, _multiple_added(alpha))
    scaled = low.map(lambda b, v: multiplied(b, v, _constant(b, alpha, t)), t, source)
    return _slices(low, x, dim, index, scaled, scaled, added)


def _multiple_added(alpha: int | float) -> CombineTwo:
    def combine(b: LoopBody, old: LoopValue, new: LoopValue) -> LoopValue:
        factor = _constant(b, alpha, old.type)
        if old.type in FLOAT:
            return b(Op.FMA, new, factor, old)
        return b(Op.ADD, old, b(Op.MUL, new, factor))

    return combine


def _constant(b: LoopBody, number: int | float, t: Type) -> LoopValue:
    return b.constant(float(number) if t.kind == "float" else int(number), t)


@lowers("aten.index_copy.default", writes_target=True)
def index_copy(
    low: Lowering, x: IndexedTensor, dim: int, index: IndexedTensor, source: IndexedTensor
) -> IndexedTensor:
    if index.type is not Type.I64 or source.type is not x.type:
        raise NotLowered("of other types")
    return _slices(low, x, dim, index, source, source)


@lowers("aten.index_fill.int_Scalar", "aten.index_fill.int_Tensor", writes_target=True)
def index_fill(
    low: Lowering, x: IndexedTensor, dim: int, index: IndexedTensor, value: IndexedTensor | Number
) -> IndexedTensor:
    if index.type is not Type.I64:
        raise NotLowered(f"indices of type {index.type}")
    if isinstance(value, IndexedTensor):
        if value.type is not x.type:
            raise NotLowered("a number of another type")
        number = value
    else:
        number = _number(low, value, x.type)
    return _slices(low, x, dim, index, None, number, wraps=True)


# --------------------------------------------------------------------------------------------------
# Index tensors for some dimensions


def _index_put_shape(
    op: Overload, args: Args, kwargs: Kwargs, device: torch.device
) -> Recipe | None:
    t, indices, values = args[:3]
    check_masks(t, indices)
    place = index_shape(op, (t, indices), {}, device)
    if type(place) is not New or values.dtype is not t.dtype:
        return None
    if not shapes.same(broadcast([values.size(), place.sizes]), place.sizes):
        return None
    if op.written:
        return Same(op.written[0]) if is_plain(t) else None
    strides = like_strides(t)
    return None if strides is None else new(t.size(), strides, t.dtype, device)


@lowers(
    "aten.index_put.default",
    "aten._unsafe_index_put.default",
    writes_target=True,
    mixed_devices=True,
)
def index_put(
    low: Lowering,
    x: IndexedTensor,
    indices: Sequence[IndexedTensor | None],
    values: IndexedTensor,
    accumulate: bool = False,
    unsafe: bool = False,
) -> IndexedTensor:
    """The elements that `x[indices]` would give, replaced or added to."""
    usual(x.type)
    if values.type is not x.type:
        raise NotLowered("of several types")
    masks = [index for index in indices if index is not None and index.type is Type.BOOL]
    if masks:
        return _where_true(low, x, indices, values, accumulate)
    chosen = picked(low, x, indices)
    first, last = chosen.first, chosen.last
    # The sizes of `x[indices]`, which `values` is broadcast to.
    rest = [size for size, index in zip(x.sizes, chosen.indices, strict=True) if index is None]
    sizes = [*rest[:first], *chosen.common, *rest[first:]]
    require_checked_indices(sizes, *chosen.tensors.values())
    surely_spread(low, values.sizes, sizes)
    which = {
        d: places_in(low, index, x.sizes[d], True, True) for d, index in chosen.tensors.items()
    }

    def at(b: LoopBody, place: Index) -> Update:
        mixed = chosen.mixed(low, place, lambda d, here: which[d](b, here))
        target_place, inside = place_of(low, b, x, mixed, wraps=True)
        return Update(target_place, values.at(b, spread_index(low, values.sizes, place)), inside)

    rows = [d for d in range(len(sizes)) if not first <= d < last]
    return scattered(low, x, sizes, rows, at, added if accumulate else None)


def _where_true(
    low: Lowering,
    x: IndexedTensor,
    indices: Sequence[IndexedTensor | None],
    values: IndexedTensor,
    accumulate: bool,
) -> IndexedTensor:
    """`x[mask] = values`, where `values` has one element for all places of the mask: a choice for
    each element of x, without any scatter."""
    (mask, *others), first = indices, 0
    while mask is None:
        (mask, *others), first = others, first + 1
    if any(index is not None for index in others):
        raise NotLowered("a mask and other indices")
    rank, mask_rank = len(x.sizes), len(mask.sizes)
    if not mask_rank or mask.sizes != x.sizes[first : first + mask_rank]:
        raise NotLowered("a mask of other sizes")
    # Elements that are chosen stand in one dimension, in the place of those of the mask.
    along = len(values.sizes) - (rank - mask_rank + 1) + first
    if 0 <= along < len(values.sizes) and not is_one(low, values.sizes[along]):
        raise NotLowered("elements for a mask")
    surely_spread(low, values.sizes, (*x.sizes[:first], ONE, *x.sizes[first + mask_rank :]))

    def at(b: LoopBody, place: Index) -> LoopValue:
        old, selected = x.at(b, place), mask.at(b, place[first : first + mask_rank])
        shape = (*place[:first], ZERO, *place[first + mask_rank :])
        new = values.at(b, spread_index(low, values.sizes, shape))
        return b(Op.SELECT, selected, added(b, old, new) if accumulate else new, old)

    return reading(low, x.sizes, x.type, at, x, mask, values)


# --------------------------------------------------------------------------------------------------
# The elements of a tensor in order


@lowers("aten.masked_scatter.default")
def masked_scatter(
    low: Lowering, x: IndexedTensor, mask: IndexedTensor, source: IndexedTensor
) -> IndexedTensor:
    """The n-th place where the mask is true gets the n-th element of the source. The n comes from a
    running count of the mask: a scan over all elements in order."""
    if mask.type is not Type.BOOL or source.type is not usual(x.type):
        raise NotLowered("of several types")
    sizes = low.result.sizes
    if product_of(sizes) is ONE:
        raise NotLowered("one element")  # no loop to run along
    # The mask and x are broadcast to the result, whose elements are numbered in order.
    flags, old = _in_line(low, mask, sizes), _in_line(low, x, sizes)
    new, total, last = _with_a_last(low, source)

    def step(b: LoopBody, state: tuple[LoopValue, ...], index: Index) -> tuple[LoopValue, ...]:
        return (b(Op.ADD, state[0], b.cast(flags(b, index[0]), Type.I64)),)

    def then(b: LoopBody, state: tuple[LoopValue, ...], index: Index) -> LoopValue:
        flag = flags(b, index[0])
        # The state counts this element already; its number is that of those before.
        number = b(Op.SUB, state[0], b.cast(flag, Type.I64))
        b.fault(b(Op.GT, state[0], b.iota(total)))
        place = b.as_index(b(Op.MINIMUM, number, b.iota(last)))
        return _as_bits(b, flag, new(b, place), old(b, index[0]))

    scan = Scan(lambda b: (b.constant(0, Type.I64),), step, in_each(Op.ADD))
    definition = low.define((product_of(sizes),), x.type, Scanned(0, scan, then))
    return in_memory(definition, sizes, contiguous(sizes))


def _with_a_last(
    low: Lowering, x: IndexedTensor
) -> tuple[Callable[[LoopBody, Expr], LoopValue], Expr, Expr]:
    """x as one line, the number of its elements, and the last place. If x may be empty, an element
    is put behind them: there is always one to load, and a load without a mask is faster."""
    line, total = _in_line(low, x, x.sizes), product_of(x.sizes)
    if all(low.known(ge(size, 1)) for size in x.sizes):
        return line, total, total - 1

    def at(b: LoopBody, index: Index) -> LoopValue:
        return line(b, index[0], compared(b, Op.LT, index[0], total))

    padded = low.realize(low.generate((total + 1,), x.type, at))
    return _in_line(low, padded, padded.sizes), total, total


def _as_bits(b: LoopBody, condition: LoopValue, x: LoopValue, y: LoopValue) -> LoopValue:
    """`x` if the condition holds, else `y`, chosen as integers: for these it is one instruction."""
    if x.type is Type.BOOL:
        return b(Op.SELECT, condition, x, y)
    bits = {t.bits: t for t in SIGNED}[x.type.bits]
    chosen = b(Op.SELECT, condition, b.bitcast(x, bits), b.bitcast(y, bits))
    return b.bitcast(chosen, x.type)


def _in_line(low: Lowering, x: IndexedTensor, sizes: tuple[Expr, ...]) -> Callable[..., LoopValue]:
    """x, broadcast to these sizes and contiguous in memory: a function from the number of an
    element to its value."""
    memory = x.memory
    if memory is None or x.sizes != sizes or memory.strides != contiguous(sizes):
        surely_spread(low, x.sizes, sizes)
        spread = IndexedTensor(sizes, x.type, lambda b, at: x.at(b, spread_index(low, x.sizes, at)))
        memory = low.realize(spread, contiguous(sizes)).memory
        assert memory is not None
    of, offset = memory.of, memory.offset
    return lambda b, i, mask=None: b.read(of, offset + i, mask)


register(
    "aten.scatter_.src",
    "aten.scatter_.value",
    "aten.scatter_add_.default",
    "aten.scatter_reduce_.two",
    shape=_scatter_shape,
)
register("aten.index_add_.default", shape=_index_add_shape)
register("aten.index_put.default", "aten.index_put_.default", shape=_index_put_shape)
register("aten.index_put_.default", "aten._index_put_impl_.default", mixed_devices=True)
