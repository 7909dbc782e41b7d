"""Views of tensors with symbolic sizes: sizes, strides and offset of what a view operator returns.

The one idea: a table from operator to a function of sizes and strides. PyTorch's own view kernels
ask more questions than the answer needs (whether a size is 0 or 1, above all), and each would
become a guard. Where an operator is not in the table, or its arguments are unusual, they are asked.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch

from pliant.base.values import dataclass
from pliant.fake import numbers
from pliant.fake.layout import ask_for_ones, contiguous_strides, is_symbolic, layout_now
from pliant.fake.order import hint, is_contiguous, is_one, need, sure


@dataclass(frozen=True, slots=True)
class Window:
    """What a view shows of its storage."""

    sizes: tuple[Any, ...]
    strides: tuple[Any, ...]
    offset: Any
    # As the tensor has it, if it is not said.
    dtype: torch.dtype | None = None
    conj: bool | None = None
    neg: bool | None = None


Rule = Callable[..., Window | list[Window] | None]


def window_of(t: torch.Tensor) -> Window:
    place = (tuple(t.size()), tuple(t.stride()), t.storage_offset())
    return Window(*place, t.dtype, t.is_conj(), t.is_neg())


def rule_for(name: str) -> Rule | None:
    return _RULES.get(name)


def is_symbolic_call(args: tuple[Any, ...]) -> bool:
    """Whether a tensor with symbolic sizes or a symbolic number is among the arguments."""
    for arg in args:
        if isinstance(arg, torch.Tensor):
            if arg._has_symbolic_sizes_strides:
                return True
        elif isinstance(arg, torch.SymInt) or (isinstance(arg, list | tuple) and is_symbolic(arg)):
            return True
    return False


def _dim(rank: int, dim: int) -> int:
    rank = max(rank, 1)
    if not -rank <= dim < rank:
        allowed = f"[{-rank}, {rank - 1}]"
        raise IndexError(
            f"Dimension out of range (expected to be in range of {allowed}, but got {dim})"
        )
    return dim if dim >= 0 else dim + rank


def _view(t: torch.Tensor, sizes: Sequence[Any]) -> Window | None:
    shape = filled_in(t, sizes)
    for strides in _ways_to_view(t, shape):
        if is_view_now(t, shape, strides):
            return Window(shape, strides, t.storage_offset())
    return None


def is_view_now(t: torch.Tensor, shape: Sequence[Any], strides: Sequence[Any]) -> bool:
    """Whether eager PyTorch gives a view of this shape these strides, as the sizes are now."""
    layout, wanted = layout_now(t), tuple(map(hint, shape))
    if None in (*layout[0], *layout[1], *wanted) or 0 in wanted:
        return True
    return numbers.viewed(layout, wanted) == tuple(map(hint, strides))


def _ways_to_view(t: torch.Tensor, shape: tuple[Any, ...]) -> Iterator[tuple[Any, ...]]:
    """The strides of a view: those for sizes of which none is 1, and if they are not right as the
    sizes are now, with more questions."""
    if is_contiguous(t):
        yield contiguous_strides(shape)
    strides = _split_strides(t, shape)
    if strides is not None:
        yield strides
        ask_for_ones([t])
        strides = _split_strides(t, shape)
        if strides is not None:
            yield strides
    if t.is_contiguous():
        yield contiguous_strides(shape)


def filled_in(t: torch.Tensor, sizes: Sequence[Any]) -> tuple[Any, ...]:
    """The sizes, with what stands for -1, and the certainty that the elements suffice."""
    missing = [d for d, size in enumerate(sizes) if _is_missing(size)]
    total, given = t.numel(), 1
    for d, size in enumerate(sizes):
        if d not in missing:
            given = given * size
    if not missing:
        need(total == given)
        return tuple(sizes)
    need(len(missing) == 1, "only one dimension can be inferred")
    rest = _divided(total, given)
    return tuple(rest if d in missing else size for d, size in enumerate(sizes))


def _is_missing(size: Any) -> bool:
    """Whether a size is -1. A number of the program's may be that; what is a size is not asked."""
    if type(size) is int:
        return size == -1
    if sure(size >= 0):
        return False
    if size.node.has_hint() and size == -1:
        return True
    need(size >= 0)
    return False


def _divided(total: Any, given: Any) -> Any:
    """What -1 means. Exact division is asked for, and a quotient that is exact without being asked
    is not asked about."""
    need(given != 0, "-1 can be any size, beside a size of 0")
    need(total % given == 0)
    return total // given


