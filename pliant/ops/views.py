"""Views: three rules for each, and what is known of the elements that it shows.

`view`: sizes, strides and offset, for a tensor with symbolic sizes. PyTorch's own view kernels ask
more questions than the answer needs (whether a size is 0 or 1, above all), and each would become a
guard. Where there is no rule, or arguments are unusual, they are asked.

`index_map`: for a tensor that is not in memory, from an index to the index in what it is a view of.
(A tensor that is in memory needs no such map: its views are other strides.)

`inverse`: what becomes of the whole when the view gets new values. A view that only arranges the
same elements anew is undone by the opposite view; one that shows some of them is put back among
the others by an operator of ATen.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import torch

from pliant.base.operators import record_of, register
from pliant.fake.order import hint, is_one, need, sure
from pliant.fake.views import ViewLayout, view_layout
from pliant.loop.define import Index, LoopBody, broadcast_index
from pliant.loop.ir import LoopValue
from pliant.ops.indexed_tensor import IndexedTensor
from pliant.ops.lowering import Lowering, NotLowered, lowers
from pliant.ops.reshaping import IndexMap, is_known_equal, reshape_inverse, reshape_map
from pliant.sym.expr import ONE, ZERO, Expr, as_expr

aten = torch.ops.aten


def view_of(
    name: str, x: IndexedTensor, sizes: tuple[Expr, ...], *args: Any, **kwargs: Any
) -> IndexedTensor:
    """A view of x with these sizes, as a map of the index by the operator's `index_map`. The name
    `op[2]` stands for the third of the views that `op` returns."""
    name, _, position = name.removesuffix("]").partition("[")
    record = record_of(name)
    rule = record.index_map
    if rule is not None and record.is_part:
        index_map = rule(int(position or 0), x, sizes, *args, **kwargs)
    elif rule is None or position:
        raise NotLowered(f"{name} of what is not in memory")
    else:
        index_map = rule(x, sizes, *args, **kwargs)

    def at(b: LoopBody, index: Index) -> LoopValue:
        return x.at(b, index_map(index))

    return IndexedTensor(sizes, x.type, at, x.cost, x.reads)


_ALL: Final = {"covers": True, "injective": True, "rearranges": True}
_PART: Final = {"is_part": True, "injective": True}

# --------------------------------------------------------------------------------------------------
# Dimensions in another order


def _dim(rank: int, dim: int) -> int:
    rank = max(rank, 1)
    if not -rank <= dim < rank:
        allowed = f"[{-rank}, {rank - 1}]"
        raise IndexError(
            f"Dimension out of range (expected to be in range of {allowed}, but got {dim})"
        )
    return dim if dim >= 0 else dim + rank


def _permute_layout(t: torch.Tensor, dims: Sequence[int]) -> ViewLayout:
    order = [_dim(t.dim(), d) for d in dims]
    sizes, strides = t.size(), t.stride()
    return ViewLayout(
        tuple(sizes[d] for d in order), tuple(strides[d] for d in order), t.storage_offset()
    )


def _reordered_layout(t: torch.Tensor, dims: Sequence[int]) -> ViewLayout | None:
    """The layout of `permute`; None unless each dimension is named exactly once."""
    order = sorted(_dim(t.dim(), d) for d in dims)
    return _permute_layout(t, dims) if order == list(range(t.dim())) else None


def _permute_map(x: IndexedTensor, sizes: tuple[Expr, ...], dims: Sequence[int]) -> IndexMap:
    rank = len(sizes)
    place = {d % rank: i for i, d in enumerate(dims)}
    return lambda index: tuple([index[place[d]] for d in range(rank)])


def _permute_inverse(rec: Any, parent: Any, new: Any, dims: Any) -> Any:
    rank = parent.dim()
    position = {d % rank: i for i, d in enumerate(dims)}
    return rec.dispatch(aten.permute.default, (new, [position[i] for i in range(rank)]), {})


register(
    "aten.permute.default",
    view=_reordered_layout,
    index_map=_permute_map,
    inverse=_permute_inverse,
    **_ALL,
)


def _transpose_layout(t: torch.Tensor, a: int, b: int) -> ViewLayout:
    order = list(range(t.dim()))
    if order:
        a, b = _dim(t.dim(), a), _dim(t.dim(), b)
        order[a], order[b] = order[b], order[a]
    return _permute_layout(t, order)


def _transpose_map(x: IndexedTensor, sizes: tuple[Expr, ...], a: int, b: int) -> IndexMap:
    dims = list(range(len(sizes)))
    if dims:
        dims[a], dims[b] = dims[b], dims[a]
    return _permute_map(x, sizes, dims) if dims else lambda index: index


def _transpose_inverse(rec: Any, parent: Any, new: Any, a: int, b: int) -> Any:
    return rec.dispatch(aten.transpose.int, (new, a, b), {})


register(
    "aten.transpose.int",
    view=_transpose_layout,
    index_map=_transpose_map,
    inverse=_transpose_inverse,
    **_ALL,
)


register(
    "aten.transpose_.default",
    "aten.swapaxes_.default",
    "aten.swapdims_.default",
    functional=aten.transpose.int,
)


def _t_layout(t: torch.Tensor) -> ViewLayout | None:
    return _permute_layout(t, list(reversed(range(t.dim())))) if t.dim() <= 2 else None


def _t_map(x: IndexedTensor, sizes: tuple[Expr, ...]) -> IndexMap:
    return lambda index: index[::-1]


def _t_inverse(rec: Any, parent: Any, new: Any) -> Any:
    return rec.dispatch(aten.t.default, (new,), {})


register("aten.t.default", view=_t_layout, index_map=_t_map, inverse=_t_inverse, **_ALL)
register("aten.t_.default", functional=aten.t.default)


# --------------------------------------------------------------------------------------------------
# Dimensions of size 1


def _expand_layout(
    t: torch.Tensor, sizes: Sequence[Any], *, implicit: bool = False
) -> ViewLayout | None:
    new = len(sizes) - t.dim()
    if new < 0:
        return None
    shape: list[Any] = list(sizes[:new])
    strides: list[Any] = []
    if any(hint(size) is not None and size < 0 for size in shape):
        return None  # PyTorch refuses it
    for size, stride, target in zip(t.size(), t.stride(), sizes[new:], strict=True):
        keeps = (type(target) is int and target == -1) or _same_size(size, target)
        shape.append(size if keeps else target)
        strides.append(stride if keeps else 0)
        if not keeps and size != 1:
            return None
    for dim in reversed(range(new)):
        # A new dimension of size 1 spans the one behind it, unless the tensor is a scalar.
        spans = strides and sure(shape[dim] == 1)
        # As `at::inferExpandGeometry` computes it; the program may look at strides.
        strides.insert(0, shape[dim + 1] * strides[0] if spans else 0)
    return ViewLayout(tuple(shape), tuple(strides), t.storage_offset())


def _same_size(size: Any, target: Any) -> bool:
    """Whether expanding `size` to `target` changes nothing. If one of them is an unbacked symbol,
    that is so unless `size` is 1, which is taken not to be: a test of their equality is added."""
    if is_known_equal(size, target):
        return True
    if type(size) is int and size == 1:
        return False
    numbers = [n for n in (size, target) if type(n) is not int]
    if all(n.node.has_hint() for n in numbers):
        if hint(size) == 1 != hint(target) and size == 1:
            return False
        return bool(size == target)
    if is_one(size):
        return False
    need(size == target)
    return True


def _expand_map(
    x: IndexedTensor, sizes: tuple[Expr, ...], wanted: Any, implicit: bool = False
) -> IndexMap:
    """The map of `expand`. Raises `NotLowered` for a size that may be 1: what is in memory can have
    a stride that depends on it, an index can't."""
    first = len(sizes) - len(x.sizes)
    # `is`: expressions are interned, so equal sizes are the same object.
    if any(s is not ONE and s is not sizes[first + d] for d, s in enumerate(x.sizes)):
        raise NotLowered("expand of a size that may be 1")
    fixed = [size is ONE and sizes[first + d] is not ONE for d, size in enumerate(x.sizes)]
    return lambda index: broadcast_index(index, fixed)


