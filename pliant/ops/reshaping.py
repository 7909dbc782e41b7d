"""Views of another shape, and `reshape`: a view where that is possible, else a copy.

The one idea: dimensions that become one can be a view if the outer stride spans the inner
dimension, or one of them has size 1. That is asked for each pair that is merged, and nothing else:
dimensions that stay, or are split, ask nothing.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from itertools import accumulate, pairwise, product
from operator import mul
from typing import Any

import torch

from pliant.base.operators import register, register_functions
from pliant.fake import numbers
from pliant.fake.layout import (
    ask_for_ones,
    contiguous_strides,
    eager_strides,
    has_ones,
    layout_of,
)
from pliant.fake.order import hint, is_contiguous, need, sure
from pliant.fake.raising import never
from pliant.fake.supposed import Undecidable, as_now
from pliant.fake.views import ViewLayout
from pliant.loop.define import Index
from pliant.ops.indexed_tensor import IndexedTensor
from pliant.ops.lowering import NotLowered
from pliant.ops.places import divisor
from pliant.sym.expr import ONE, ZERO, Expr, floordiv, mod, product_of

aten = torch.ops.aten
IndexMap = Callable[[Index], Index]
Group = tuple[list[int], list[Any]]  # dimensions of the tensor, and the sizes that they become


def reshape(input: torch.Tensor, *shape: Any) -> Any:
    """Stands in for `torch.reshape`."""
    sizes = filled_in(input, shape[0] if len(shape) == 1 and _is_list(shape[0]) else shape)
    # A view in any case, without a question about sizes.
    if is_contiguous(input):
        return input.view(sizes)
    groups = _groups(input, sizes)
    if groups is None:
        return NotImplemented
    if all(_merges(input, dims) for dims, _ in groups):
        split = [stride for dims, parts in groups for stride in _split(input, dims, parts)]
        strides = _strides_with_ones(input, sizes) or split
        if not is_view_now(input, sizes, strides):
            return NotImplemented
        return input.as_strided(sizes, strides, input.storage_offset())
    if _falls_apart(input, groups):
        return NotImplemented
    copy = input.clone(memory_format=torch.contiguous_format)
    return aten._unsafe_view.default(copy, sizes)  # as PyTorch: a new tensor, no view of the copy


def flatten(input: torch.Tensor, start_dim: int = 0, end_dim: int = -1) -> Any:
    """Stands in for `torch.flatten`."""
    rank = input.dim()
    if not rank or not (-rank <= start_dim < rank and -rank <= end_dim < rank):
        return NotImplemented
    first, last = start_dim % rank, end_dim % rank
    if first >= last:
        return NotImplemented
    sizes = input.shape
    return reshape(input, *sizes[:first], math.prod(sizes[first : last + 1]), *sizes[last + 1 :])


def _is_list(value: Any) -> bool:
    return isinstance(value, list | tuple)


def _groups(t: torch.Tensor, sizes: Sequence[Any]) -> list[Group] | None:
    """Dimensions and the sizes that they become, in the smallest groups that are known to have as
    many elements on both sides, outermost first: (a, b, 6) to (a*b, 2, 3) has the groups (a, b) to
    (a*b) and (6) to (2, 3). None if they can't be told."""
    groups: list[Group] = []
    dims, left = list(range(t.dim())), list(sizes)
    while dims or left:
        group = _next_group(t, dims, left)
        if group is None:
            return None
        groups.append(group)
    return groups


def _next_group(t: torch.Tensor, dims: list[int], left: list[Any]) -> Group | None:
    """Take dimensions and sizes off the front of both lists, always on the side that has fewer
    elements, until both sides are known to have the same number. None if they never do."""
    group: Group = ([], [])
    # How many elements either side has so far.
    have, want = 1, 1
    # Hints only choose the side that grows; that both sides are equal has to be known.
    while not group[0] or not group[1] or not sure(have == want):
        have_hint, want_hint = hint(have), hint(want)
        if dims and (not group[0] or (group[1] and _less(have_hint, want_hint))):
            group[0].append(dims.pop(0))
            have = have * t.size(group[0][-1])
        elif left and (not group[1] or _less(want_hint, have_hint)):
            group[1].append(left.pop(0))
            want = want * group[1][-1]
        else:
            return None
    return group


def _less(a: int | None, b: int | None) -> bool:
    return a is not None and b is not None and a < b


def _falls_apart(t: torch.Tensor, groups: Sequence[Group]) -> bool:
    """Whether the first group that does not lie as one is several: with other sizes it may be, as
    (m, n) to (n, m) where these are equal, and those may lie as one."""
    dims, parts = next(group for group in groups if not _merges(t, group[0]))
    starts = (_starts([t.size(d) for d in dims]), _starts(parts))
    # Equal products, at the sizes of this call, are where the group would fall apart.
    pairs = [(a, b) for a, b in product(*starts) if None not in (hint(a), hint(b))]
    return any(a == b for a, b in pairs)