def _split_strides(t: torch.Tensor, shape: tuple[Any, ...]) -> tuple[Any, ...] | None:
    """Strides for a view that keeps each of the dimensions, splits it, or adds ones."""
    if not t.dim():
        return (1,) * len(shape) if all(_known(size, 1) for size in shape) else None
    strides: list[Any] = []
    at = len(shape) - 1
    have, base = 1, t.stride(-1)
    for dim in reversed(range(t.dim())):
        have = have * t.size(dim)
        if dim and _known(t.size(dim - 1), 1):  # goes with what is inside it
            continue
        found = 1
        while at >= 0 and (not _known(found, have) or _known(shape[at], 1)):
            strides.append(base * found)
            found = found * shape[at]
            at -= 1
        if not _known(found, have):
            return None
        have, base = 1, t.stride(dim - 1)
    return tuple(reversed(strides)) if at < 0 else None


def _known(a: Any, b: Any) -> bool:
    """Whether the two are equal, as far as that is known without a question."""
    return sure(a == b)


def _permute(t: torch.Tensor, dims: Sequence[int]) -> Window:
    order = [_dim(t.dim(), d) for d in dims]
    sizes, strides = t.size(), t.stride()
    return Window(
        tuple(sizes[d] for d in order), tuple(strides[d] for d in order), t.storage_offset()
    )


def _reordered(t: torch.Tensor, dims: Sequence[int]) -> Window | None:
    """None unless each dimension is named once."""
    order = sorted(_dim(t.dim(), d) for d in dims)
    return _permute(t, dims) if order == list(range(t.dim())) else None


def _transpose(t: torch.Tensor, a: int, b: int) -> Window:
    order = list(range(t.dim()))
    if order:
        a, b = _dim(t.dim(), a), _dim(t.dim(), b)
        order[a], order[b] = order[b], order[a]
    return _permute(t, order)


def _t(t: torch.Tensor) -> Window | None:
    return _permute(t, list(reversed(range(t.dim())))) if t.dim() <= 2 else None


def _expand(t: torch.Tensor, sizes: Sequence[Any], *, implicit: bool = False) -> Window | None:
    new = len(sizes) - t.dim()
    if new < 0:
        return None
    shape: list[Any] = list(sizes[:new])
    strides: list[Any] = []
    if any(type(size) is int and size < 0 for size in shape):
        return None
    for size, stride, wanted in zip(t.size(), t.stride(), sizes[new:], strict=True):
        keeps = (type(wanted) is int and wanted == -1) or _same_size(size, wanted)
        shape.append(size if keeps else wanted)
        strides.append(stride if keeps else 0)
        if not keeps and size != 1:
            return None
    for dim in reversed(range(new)):
        # A new dimension of size 1 spans the one behind it, unless the tensor is a scalar.
        spans = strides and sure(shape[dim] == 1)
        strides.insert(0, shape[dim + 1] * strides[0] if spans else 0)
    return Window(tuple(shape), tuple(strides), t.storage_offset())


def _same_size(size: Any, wanted: Any) -> bool:
    """Whether expanding changes nothing. If one is read from data: it is so unless the size is 1,
    which is only assumed not to be."""
    if _known(size, wanted):
        return True
    if type(size) is int and size == 1:
        return False
    numbers = [n for n in (size, wanted) if type(n) is not int]
    if all(n.node.has_hint() for n in numbers):
        if hint(size) == 1 != hint(wanted) and size == 1:
            return False
        return bool(size == wanted)
    if is_one(size):
        return False
    need(size == wanted)
    return True


def _select(t: torch.Tensor, dim: int, index: Any) -> Window | None:
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
    return Window(tuple(sizes), tuple(strides), offset)


def _from_start(index: Any, if_negative: Any, otherwise: Any) -> Any:
    """What an index means depends on its sign. Where that is in the data, both are written down."""
    if type(index) is not int and not index.node.has_hint() and not sure(index >= 0):
        return torch.sym_ite(index < 0, if_negative, otherwise)
    return if_negative if index < 0 else otherwise


def _slice(
    t: torch.Tensor, dim: int = 0, start: Any = None, end: Any = None, step: Any = 1
) -> Window | None:
    dim = _dim(t.dim(), dim)
    if not 0 <= dim < t.dim() or type(step) is not int or step <= 0:
        return None
    size = t.size(dim)
    first = _bound(0 if start is None else start, size, True)
    last = _bound(size if end is None else end, size, False)
    length = _length(first, last, size)
    sizes, strides = list(t.size()), list(t.stride())
    sizes[dim] = (length + step - 1) // step if step != 1 else length
    offset = t.storage_offset() + first * strides[dim]
    strides[dim] = strides[dim] * step
    return Window(tuple(sizes), tuple(strides), offset)