register("aten.expand.default", view=_expand_layout, index_map=_expand_map)


def _unsqueeze_layout(t: torch.Tensor, dim: int) -> ViewLayout | None:
    dim = dim if dim >= 0 else dim + t.dim() + 1
    if not 0 <= dim <= t.dim():
        return None
    sizes, strides = list(t.size()), list(t.stride())
    # The stride that PyTorch gives a dimension of size 1.
    stride = sizes[dim] * strides[dim] if dim < t.dim() else 1
    return ViewLayout(
        (*sizes[:dim], 1, *sizes[dim:]),
        (*strides[:dim], stride, *strides[dim:]),
        t.storage_offset(),
    )


def _unsqueeze_map(x: IndexedTensor, sizes: tuple[Expr, ...], dim: int) -> IndexMap:
    dim %= len(sizes)
    return lambda index: index[:dim] + index[dim + 1 :]


def _unsqueeze_inverse(rec: Any, parent: Any, new: Any, dim: int) -> Any:
    return rec.dispatch(aten.squeeze.dim, (new, dim), {})


register(
    "aten.unsqueeze.default",
    view=_unsqueeze_layout,
    index_map=_unsqueeze_map,
    inverse=_unsqueeze_inverse,
    **_ALL,
)
register("aten.unsqueeze_.default", functional=aten.unsqueeze.default)


