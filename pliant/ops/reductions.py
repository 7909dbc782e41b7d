"""Operators that make one number of many: sums, extremes, positions, variances, norms.

The one idea: three types are said for each. Elements are cast to the type that eager PyTorch casts
them to; they are accumulated in a wider one (`accumulated_in`: halves in f32, integers in i64), and
what comes out is rounded once, to the type of the result. Variances are computed in two passes,
mean first: the squares of small distances are summed, nothing cancels.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Final

import torch

from pliant.base.operators import aten_names, register
from pliant.fake import shapes
from pliant.fake.order import need
from pliant.fake.overload import Overload
from pliant.fake.raising import never
from pliant.fake.results import Recipe, Several
from pliant.fake.rule import Args, Kwargs, dense
from pliant.fake.tensor import Fake
from pliant.fake.traced import by_marks, in_rows
from pliant.loop.define import Index, LoopBody, address
from pliant.loop.ir import LoopValue, Op
from pliant.loop.types import HALF, INTEGER, Type
from pliant.ops.indexed_tensor import IndexedTensor
from pliant.ops.lowering import (
    Lowering,
    NotLowered,
    Number,
    computed_in,
    contiguous,
    lowers,
    number,
    type_of,
    unsqueezed,
)
from pliant.sym.cond import ne0
from pliant.sym.expr import ONE, ZERO, Expr, as_expr, floordiv, product_of

Then = Callable[[LoopBody, LoopValue], LoopValue]

COMPUTE_AGAIN_UP_TO: Final = 16
"""A tensor that is read in several passes is stored if an element takes more operations."""

SHARED_FROM: Final = 1 << 16
PARTS: Final = 32
PART: Final = 256
"""From `SHARED_FROM` elements on, a reduction to fewer than `PARTS` results is split, so that
threads can share it: into about `PARTS` parts of at least `PART` elements. The split doesn't depend
on the number of threads, so neither does the result."""

NOT_REDUCED: Final = frozenset({Type.U16, Type.U32, Type.U64})  # eager PyTorch has few of them


# --------------------------------------------------------------------------------------------------
# What all have in common


def accumulated_in(t: Type) -> Type:
    """The type in which sums of this type are computed."""
    return Type.I64 if t in INTEGER else computed_in(t)


def reduced(
    low: Lowering,
    op: Op,
    x: IndexedTensor,
    dims: Sequence[int],
    keepdim: bool = False,
    then: Then | None = None,
    type: Type | None = None,
    args: Callable[[LoopBody, LoopValue, Index], tuple[LoopValue, ...]] | None = None,
) -> IndexedTensor:
    """`low.reduce` for all tensors: one without dimensions is reduced as one with one element, and
    a large one with few results in two steps."""
    if x.type in NOT_REDUCED:
        raise NotLowered(f"a reduction of {x.type}")
    if not x.sizes:
        x, dims, keepdim = unsqueezed(x, (ONE,)), [0], False
    # Reduced to one number in one loop, there would be nothing for other threads to do.
    if args is None and low.hint(product_of(x.sizes)) >= SHARED_FROM:
        split, over, parts = _in_parts(low, x, dims)
        if parts:
            # Two reductions: the first has a result for each part, which threads share; the second
            # is small. The split depends on sizes alone, so that results do not change with the
            # number of threads.
            partial = low.reduce(op, split, [d for d in over if d not in parts])
            left = [d for d in range(len(split.sizes)) if d not in over or d in parts]
            total = low.reduce(op, partial, [left.index(d) for d in parts], False, then, type)
            with_ones = [ONE if d in dims else size for d, size in enumerate(x.sizes)]
            return unsqueezed(total, tuple(with_ones if keepdim else _without(with_ones, dims)))
    return low.reduce(op, x, dims, keepdim, then, type, args)


def _is_total(x: IndexedTensor, dims: Sequence[int]) -> bool:
    return all(d in dims or size is ONE for d, size in enumerate(x.sizes))


def _without(sizes: Sequence[Expr], dims: Sequence[int]) -> list[Expr]:
    return [size for d, size in enumerate(sizes) if d not in dims]


def _in_parts(
    low: Lowering, x: IndexedTensor, dims: Sequence[int]
) -> tuple[IndexedTensor, list[int], list[int]]:
    """How to split a reduction in two: the tensor, the dimensions it is reduced over, and those of
    them that the second step reduces. The first step has a result for each of their elements. There
    are none if there are enough results to share as it is, or if the first step's rows would be too
    short. A tensor that is one long row is seen as a matrix (`_in_rows`)."""
    large = sorted([d for d in dims if x.sizes[d] is not ONE])
    others = [d for d, size in enumerate(x.sizes) if size is not ONE and d not in large]
    rows = low.hint(product_of([x.sizes[d] for d in others]))
    over = sorted(dims)
    # Enough results to share among threads as it is.
    if rows >= PARTS or not large:
        return x, over, []
    if len(large) == 1 and not others:
        x, over = _in_rows(x, large[0]), [0, 1]
        large = over
    for last in range(1, len(large)):
        inner = low.hint(product_of([x.sizes[d] for d in large[last:]]))
        outer = low.hint(product_of([x.sizes[d] for d in large[:last]])) * rows
        if outer >= PARTS or last + 1 == len(large):
            return x, over, large[:last] if inner >= PART else []
    return x, over, []


def _in_rows(x: IndexedTensor, dim: int) -> IndexedTensor:
    """A tensor whose only dimension larger than 1 is `dim`, as a matrix of at least `PARTS` rows;
    of one row if no such number divides its size, or if that isn't known."""
    size = x.sizes[dim].value or 0
    # A divisor, so that all rows have the same length and nothing has to be masked.
    rows = next((n for n in range(PARTS, 4 * PARTS) if size and size % n == 0), 1)
    width = floordiv(x.sizes[dim], rows)

    def at(b: LoopBody, index: Index) -> LoopValue:
        place = [ZERO] * len(x.sizes)
        place[dim] = index[0] * width + index[1]
        return x.at(b, tuple(place))

    return IndexedTensor((as_expr(rows), width), x.type, at, x.cost, x.reads)


