"""Elements at places that are in other tensors, and writes to part of a tensor.

The one idea: a lookup reads the index tensor, makes its element an index and reads there; a write
to a part chooses at each place between the new and the old. (Writes whose places are data, and
those to a part of an input, run through the new elements instead: `scattering`.)
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from typing import Any

import torch

from pliant.base.operators import aten_names, register, register_functions
from pliant.fake import meta, selection, shapes
from pliant.fake.layout import (
    broadcast,
    contiguous_strides,
    has_ones,
    index_strides,
    is_symbolic,
    like_strides,
    permuted_strides,
    spread,
)
from pliant.fake.order import fits, hint, is_contiguous, is_one, need, sure
from pliant.fake.overload import Overload
from pliant.fake.raising import never
from pliant.fake.results import Recipe
from pliant.fake.rule import Args, Kwargs, ShapeRule, dense, new
from pliant.fake.tensor import Fake
from pliant.fake.traced import by_marks, in_rows
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
    normal_dim,
    picked,
    position,
    read_where,
    reading,
    require_checked_indices,
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
    """The element of x at an index whose parts are expressions, or values from index tensors."""
    # The parts that come from index tensors are tested; all tests together are the mask of the
    # load.
    places: list[Expr] = []
    conditions: list[LoopValue] = []
    for item, size in zip(at, x.sizes, strict=True):
        if isinstance(item, Expr):
            places.append(item)
            continue
        place, inside = position(low, b, item, size, wraps)
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


def _gather_shape(op: Overload, args: Args, kwargs: Kwargs, device: torch.device) -> Recipe | None:
    t, dim, index = args[:3]
    return dense(index.size(), t.dtype, device) if picks(t, dim, index) else None


def picks(t: Fake, dim: int, index: Fake) -> bool:
    """Whether `index` fits into `t` but for one dimension."""
    if index.dtype is not torch.int64 or not t.dim() or t.dim() != index.dim():
        return False
    if not -t.dim() <= dim < t.dim() or t.is_conj() or t.is_neg():
        return False
    pairs = enumerate(zip(index.size(), t.size(), strict=True))
    return all(fits(a <= b) for d, (a, b) in pairs if d != dim % t.dim())


@lowers("aten.gather.default", shape=_gather_shape)
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


def _symbolic_take_along_dim(t: torch.Tensor, indices: torch.Tensor, dim: Any = None) -> Any:
    if type(dim) is not int or t.dim() != indices.dim():
        return NotImplemented
    dim %= max(t.dim(), 1)
    for d in range(t.dim()):
        if d != dim:
            if hint(t.size(d)) != hint(indices.size(d)):
                return NotImplemented  # broadcast
            need(t.size(d) == indices.size(d))
    return torch.gather(t, dim, indices)


def _differentiable_take_along_dim(t: Any, indices: Any, dim: Any = None) -> Any:
    """`take_along_dim` decomposed as in PyTorch's C++, which takes no symbolic sizes."""
    if type(dim) is not int or t.dim() != indices.dim() or not t.dim():
        return NotImplemented
    dim %= t.dim()
    if not all(d == dim or sure(t.size(d) == indices.size(d)) for d in range(t.dim())):
        return NotImplemented
    return torch.gather(t, dim, torch.where(indices < 0, indices + t.size(dim), indices))


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
        own_place = spread_index(low, source.sizes, place)
        return looked_up(low, b, source, _replaced(own_place, dim, chosen), wraps=True)

    return reading(low, low.result.sizes, x.type, at, x, indices)


@lowers("aten.index_select.default")
def index_select(low: Lowering, x: IndexedTensor, dim: int, index: IndexedTensor) -> IndexedTensor:
    index_tensor(index)
    if len(index.sizes) > 1 or (not x.sizes and any(size is not ONE for size in index.sizes)):
        raise NotLowered("other than a vector of indices, or one index")  # its kernel refuses
    require_checked_indices(low.result.sizes, index)
    # Which element is read is in the data, so nothing of how x is computed could be shared.
    rank, source, chosen = len(x.sizes), _with_dims(stored(low, x, 2)), _with_dims(index)
    dim = normal_dim(dim, rank)

    def at(b: LoopBody, place: Index) -> LoopValue:
        place = place or (ZERO,)
        chosen_place = chosen.at(b, (place[dim],))
        return looked_up(low, b, source, _replaced(place, dim, chosen_place), wraps=False)

    return reading(low, low.result.sizes, x.type, at, x, index)


def _embedding_shape(
    op: Overload, args: Args, kwargs: Kwargs, device: torch.device
) -> Recipe | None:
    weight, indices = args[:2]
    if weight.dim() != 2 or indices.dtype not in (torch.int64, torch.int32):
        return None
    return dense((*indices.shape, weight.size(1)), weight.dtype, device)


