"""How PyTorch lays out and types the result of an operation on several tensors.

The one idea: the rules of TensorIterator, written down as functions of sizes, strides and dtypes.
A meta kernel gives the same answers, but its first use imports a large part of PyTorch's compiler.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import Any

import torch

from pliant.fake import numbers, supposed
from pliant.fake.order import (
    broadcast_order,
    hint,
    is_contiguous,
    is_one,
    need,
    nesting,
    sure,
)
from pliant.sym import node_layout
from pliant.sym.expr import as_expr

Tensor = torch.Tensor


def is_symbolic(numbers: Iterable[Any]) -> bool:
    return any(type(n) is not int for n in numbers)


def must_be_size(number: Any) -> None:
    """Note that a symbolic number is used as a size, and so is at least 0 from here on."""
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
    """The strides of a dense tensor whose dimensions lie in this order in memory, the outermost
    first: `ordered_strides((2, 3, 4), (0, 2, 1))` is `(12, 1, 3)`."""
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
        answer = _known_channels_last(t)
        if answer is not None:
            return answer
    # In the order of PyTorch's own C++ (`is_channels_last_strides`), question by question.
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
    """The answer for symbolic sizes, as far as it follows from how the strides were made; None if
    it doesn't. (An empty tensor counts as contiguous, but then it makes no difference.)"""
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
    """Whether the elements fill a range of memory, each place once (PyTorch's "non-overlapping and
    dense")."""
    if is_contiguous(t):
        return True
    if t._has_symbolic_sizes_strides:
        return _is_dense_symbolic(t)
    expected = 1
    # The stride of a dimension of size 1 is never used.
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
    """The shape that these shapes broadcast to, or None if they don't fit."""
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
    """The size that two dimensions broadcast to, or None if they don't fit.

    Symbolic sizes are asked about as little as possible: above all not whether they are 1, if they
    are equal anyway.
    """
    if type(b) is int and type(a) is int:
        return b if a == 1 else a if b in (1, a) else None
    # Cases that need no guard come first.
    if a is b or (type(b) is int and b == 1):
        return a
    if type(a) is int and a == 1:
        return b
    if not all(type(n) is int or n.node.has_hint() for n in (a, b)):
        return _unbacked_together(a, b)
    for size, other in ((a, b), (b, a)):
        if hint(size) == 1 != hint(other) and size == 1:
            return other  # whatever that is
    if a == b:
        return a if type(a) is int else b
    return None


def _unbacked_together(a: Any, b: Any) -> Any:
    """As `_together`, where one of the sizes is unbacked: it is assumed not to be 1, so the two
    have to be equal, which is tested when the code runs."""
    if sure(a == b):
        return a if type(a) is int else b
    for size, other in ((a, b), (b, a)):
        if is_one(size):
            return other
    need(a == b)
    return a if type(a) is int else b


def pointwise_strides(
    tensors: Sequence[Tensor], sizes: tuple[int, ...], uniform: bool = True
) -> tuple[int, ...]:
    """The strides of a new result of a pointwise operation: those of the operands where they agree,
    otherwise in the order of the first operand that has one.

    `uniform` is False if there is a number among the operands: they are not all of one shape then,
    and PyTorch's fast paths don't apply.
    """
    if any(t._has_symbolic_sizes_strides for t in tensors):
        strides = _symbolic_strides(tensors, sizes, uniform)
        if strides is not None:
            return strides
    if uniform and all(t.size() == sizes for t in tensors):
        # TensorIterator's fast paths, in its order.
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
    """As `pointwise_strides`, for symbolic sizes. None if it depends on numbers that are in the
    data."""

    def pointwise(layouts: Sequence[numbers.Layout], wide: tuple[int, ...]) -> tuple[int, ...]:
        return numbers.pointwise(layouts, wide, uniform)

    order = broadcast_order(tensors, sizes)
    # Operands that lie alike keep their strides of dimensions of size 1, whatever these are.
    keeps_strides = uniform and order != list(reversed(range(len(sizes)))) and has_ones(sizes)
    usual = None if order is None or keeps_strides else ordered_strides(sizes, order[::-1])
    return eager_strides(pointwise, list(map(layout_of, tensors)), sizes, usual)


def has_ones(sizes: Iterable[Any]) -> bool:
    return any(sure(size == 1) for size in sizes)