def rounded(type: Type) -> Then:
    return lambda b, v: b.cast(v, type)


def realize_if_costly(low: Lowering, x: IndexedTensor) -> IndexedTensor:
    """The tensor, stored if it is costly: for one that is read in several passes."""
    return low.realize(x) if x.cost > COMPUTE_AGAIN_UP_TO else x


def count(x: IndexedTensor, dims: Sequence[int]) -> Expr:
    """How many elements of x each result of a reduction over `dims` is computed from."""
    return product_of([x.sizes[d] for d in dims])


def with_ones(x: IndexedTensor, sizes: Sequence[Expr], dims: Sequence[int]) -> IndexedTensor:
    """The result of reducing a tensor of these sizes over `dims`, with sizes of 1 in their place,
    so that it broadcasts with the tensor."""
    return unsqueezed(x, tuple([ONE if d in dims else size for d, size in enumerate(sizes)]))


def need_elements(low: Lowering, x: IndexedTensor, dims: Sequence[int]) -> None:
    """There is no largest element of nothing: eager raises."""
    for d in dims:
        if low.known(ne0(x.sizes[d])) is not True:
            raise NotLowered("an extreme of what may be empty")


# --------------------------------------------------------------------------------------------------
# Sums and products


def _accumulate(
    low: Lowering, op: Op, x: IndexedTensor, dim: Any, keepdim: bool, then: Then | None = None
) -> IndexedTensor:
    """A sum or product of elements that are cast already to the type that accumulates them."""
    result = low.result.type

    def finish(b: LoopBody, v: LoopValue) -> LoopValue:
        return b.cast(v if then is None else then(b, v), result)

    return reduced(low, op, x, low.dims(x, dim), keepdim, finish, result)


def _as_result(low: Lowering, x: IndexedTensor) -> IndexedTensor:
    """Elements converted to the type of the result, as eager does first, then to the type in which
    they are accumulated."""
    result = low.result.type
    if result is Type.BOOL:
        raise NotLowered("a sum or product as bool")
    return low.cast(low.cast(x, result), accumulated_in(result))


