"""Questions about memory layout, as conditions on symbolic sizes and strides.

The one idea: each function gives the condition under which eager PyTorch says yes, for all values
of the sizes, 0 and 1 included. What follows from the way the strides were built needs no question:
row-major strides are `s1*s2, s2, 1`, each is the product of the sizes after it, and the condition
is TRUE as it is built. What is left depends on the sizes; a ShapeEnv is asked for it when somebody
needs to know.

An empty tensor is contiguous whatever its strides are. So in "it is empty, or ...", every size can
be taken to be at least 1, and `max(s, 1)`, which PyTorch puts into the strides that it makes, is s.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from pliant.sym.cond import FALSE, TRUE, Cond, and_, eq, ge, ne, or_
from pliant.sym.expr import (
    ONE,
    ZERO,
    Expr,
    cached,
    from_factors,
    maximum,
    mul,
    product_of,
    scale,
    sum_of,
)

Exprs = tuple[Expr, ...]
LayoutCondition = Callable[[Exprs, Exprs], Cond]
CHANNELS_LAST_2D: Final = (1, 3, 2, 0)
CHANNELS_LAST_3D: Final = (1, 4, 3, 2, 0)
MOST_DIMS: Final = 5  # for more, not every order of the dimensions is tried


@cached(4096)
def is_contiguous(sizes: Exprs, strides: Exprs) -> Cond:
    strides = _if_not_empty(sizes, strides)
    return _or_empty(sizes, _packed(sizes, strides, range(len(sizes) - 1, -1, -1)))


@cached(4096)
def is_row_major(sizes: Exprs, strides: Exprs) -> Cond:
    """As contiguous, but an empty tensor has to have the right strides too; with s or max(s, 1)."""
    expected, positive, parts = ONE, ONE, []
    for size, stride in zip(reversed(sizes), reversed(strides), strict=True):
        # PyTorch multiplies max(size, 1) into strides, so an empty tensor may have either form.
        parts.append(or_(eq(size, 1), eq(stride, expected), eq(stride, positive)))
        expected, positive = mul(expected, size), mul(positive, maximum(size, 1))
    return and_(*parts)


@cached(4096)
def is_channels_last_contiguous_2d(sizes: Exprs, strides: Exprs) -> Cond:
    return _packed(sizes, strides, CHANNELS_LAST_2D) if len(sizes) == 4 else FALSE


@cached(4096)
def is_channels_last_contiguous_3d(sizes: Exprs, strides: Exprs) -> Cond:
    return _packed(sizes, strides, CHANNELS_LAST_3D) if len(sizes) == 5 else FALSE


@cached(4096)
def is_channels_last_strides_2d(sizes: Exprs, strides: Exprs) -> Cond:
    return _ascending(sizes, strides, CHANNELS_LAST_2D) if len(sizes) == 4 else FALSE


@cached(4096)
def is_channels_last_strides_3d(sizes: Exprs, strides: Exprs) -> Cond:
    return _ascending(sizes, strides, CHANNELS_LAST_3D) if len(sizes) == 5 else FALSE


@cached(4096)
def is_non_overlapping_and_dense(sizes: Exprs, strides: Exprs) -> Cond:
    """The condition that the strides are packed in some order of the dimensions, or the tensor is
    empty. All orders are tried: for more than `MOST_DIMS` dimensions use `is_dense_in_order`."""
    strides = _if_not_empty(sizes, strides)
    dims = frozenset(range(len(sizes)))
    return _or_empty(sizes, _packed_in_some_order(sizes, strides, dims, ONE))


@cached(4096)
def is_dense_in_order(sizes: Exprs, strides: Exprs, order: tuple[int, ...]) -> Cond:
    """The condition that the strides are packed in this order of the dimensions, the smallest
    stride first, or the tensor is empty. It suffices for being non-overlapping and dense."""
    return _or_empty(sizes, _packed(sizes, _if_not_empty(sizes, strides), order))


@cached(4096)
def broadcast_row_major(sizes: Exprs, strides: Exprs) -> bool:
    """Whether the strides are row-major by construction, but for dimensions with stride 0, which
    were 1 before the tensor was broadcast."""
    expected = positive = ONE
    for size, stride in zip(reversed(sizes), reversed(strides), strict=True):
        if stride is ZERO:
            continue
        if stride is not expected and stride is not positive:
            return False
        expected, positive = mul(expected, size), mul(positive, maximum(size, 1))
    return True


def _or_empty(sizes: Exprs, cond: Cond) -> Cond:
    # Left out where it adds nothing: a shorter condition is a shorter guard.
    return cond if cond is TRUE else or_(cond, *[eq(size, 0) for size in sizes])


def _packed(sizes: Exprs, strides: Exprs, order: Sequence[int]) -> Cond:
    """Each stride is the product of the sizes before it in `order`, or its size is 1."""
    expected, parts = ONE, []
    for d in order:
        parts.append(or_(eq(sizes[d], 1), eq(strides[d], expected)))
        expected = mul(expected, sizes[d])
    return and_(*parts)


def _ascending(sizes: Exprs, strides: Exprs, order: Sequence[int]) -> Cond:
    """The strides look as if the dimensions were stored in this order: what PyTorch takes for
    channels-last, which is not so for an empty tensor, and not so if it is row-major as well."""
    parts, least = [ne(strides[1], 0)], ZERO
    for d in order:
        parts += [ne(sizes[d], 0), ge(strides[d], least)]
        if d == 0:
            parts.append(ne(least, strides[1]))
        least = mul(strides[d], maximum(sizes[d], 1))
    return and_(*parts)


def _packed_in_some_order(
    sizes: Exprs, strides: Exprs, dims: frozenset[int], expected: Expr
) -> Cond:
    """`_packed` for some order of `dims`, which come after dimensions of `expected` elements."""
    if not dims:
        return TRUE
    cases = []
    # Row-major order first: it mostly fits, and ends the search.
    for d in sorted(dims, reverse=True):
        # FALSE where it is so by construction: then there is no need to look further.
        fits_here = or_(eq(sizes[d], 1), eq(strides[d], expected))
        if fits_here is not FALSE:
            fits_inside = _packed_in_some_order(sizes, strides, dims - {d}, mul(expected, sizes[d]))
            cases.append(and_(fits_here, fits_inside))
            if cases[-1] is TRUE:
                return TRUE
    return or_(*cases)


def _if_not_empty(sizes: Exprs, strides: Exprs) -> Exprs:
    """The strides with s in place of max(s, 1) for each of the sizes s: equal wherever no size is
    0."""
    plain = {maximum(size, 1): size for size in sizes if size.terms}
    if not plain or all(stride.plain for stride in strides):
        return strides
    return tuple([_replace_factors(stride, plain) for stride in strides])


def _replace_factors(e: Expr, plain: dict[Expr, Expr]) -> Expr:
    parts = [scale(ONE, e.const)]
    for product, c in e.terms:
        unreplaced = from_factors({f: n for f, n in product.factors if f not in plain})
        changed = [plain[f] for f, n in product.factors if f in plain for _ in range(n)]
        parts.append(scale(product_of([unreplaced, *changed]), c))
    return sum_of(parts)
