"""How PyTorch lays out and types the result of an operation on several tensors.

The one idea: the rules of TensorIterator, written down as functions of sizes, strides and dtypes.
A meta kernel gives the same answers, but its first use imports a large part of PyTorch's compiler.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import Any

import torch

from pliant.fake import numbers
from pliant.fake.order import (
    broadcast_order,
    hint,
    is_contiguous,
    is_one,
    need,
    nesting,
    order_with_ones,
    sure,
)
from pliant.sym import node_layout
from pliant.sym.expr import as_expr

Tensor = torch.Tensor


def is_symbolic(numbers: Iterable[Any]) -> bool:
    return any(type(n) is not int for n in numbers)


def must_be_size(number: Any) -> None:
    """A symbolic number that is used as a size is at least 0 from here on."""
    if type(number) is not int:
        number.node.shape_env._constrain_range_for_size(number.node.expr)


def contiguous_strides(sizes: Sequence[int]) -> tuple[int, ...]:
    strides, step = [], 1
    for size in reversed(sizes):
        strides.append(step)
        # A symbolic size is taken as it is. If it is 0 the tensor is empty, and whoever asks for
        # its strides all the same has to ask for that first.
        step = step * (max(size, 1) if type(size) is int else size)
    return tuple(reversed(strides))


def ordered_strides(sizes: Sequence[int], order: Sequence[int]) -> tuple[int, ...]:
    """The strides of a dense tensor with its dimensions in this order, the outermost first."""
    inner = contiguous_strides([sizes[dim] for dim in order])
    strides = [0] * len(sizes)
    for dim, stride in zip(order, inner, strict=True):
        strides[dim] = stride
    return tuple(strides)


def channels_last_strides(sizes: Sequence[int]) -> tuple[int, ...]:
    return ordered_strides(sizes, (0, *range(2, len(sizes)), 1))


def is_like_channels_last(t: Tensor) -> bool:
    """Whether the strides are those of channels-last rather than of contiguous memory.

    Ambiguous ones (one channel, or one pixel) count as contiguous, as PyTorch's kernels have it.
    """
    if t.dim() not in (4, 5):
        return False
    if t._has_symbolic_sizes_strides:
        known = _known_channels_last(t)
        if known is not None:
            return known
    if t.stride(1) == 0:
        return False
    floor = 0
    for dim in (1, *range(t.dim() - 1, 1, -1), 0):
        size, stride = t.size(dim), t.stride(dim)
        if size == 0 or stride < floor or (dim == 0 and floor == t.stride(1)):
            return False
        floor = stride * size if size > 1 else stride
    return True


def _known_channels_last(t: Tensor) -> bool | None:
    """As far as the strides were made one way or the other. (An empty tensor counts as contiguous,
    but then it makes no difference.)"""
    ambiguous = sure(t.size(1) == 1) or all(sure(size == 1) for size in t.shape[2:])
    if is_contiguous(t) and not ambiguous:
        return False
    inside = [1, *range(t.dim() - 1, 1, -1), 0]
    if any(sure(t.stride(outer) < t.stride(inner)) for inner, outer in pairwise(inside)):
        return False
    if nesting(t.size(), t.stride()) != inside or not sure(t.stride(1) == 1):
        return None
    return True if t.size(1) != 1 else None  # one channel is ambiguous


def suggested_strides(like: Tensor, sizes: Sequence[int]) -> tuple[int, ...]:
    """The strides of a result in the memory format of `like`."""
    return (channels_last_strides if is_like_channels_last(like) else contiguous_strides)(sizes)


def is_dense(t: Tensor) -> bool:
    """Whether the elements fill their stretch of memory, each place once."""
    if is_contiguous(t):
        return True
    if t._has_symbolic_sizes_strides:
        return _is_dense_symbolic(t)
    expected = 1
    dims = [d for d in range(t.dim()) if t.size(d) != 1]
    for dim in sorted(dims, key=t.stride):
        if t.stride(dim) != expected:
            return False
        expected = expected * t.size(dim)
    return True


def _is_dense_symbolic(t: Tensor) -> bool:
    numbers: list[Any] = [*t.size(), *t.stride()]
    symbolic = next((n for n in numbers if type(n) is not int), None)
    if symbolic is None:  # all of them have turned out to be constants
        return bool(node_layout.is_non_overlapping_and_dense(*_constants(t)).value)
    nodes = [symbolic.node.wrap_int(n) if type(n) is int else n.node for n in numbers]
    answer = symbolic.node.is_non_overlapping_and_dense(nodes[: t.dim()], nodes[t.dim() :])
    return bool(answer.guard_bool("", 0))


def _constants(t: Tensor) -> Any:
    return (tuple(map(as_expr, numbers)) for numbers in (t.size(), t.stride()))


def broadcast(shapes: Sequence[Sequence[int]]) -> tuple[int, ...] | None:
    """The common shape, or None where there is none."""
    result: list[int] = [1] * max(map(len, shapes))
    for shape in shapes:
        shift = len(result) - len(shape)
        for i, size in enumerate(shape, shift):
            common = _together(result[i], size)
            if common is None:
                return None
            result[i] = common
    return tuple(result)


def _together(a: Any, b: Any) -> Any:
    """The common size of two dimensions; None where there is none.

    Symbolic sizes are asked about as little as possible: above all not whether they are 1 if they
    are equal anyway.
    """
    if type(b) is int and type(a) is int:
        return b if a == 1 else a if b in (1, a) else None
    if a is b or (type(b) is int and b == 1):
        return a
    if type(a) is int and a == 1:
        return b
    if not all(type(n) is int or n.node.has_hint() for n in (a, b)):
        return _unbacked_together(a, b)
    for one, other in ((a, b), (b, a)):
        if hint(one) == 1 != hint(other) and one == 1:
            return other  # whatever that is
    if a == b:
        return a if type(a) is int else b
    return None


def _unbacked_together(a: Any, b: Any) -> Any:
    """The same where one is read from data: neither is 1, it is assumed, so they are equal."""
    if type(a) is not int and type(b) is not int and a.node.expr is b.node.expr:
        return a
    for one, other in ((a, b), (b, a)):
        if is_one(one):
            return other
    need(a == b)
    return a if type(a) is int else b


def pointwise_strides(
    tensors: Sequence[Tensor], sizes: tuple[int, ...], uniform: bool = True
) -> tuple[int, ...]:
    """The layout of a new result: that of the operands where they agree, else the first's order.

    Not `uniform`: there is a number among the operands, so they are not all of one shape.
    """
    if any(t._has_symbolic_sizes_strides for t in tensors):
        strides = _symbolic_strides(tensors, sizes, uniform)
        if strides is not None and not _is_seen(strides, tensors, sizes, uniform):
            ask_for_ones(tensors)
            strides = _symbolic_strides(tensors, sizes, uniform)
        if strides is not None and _is_seen(strides, tensors, sizes, uniform):
            return strides
    if uniform and all(t.size() == sizes for t in tensors):
        if all(t.is_contiguous() for t in tensors):
            return contiguous_strides(sizes)
        form = torch.channels_last
        if len(sizes) == 4 and all(t.is_contiguous(memory_format=form) for t in tensors):
            return channels_last_strides(sizes)
        first = tensors[0].stride()
        if all(t.stride() == first and is_dense(t) for t in tensors):
            return tuple(first)
    return permuted_strides([spread(t, sizes) for t in tensors], sizes)


def _symbolic_strides(
    tensors: Sequence[Tensor], sizes: tuple[int, ...], uniform: bool
) -> tuple[int, ...] | None:
    """For sizes of which none is 0 or 1, unless that is known. None if it can't be told."""
    order = broadcast_order(tensors, sizes)
    if order is not None:
        return ordered_strides(sizes, order[::-1])
    order = order_with_ones(tensors, sizes)
    return None if order is None else _strides_with_ones(tensors, sizes, order, uniform)