@lowers(
    "aten.sum.default",
    "aten.sum.dim_IntList",
    shape=shapes.reduction(shapes.sum_dtype),
    reads_whole=True,
)
def sum_(
    low: Lowering,
    x: IndexedTensor,
    dim: Any = None,
    keepdim: bool = False,
    *,
    dtype: torch.dtype | None = None,
) -> IndexedTensor:
    return _accumulate(low, Op.SUM, _as_result(low, x), dim, keepdim)


@lowers("aten.nansum.default")
def nansum(
    low: Lowering,
    x: IndexedTensor,
    dim: Any = None,
    keepdim: bool = False,
    *,
    dtype: torch.dtype | None = None,
) -> IndexedTensor:
    if x.type.kind == "float":
        x = low.map(_zero_if_nan, x.type, x)
    return _accumulate(low, Op.SUM, _as_result(low, x), dim, keepdim)


def _zero_if_nan(b: LoopBody, v: LoopValue) -> LoopValue:
    unknown = b(Op.ISNAN, b.cast(v, computed_in(v.type)))
    return b(Op.SELECT, unknown, b.constant(0.0, v.type), v)


@lowers(
    "aten.mean.default",
    "aten.mean.dim",
    shape=shapes.reduction(shapes.floats_only),
    reads_whole=True,
)
def mean(
    low: Lowering,
    x: IndexedTensor,
    dim: Any = None,
    keepdim: bool = False,
    *,
    dtype: torch.dtype | None = None,
) -> IndexedTensor:
    size = count(x, low.dims(x, dim))

    def then(b: LoopBody, total: LoopValue) -> LoopValue:
        return b(Op.DIV, total, number(b, size, total.type))

    # If the result is of halves, elements are f32 whatever they were: they aren't rounded before.
    elements = low.cast(x, accumulated_in(low.result.type))
    return _accumulate(low, Op.SUM, elements, dim, keepdim, then)


@lowers("aten.prod.default", "aten.prod.dim_int")
def prod(
    low: Lowering,
    x: IndexedTensor,
    dim: int | None = None,
    keepdim: bool = False,
    *,
    dtype: torch.dtype | None = None,
) -> IndexedTensor:
    if low.result.type in HALF:  # eager rounds the product after every factor
        raise NotLowered(f"a product of {low.result.type}")
    return _accumulate(low, Op.PROD, _as_result(low, x), dim, keepdim)


WIDE_UNSIGNED: Final = (Type.U16, Type.U32, Type.U64)


def _refuse(x: IndexedTensor, types: Sequence[Type]) -> None:
    """PyTorch has no kernel for these. The call is left to it, so that it raises its own error."""
    if x.type in types:
        raise NotLowered(f"PyTorch does not compute it of {x.type.name}")


@lowers("aten.count_nonzero.default", "aten.count_nonzero.dim_IntList")
def count_nonzero(low: Lowering, x: IndexedTensor, dim: Any = None) -> IndexedTensor:
    _refuse(x, WIDE_UNSIGNED)
    ones = low.cast(low.cast(x, Type.BOOL), Type.I64)
    return reduced(low, Op.SUM, ones, low.dims(x, dim))


@lowers("aten.trace.default")
def trace(low: Lowering, x: IndexedTensor) -> IndexedTensor:
    if x.sizes[0] is not x.sizes[1]:
        raise NotLowered("the trace of what may not be square")
    _refuse(x, (Type.BOOL, *WIDE_UNSIGNED))
    diagonal = low.generate(x.sizes[:1], x.type, lambda b, index: x.at(b, index * 2), x.cost + 1)
    return _accumulate(low, Op.SUM, _as_result(low, diagonal), None, False)


# --------------------------------------------------------------------------------------------------
# Any and all


@lowers("aten.any.default", "aten.any.dim", "aten.any.dims")
def any_(low: Lowering, x: IndexedTensor, dim: Any = None, keepdim: bool = False) -> IndexedTensor:
    return _truth(low, Op.ANY, x, dim, keepdim)