def _squeeze_dims_layout(t: torch.Tensor, dims: Any) -> ViewLayout:
    squeezed = {_dim(t.dim(), d) for d in ([dims] if isinstance(dims, int) else dims)}
    remaining = [d for d in range(t.dim()) if d not in squeezed or not is_one(t.size(d))]
    return _permute_layout(t, remaining)


def _squeeze_layout(t: torch.Tensor) -> ViewLayout:
    return _squeeze_dims_layout(t, range(t.dim()))


def _squeeze_map(x: IndexedTensor, sizes: tuple[Expr, ...], *dims: Any) -> IndexMap:
    """The map of `squeeze`, which puts 0 in the place of dimensions that are gone."""
    rank = len(x.sizes)
    listed = dims[0] if dims else range(rank)
    among = [d % rank for d in ([listed] if isinstance(listed, int) else listed)] if rank else []
    gone = {d for d in among if x.sizes[d] is ONE}
    if rank - len(gone) != len(sizes):
        raise NotLowered("squeeze of a size that may be 1")

    def where(index: Index) -> Index:
        rest = iter(index)
        return tuple([ZERO if d in gone else next(rest) for d in range(rank)])

    return where


_SQUEEZE: Final[dict[str, Any]] = {
    "index_map": _squeeze_map,
    "inverse": reshape_inverse,
    **_ALL,
}
register("aten.squeeze.default", view=_squeeze_layout, **_SQUEEZE)
register("aten.squeeze.dim", "aten.squeeze.dims", view=_squeeze_dims_layout, **_SQUEEZE)
register("aten.squeeze_.default", functional=aten.squeeze.default)
register("aten.squeeze_.dim", functional=aten.squeeze.dim)
register("aten.squeeze_.dims", functional=aten.squeeze.dims)


# --------------------------------------------------------------------------------------------------
# Some of the elements


def _select_layout(t: torch.Tensor, dim: int, index: Any) -> ViewLayout | None:
    dim = _dim(t.dim(), dim)
    if not 0 <= dim < t.dim():
        return None
    size = t.size(dim)
    need(-size <= index)
    need(index < size)
    index = _from_start(index, index + size, index)
    sizes, strides = list(t.size()), list(t.stride())
    offset = t.storage_offset() + index * strides[dim]
    del sizes[dim], strides[dim]
    return ViewLayout(tuple(sizes), tuple(strides), offset)


def _from_start(index: Any, if_negative: Any, otherwise: Any) -> Any:
    """`if_negative` or `otherwise`, by the sign of an index; a choice between both if the index is
    an unbacked symbol whose sign isn't known."""
    if type(index) is not int and not index.node.has_hint() and not sure(index >= 0):
        return torch.sym_ite(index < 0, if_negative, otherwise)
    return if_negative if index < 0 else otherwise