def eager_strides(
    algorithm: supposed.Algorithm,
    layouts: Sequence[Any],
    sizes: tuple[Any, ...],
    usual: tuple[Any, ...] | None = None,
) -> tuple[Any, ...] | None:
    """The strides that `algorithm` gives a result: right for all sizes other than 0 and 1, and for
    the present ones.

    `usual` are strides that it is known to give in the first case. None: it depends on numbers in
    the data, or there are no such strides.
    """
    strides = usual
    has_free_strides = _has_free_strides(layouts, sizes)
    if has_free_strides:
        # Those who look at a later call with sizes of 1 know the call by its sizes.
        ask_for_ones([n for layout in layouts for n in layout[0]] + list(sizes))
        strides = usual = None
    try:
        strides = usual or supposed.for_larger_sizes(algorithm, layouts, sizes)
        # Strides of an empty tensor are looked at by nobody but the user; `SmallSizes` compares
        # those, if they follow from the sizes.
        if 0 in map(hint, sizes):
            return algorithm(layouts, sizes) if has_free_strides else strides
        # Sizes of 1 are special to PyTorch, so the general answer is compared with that for this
        # call.
        now = supposed.as_now(algorithm, layouts, sizes)
        if _are_now(strides, now):
            return strides
        # They differ, so this entry is for exactly these sizes of 1.
        ask_for_ones([n for layout in layouts for n in layout[0]] + list(sizes))
        strides = supposed.for_larger_sizes(algorithm, layouts, sizes)
        return strides if _are_now(strides, now) else algorithm(layouts, sizes)
    except supposed.Undecidable:
        # Some sizes are in the data, and are taken to be larger. Those that aren't are asked for:
        # nobody compares the strides later, which are made of data too.
        if strides is None or strides is usual:
            return usual
        ask_for_ones([n for layout in layouts for n in layout[0]] + list(sizes), others=True)
        return supposed.for_larger_sizes(algorithm, layouts, sizes)


def _has_free_strides(layouts: Sequence[Any], sizes: tuple[Any, ...]) -> bool:
    """Whether a dimension of size 0 or 1 has a stride that is a symbol of its own, rather than a
    product of sizes: nothing can be told of it then."""
    pairs = [pair for layout in layouts for pair in zip(*layout, strict=True)]
    strides = [stride for n, stride in pairs if type(stride) is not int and hint(n) in (0, 1)]
    if not strides:
        return False
    known = [n.node.expr.symbols for n in (*[n for n, _ in pairs], *sizes) if type(n) is not int]
    return any(not stride.node.expr.symbols <= frozenset().union(*known) for stride in strides)


def _are_now(strides: tuple[Any, ...] | None, now: tuple[int, ...] | None) -> bool:
    return strides is now if strides is None else tuple(map(hint, strides)) == now


def layout_of(t: Tensor) -> Any:
    return tuple(t.size()), tuple(t.stride())


def ask_for_ones(sizes: Iterable[Any], others: bool = False) -> bool:
    """Guard which of the sizes are 1: those that are so now, and with `others` also that the others
    are not. Returns whether one of these guards is new."""
    candidates = [size for size in sizes if hint(size) == 1 or (others and hint(size) is not None)]
    news = [size for size in candidates if not sure(size == 1)]
    for size in news:
        bool(size == 1)
    return bool(news)


def like_strides(t: Tensor) -> tuple[int, ...] | None:
    """The strides of a copy that keeps the order of dimensions in memory; None if finding it out
    needs more guards."""
    layout = layout_of(t)
    if not t._has_symbolic_sizes_strides:
        return numbers.like(layout)
    order = None if has_ones(layout[0]) else nesting(*layout)
    usual = None if order is None else ordered_strides(layout[0], order[::-1])
    return eager_strides(
        lambda layouts, sizes: numbers.like(layouts[0]), [layout], layout[0], usual
    )


def is_plain(t: Tensor) -> bool:
    """Whether each element has a place of its own in memory, as far as PyTorch looks, so that the
    tensor can be written to. An expanded tensor isn't plain."""
    if not t._has_symbolic_sizes_strides:
        return all(stride or size < 2 for size, stride in zip(t.size(), t.stride(), strict=True))
    return nesting(t.size(), t.stride()) is not None