@lowers("aten.embedding.default", shape=_embedding_shape, fresh=True)
def embedding(
    low: Lowering,
    weight: IndexedTensor,
    indices: IndexedTensor,
    padding_idx: Number = -1,
    scale_grad_by_freq: bool = False,
    sparse: bool = False,
) -> IndexedTensor:
    index_tensor(indices)
    require_checked_indices(low.result.sizes, indices)
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
    """The index of element number `flat` in the order of memory of a contiguous tensor."""
    index: list[Expr] = []
    for size in reversed(sizes[1:]):
        index.append(flat % divisor(size))
        flat = flat // divisor(size)
    return (*([flat] if sizes else []), *reversed(index))


def _index_by_mask(args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
    return any(t is not None and t.dtype in meta.MASKS for t in args[1])


def _need_something_to_take(sizes: Sequence[Any], picked: Sequence[Any]) -> None:
    """Demand what eager PyTorch tests even where the result has no elements: no dimension is empty
    that something is taken from. (What comes from a mask is there.)"""
    for size in sizes:
        if type(size) is int or None in [hint(n) for n in (size, *picked)]:
            continue
        condition = size != 0
        for number in picked:
            condition = condition | (number == 0)
        need(condition, "an index into an empty dimension")


def index_shape(op: Overload, args: Args, kwargs: Kwargs, device: torch.device) -> Recipe | None:
    """The shape rule of indexing by integers. The strides of eager PyTorch's result depend on those
    of the indices, which its meta kernel doesn't look at."""
    t, indices = args
    at = [d for d, index in enumerate(indices) if index is not None]
    tensors = [indices[d] for d in at]
    plain = all(i.dtype in (torch.int64, torch.int32) for i in tensors)
    picked = broadcast([i.size() for i in tensors]) if at and plain else None
    if picked is None or len(indices) > t.dim():
        return None
    if any(type(t.size(d)) is int and t.size(d) == 0 for d in at):
        return None  # there is nothing to take
    _need_something_to_take([t.size(d) for d in at], picked)
    # NumPy's rule: indices that stand together are replaced where they stand, others come first.
    adjacent = at[-1] - at[0] + 1 == len(at)
    other_dims = [d for d in range(t.dim()) if d not in at]
    first = at[0] if adjacent else 0  # how many dimensions come before what is picked
    sizes = (
        *(t.size(d) for d in other_dims[:first]),
        *picked,
        *(t.size(d) for d in other_dims[first:]),
    )
    own = [t.stride(d) for d in other_dims]
    source = [*own[:first], *[0] * len(picked), *own[first:]]
    around = (first, len(other_dims) - first)
    plain = adjacent and all(map(is_contiguous, (t, *tensors))) and not has_ones(sizes)
    usual = contiguous_strides(sizes) if plain and is_symbolic(sizes) else None
    strides = index_strides(source, tensors, sizes, around, usual)
    if strides is None:
        shown = ([*[0] * first, *spread(i, picked), *[0] * around[1]] for i in tensors)
        strides = permuted_strides([source, *shown], sizes)
    return new(sizes, strides, t.dtype, device)


@lowers("aten.index.Tensor", "aten._unsafe_index.Tensor", mixed_devices=True)
def index(
    low: Lowering, x: IndexedTensor, indices: Sequence[IndexedTensor | None]
) -> IndexedTensor:
    selection = picked(low, x, indices)
    require_checked_indices(low.result.sizes, *selection.tensors.values())
    chosen, source = selection.tensors, stored(low, x, 2)

    def at(b: LoopBody, place: Index) -> LoopValue:
        mixed = selection.mixed(low, place, lambda d, here: chosen[d].at(b, here))
        return looked_up(low, b, source, mixed, wraps=True)

    return reading(low, low.result.sizes, x.type, at, x, *chosen.values())


# --------------------------------------------------------------------------------------------------
# Writes to a part


def _part_shape(view: Callable[..., Any]) -> ShapeRule:
    """The shape rule of an operator that writes to the part that `view` shows. It checks that the
    source fits, which meta kernels don't."""

    def rule(op: Overload, args: Args, kwargs: Kwargs, device: torch.device) -> Recipe | None:
        part = view(args[0], *args[2:], **kwargs)
        if not shapes.same(part.size(), args[1].size()):
            raise RuntimeError("expected src to have a size equal to the slice of self")
        # Of what overlaps itself in this way, eager PyTorch writes to a contiguous copy.
        layout = zip(args[0].size(), args[0].stride())
        repeated = [n for n, s in layout if type(s) is int and s == 0]
        expanded = any(n > 1 if type(n) is int else not is_one(n) for n in repeated)
        strides = like_strides(args[0]) if expanded else None
        return None if strides is None else new(args[0].size(), strides, args[0].dtype, device)

    return rule


@lowers("aten.select_scatter.default", shape=_part_shape(torch.Tensor.select))
def select_scatter(
    low: Lowering, x: IndexedTensor, src: IndexedTensor, dim: int, index: Number
) -> IndexedTensor:
    dim, source = normal_dim(dim, len(x.sizes)), low.cast(src, x.type)
    place = _wrapped(as_index(index), x.sizes[dim])

    def at(b: LoopBody, at: Index) -> LoopValue:
        # One comparison for each element of x: cheap enough to fuse, unlike a copy and a write.
        selected = compared(b, Op.EQ, at[dim], place)
        new = (*at[:dim], *at[dim + 1 :])
        return read_where(b, source, new, selected, lambda: x.at(b, at))

    return reading(low, x.sizes, x.type, at, x, source)


@lowers("aten.slice_scatter.default", shape=_part_shape(torch.ops.aten.slice.Tensor))
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
        # Which element of the slice this is, if it is one: from `first` on, below `stop`, and a
        # multiple of the step away.
        i = place[dim] - first
        conditions = [] if first is ZERO else [compared(b, Op.GE, i, 0)]
        conditions += [] if stop is size else [compared(b, Op.LT, place[dim], stop)]
        conditions += [] if by is ONE else [compared(b, Op.EQ, i % by, 0)]
        new = (*place[:dim], i // by, *place[dim + 1 :])
        return read_where(b, source, new, all_of(b, conditions), lambda: x.at(b, place))

    return reading(low, x.sizes, x.type, at, x, source)


@lowers("aten.diagonal_scatter.default", shape=_part_shape(torch.diagonal))
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
        on_diagonal = compared(b, Op.EQ, place[column] - place[row], offset)
        along = place[row] if offset >= 0 else place[column]
        new = (*[place[d] for d in others], along)
        return read_where(b, source, new, on_diagonal, lambda: x.at(b, place))

    return reading(low, x.sizes, x.type, at, x, source)


def as_index(x: Number) -> Expr:
    """A number of the program that is an integer."""
    if isinstance(x, int | Expr):
        return as_expr(x)
    raise NotLowered(f"{x} as an index")


def _wrapped(i: Expr, size: Expr) -> Expr:
    """An index that counts from the end if it is negative, as one that doesn't."""
    return if_else(lt(i, 0), i + size, i)


def _bounded(low: Lowering, i: Expr, size: Expr) -> Expr:
    """A bound of a slice, clamped to 0 and the size as Python does."""
    if low.known(ge(i, size)):
        return size
    return low.simplify(minimum(maximum(_wrapped(i, size), ZERO), size))


register("aten.index.Tensor", shape=index_shape, needs_data=_index_by_mask)
register_functions(
    (torch.take_along_dim, torch.Tensor.take_along_dim),
    symbolic=_symbolic_take_along_dim,
    differentiable=_differentiable_take_along_dim,
)


def _embedding_bag_meta(
    func: Any,
    weight: torch.Tensor,
    indices: torch.Tensor,
    offsets: torch.Tensor,
    scale: bool = False,
    mode: int = 0,
    sparse: bool = False,
    per_sample: torch.Tensor | None = None,
    include_last: bool = False,
    padding_idx: int = -1,
) -> Any:
    rest = (scale, mode, sparse, per_sample, include_last, padding_idx)
    result = func(weight, indices, offsets, *rest)[0]
    summing, taking_max = mode == 0, mode == 2
    bags = offsets.size(0) - int(include_last)
    # A sum of rows that lie whole in memory needs no map from index to bag.
    plain_rows = weight.dtype in (torch.float32, torch.float16) and weight.stride(1) == 1
    plain_scale = per_sample is None or per_sample.stride(0) == 1
    direct = summing and plain_rows and plain_scale and padding_idx < 0
    bag_of_index = offsets.new_empty((0 if direct else indices.size(0),))
    bag_size = offsets.new_empty((bags,))
    at_max = offsets.new_empty((bags, weight.size(1)) if taking_max else (bags,))
    return result, bag_of_index, bag_size, at_max


register(
    "aten._embedding_bag.default",
    "aten._embedding_bag_forward_only.default",
    cpu_meta=_embedding_bag_meta,
)
register("aten.index_select.default", shape=by_marks(in_rows))
register(*aten_names("index_select.out take.out index_add.out index_copy.out"), strict_out=True)


def _with_selection(general: Callable[..., Any]) -> Callable[..., Any]:
    """Indexing by a key with symbolic numbers, whose values PyTorch would ask for: by `general`
    instead, which takes the key apart."""

    def chosen(tensor: Any, key: Any, *value: Any) -> Any:
        items = key if isinstance(key, tuple) else (key,)
        selects = any(isinstance(item, torch.SymInt) for item in items)
        selects = selects or (bool(value) and selection.has_unknown_slice(key))
        if not selects or not isinstance(tensor, torch.Tensor):
            return NotImplemented
        return general(tensor, key, *value)

    return chosen


register_functions((operator.getitem,), override=_with_selection(selection.get))
register_functions(
    (operator.setitem,),
    on_fakes=selection.put_in_slices,
    override=_with_selection(selection.put),
)


register(
    *aten_names("diagonal_scatter select_scatter slice_scatter as_strided_scatter"), raises=never
)

register(
    *("aten.select_scatter.default", "aten.slice_scatter.default"),
    *("aten.diagonal_scatter.default", "aten.as_strided_scatter.default"),
    keeps_overlap=True,
)