@lowers("aten.all.default", "aten.all.dim", "aten.all.dims")
def all_(low: Lowering, x: IndexedTensor, dim: Any = None, keepdim: bool = False) -> IndexedTensor:
    return _truth(low, Op.ALL, x, dim, keepdim)


def _truth(low: Lowering, op: Op, x: IndexedTensor, dim: Any, keepdim: bool) -> IndexedTensor:
    result = low.result.type  # bool, but uint8 for uint8
    truths = low.cast(x, Type.BOOL)
    if isinstance(dim, list | tuple) and not dim:  # an empty list reduces nothing
        return low.cast(truths, result)
    return reduced(low, op, truths, low.dims(x, dim), keepdim, rounded(result), result)


# --------------------------------------------------------------------------------------------------
# Extremes and where they are

_EXTREME: Final = {True: (Op.MAX, Op.ANY, Op.ARG_MAX), False: (Op.MIN, Op.ALL, Op.ARG_MIN)}


def extreme(
    low: Lowering, largest: bool, x: IndexedTensor, dims: Sequence[int], keepdim: bool
) -> IndexedTensor:
    """The largest or smallest element over `dims`, in the type of x."""
    need_elements(low, x, dims)
    op, of_bools, _ = _EXTREME[largest]
    chosen = of_bools if x.type is Type.BOOL else op
    working = low.cast(x, computed_in(x.type))
    return reduced(low, chosen, working, dims, keepdim, rounded(x.type), x.type)


def position(
    low: Lowering, largest: bool, x: IndexedTensor, dim: int | None, keepdim: bool
) -> IndexedTensor:
    """The position of the first extreme: along `dim`, or among all elements if that is None."""
    dims = low.dims(x, dim)
    need_elements(low, x, dims)
    working = low.cast(x, Type.U8 if x.type is Type.BOOL else computed_in(x.type))
    strides = contiguous(working.sizes or (ONE,))

    def args(b: LoopBody, v: LoopValue, index: Index) -> tuple[LoopValue, ...]:
        at = address(index, strides) if dim is None else index[dims[0] if dims else 0]
        return v, b.iota(at)

    return reduced(low, _EXTREME[largest][2], working, dims, keepdim, None, Type.I64, args)


@lowers(
    "aten.amax.default", shape=shapes.reduction(shapes.unchanged, empty=False), reads_whole=True
)
def amax(low: Lowering, x: IndexedTensor, dim: Any = (), keepdim: bool = False) -> IndexedTensor:
    return extreme(low, True, x, low.dims(x, dim), keepdim)


@lowers(
    "aten.amin.default", shape=shapes.reduction(shapes.unchanged, empty=False), reads_whole=True
)
def amin(low: Lowering, x: IndexedTensor, dim: Any = (), keepdim: bool = False) -> IndexedTensor:
    return extreme(low, False, x, low.dims(x, dim), keepdim)


@lowers("aten.aminmax.default", "aten._aminmax.default", "aten._aminmax.dim")
def aminmax(
    low: Lowering, x: IndexedTensor, dim: int | None = None, keepdim: bool = False
) -> tuple[IndexedTensor, IndexedTensor]:
    dims = low.dims(x, dim)
    x = realize_if_costly(low, x)
    return extreme(low, False, x, dims, keepdim), extreme(low, True, x, dims, keepdim)


@lowers("aten.max.default")
def max_of_all(low: Lowering, x: IndexedTensor) -> IndexedTensor:
    return extreme(low, True, x, low.dims(x, None), False)


@lowers("aten.min.default")
def min_of_all(low: Lowering, x: IndexedTensor) -> IndexedTensor:
    return extreme(low, False, x, low.dims(x, None), False)


def _extreme_shape(op: Overload, args: Args, kwargs: Kwargs, device: torch.device) -> Recipe | None:
    """max.dim, min.dim: values and indices."""
    t, dim, keep = (*args, False)[:3]
    sizes = shapes.reduced_sizes(t, dim, keep)
    if sizes is None or shapes.over_nothing(t, dim):
        return None
    return Several(tuple, (dense(sizes, t.dtype, device), dense(sizes, torch.int64, device)))


