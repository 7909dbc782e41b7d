"""Elements at places that are in other tensors, and writes to part of a tensor.

The one idea: a lookup reads the index tensor, makes its element an index and reads there; a write
to a part chooses at each place between the new and the old. (Writes whose places are data, and
those to a part of an input, run through the new elements instead: `scattering`.)
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pliant.loop.define import Index, LoopBody
from pliant.loop.ir import LoopValue, Op
from pliant.loop.types import Type
from pliant.ops.indexed_tensor import IndexedTensor
from pliant.ops.lowering import Lowering, NotLowered, Number, lowers
from pliant.ops.places import (
    all_of,
    compared,
    divisor,
    index_tensor,
    looks_at_each,
    normal_dim,
    picked,
    position,
    read_where,
    reading,
    same_rank,
    spread_index,
    stored,
    surely_spread,
    zero,
)
from pliant.sym.cond import ge, lt
from pliant.sym.expr import ONE, ZERO, Expr, as_expr, if_else, maximum, minimum, product_of

# --------------------------------------------------------------------------------------------------
# Lookups


def looked_up(
    low: Lowering, b: LoopBody, x: IndexedTensor, at: Sequence[Expr | LoopValue], wraps: bool
) -> LoopValue:
    """The element of x at an index some of which are values."""
    places: list[Expr] = []
    conditions: list[LoopValue] = []
    for one, size in zip(at, x.sizes, strict=True):
        if isinstance(one, Expr):
            places.append(one)
            continue
        place, inside = position(low, b, one, size, wraps)
        places.append(place)
        if inside is not None:
            conditions.append(inside)
    return read_where(b, x, tuple(places), all_of(b, conditions), lambda: zero(b, x.type))


def _replaced(index: Sequence[Any], dim: int, by: Any) -> list[Any]:
    return [*index[:dim], by, *index[dim + 1 :]]


def _with_dims(x: IndexedTensor) -> IndexedTensor:
    """A tensor without dimensions as one with a dimension of size 1."""
    if x.sizes:
        return x
    return IndexedTensor((ONE,), x.type, lambda b, index: x.at(b, ()), x.cost, x.reads)


@lowers("aten.gather.default")
def gather(
    low: Lowering, x: IndexedTensor, dim: int, index: IndexedTensor, sparse_grad: bool = False
) -> IndexedTensor:
    index_tensor(index)
    same_rank(x, index)
    dim = normal_dim(dim, len(x.sizes))
    source, chosen, flat = _with_dims(stored(low, x, 2)), _with_dims(index), not index.sizes

    def at(b: LoopBody, place: Index) -> LoopValue:
        place = (ZERO,) if flat else place
        return looked_up(low, b, source, _replaced(place, dim, chosen.at(b, place)), wraps=False)

    return reading(low, low.result.sizes, x.type, at, x, index)


@lowers("aten.take_along_dim.default")
def take_along_dim(
    low: Lowering, x: IndexedTensor, indices: IndexedTensor, dim: int | None = None
) -> IndexedTensor:
    index_tensor(indices)
    if dim is None or not x.sizes or len(x.sizes) != len(indices.sizes):
        raise NotLowered("indices into all elements")
    dim, source = normal_dim(dim, len(x.sizes)), stored(low, x, 2)
    surely_spread(low, indices.sizes, low.result.sizes)
    surely_spread(low, (*x.sizes[:dim], ONE, *x.sizes[dim + 1 :]), low.result.sizes)

    def at(b: LoopBody, place: Index) -> LoopValue:
        chosen = indices.at(b, spread_index(low, indices.sizes, place))
        mine = spread_index(low, source.sizes, place)
        return looked_up(low, b, source, _replaced(mine, dim, chosen), wraps=False)

    return reading(low, low.result.sizes, x.type, at, x, indices)


@lowers("aten.index_select.default")
def index_select(low: Lowering, x: IndexedTensor, dim: int, index: IndexedTensor) -> IndexedTensor:
    index_tensor(index)
    if len(index.sizes) > 1 or (not x.sizes and any(size is not ONE for size in index.sizes)):
        raise NotLowered("other than a vector of indices, or one index")  # its kernel refuses
    looks_at_each(low.result.sizes, index)
    rank, source, chosen = len(x.sizes), _with_dims(stored(low, x, 2)), _with_dims(index)
    dim = normal_dim(dim, rank)

    def at(b: LoopBody, place: Index) -> LoopValue:
        place = place or (ZERO,)
        found = chosen.at(b, (place[dim],))
        return looked_up(low, b, source, _replaced(place, dim, found), wraps=False)

    return reading(low, low.result.sizes, x.type, at, x, index)


@lowers("aten.embedding.default")
def embedding(
    low: Lowering,
    weight: IndexedTensor,
    indices: IndexedTensor,
    padding_idx: Number = -1,
    scale_grad_by_freq: bool = False,
    sparse: bool = False,
) -> IndexedTensor:
    index_tensor(indices)
    looks_at_each(low.result.sizes, indices)
    rank, source = len(indices.sizes), stored(low, weight, 2)

    def at(b: LoopBody, place: Index) -> LoopValue:
        row = indices.at(b, place[:rank])
        return looked_up(low, b, source, [row, *place[rank:]], wraps=False)

    return reading(low, low.result.sizes, weight.type, at, weight, indices)


@lowers("aten.take.default")
def take(low: Lowering, x: IndexedTensor, index: IndexedTensor) -> IndexedTensor:
    if index.type is not Type.I64:
        raise NotLowered(f"indices of type {index.type}")
    source = stored(low, x, 2)

    def at(b: LoopBody, place: Index) -> LoopValue:
        total = product_of(source.sizes)
        flat, inside = position(low, b, index.at(b, place), total, wraps=True)
        return read_where(b, source, unflattened(flat, source.sizes), inside, lambda: none(b))

    def none(b: LoopBody) -> LoopValue:
        return zero(b, x.type)

    return reading(low, low.result.sizes, x.type, at, x, index)


def unflattened(flat: Expr, sizes: Sequence[Expr]) -> Index:
    """The index of the element with this number."""
    found: list[Expr] = []
    for size in reversed(sizes[1:]):
        found.append(flat % divisor(size))
        flat = flat // divisor(size)
    return (*([flat] if sizes else []), *reversed(found))


@lowers("aten.index.Tensor", "aten._unsafe_index.Tensor")
def index(
    low: Lowering, x: IndexedTensor, indices: Sequence[IndexedTensor | None]
) -> IndexedTensor:
    found = picked(low, x, indices)
    looks_at_each(low.result.sizes, *found.tensors.values())
    chosen, source = found.tensors, stored(low, x, 2)

    def at(b: LoopBody, place: Index) -> LoopValue:
        mixed = found.mixed(low, place, lambda d, here: chosen[d].at(b, here))
        return looked_up(low, b, source, mixed, wraps=True)

    return reading(low, low.result.sizes, x.type, at, x, *chosen.values())


# --------------------------------------------------------------------------------------------------
# Writes to a part


@lowers("aten.select_scatter.default")
def select_scatter(
    low: Lowering, x: IndexedTensor, src: IndexedTensor, dim: int, index: Number
) -> IndexedTensor:
    dim, source = normal_dim(dim, len(x.sizes)), low.cast(src, x.type)
    place = _wrapped(as_index(index), x.sizes[dim])

    def at(b: LoopBody, at: Index) -> LoopValue:
        here = compared(b, Op.EQ, at[dim], place)
        new = (*at[:dim], *at[dim + 1 :])
        return read_where(b, source, new, here, lambda: x.at(b, at))

    return reading(low, x.sizes, x.type, at, x, source)


@lowers("aten.slice_scatter.default")
def slice_scatter(
    low: Lowering,
    x: IndexedTensor,
    src: IndexedTensor,
    dim: int = 0,
    start: Number | None = None,
    end: Number | None = None,
    step: Number = 1,
) -> IndexedTensor:
    dim, by = normal_dim(dim, len(x.sizes)), as_index(step)
    source, size = low.cast(src, x.type), x.sizes[dim]
    first = ZERO if start is None else _bounded(low, as_index(start), size)
    stop = size if end is None else _bounded(low, as_index(end), size)

    def at(b: LoopBody, place: Index) -> LoopValue:
        i = place[dim] - first
        conditions = [] if first is ZERO else [compared(b, Op.GE, i, 0)]
        conditions += [] if stop is size else [compared(b, Op.LT, place[dim], stop)]
        conditions += [] if by is ONE else [compared(b, Op.EQ, i % by, 0)]
        new = (*place[:dim], i // by, *place[dim + 1 :])
        return read_where(b, source, new, all_of(b, conditions), lambda: x.at(b, place))

    return reading(low, x.sizes, x.type, at, x, source)


@lowers("aten.diagonal_scatter.default")
def diagonal_scatter(
    low: Lowering,
    x: IndexedTensor,
    src: IndexedTensor,
    offset: int = 0,
    dim1: int = 0,
    dim2: int = 1,
) -> IndexedTensor:
    rank, source = len(x.sizes), low.cast(src, x.type)
    row, column = normal_dim(dim1, rank), normal_dim(dim2, rank)
    others = [d for d in range(rank) if d not in (row, column)]

    def at(b: LoopBody, place: Index) -> LoopValue:
        here = compared(b, Op.EQ, place[column] - place[row], offset)
        along = place[row] if offset >= 0 else place[column]
        new = (*[place[d] for d in others], along)
        return read_where(b, source, new, here, lambda: x.at(b, place))

    return reading(low, x.sizes, x.type, at, x, source)


def as_index(x: Number) -> Expr:
    """A number of the program that is an integer."""
    if isinstance(x, int | Expr):
        return as_expr(x)
    raise NotLowered(f"{x} as an index")


def _wrapped(i: Expr, size: Expr) -> Expr:
    """Below 0, counted from the end."""
    return if_else(lt(i, 0), i + size, i)


def _bounded(low: Lowering, i: Expr, size: Expr) -> Expr:
    """An end of a slice, as Python takes it."""
    if low.known(ge(i, size)):
        return size
    return low.simplify(minimum(maximum(_wrapped(i, size), ZERO), size))