def _starts(sizes: Sequence[Any]) -> list[Any]:
    """The products of the first size, the first two, and so on, without the product of all."""
    return list(accumulate(sizes[:-1], mul))


def _merges(t: torch.Tensor, dims: list[int]) -> bool:
    """Whether one stride spans the dimensions, so that they can be merged without a copy."""
    if all(sure(_spans(t, *pair)) for pair in _pairs(t, dims)):
        return True
    real = [d for d in dims if not t.size(d) == 1]  # noqa: SIM201  a question: the answer is guarded
    return all(_spans(t, *pair) for pair in _pairs(t, real))


def _pairs(t: torch.Tensor, dims: list[int]) -> Iterator[tuple[int, int]]:
    return pairwise(d for d in dims if not sure(t.size(d) == 1))


def _spans(t: torch.Tensor, outer: int, inner: int) -> Any:
    return t.stride(outer) == t.stride(inner) * t.size(inner)


def _split(t: torch.Tensor, dims: list[int], parts: list[Any]) -> list[Any]:
    """The strides of the sizes `parts`, which dimensions that one stride spans are split into."""
    real = [d for d in dims if not sure(t.size(d) == 1)] or dims[-1:]
    step, strides = t.stride(real[-1]), []
    for part in reversed(parts):
        strides.append(step)
        step = step * part
    return list(reversed(strides))


# --------------------------------------------------------------------------------------------------
# Views


def _view_layout(t: torch.Tensor, sizes: Sequence[Any]) -> ViewLayout | None:
    shape = filled_in(t, sizes)
    exact = _strides_with_ones(t, shape)
    if exact is not None:
        return ViewLayout(shape, exact, t.storage_offset())
    for strides in _ways_to_view(t, shape):
        if is_view_now(t, shape, strides):
            return ViewLayout(shape, strides, t.storage_offset())
    if not _has_view_now(t, shape):
        # PyTorch's own rule for symbolic sizes finds a view of some expanded tensors.
        raise RuntimeError("view size is not compatible with input tensor's size and stride")
    return None


def _strides_with_ones(t: torch.Tensor, shape: tuple[Any, ...]) -> tuple[Any, ...] | None:
    """The strides of a view in which there are dimensions of size 1, whose strides depend on those
    around them. None if there are none, or no such view."""
    ones = has_ones((*t.size(), *shape))
    return eager_strides(_viewed, [layout_of(t)], shape) if ones else None


def _viewed(layouts: Sequence[numbers.Layout], shape: tuple[int, ...]) -> tuple[int, ...] | None:
    return numbers.viewed(layouts[0], shape)


def is_view_now(t: torch.Tensor, shape: Sequence[Any], strides: Sequence[Any]) -> bool:
    """Whether eager PyTorch gives a view of this shape these strides, as the sizes are now."""
    now = tuple(map(hint, strides))
    try:
        return 0 in map(hint, shape) or as_now(_viewed, [layout_of(t)], shape) == now
    except Undecidable:
        return True


def _has_view_now(t: torch.Tensor, shape: Sequence[Any]) -> bool:
    """Whether eager PyTorch has a view of this shape, as the sizes are now."""
    try:
        return as_now(_viewed, [layout_of(t)], shape) is not None
    except Undecidable:
        return True


def _ways_to_view(t: torch.Tensor, shape: tuple[Any, ...]) -> Iterator[tuple[Any, ...]]:
    """The strides of a view: those for sizes of which none is 1, and if they are not right as the
    sizes are now, with more questions."""
    if is_contiguous(t):
        yield contiguous_strides(shape)
    strides = _split_strides(t, shape)
    if strides is not None:
        yield strides
        ask_for_ones(t.size())
        strides = _split_strides(t, shape)
        if strides is not None:
            yield strides
    if t.is_contiguous():
        yield contiguous_strides(shape)


def filled_in(t: torch.Tensor, sizes: Sequence[Any]) -> tuple[Any, ...]:
    """The sizes, with -1 replaced by what it stands for. Requires that the number of elements stays
    the same."""
    missing = [d for d, size in enumerate(sizes) if _is_missing(size)]
    total, product = t.numel(), 1
    for d, size in enumerate(sizes):
        if d not in missing:
            product = product * size
    if not missing:
        need(total == product)
        return tuple(sizes)
    need(len(missing) == 1, "only one dimension can be inferred")
    inferred = _divided(total, product)
    return tuple(inferred if d in missing else size for d, size in enumerate(sizes))


def _is_missing(size: Any) -> bool:
    """Whether a size is -1, which a number that the program computes may be. A symbol that is known
    to be a size needs no guard."""
    if type(size) is int:
        return size == -1
    if sure(size >= 0):
        return False
    if size.node.has_hint() and size == -1:
        return True
    need(size >= 0)
    return False


def _divided(total: Any, product: Any) -> Any:
    """The size that -1 stands for: the number of elements divided by the other sizes. Requires that
    the division is exact, by a guard only if that isn't known."""
    need(product != 0, "-1 can be any size, beside a size of 0")
    need(total % product == 0)
    return total // product