@lowers("aten.max.dim", shape=_extreme_shape)
def max_along(
    low: Lowering, x: IndexedTensor, dim: int, keepdim: bool = False
) -> tuple[IndexedTensor, IndexedTensor]:
    return _along(low, True, x, dim, keepdim)


@lowers("aten.min.dim", shape=_extreme_shape)
def min_along(
    low: Lowering, x: IndexedTensor, dim: int, keepdim: bool = False
) -> tuple[IndexedTensor, IndexedTensor]:
    return _along(low, False, x, dim, keepdim)


def _along(
    low: Lowering, largest: bool, x: IndexedTensor, dim: int, keepdim: bool
) -> tuple[IndexedTensor, IndexedTensor]:
    x = realize_if_costly(low, x)
    values = extreme(low, largest, x, low.dims(x, dim), keepdim)
    return values, position(low, largest, x, dim, keepdim)


@lowers("aten.argmax.default")
def argmax(
    low: Lowering, x: IndexedTensor, dim: int | None = None, keepdim: bool = False
) -> IndexedTensor:
    _refuse(x, (Type.BOOL,))
    return position(low, True, x, dim, keepdim)


@lowers("aten.argmin.default")
def argmin(
    low: Lowering, x: IndexedTensor, dim: int | None = None, keepdim: bool = False
) -> IndexedTensor:
    _refuse(x, (Type.BOOL,))
    return position(low, False, x, dim, keepdim)


# --------------------------------------------------------------------------------------------------
# Variances


def moments(
    low: Lowering,
    x: IndexedTensor,
    dims: Sequence[int],
    then: Then | None = None,
    type: Type | None = None,
) -> tuple[IndexedTensor, IndexedTensor]:
    """The mean, and the sum of the squared distances to it, over `dims` of x, whose type is f32 or
    f64. `then` finishes the second, giving a value of `type`. Two passes: the mean has to be known
    first, or the squares would cancel."""
    elements = count(x, dims)

    def divided(b: LoopBody, total: LoopValue) -> LoopValue:
        return b(Op.DIV, total, number(b, elements, total.type))

    x = realize_if_costly(low, x)
    center = reduced(low, Op.SUM, x, dims, False, divided)
    squares = low.map(_squared_distance, x.type, x, with_ones(center, x.sizes, dims))
    return center, reduced(low, Op.SUM, squares, dims, False, then, type)


def _squared_distance(b: LoopBody, v: LoopValue, center: LoopValue) -> LoopValue:
    distance = b(Op.SUB, v, center)
    return b(Op.MUL, distance, distance)


def _spread(
    low: Lowering,
    x: IndexedTensor,
    dim: Any,
    correction: Number | None,
    keepdim: bool,
    root: bool = False,
) -> tuple[IndexedTensor, IndexedTensor]:
    """The variance, or its square root, and the mean. As in eager PyTorch, everything is computed
    in f64: the squares of numbers in the range of f32 may be out of it."""
    if x.type.kind != "float":
        raise NotLowered(f"the variance of {x.type}")
    result = low.results[0].type
    x = low.cast(x, Type.F64)
    dims = low.dims(x, dim)
    if not x.sizes:
        x, dims, keepdim = unsqueezed(x, (ONE,)), [0], False
    degrees = _degrees_of_freedom(count(x, dims), 1 if correction is None else correction)

    def then(b: LoopBody, squares: LoopValue) -> LoopValue:
        variance = b(Op.DIV, squares, b.cast(degrees(b), squares.type))
        return b.cast(b(Op.SQRT, variance) if root else variance, result)

    x = realize_if_costly(low, x)
    center, spread = moments(low, x, dims, then, result)
    # `var_mean` returns the mean, too, and its infinities show how eager PyTorch computes it.
    if len(low.results) == 2:
        center = _running_mean(low, x, dims, center, spread)
    center = low.cast(center, result)
    if keepdim:
        return with_ones(spread, x.sizes, dims), with_ones(center, x.sizes, dims)
    return spread, center