def _select_map(x: IndexedTensor, sizes: tuple[Expr, ...], dim: int, at: Any) -> IndexMap:
    rank = len(x.sizes)
    dim %= rank
    place = as_expr(at)
    if place.value is None:
        raise NotLowered("select at a symbolic index")
    if place.value < 0:
        place = place + x.sizes[dim]
    return lambda index: (*index[:dim], place, *index[dim:])


def _select_inverse(rec: Any, parent: Any, new: Any, *args: Any) -> Any:
    return rec.scattered(aten.select_scatter.default, parent, (new, *args), {})


register(
    "aten.select.int",
    view=_select_layout,
    index_map=_select_map,
    inverse=_select_inverse,
    injective=True,
)


def _slice_layout(
    t: torch.Tensor, dim: int = 0, start: Any = None, end: Any = None, step: Any = 1
) -> ViewLayout | None:
    dim = _dim(t.dim(), dim)
    if not 0 <= dim < t.dim() or type(step) is not int or step <= 0:
        return None
    size = t.size(dim)
    # Bounds as places between 0 and the size, in Python's sense.
    first = _bound(0 if start is None else start, size, True)
    last = _bound(size if end is None else end, size, False)
    length = _length(first, last, size)
    sizes, strides = list(t.size()), list(t.stride())
    sizes[dim] = (length + step - 1) // step if step != 1 else length
    offset = t.storage_offset() + first * strides[dim]
    strides[dim] = strides[dim] * step
    return ViewLayout(tuple(sizes), tuple(strides), offset)


def _bound(at: Any, size: Any, start: bool) -> Any:
    """A bound of a slice as a place in the dimension: a negative one counts from the end, and one
    outside is clamped. With symbols it is an expression, so that no guard is needed."""
    if type(at) is int and type(size) is int:
        return min(max(at + size if at < 0 else at, 0), size)
    if type(at) is int:
        if at >= LARGEST:
            return size
        if at == 0:
            return 0
        return torch.sym_min(at, size) if at > 0 else torch.sym_max(size + at, 0)
    if at is size:
        return size
    return _from_start(at, torch.sym_max(at + size, 0), torch.sym_min(at, size))


LARGEST = 2**63 - 1


def _length(first: Any, last: Any, size: Any) -> Any:
    if type(first) is int and first == 0:
        return last
    if type(first) is int and type(last) is int:
        return max(last - first, 0)
    if sure(last - first >= 0):
        return last - first
    return torch.sym_max(last - first, 0)


def _slice_map(
    x: IndexedTensor,
    sizes: tuple[Expr, ...],
    dim: int = 0,
    start: Any = None,
    end: Any = None,
    step: int = 1,
) -> IndexMap:
    dim %= len(x.sizes)
    first = as_expr(0 if start is None else start)
    if first.value is None:
        raise NotLowered("a slice from a symbolic index")
    if first.value < 0:
        raise NotLowered("a slice from the end")
    by = as_expr(step)
    return lambda index: (*index[:dim], first + index[dim] * by, *index[dim + 1 :])


def _slice_inverse(rec: Any, parent: Any, new: Any, *args: Any, **kwargs: Any) -> Any:
    return rec.scattered(aten.slice_scatter.default, parent, (new, *args), kwargs)


register(
    "aten.slice.Tensor",
    view=_slice_layout,
    index_map=_slice_map,
    inverse=_slice_inverse,
    injective=True,
)


def _diagonal_map(
    x: IndexedTensor, sizes: tuple[Expr, ...], offset: Any = 0, dim1: int = 0, dim2: int = 1
) -> IndexMap:
    """The map of `diagonal`: the last index, along the diagonal, is that of both dimensions, from
    where the diagonal starts in each."""
    rank = len(x.sizes)
    if not isinstance(offset, int):
        raise NotLowered("a diagonal at a symbolic offset")
    starts = {dim1 % rank: max(-offset, 0), dim2 % rank: max(offset, 0)}

    def where(index: Index) -> Index:
        rest = iter(index[:-1])
        return tuple([index[-1] + starts[d] if d in starts else next(rest) for d in range(rank)])

    return where


def _diagonal_inverse(rec: Any, parent: Any, new: Any, *args: Any, **kwargs: Any) -> Any:
    return rec.scattered(aten.diagonal_scatter.default, parent, (new, *args), kwargs)