def spread(t: Tensor, sizes: tuple[int, ...]) -> list[int]:
    """The strides of `t` broadcast to `sizes`: 0 in dimensions that are repeated."""
    # Broadcasting aligns shapes at the right.
    shift = len(sizes) - t.dim()
    own = zip(t.size(), t.stride(), sizes[shift:], strict=True)
    return [0] * shift + [0 if _is_spread(size, wide) else stride for size, stride, wide in own]


def _is_spread(size: Any, wide: Any) -> bool:
    if size is wide or (type(size) is not int and sure(size == wide)):
        return False
    return bool(size == 1 and wide != 1)


def permuted_strides(operands: list[list[int]], sizes: tuple[int, ...]) -> tuple[int, ...]:
    """Dense strides, with the dimensions sorted by the strides of the operands: the first operand
    that has an order for two dimensions decides."""

    inner = numbers.sorted_by(operands, sizes)
    if inner == list(reversed(range(len(sizes)))):
        return contiguous_strides(sizes)
    return numbers.packed(sizes, inner)


def index_strides(
    source: Sequence[int],
    indices: Sequence[Tensor],
    sizes: tuple[int, ...],
    around: tuple[int, int],
    usual: tuple[int, ...] | None,
) -> tuple[int, ...] | None:
    """The strides of the result of advanced indexing, `x[:, i, j]`.

    `source` are the strides of `x` broadcast to the result, `indices` the index tensors, and
    `around` how many dimensions of the result come before and after theirs. For each of these, an
    index is viewed with a dimension of size 1, whose stride counts where the result has size 1 too.
    """
    before, after = around

    def taken(layouts: Sequence[numbers.Layout], wide: tuple[int, ...]) -> tuple[int, ...]:
        own, *index_layouts = layouts
        common = wide[before : len(wide) - after]
        shape = (1,) * before + common + (1,) * after
        operands = [own]
        for index in index_layouts:
            strides = numbers.viewed((common, numbers.spread(index, common)), shape)
            operands.append((shape, numbers.row_major(shape) if strides is None else strides))
        return numbers.pointwise(operands, wide)

    layouts = [(sizes, tuple(source)), *map(layout_of, indices)]
    return eager_strides(taken, layouts, sizes, usual)


_CATEGORIES = {bool: torch.bool, int: torch.int64}


def promoted(tensors: Sequence[Tensor], numbers: Sequence[Any]) -> torch.dtype:
    """The dtype that the operands have in common, by PyTorch's type promotion: 0-dim tensors count
    less than other tensors, numbers least. `numbers` are Python numbers or dtypes of numbers."""
    zero_dim = [t.dtype for t in tensors if not t.dim()]
    kinds = [n if isinstance(n, torch.dtype) else _CATEGORIES.get(type(n)) for n in numbers]
    # A float counts as the default dtype.
    plain = [torch.get_default_dtype() if k is None or k.is_floating_point else k for k in kinds]
    return promoted_levels([t.dtype for t in tensors if t.dim()], zero_dim, plain)


def promoted_levels(*levels: Sequence[torch.dtype]) -> torch.dtype:
    """The common dtype of operands in three levels: tensors with dimensions, 0-dim tensors,
    numbers."""
    common: torch.dtype | None = None
    # A higher level wins unless a lower one is of a higher category: an int tensor plus 1.5 is a
    # float, a float16 tensor plus a 0-dim float64 stays float16.
    for level in levels:
        lower: torch.dtype | None = None
        for dtype in level:
            lower = dtype if lower is None else torch.promote_types(lower, dtype)
        common = _of_both_levels(common, lower)
    assert common is not None, "nothing to promote"
    return common


def _of_both_levels(higher: torch.dtype | None, lower: torch.dtype | None) -> torch.dtype | None:
    """The dtype of a level of operands and a lower one: the lower one counts only if it is of a
    higher category (bool < integer < float < complex)."""
    if higher is None or lower is None:
        return lower if higher is None else higher
    if higher.is_floating_point:
        return higher.to_complex() if lower.is_complex else higher
    wider = lower.is_floating_point or lower.is_complex
    if higher.is_complex or not (higher is torch.bool or wider):
        return higher
    return torch.promote_types(higher, lower)