def _running_mean(
    low: Lowering,
    x: IndexedTensor,
    dims: Sequence[int],
    center: IndexedTensor,
    spread: IndexedTensor,
) -> IndexedTensor:
    """The mean as eager PyTorch updates it, element by element: after an infinite one, whatever
    follows makes it nan. Many elements are shared by threads, each of which has its own end."""
    if _is_total(x, dims) and low.hint(count(x, dims)) >= SHARED_FROM:
        return low.map(_nan_where_nan, center.type, center, low.cast(spread, center.type))
    strides = contiguous([x.sizes[d] for d in dims])
    last = count(x, dims) - 1

    def args(b: LoopBody, v: LoopValue, index: Index) -> tuple[LoopValue, ...]:
        place = address([index[d] for d in dims], strides)
        at_end = b(Op.EQ, b.iota(place), b.iota(last))
        return (b(Op.SELECT, at_end, b.constant(0.0, v.type), v),)

    others = reduced(low, Op.SUM, x, dims, args=args)
    return low.map(_nan_where_not_finite, center.type, center, others)


def _nan_where_nan(b: LoopBody, v: LoopValue, other: LoopValue) -> LoopValue:
    return b(Op.SELECT, b(Op.ISNAN, other), b.constant(math.nan, v.type), v)


def _nan_where_not_finite(b: LoopBody, v: LoopValue, other: LoopValue) -> LoopValue:
    finite = b(Op.LT, b(Op.ABS, other), b.constant(math.inf, other.type))
    return b(Op.SELECT, finite, v, b.constant(math.nan, v.type))


def _degrees_of_freedom(count: Expr, correction: Number) -> Callable[[LoopBody], LoopValue]:
    """What the sum of squares is divided by, in f64: the count less the correction, but at least 0.
    It is 0 if there are no elements, whose variance is nan (0/0) whatever the correction."""
    if count.value is not None and isinstance(correction, int | float):
        freedom = max(float(count.value) - float(correction), 0.0) if count.value else 0.0
        return lambda b: b.constant(freedom, Type.F64)

    def computed(b: LoopBody) -> LoopValue:
        zero, elements = b.constant(0.0, Type.F64), number(b, count, Type.F64)
        left = b(Op.SUB, elements, number(b, correction, Type.F64))
        return b(Op.SELECT, b(Op.EQ, elements, zero), zero, b(Op.MAXIMUM, left, zero))

    return computed


Variances = Callable[[Lowering, IndexedTensor, Any, Number | None, bool], Any]


def _enter_variances(name: str, rule: Variances) -> None:
    """The overloads of var, std, var_mean and std_mean differ in how the correction is said."""

    @lowers(f"aten.{name}.default")
    def default(low: Lowering, x: IndexedTensor, unbiased: bool = True) -> Any:
        return rule(low, x, None, int(unbiased), False)

    @lowers(f"aten.{name}.dim")
    def along(
        low: Lowering, x: IndexedTensor, dim: Any, unbiased: bool = True, keepdim: bool = False
    ) -> Any:
        return rule(low, x, dim, int(unbiased), keepdim)

    @lowers(f"aten.{name}.correction")
    def corrected(
        low: Lowering,
        x: IndexedTensor,
        dim: Any = None,
        *,
        correction: Number | None = None,
        keepdim: bool = False,
    ) -> Any:
        return rule(low, x, dim, correction, keepdim)


def _first(rule: Variances) -> Variances:
    return lambda *args: rule(*args)[0]


_enter_variances("var", _first(_spread))
_enter_variances("std", _first(partial(_spread, root=True)))
_enter_variances("var_mean", _spread)
_enter_variances("std_mean", partial(_spread, root=True))


# --------------------------------------------------------------------------------------------------
# Logarithms of sums