def _strides_with_ones(
    tensors: Sequence[Tensor], sizes: tuple[int, ...], order: list[int], uniform: bool
) -> tuple[int, ...]:
    """In that order, unless all operands are contiguous or lie alike: then those of dimensions of
    size 1 are not sorted by."""
    strides = ordered_strides(sizes, order[::-1])
    if uniform and all(t.dim() == len(sizes) for t in tensors):
        if all(is_contiguous(t) for t in tensors):
            return contiguous_strides(sizes)
        first = tensors[0].stride()
        alike = all(sure(a == b) for t in tensors for a, b in zip(t.stride(), first))
        if alike and _are_but_for_ones(first, strides, sizes):
            return tuple(first)
    return strides


def _are_but_for_ones(strides: Sequence[Any], others: Sequence[Any], sizes: Sequence[Any]) -> bool:
    return all(sure(size == 1) or sure(a == b) for size, a, b in zip(sizes, strides, others))


def _is_seen(
    told: tuple[int, ...], tensors: Sequence[Tensor], sizes: tuple[int, ...], uniform: bool
) -> bool:
    """Whether these are eager PyTorch's strides, as the sizes are now."""
    layouts, wide = [layout_now(t) for t in tensors], tuple(map(hint, sizes))
    strides = tuple(map(hint, told))
    if 0 in wide or None in wide or None in strides or any(None in n for t in layouts for n in t):
        return True
    return numbers.pointwise(layouts, wide, uniform) == strides


def layout_now(t: Tensor) -> numbers.Layout:
    """Sizes and strides as they are now; None for those that are in the data."""
    return tuple(map(hint, t.size())), tuple(map(hint, t.stride()))


def ask_for_ones(tensors: Sequence[Tensor]) -> None:
    """Those of the sizes that are 1 now are so from here on."""
    for t in tensors:
        for size in t.size():
            if hint(size) == 1:
                bool(size == 1)