def _split_strides(t: torch.Tensor, shape: tuple[Any, ...]) -> tuple[Any, ...] | None:
    """Strides for a view that keeps each of the dimensions, splits it, or adds ones."""
    if not t.dim():
        return (1,) * len(shape) if all(is_known_equal(size, 1) for size in shape) else None
    strides: list[Any] = []
    at = len(shape) - 1
    have, base = 1, t.stride(-1)
    for dim in reversed(range(t.dim())):
        have = have * t.size(dim)
        if dim and is_known_equal(t.size(dim - 1), 1):  # goes with what is inside it
            continue
        count = 1
        while at >= 0 and (not is_known_equal(count, have) or is_known_equal(shape[at], 1)):
            strides.append(base * count)
            count = count * shape[at]
            at -= 1
        if not is_known_equal(count, have):
            return None
        have, base = 1, t.stride(dim - 1)
    return tuple(reversed(strides)) if at < 0 else None


def is_known_equal(a: Any, b: Any) -> bool:
    """Whether the two are equal, as far as that is known without a question."""
    return sure(a == b)


def reshape_map(x: IndexedTensor, sizes: tuple[Expr, ...], *wanted: Any) -> IndexMap:
    """The map of `reshape`: in each group of dimensions with as many elements on both sides
    (`matched`), the index of the result is flattened and split again. Divisions are as few as
    possible: (n, 6) seen as (n, 2, 3) is the index (i, 3*j + k)."""
    pieces = matched(x.sizes, sizes)

    def where(index: Index) -> Index:
        places: dict[int, Expr] = {}
        for old_dims, new_dims in pieces:
            flat = ZERO
            for d in new_dims:
                flat = flat * sizes[d] + index[d]
            for d in reversed(old_dims[1:]):
                # A size of 0 is divided by as 1: such a tensor has no elements, but the expression
                # has to have a value.
                size = divisor(x.sizes[d])
                places[d] = mod(flat, size)
                flat = floordiv(flat, size)
            if old_dims:
                places[old_dims[0]] = flat
        return tuple([places.get(d, ZERO) for d in range(len(x.sizes))])

    return where


def matched(old: tuple[Expr, ...], new: tuple[Expr, ...]) -> list[tuple[list[int], list[int]]]:
    """Groups of dimensions of two shapes, in order, with as many elements on both sides; as small
    as possible. Dimensions of size 1 are in none."""
    a = [d for d, size in enumerate(old) if size is not ONE]
    b = [d for d, size in enumerate(new) if size is not ONE]
    pieces: list[tuple[list[int], list[int]]] = []
    while a or b:
        left, right = a[:1], b[:1]
        while True:
            n, m = product_of([old[d] for d in left]), product_of([new[d] for d in right])
            if n is m and left and right:
                break
            left, right = _longer(old, new, a, b, left, right, n, m)
        pieces.append((left, right))
        a, b = a[len(left) :], b[len(right) :]
    return pieces


def _longer(
    old: tuple[Expr, ...],
    new: tuple[Expr, ...],
    a: list[int],
    b: list[int],
    left: list[int],
    right: list[int],
    n: Expr,
    m: Expr,
) -> tuple[list[int], list[int]]:
    """One dimension more on the side that has fewer elements, or, if these can't be compared, on
    the side whose product has fewer symbols and factors."""
    more_left, more_right = len(left) < len(a), len(right) < len(b)
    if n.value is not None and m.value is not None:
        grow_left = n.value < m.value
    else:
        grow_left = len(n.symbols) + len(n.factors) < len(m.symbols) + len(m.factors)
    if grow_left and more_left:
        return a[: len(left) + 1], right
    if more_right and (not grow_left or not more_left):
        return left, b[: len(right) + 1]
    if more_left:
        return a[: len(left) + 1], right
    raise NotLowered("a reshape whose sizes don't match")


def reshape_inverse(rec: Any, parent: Any, new: Any, *args: Any, **kwargs: Any) -> Any:
    """The inverse of `reshape`: the same elements in the same order, of a contiguous copy."""
    new = rec.dispatch(aten.clone.default, (new,), {"memory_format": torch.contiguous_format})
    return rec.dispatch(aten.view.default, (new, list(parent.size())), {})


register(
    "aten.view.default",
    "aten._unsafe_view.default",
    view=_view_layout,
    index_map=reshape_map,
    inverse=reshape_inverse,
    covers=True,
    injective=True,
    rearranges=True,
)
register("aten.unflatten.int", rearranges=True)
register("aten.reshape.default", decomposition=reshape)
register("aten.flatten.using_ints", decomposition=flatten)
register_functions((torch.reshape, torch.Tensor.reshape), symbolic=reshape)
register_functions((torch.flatten, torch.Tensor.flatten), symbolic=flatten)
register("aten._unsafe_view.default", undeclared_view=True, raises=never)