@lowers("aten.logsumexp.default", "aten.special_logsumexp.default")
def logsumexp(low: Lowering, x: IndexedTensor, dim: Any, keepdim: bool = False) -> IndexedTensor:
    """`m + log(sum(exp(x - m)))`, where m is the maximum, or 0 if that is infinite: no exponential
    overflows."""
    result = low.result.type
    x = realize_if_costly(low, low.cast(x, computed_in(result)))
    dims = low.dims(x, dim)
    if not x.sizes:
        x, dims, keepdim = unsqueezed(x, (ONE,)), [0], False
    # inf - inf would be nan.
    top = low.reduce(Op.MAX, x, dims, False, _zero_if_infinite)
    far = low.map(_exp_of_distance, x.type, x, with_ones(top, x.sizes, dims), cost=20)
    total = low.reduce(Op.SUM, far, dims, False, lambda b, v: b(Op.LOG, v))
    logs = low.map(lambda b, v, m: b.cast(b(Op.ADD, v, m), result), result, total, top)
    return with_ones(logs, x.sizes, dims) if keepdim else logs


def _zero_if_infinite(b: LoopBody, v: LoopValue) -> LoopValue:
    return b(Op.SELECT, b(Op.ISINF, v), b.constant(0.0, v.type), v)


def _exp_of_distance(b: LoopBody, v: LoopValue, top: LoopValue) -> LoopValue:
    return b(Op.EXP, b(Op.SUB, v, top))


# --------------------------------------------------------------------------------------------------
# Norms


@lowers("aten.linalg_vector_norm.default")
def vector_norm(
    low: Lowering,
    x: IndexedTensor,
    ord: Number = 2,
    dim: Any = None,
    keepdim: bool = False,
    *,
    dtype: torch.dtype | None = None,
) -> IndexedTensor:
    """(sum of |x|**ord) ** (1/ord), and what that tends to: the largest and smallest |x|, and how
    many aren't 0."""
    if not isinstance(ord, int | float) or math.isnan(ord):
        raise NotLowered("a norm of a degree that is not constant")
    if dtype is not None:
        x = low.cast(x, type_of(dtype))
    if x.type.kind != "float":
        raise NotLowered(f"a norm of {x.type}")
    result = low.result.type
    x = low.cast(x, computed_in(x.type))
    dims = low.dims(x, dim)
    if math.isinf(ord) or ord < 0:
        need_elements(low, x, dims)
    # The norm of one number is its absolute value, without the rounding of a power and a root;
    # eager PyTorch does not know this of a dimension that a tensor does not have.
    has_dims = bool(x.sizes) or not dim
    single = ord != 0 and has_dims and all(x.sizes[d] is ONE for d in dims)
    op, term, then = _NORMS.get(1 if single else ord) or _power_norm(ord)
    terms = low.map(term, x.type, x, cost=1 if ord in _NORMS else 40)
    return reduced(low, op, terms, dims, keepdim, lambda b, v: b.cast(then(b, v), result), result)


Each = Callable[[LoopBody, LoopValue], LoopValue]


def _same(b: LoopBody, v: LoopValue) -> LoopValue:
    return v


def _absolute(b: LoopBody, v: LoopValue) -> LoopValue:
    return b(Op.ABS, v)


def _not_zero(b: LoopBody, v: LoopValue) -> LoopValue:
    return b.cast(b(Op.NE, v, b.constant(0.0, v.type)), v.type)


_NORMS: Final[dict[float, tuple[Op, Each, Each]]] = {
    0: (Op.SUM, _not_zero, _same),
    1: (Op.SUM, _absolute, _same),
    2: (Op.SUM, lambda b, v: b(Op.MUL, v, v), lambda b, v: b(Op.SQRT, v)),
    math.inf: (Op.MAX, _absolute, _same),
    -math.inf: (Op.MIN, _absolute, _same),
}
"""By degree: the reduction, what it is of, and what is done with the result."""


def _power_norm(degree: float) -> tuple[Op, Each, Each]:
    def power(exponent: float) -> Each:
        return lambda b, v: b(Op.POW, b(Op.ABS, v), b.constant(exponent, v.type))

    return Op.SUM, power(float(degree)), power(1.0 / degree)