def like_strides(t: Tensor) -> tuple[int, ...] | None:
    """The strides of a copy with the dimensions in the same order; None if that needs more
    questions."""
    if not t._has_symbolic_sizes_strides:
        return numbers.like((tuple(t.size()), t.stride()))
    strides = _symbolic_like(t)
    now = layout_now(t)
    usual = strides is None or 0 in now[0] or None in now[0] or None in now[1]
    if usual or numbers.like(now) == tuple(map(hint, strides or ())):
        return strides
    ask_for_ones([t])
    strides = _symbolic_like(t)
    if strides is None or numbers.like(now) == tuple(map(hint, strides)):
        return strides
    several = [d for d, size in enumerate(t.size()) if not sure(size == 1)]
    is_dense_now = numbers.is_dense(now) and all(t.stride(d) == strides[d] for d in several)
    return tuple(t.stride()) if is_dense_now else None


def _symbolic_like(t: Tensor) -> tuple[int, ...] | None:
    order = nesting(t.size(), t.stride())
    if order is None:
        return None
    strides = ordered_strides(t.size(), order[::-1])
    if _are_but_for_ones(t.stride(), strides, t.size()):  # nothing is sorted then
        return tuple(t.stride())
    order = order_with_ones([t], t.size())
    return strides if order is None else ordered_strides(t.size(), order[::-1])


def is_plain(t: Tensor) -> bool:
    """Whether each element has a place of its own, as far as PyTorch looks, so that it can be
    written to."""
    if not t._has_symbolic_sizes_strides:
        return all(stride or size < 2 for size, stride in zip(t.size(), t.stride(), strict=True))
    return nesting(t.size(), t.stride()) is not None


def spread(t: Tensor, sizes: tuple[int, ...]) -> list[int]:
    """The strides of `t` broadcast to `sizes`: 0 where its one element serves for all."""
    shift = len(sizes) - t.dim()
    own = zip(t.size(), t.stride(), sizes[shift:], strict=True)
    return [0] * shift + [0 if _is_spread(size, wide) else stride for size, stride, wide in own]


def _is_spread(size: Any, wide: Any) -> bool:
    if size is wide or (type(size) is not int and sure(size == wide)):
        return False
    return bool(size == 1 and wide != 1)


def permuted_strides(operands: list[list[int]], sizes: tuple[int, ...]) -> tuple[int, ...]:
    """Dimensions sorted by the strides of the operands; the first that can tell decides."""

    inner = numbers.sorted_by(operands, sizes)
    if inner == list(reversed(range(len(sizes)))):
        return contiguous_strides(sizes)
    return numbers.packed(sizes, inner)


def index_strides(
    told: tuple[int, ...],
    source: Sequence[int],
    indices: Sequence[Tensor],
    picked: tuple[int, ...],
    sizes: tuple[int, ...],
    around: tuple[int, int],
) -> tuple[int, ...]:
    """The layout of what is taken by indices, of this shape, which have so many dimensions around
    them. If it is not `told`, then since the indices are given a size of 1 for each of these, with
    a stride that counts where the result has size 1 there as well; then every number is asked
    for."""
    before, after = around

    def exact(at: Any) -> tuple[int, ...]:
        wide, own = tuple(map(at, picked)), [tuple(map(at, source))]
        shape = (1,) * before + wide + (1,) * after
        for index in indices:
            layout = (tuple(map(at, index.size())), tuple(map(at, index.stride())))
            shown = numbers.viewed((wide, numbers.spread(layout, wide)), shape)
            own.append(numbers.row_major(shape) if shown is None else shown)
        result = tuple(map(at, sizes))
        shown_sizes = [n if 0 <= d - before < len(wide) else 1 for d, n in enumerate(result)]
        operands = [own[0], *(numbers.spread((tuple(shown_sizes), o), result) for o in own[1:])]
        return numbers.permuted(operands, result)

    now = [
        *map(hint, (*sizes, *source, *picked)),
        *(n for i in indices for m in layout_now(i) for n in m),
    ]
    if None in now or 0 in now[: len(sizes)] or exact(hint) == tuple(map(hint, told)):
        return told
    return exact(int)


_CATEGORIES = {bool: torch.bool, int: torch.int64}


def promoted(tensors: Sequence[Tensor], numbers: Sequence[Any]) -> torch.dtype:
    """The dtype the operands have in common: 0-dim tensors count less than others, numbers least.

    `numbers` are Python numbers or dtypes of numbers.
    """
    common: torch.dtype | None = None
    zero_dim = [t.dtype for t in tensors if not t.dim()]
    kinds = [n if isinstance(n, torch.dtype) else _CATEGORIES.get(type(n)) for n in numbers]
    plain = [torch.get_default_dtype() if k is None or k.is_floating_point else k for k in kinds]
    for level in ([t.dtype for t in tensors if t.dim()], zero_dim, plain):
        lower: torch.dtype | None = None
        for dtype in level:
            lower = dtype if lower is None else torch.promote_types(lower, dtype)
        common = _over(common, lower)
    assert common is not None
    return common


def _over(higher: torch.dtype | None, lower: torch.dtype | None) -> torch.dtype | None:
    """A level of operands changes the dtype of those above only by being of a higher category."""
    if higher is None or lower is None:
        return lower if higher is None else higher
    if higher.is_floating_point or not (higher is torch.bool or lower.is_floating_point):
        return higher
    return torch.promote_types(higher, lower)