register(
    "aten.diagonal.default",
    index_map=_diagonal_map,
    inverse=_diagonal_inverse,
    injective=True,
)


def _unfold_layout(t: torch.Tensor, dim: int, size: Any, step: Any) -> ViewLayout | None:
    if not t.dim():
        return None
    dim = _dim(t.dim(), dim)
    need(size <= t.size(dim))
    sizes, strides = list(t.size()), list(t.stride())
    stride = strides[dim]
    sizes[dim] = (sizes[dim] - size) // step + 1
    strides[dim] = stride * step
    return ViewLayout((*sizes, size), (*strides, stride), t.storage_offset())


WINDOW_COST: Final = 1
"""If elements take more operations, `unfold` has its source stored: windows that overlap would
compute them several times."""


def _unfold_map(
    x: IndexedTensor, sizes: tuple[Expr, ...], dim: int, size: Any, step: Any
) -> IndexMap:
    """Element `j` of window `i`, which is the last dimension, is element `i * step + j`."""
    apart = isinstance(size, int) and isinstance(step, int) and size <= step
    if not x.sizes or not (apart or x.cost <= WINDOW_COST):
        raise NotLowered("windows of what is better kept in memory")
    at = dim % len(x.sizes)

    def where(index: Index) -> Index:
        return (*index[:at], index[at] * step + index[-1], *index[at + 1 : -1])

    return where


register("aten.unfold.default", view=_unfold_layout, index_map=_unfold_map)


# --------------------------------------------------------------------------------------------------
# Several views at once: rules for one of them take which one it is


def _unbind_layout(t: torch.Tensor, dim: int = 0) -> list[ViewLayout] | None:
    dim = _dim(t.dim(), dim)
    layouts = [_select_layout(t, dim, index) for index in range(int(t.size(dim)))]
    return [window for window in layouts if window is not None]


def _unbind_map(position: int, x: IndexedTensor, sizes: tuple[Expr, ...], dim: int = 0) -> IndexMap:
    return _select_map(x, sizes, dim, position)


def _unbind_inverse(rec: Any, parent: Any, new: Any, at: int, dim: int = 0) -> Any:
    return rec.scattered(aten.select_scatter.default, parent, (new, dim, at), {})


register(
    "aten.unbind.int", view=_unbind_layout, index_map=_unbind_map, inverse=_unbind_inverse, **_PART
)


def _split_sizes_layout(
    t: torch.Tensor, parts: Sequence[Any], dim: int = 0
) -> list[ViewLayout] | None:
    dim = _dim(t.dim(), dim)
    if any(type(part) is int and part < 0 for part in parts):
        return None  # PyTorch has its own words for that
    for part in parts:
        if type(part) is not int:
            need(part >= 0)
    # In one sum: to add symbolic numbers one by one makes an expression for each step.
    need(torch.sym_sum(list(parts)) == t.size(dim))
    layouts, start = [], 0
    for part in parts:
        sizes = list(t.size())
        sizes[dim] = part
        offset = t.storage_offset() + start * t.stride(dim)
        layouts.append(ViewLayout(tuple(sizes), tuple(t.stride()), offset))
        start = start + part
    return layouts


def _split_sizes_map(
    position: int, x: IndexedTensor, sizes: tuple[Expr, ...], parts: Any, dim: int = 0
) -> IndexMap:
    return _slice_map(x, sizes, dim, sum([as_expr(part) for part in parts[:position]], ZERO))


def _split_sizes_inverse(rec: Any, parent: Any, new: Any, at: int, sizes: Any, dim: int = 0) -> Any:
    start = sum(sizes[:at])
    return rec.scattered(
        aten.slice_scatter.default, parent, (new, dim, start, start + sizes[at]), {}
    )


register(
    "aten.split_with_sizes.default",
    "aten.unsafe_split_with_sizes.default",
    view=_split_sizes_layout,
    index_map=_split_sizes_map,
    inverse=_split_sizes_inverse,
    **_PART,
)