@lowers("aten.norm.Scalar", "aten.norm.ScalarOpt_dtype")
def norm(
    low: Lowering, x: IndexedTensor, p: Number | None = 2, *, dtype: torch.dtype | None = None
) -> IndexedTensor:
    return vector_norm(low, x, 2 if p is None else p, None, False, dtype=dtype)


@lowers("aten.norm.ScalarOpt_dim", "aten.norm.ScalarOpt_dim_dtype")
def norm_along(
    low: Lowering,
    x: IndexedTensor,
    p: Number | None,
    dim: Any,
    keepdim: bool = False,
    *,
    dtype: torch.dtype | None = None,
) -> IndexedTensor:
    return vector_norm(low, x, 2 if p is None else p, dim, keepdim, dtype=dtype)


@lowers("aten.dist.default")
def dist(low: Lowering, x: IndexedTensor, other: IndexedTensor, p: Number = 2) -> IndexedTensor:
    """The norm of the difference, which eager PyTorch rounds to the type of the elements first."""
    if x.type is not other.type:
        raise NotLowered("a distance of several types")
    working = [low.cast(tensor, computed_in(x.type)) for tensor in (x, other)]
    difference = low.map(lambda b, v, w: b.cast(b(Op.SUB, v, w), x.type), x.type, *working)
    return vector_norm(low, difference, p)


register("aten.dist", raises=never)


# --------------------------------------------------------------------------------------------------
# Shape rules that put no guards on symbolic sizes


def _need_elements(position: int, default: int | None) -> Callable[[Args, Kwargs], None]:
    """Some reductions have no result over nothing; eager PyTorch refuses. `position` of the
    argument that says along which dimension, and what it is if nothing is said: None is all."""

    def rule(args: Args, kwargs: Kwargs) -> None:
        dim = args[position] if len(args) > position else kwargs.get("dim", default)
        _need_elements_along(args[0], dim)

    return rule


def _need_elements_along(t: Fake, dim: int | None) -> None:
    if t.dim():
        for d in range(t.dim()) if dim is None else [dim]:
            need(t.size(d) != 0)


def _need_elements_of_norm(args: Args, kwargs: dict[str, Any]) -> None:
    """Norms that are the largest or the smallest element have no value over nothing."""
    t, order, dim = (*args, None, None)[:3]
    order = kwargs.get("ord", order)
    if not isinstance(order, int | float) or not (order < 0 or order == math.inf):
        return
    dims = kwargs.get("dim", dim)
    every = dims is None or dims == []
    for d in range(t.dim()) if every else [dims] if isinstance(dims, int) else dims:
        if t.dim():
            need(t.size(d) != 0)


def _names(*groups: tuple[str, str]) -> list[str]:
    """`("all any", "default dim")` is all.default, all.dim, any.default, any.dim."""
    return [f"aten.{n}.{o}" for names, more in groups for n in names.split() for o in more.split()]


register(
    *_names(
        ("prod", "default dim_int"),
        ("std var var_mean std_mean", "correction"),
        ("all any", "default dim dims"),
        ("median nanmedian nansum logsumexp trace", "default"),
        ("count_nonzero", "dim_IntList default"),
    ),
    shape=by_marks(in_rows),
)
register(
    *_names(
        ("argmax argmin max min aminmax", "default"),
        ("median nanmedian", "dim"),
    ),
    shape=by_marks(in_rows, _need_elements(1, None)),
)
register("aten.mode.default", shape=by_marks(in_rows, _need_elements(1, -1)))
register("aten.kthvalue.default", shape=by_marks(in_rows, _need_elements(2, -1)))
register(
    *_names(
        ("norm", "Scalar ScalarOpt_dim ScalarOpt_dim_dtype"), ("linalg_vector_norm", "default")
    ),
    shape=by_marks(in_rows, _need_elements_of_norm),
)
register(*_names(("prod any all max min argmax argmin", "default")), reads_whole=True)


_SAFE: Final = """
linalg_vector_norm norm sum nansum mean prod amax amin aminmax _aminmax max min argmax
argmin all any count_nonzero std std_mean var var_mean logsumexp special_logsumexp median
nanmedian mode kthvalue trace
"""
register(*aten_names(_SAFE), raises=never)