def _bound(at: Any, size: Any, start: bool) -> Any:
    """A bound of a slice as a place in the dimension: negative ones count from the end, and those
    outside are cut off. Written as an expression, so that nothing is asked."""
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


def _unsqueeze(t: torch.Tensor, dim: int) -> Window | None:
    dim = dim if dim >= 0 else dim + t.dim() + 1
    if not 0 <= dim <= t.dim():
        return None
    sizes, strides = list(t.size()), list(t.stride())
    stride = sizes[dim] * strides[dim] if dim < t.dim() else 1
    return Window(
        (*sizes[:dim], 1, *sizes[dim:]),
        (*strides[:dim], stride, *strides[dim:]),
        t.storage_offset(),
    )


def _squeeze_dims(t: torch.Tensor, dims: Any) -> Window:
    wanted = {_dim(t.dim(), d) for d in ([dims] if isinstance(dims, int) else dims)}
    kept = [d for d in range(t.dim()) if d not in wanted or not is_one(t.size(d))]
    return _permute(t, kept)


def _squeeze(t: torch.Tensor) -> Window:
    return _squeeze_dims(t, range(t.dim()))


def _split_with_sizes(t: torch.Tensor, parts: Sequence[Any], dim: int = 0) -> list[Window]:
    dim = _dim(t.dim(), dim)
    for part in parts:
        if type(part) is not int:
            need(part >= 0)
    need(torch.sym_sum(list(parts)) == t.size(dim))
    found, start = [], 0
    for part in parts:
        sizes = list(t.size())
        sizes[dim] = part
        offset = t.storage_offset() + start * t.stride(dim)
        found.append(Window(tuple(sizes), tuple(t.stride()), offset))
        start = start + part
    return found


def _split(t: torch.Tensor, size: Any, dim: int = 0) -> list[Window] | None:
    dim = _dim(t.dim(), dim)
    if type(size) is int or size.node.has_hint():
        if size < 0:
            raise RuntimeError("split expects split_size be non-negative")
        if size == 0:
            return None
    need(size > 0)
    count = int((t.size(dim) + size - 1) // size)  # how many there are has to be known
    whole = [size] * max(count - 1, 0)
    last = t.size(dim) - size * max(count - 1, 0)
    return _split_with_sizes(t, [*whole, last], dim)


def _unbind(t: torch.Tensor, dim: int = 0) -> list[Window] | None:
    dim = _dim(t.dim(), dim)
    found = [_select(t, dim, index) for index in range(int(t.size(dim)))]
    return [window for window in found if window is not None]


def _as_strided(
    t: torch.Tensor, sizes: Sequence[Any], strides: Sequence[Any], offset: Any = None
) -> Window:
    return Window(tuple(sizes), tuple(strides), t.storage_offset() if offset is None else offset)


def _same_window(t: torch.Tensor) -> Window:
    return window_of(t)


def _unfold(t: torch.Tensor, dim: int, size: Any, step: Any) -> Window | None:
    if not t.dim():
        return None
    dim = _dim(t.dim(), dim)
    need(size <= t.size(dim))
    sizes, strides = list(t.size()), list(t.stride())
    stride = strides[dim]
    sizes[dim] = (sizes[dim] - size) // step + 1
    strides[dim] = stride * step
    return Window((*sizes, size), (*strides, stride), t.storage_offset())


_RULES: dict[str, Rule] = {
    "aten.view.default": _view,
    "aten._unsafe_view.default": _view,
    "aten.permute.default": _reordered,
    "aten.transpose.int": _transpose,
    "aten.t.default": _t,
    "aten.expand.default": _expand,
    "aten.select.int": _select,
    "aten.slice.Tensor": _slice,
    "aten.unsqueeze.default": _unsqueeze,
    "aten.squeeze.default": _squeeze,
    "aten.squeeze.dim": _squeeze_dims,
    "aten.squeeze.dims": _squeeze_dims,
    "aten.split.Tensor": _split,
    "aten.split_with_sizes.default": _split_with_sizes,
    "aten.unbind.int": _unbind,
    "aten.as_strided.default": _as_strided,
    "aten.unfold.default": _unfold,
    "aten.alias.default": _same_window,
    "aten.detach.default": _same_window,
    "aten.lift_fresh.default": _same_window,
    "aten._reshape_alias.default": _as_strided,
}