def _split_layout(t: torch.Tensor, size: Any, dim: int = 0) -> list[ViewLayout] | None:
    dim = _dim(t.dim(), dim)
    if type(size) is int or size.node.has_hint():
        if size < 0:
            raise RuntimeError("split expects split_size be non-negative")
        if size == 0:
            return None
    need(size > 0)
    count = int((t.size(dim) + size - 1) // size)  # how many there are has to be known
    full = [size] * max(count - 1, 0)
    last = t.size(dim) - size * max(count - 1, 0)
    return _split_sizes_layout(t, [*full, last], dim)


def _split_map(
    position: int, x: IndexedTensor, sizes: tuple[Expr, ...], size: Any, dim: int = 0
) -> IndexMap:
    return _slice_map(x, sizes, dim, as_expr(size) * position)


def _split_inverse(rec: Any, parent: Any, new: Any, at: int, size: Any, dim: int = 0) -> Any:
    start = at * size
    return rec.scattered(
        aten.slice_scatter.default, parent, (new, dim, start, start + new.size(dim)), {}
    )


register(
    "aten.split.Tensor",
    "aten.unsafe_split.Tensor",
    view=_split_layout,
    index_map=_split_map,
    inverse=_split_inverse,
    **_PART,
)


register("aten.unsafe_split.Tensor", "aten.unsafe_split_with_sizes.default", undeclared_view=True)

# --------------------------------------------------------------------------------------------------
# All of the elements, as they are


def _same_layout(t: torch.Tensor) -> ViewLayout:
    return view_layout(t)


def _same_map(x: IndexedTensor, sizes: tuple[Expr, ...], *args: Any) -> IndexMap:
    return lambda index: index


def _same_inverse(rec: Any, parent: Any, new: Any, *args: Any) -> Any:
    return new


register(
    "aten.alias.default",
    "aten.detach.default",
    view=_same_layout,
    index_map=_same_map,
    inverse=_same_inverse,
    **_ALL,
)
register("aten.lift_fresh.default", view=_same_layout, index_map=_same_map)


@lowers("aten.alias.default", "aten.detach.default", "aten.lift_fresh.default")
def same(low: Lowering, self: IndexedTensor) -> IndexedTensor:
    return self


def _other_type_inverse(rec: Any, parent: Any, new: Any, *args: Any) -> Any:
    """The inverse of `view(dtype)`: the same bits as the old dtype. If elements have another size,
    several share one place, so `new` has to be contiguous first."""
    if new.dtype.itemsize != parent.dtype.itemsize:
        new = rec.dispatch(aten.clone.default, (new,), {"memory_format": torch.contiguous_format})
    return rec.dispatch(aten.view.dtype, (new, parent.dtype), {})


register("aten.view.dtype", inverse=_other_type_inverse, covers=True, injective=True)


def _as_strided_layout(
    t: torch.Tensor, sizes: Sequence[Any], strides: Sequence[Any], offset: Any = None
) -> ViewLayout:
    return ViewLayout(
        tuple(sizes), tuple(strides), t.storage_offset() if offset is None else offset
    )


register("aten.as_strided.default", view=_as_strided_layout)
register(
    "aten._reshape_alias.default",
    view=_as_strided_layout,
    index_map=reshape_map,
    inverse=reshape_inverse,
    covers=True,
)


def _reaches_beyond(args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
    """Whether `as_strided` may need more memory than the tensor that it is called on shows. How
    much there is, no guard tells."""
    tensor, sizes, strides, offset = (*args, kwargs.get("storage_offset"))[:4]
    if not hasattr(tensor, "untyped_storage") or tensor._has_symbolic_sizes_strides:
        return True
    numbers = (*sizes, *strides, 0 if offset is None else offset)
    if any(type(number) is not int for number in numbers):
        return True
    if 0 in sizes:
        return False
    start = tensor.storage_offset()
    first = start if offset is None else offset
    return 0 in tensor.shape or not (
        start <= first
        and first + _reach(sizes, strides) <= start + _reach(tensor.shape, tensor.stride())
    )


def _reach(sizes: Sequence[int], strides: Sequence[int]) -> int:
    return sum((size - 1) * stride for size, stride in zip(sizes, strides, strict=True))


register("aten.as_strided.default", raises=_reaches_beyond)
