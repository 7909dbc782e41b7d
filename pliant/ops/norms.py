"""Normalisations: elements relative to the statistics of their row, group or channel.

The one idea: first the statistics as reductions, then each element as a cheap function of itself
and of them, which can be computed again wherever it is read. Halves are f32 from the first load to
the last store, as in eager PyTorch.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Final

import torch
import torch.nn.functional as F

from pliant.base.operators import aten_names, register, register_functions
from pliant.fake import meta
from pliant.fake.layout import suggested_strides
from pliant.fake.overload import Overload
from pliant.fake.raising import never
from pliant.fake.results import Recipe, Several
from pliant.fake.rule import Args, Kwargs, dense, is_empty, new
from pliant.loop.define import Index, LoopBody
from pliant.loop.ir import LoopValue, Op
from pliant.loop.types import FLOAT, Type
from pliant.ops.elementwise import finished, like
from pliant.ops.indexed_tensor import IndexedTensor
from pliant.ops.lowering import (
    Lowering,
    Meta,
    NotLowered,
    Number,
    computed_in,
    constant,
    lowers,
    number,
    unsqueezed,
)
from pliant.ops.reductions import Then, count, moments, realize_if_costly, with_ones
from pliant.sym.expr import ONE, ZERO, Expr, as_expr, floordiv

# --------------------------------------------------------------------------------------------------
# Normalisation by the mean and variance of what is normalised


def _inverse_deviation(count: Expr, eps: Number, type: Type) -> Then:
    """The `then` of `moments` that makes 1 / sqrt(variance + eps) of the sum of `count` squared
    distances, as a value of `type`."""

    def then(b: LoopBody, squares: LoopValue) -> LoopValue:
        variance = b(Op.DIV, squares, number(b, count, squares.type))
        inside = b(Op.ADD, variance, number(b, eps, squares.type))
        root = b(Op.SQRT, inside)
        return b.cast(b(Op.DIV, b.constant(1.0, root.type), root), type)

    return then


def _statistics(
    low: Lowering, x: IndexedTensor, dims: Sequence[int], eps: Number, type: Type
) -> tuple[IndexedTensor, IndexedTensor]:
    """The mean of x over `dims`, and 1 / sqrt(variance + eps), both of `type` and without the
    reduced dimensions."""
    # Eager's results for nothing differ from operator to operator.
    if x.type not in FLOAT or ZERO in [x.sizes[d] for d in dims]:
        raise NotLowered(f"a normalisation of {x.type} or of nothing")
    center, inverse = moments(low, x, dims, _inverse_deviation(count(x, dims), eps, type), type)
    return low.cast(center, type), inverse


def _scaled(
    low: Lowering,
    x: IndexedTensor,
    center: IndexedTensor,
    inverse: IndexedTensor,
    weight: IndexedTensor | None,
    bias: IndexedTensor | None,
) -> IndexedTensor:
    """(x - center) * inverse * weight + bias; all broadcast with x and are computed in its type.
    Without a bias 0 is added, as eager does: the result is never -0.0."""
    parts = [low.cast(part, x.type) for part in (weight, bias) if part is not None]

    def combine(
        b: LoopBody, v: LoopValue, m: LoopValue, i: LoopValue, *more: LoopValue
    ) -> LoopValue:
        # Subtract first: x * inverse - mean * inverse would cancel for a mean far from 0.
        normal = b(Op.MUL, b(Op.SUB, v, m), i)
        if weight is None:
            return b(Op.ADD, normal, *more) if more else normal
        return b(Op.FMA, normal, more[0], more[1] if len(more) == 2 else like(b, 0, normal))

    return finished(low, combine, x, center, inverse, *parts)


def _returned_statistics(low: Lowering, *statistics: IndexedTensor) -> list[IndexedTensor]:
    """The statistics, cast to the types of the results behind the first."""
    returned = low.results[1:]
    return [low.cast(x, meta.type) for x, meta in zip(statistics, returned, strict=True)]


def _layer_norm_shape(
    op: Overload, args: Args, kwargs: Kwargs, device: torch.device
) -> Recipe | None:
    t, shape, weight, bias = args[:4]
    inner = len(shape)
    # Everything else is left to the meta kernel: other dtypes, and what PyTorch refuses.
    fits = list(t.shape[t.dim() - inner :]) == list(shape) and t.dtype is torch.float32 and inner
    params = [p for p in (weight, bias) if p is not None]
    if not fits or any(p.dtype is not t.dtype or list(p.shape) != list(shape) for p in params):
        return None
    stats = dense((*t.shape[: t.dim() - inner], *[1] * inner), t.dtype, device)
    return Several(tuple, (dense(t.size(), t.dtype, device), stats, stats))


def _saved_statistics(t: torch.Tensor, params: Sequence[Any], sizes: Sequence[int]) -> torch.Tensor:
    """Saved statistics are of the parameters' dtype, which may be wider than the input's."""
    dtypes = (p.dtype for p in params if isinstance(p, torch.Tensor))
    return t.new_empty(sizes, dtype=next(dtypes, t.dtype))


def _layer_norm_meta(func: Any, t: torch.Tensor, sizes: Any, *args: Any, **kwargs: Any) -> Any:
    result, mean, _ = func(t, sizes, *args, **kwargs)
    stats = _saved_statistics(t, args, mean.size())
    return result.new_empty(result.size()), stats, torch.empty_like(stats)


@lowers("aten.native_layer_norm.default", shape=_layer_norm_shape, cpu_meta=_layer_norm_meta)
def native_layer_norm(
    low: Lowering,
    x: IndexedTensor,
    normalized_shape: Sequence[Number],
    weight: IndexedTensor | None,
    bias: IndexedTensor | None,
    eps: Number,
) -> Any:
    x = low.cast(x, computed_in(x.type))
    dims = range(len(x.sizes) - len(normalized_shape), len(x.sizes))
    statistics = _statistics(low, x, dims, eps, x.type)
    center, inverse = [with_ones(s, x.sizes, dims) for s in statistics]
    out = _scaled(low, x, center, inverse, weight, bias)
    return out, *_returned_statistics(low, center, inverse)


@lowers("aten.layer_norm.default")
def layer_norm(
    low: Lowering,
    x: IndexedTensor,
    normalized_shape: Sequence[Number],
    weight: IndexedTensor | None = None,
    bias: IndexedTensor | None = None,
    eps: Number = 1e-5,
    cudnn_enable: bool = True,
) -> IndexedTensor:
    x = low.cast(x, computed_in(x.type))
    dims = range(len(x.sizes) - len(normalized_shape), len(x.sizes))
    statistics = _statistics(low, x, dims, eps, x.type)
    center, inverse = [with_ones(s, x.sizes, dims) for s in statistics]
    return _scaled(low, x, center, inverse, weight, bias)


def _in_groups(low: Lowering, x: IndexedTensor, groups: int) -> tuple[IndexedTensor, Expr]:
    """x of sizes (N, C, ...) seen as (N, groups, C // groups, ...), and C // groups."""
    per_group = low.simplify(floordiv(x.sizes[1], groups))

    def at(b: LoopBody, index: Index) -> LoopValue:
        n, group, within, *rest = index
        return x.at(b, (n, group * per_group + within, *rest))

    sizes = (x.sizes[0], as_expr(groups), per_group, *x.sizes[2:])
    return IndexedTensor(sizes, x.type, at, x.cost, x.reads), per_group


def _of_group(
    low: Lowering, x: IndexedTensor, per_group: Expr, sizes: Sequence[Expr]
) -> IndexedTensor:
    """Numbers of sizes (N, groups), spread to the channels of a tensor of these sizes: all channels
    of a group have the same."""
    alone = x.sizes[1] is ONE

    def at(b: LoopBody, index: Index) -> LoopValue:
        channel = index[1]
        # No division in the two cases that need none: one group, or one for each channel.
        group = ZERO if alone else channel if per_group is ONE else floordiv(channel, per_group)
        return x.at(b, (index[0], group))

    return IndexedTensor((*sizes[:2], *[ONE] * (len(sizes) - 2)), x.type, at, x.cost, x.reads)


def _of_channel(x: IndexedTensor | None, rank: int) -> IndexedTensor | None:
    """A parameter of sizes (C,), seen as (C, 1, ...) so that it broadcasts with (N, C, ...)."""
    return None if x is None else unsqueezed(x, (*x.sizes, *[ONE] * (rank - 2)))


def _group_norm(
    low: Lowering,
    x: IndexedTensor,
    groups: int,
    weight: IndexedTensor | None,
    bias: IndexedTensor | None,
    eps: Number,
) -> tuple[IndexedTensor, IndexedTensor, IndexedTensor]:
    if not isinstance(groups, int) or len(x.sizes) < 2:
        raise NotLowered("a group norm of an unusual form")
    x = realize_if_costly(low, low.cast(x, computed_in(x.type)))
    grouped, per_group = _in_groups(low, x, groups)
    statistics = _statistics(low, grouped, range(2, len(grouped.sizes)), eps, x.type)
    center, inverse = [_of_group(low, s, per_group, x.sizes) for s in statistics]
    rank = len(x.sizes)
    out = _scaled(low, x, center, inverse, _of_channel(weight, rank), _of_channel(bias, rank))
    return out, *statistics


def _group_norm_shape(
    op: Overload, args: Args, kwargs: Kwargs, device: torch.device
) -> Recipe | None:
    t, *params, batch, channels, inner, groups, _ = args
    usual = device.type == "cpu" and t.dtype is torch.float32 and not is_empty(t)
    numbers = (batch * channels * inner, t.numel())
    if all(type(n) is int for n in numbers) and numbers[0] != numbers[1]:
        return None  # PyTorch refuses it
    if not usual or any(p is not None and p.dtype is not t.dtype for p in params):
        return None
    stats = dense((batch, groups), t.dtype, device)
    result = new(t.size(), suggested_strides(t, t.size()), t.dtype, device)
    return Several(tuple, (result, stats, stats))


def _group_norm_meta(func: Any, t: torch.Tensor, *args: Any, **kwargs: Any) -> Any:
    result, mean, _ = func(t, *args, **kwargs)
    stats = _saved_statistics(t, args, mean.size())
    return meta.suggested(t, result), stats, torch.empty_like(stats)


@lowers("aten.native_group_norm.default", shape=_group_norm_shape, cpu_meta=_group_norm_meta)
def native_group_norm(
    low: Lowering,
    x: IndexedTensor,
    weight: IndexedTensor | None,
    bias: IndexedTensor | None,
    N: Number,
    C: Number,
    HxW: Number,
    group: int,
    eps: Number,
) -> Any:
    if len(x.sizes) < 2 or as_expr(C) is not x.sizes[1]:  # type: ignore[arg-type]
        raise NotLowered("a group norm of an unusual form")
    out, *statistics = _group_norm(low, x, group, weight, bias, eps)
    return out, *_returned_statistics(low, *statistics)


def _symbolic_group_norm(
    input: torch.Tensor,
    num_groups: int,
    weight: torch.Tensor | None = None,
    bias: torch.Tensor | None = None,
    eps: float = 1e-5,
    *_: Any,
) -> Any:
    channels = input.size(1) if input.dim() >= 2 else None
    if type(channels) is not int or not input.is_cpu or num_groups <= 0 or channels % num_groups:
        return NotImplemented
    if any(p is not None and p.dtype is not input.dtype for p in (weight, bias)):
        return NotImplemented
    pixels = math.prod(input.shape[2:])
    return torch.native_group_norm(
        input, weight, bias, input.size(0), channels, pixels, num_groups, eps
    )[0]


@lowers("aten.group_norm.default", opaque=torch.group_norm)
def group_norm(
    low: Lowering,
    x: IndexedTensor,
    num_groups: int,
    weight: IndexedTensor | None = None,
    bias: IndexedTensor | None = None,
    eps: Number = 1e-5,
    cudnn_enabled: bool = True,
) -> IndexedTensor:
    return _group_norm(low, x, num_groups, weight, bias, eps)[0]


@lowers("aten.rms_norm.default")
def rms_norm(
    low: Lowering,
    x: IndexedTensor,
    normalized_shape: Sequence[Number],
    weight: IndexedTensor | None = None,
    eps: Number | None = None,
) -> IndexedTensor:
    return _rms_norm(low, x, normalized_shape, weight, eps)[0]


@lowers("aten._fused_rms_norm.default")
def fused_rms_norm(
    low: Lowering,
    x: IndexedTensor,
    normalized_shape: Sequence[Number],
    weight: IndexedTensor | None,
    eps: Number | None,
) -> Any:
    out, inverse = _rms_norm(low, x, normalized_shape, weight, eps)
    return out, *_returned_statistics(low, inverse)


def _rms_norm(
    low: Lowering,
    x: IndexedTensor,
    normalized_shape: Sequence[Number],
    weight: IndexedTensor | None,
    eps: Number | None,
) -> tuple[IndexedTensor, IndexedTensor]:
    """x * weight / sqrt(mean of x**2 + eps); eps is that of the type unless it is said."""
    x = realize_if_costly(low, low.cast(x, computed_in(x.type)))
    if x.type not in FLOAT:
        raise NotLowered(f"a normalisation of {x.type}")
    small = torch.finfo(x.type.dtype).eps if eps is None else eps
    dims = range(len(x.sizes) - len(normalized_shape), len(x.sizes))
    # The mean isn't subtracted, so one reduction is enough.
    squares = low.map(lambda b, v: b(Op.MUL, v, v), x.type, x)
    then = _inverse_deviation(count(x, dims), small, x.type)
    inverse = with_ones(low.reduce(Op.SUM, squares, dims, False, then), x.sizes, dims)
    weights = [] if weight is None else [low.cast(weight, x.type)]

    def combine(b: LoopBody, v: LoopValue, i: LoopValue, *more: LoopValue) -> LoopValue:
        normal = b(Op.MUL, v, i)
        return b(Op.MUL, normal, *more) if more else normal

    return finished(low, combine, x, inverse, *weights), inverse


# --------------------------------------------------------------------------------------------------
# Normalisation by given statistics


def _require_one_per_channel(
    low: Lowering, x: IndexedTensor, *parameters: IndexedTensor | None
) -> None:
    """Give up unless each parameter has one element for each channel. PyTorch refuses other sizes
    when it runs; here they would be broadcast."""
    channels = low.simplify(x.sizes[1])
    for parameter in parameters:
        if parameter is not None and [*map(low.simplify, parameter.sizes)] != [channels]:
            raise NotLowered("a norm whose parameters may not be one for each channel")


def _by_channel(
    low: Lowering,
    x: IndexedTensor,
    weight: IndexedTensor | None,
    bias: IndexedTensor | None,
    mean: IndexedTensor | None,
    var: IndexedTensor | None,
    eps: Number,
) -> IndexedTensor:
    """x * scale + shift with a scale and a shift for each channel, which are computed once."""
    if mean is None or var is None or x.type.kind != "float" or len(x.sizes) < 2:
        raise NotLowered("a batch norm without running statistics")
    _require_one_per_channel(low, x, weight, bias, mean, var)
    working = computed_in(x.type)
    inside = low.cast(var, working)
    ones = [low.cast(part, working) for part in (weight,) if part is not None]

    def scaled(b: LoopBody, variance: LoopValue, *more: LoopValue) -> LoopValue:
        root = b(Op.SQRT, b(Op.ADD, variance, number(b, eps, working)))
        inverse = b(Op.DIV, b.constant(1.0, working), root)
        return b(Op.MUL, inverse, *more) if more else inverse

    # (x - mean) / sqrt(var + eps) * weight + bias, with all that depends on the channel alone in
    # two numbers, which are stored: an element takes one multiplication and one addition.
    scale = low.realize(low.map(scaled, working, inside, *ones))

    def shifted(b: LoopBody, center: LoopValue, factor: LoopValue, *more: LoopValue) -> LoopValue:
        start = more[0] if more else constant(b, 0, working)
        return b(Op.SUB, start, b(Op.MUL, center, factor))

    more = [low.cast(part, working) for part in (bias,) if part is not None]
    shift = low.realize(low.map(shifted, working, low.cast(mean, working), scale, *more))
    spread = [_of_channel(part, len(x.sizes)) for part in (scale, shift)]
    return finished(
        low,
        lambda b, v, s, t: b(Op.ADD, b(Op.MUL, v, s), t),
        low.cast(x, working),
        *[part for part in spread if part is not None],
    )


def _by_own_statistics(
    low: Lowering,
    x: IndexedTensor,
    dims: Sequence[int],
    weight: IndexedTensor | None,
    bias: IndexedTensor | None,
    eps: Number,
) -> IndexedTensor:
    """Normalised over `dims`; as in eager PyTorch, the statistics of f32 are computed in f64."""
    if x.type not in FLOAT:  # eager rounds the statistics of halves, which shows
        raise NotLowered(f"a normalisation of {x.type} by its own statistics")
    if len(x.sizes) < 2:
        raise NotLowered("a normalisation of what has no channels")
    _require_one_per_channel(low, x, weight, bias)
    statistics = _statistics(low, low.cast(x, Type.F64), dims, eps, x.type)
    center, inverse = [with_ones(s, x.sizes, dims) for s in statistics]
    rank = len(x.sizes)
    return _scaled(low, x, center, inverse, _of_channel(weight, rank), _of_channel(bias, rank))


def _symbolic_batch_norm(
    input: torch.Tensor,
    running_mean: torch.Tensor | None,
    running_var: torch.Tensor | None,
    weight: torch.Tensor | None = None,
    bias: torch.Tensor | None = None,
    training: bool = False,
    momentum: Any = 0.1,
    eps: float = 1e-5,
) -> Any:
    if input.dim() < 2:
        if training:
            F._verify_batch_size(input.size())  # type: ignore[attr-defined]
        return _norm_without_channels(input, weight, bias)
    if not input.is_cpu or (not training and running_mean is None):
        return NotImplemented
    if training:
        if is_empty(input):
            return NotImplemented
        torch._check_with(ValueError, input.numel() != input.size(1), lambda: _TOO_FEW)
    statistics = (running_mean, running_var)
    # The operator takes a plain number. No fake depends on it.
    factor = 1.0 if type(momentum) is torch.SymFloat else momentum
    return torch.native_batch_norm(input, weight, bias, *statistics, training, factor, eps)[0]


def _norm_without_channels(
    input: torch.Tensor, weight: torch.Tensor | None, bias: torch.Tensor | None
) -> torch.Tensor:
    """What eager PyTorch does with a batch of one dimension. It reads the number of channels behind
    the end of the sizes, which crashes where these are symbols."""
    if input.numel() != 0:
        input.size(1)  # raises eager's error
    result = input.clone()
    if weight is not None:
        result = result * weight[0]
    return result if bias is None else result + bias[0]


def _symbolic_batch_norm_operator(input: torch.Tensor, weight: Any, bias: Any, *rest: Any) -> Any:
    return NotImplemented if input.dim() >= 2 else _norm_without_channels(input, weight, bias)


_TOO_FEW = "Expected more than 1 value per channel when training"


def _batch_norm_result(*args: Any) -> Any:
    """`F.batch_norm` with the arguments in the order of the operator."""
    x, weight, bias, mean, variance, training, momentum, eps, *_ = args
    in_order = (x, mean, variance, weight, bias, training, momentum, eps)
    result = _symbolic_batch_norm(*in_order)
    return F.batch_norm(*in_order) if result is NotImplemented else result


@lowers("aten.batch_norm.default", opaque=_batch_norm_result)
def batch_norm(
    low: Lowering,
    x: IndexedTensor,
    weight: IndexedTensor | None,
    bias: IndexedTensor | None,
    running_mean: IndexedTensor | None,
    running_var: IndexedTensor | None,
    training: bool,
    momentum: Number,
    eps: Number,
    cudnn_enabled: bool,
) -> IndexedTensor:
    if not training:
        return _by_channel(low, x, weight, bias, running_mean, running_var, eps)
    if running_mean is not None or running_var is not None:
        raise NotLowered("a batch norm that updates its statistics")
    dims = [d for d in range(len(x.sizes)) if d != 1]
    return _by_own_statistics(low, x, dims, weight, bias, eps)


@lowers("aten.instance_norm.default")
def instance_norm(
    low: Lowering,
    x: IndexedTensor,
    weight: IndexedTensor | None,
    bias: IndexedTensor | None,
    running_mean: IndexedTensor | None,
    running_var: IndexedTensor | None,
    use_input_stats: bool,
    momentum: Number,
    eps: Number,
    cudnn_enabled: bool,
) -> IndexedTensor:
    if x.type not in FLOAT:  # eager rounds the statistics of halves, which shows
        raise NotLowered(f"an instance norm of {x.type}")
    if not use_input_stats:
        return _by_channel(low, x, weight, bias, running_mean, running_var, eps)
    if running_mean is not None or running_var is not None or len(x.sizes) < 3:
        raise NotLowered("an instance norm that updates its statistics")
    return _by_own_statistics(low, x, range(2, len(x.sizes)), weight, bias, eps)


@lowers("aten._native_batch_norm_legit_no_training.default")
def batch_norm_no_training(
    low: Lowering,
    x: IndexedTensor,
    weight: IndexedTensor | None,
    bias: IndexedTensor | None,
    running_mean: IndexedTensor,
    running_var: IndexedTensor,
    momentum: Number,
    eps: Number,
) -> Any:
    return _with_nothing_saved(low, x, weight, bias, running_mean, running_var, eps)


def _batch_norm_shape(
    op: Overload, args: Args, kwargs: Kwargs, device: torch.device
) -> Recipe | None:
    t, *params, training = args[:6]
    present = [p for p in params if p is not None]
    usual = device.type == "cpu" and t.dim() >= 2 and t.dtype is torch.float32
    if not usual or any(p.dtype is not t.dtype or p.shape != t.shape[1:2] for p in present):
        return None
    saved = dense((t.size(1) if training else 0,), t.dtype, device)
    result = new(t.size(), suggested_strides(t, t.size()), t.dtype, device)
    if op.name in _RETURN_STATISTICS:
        if None in params[2:]:
            return None
        running = dense((t.size(1),), t.dtype, device)
        return Several(tuple, (result, saved, saved, running, running))
    return Several(tuple, (result, saved, saved))


_RETURN_STATISTICS = frozenset(("aten._native_batch_norm_legit_functional.default",))


def _batch_norm_meta(func: Any, t: torch.Tensor, *args: Any, **kwargs: Any) -> Any:
    if t.dim() < 2 and t.numel():
        t.size(1)  # raises, as the kernel does
    result, mean, _, *rest = func(t, *args, **kwargs)
    training = next((a for a in args if isinstance(a, bool)), True)
    stats = _saved_statistics(t, args, mean.size() if training else (0,))
    return meta.suggested(t, result), stats, torch.empty_like(stats), *rest


@lowers("aten.native_batch_norm.default", cpu_meta=_batch_norm_meta)
def native_batch_norm(
    low: Lowering,
    x: IndexedTensor,
    weight: IndexedTensor | None,
    bias: IndexedTensor | None,
    running_mean: IndexedTensor | None,
    running_var: IndexedTensor | None,
    training: bool,
    momentum: Number,
    eps: Number,
) -> Any:
    if training:
        raise NotLowered("a batch norm that updates its statistics")
    return _with_nothing_saved(low, x, weight, bias, running_mean, running_var, eps)


def _with_nothing_saved(low: Lowering, x: IndexedTensor, *args: Any) -> Any:
    """The norm by running statistics, and the empty tensors that the operator returns in place of
    the statistics that it saves in training."""
    out = _by_channel(low, x, *args)
    return out, *[_empty(meta) for meta in low.results[1:]]


def _empty(meta: Meta) -> IndexedTensor:
    if ZERO not in meta.sizes:
        raise NotLowered("statistics that are returned")
    return IndexedTensor(meta.sizes, meta.type, lambda b, index: constant(b, 0, meta.type), 0)


register("aten.native_batch_norm.default", shape=_batch_norm_shape)
register(
    "aten._batch_norm_with_update.default",
    "aten._native_batch_norm_legit.default",
    cpu_meta=_batch_norm_meta,
)


@lowers("aten._native_batch_norm_legit.no_stats", cpu_meta=_batch_norm_meta)
def batch_norm_without_running_statistics(
    low: Lowering,
    x: IndexedTensor,
    weight: IndexedTensor | None,
    bias: IndexedTensor | None,
    training: bool,
    momentum: Number,
    eps: Number,
) -> Any:
    if not training:
        raise NotLowered("a batch norm without any statistics")
    out, center, _, inverse = _batch_norm_in_training(low, x, weight, bias, eps)
    return out, center, inverse


@lowers(
    "aten._native_batch_norm_legit_functional.default",
    shape=_batch_norm_shape,
    cpu_meta=_batch_norm_meta,
    statistics_free=3,
)
def batch_norm_with_new_statistics(
    low: Lowering,
    x: IndexedTensor,
    weight: IndexedTensor | None,
    bias: IndexedTensor | None,
    running_mean: IndexedTensor,
    running_var: IndexedTensor,
    training: bool,
    momentum: Number,
    eps: Number,
) -> Any:
    if not training:
        raise NotLowered("a batch norm by its running statistics")
    _require_one_per_channel(low, x, running_mean, running_var)
    out, center, squares, inverse = _batch_norm_in_training(low, x, weight, bias, eps)
    elements = count(x, _all_but_channels(x))

    # running = (1 - momentum) * running + momentum * new, with the unbiased variance.
    def updated(b: LoopBody, old: LoopValue, new: LoopValue) -> LoopValue:
        share = number(b, momentum, Type.F64)
        rest = b(Op.SUB, b.constant(1.0, Type.F64), share)
        old = b(Op.MUL, rest, b.cast(old, Type.F64))
        return b.cast(b(Op.ADD, b(Op.MUL, share, b.cast(new, Type.F64)), old), x.type)

    def updated_variance(b: LoopBody, old: LoopValue, new: LoopValue) -> LoopValue:
        return updated(b, old, b(Op.DIV, new, number(b, elements - ONE, Type.F64)))

    mean = low.map(updated, x.type, running_mean, center)
    return out, center, inverse, mean, low.map(updated_variance, x.type, running_var, squares)


def _all_but_channels(x: IndexedTensor) -> list[int]:
    return [d for d in range(len(x.sizes)) if d != 1]


def _batch_norm_in_training(
    low: Lowering,
    x: IndexedTensor,
    weight: IndexedTensor | None,
    bias: IndexedTensor | None,
    eps: Number,
) -> tuple[IndexedTensor, IndexedTensor, IndexedTensor, IndexedTensor]:
    """The result; for each channel the mean, the sum of squared distances to it (as f64, in which
    eager PyTorch computes statistics), and the inverse deviation."""
    dims = _all_but_channels(x)
    if x.type not in FLOAT or len(x.sizes) < 2 or ZERO in [x.sizes[d] for d in dims]:
        raise NotLowered(f"a batch norm of {x.type} or of nothing")
    _require_one_per_channel(low, x, weight, bias)
    center, squares = moments(low, low.cast(x, Type.F64), dims)
    deviation = _inverse_deviation(count(x, dims), eps, x.type)
    # Stored, since each element of a channel reads them.
    inverse = low.realize(low.map(deviation, x.type, squares))
    center = low.realize(low.cast(center, x.type))
    rank = len(x.sizes)
    parts = [_of_channel(part, rank) for part in (center, inverse, weight, bias)]
    return _scaled(low, x, *parts), center, squares, inverse  # type: ignore[arg-type]


register_functions((F.group_norm, torch.group_norm), symbolic=_symbolic_group_norm)
register_functions((F.batch_norm,), symbolic=_symbolic_batch_norm)
register_functions((torch.batch_norm,), symbolic=_symbolic_batch_norm_operator)
register(
    "aten.batch_norm.default",
    "aten.instance_norm.default",
    "aten._batch_norm_impl_index.default",
    "aten.native_batch_norm.default",
    "aten.cudnn_batch_norm.default",
    "aten.miopen_batch_norm.default",
    "aten.batch_norm_update_stats.default",
    "aten.batch_norm_gather_stats.default",
    "aten.batch_norm_gather_stats_with_counts.default",
    hidden_writes=("running_mean", "running_var"),
)
register(
    "aten.native_layer_norm.default",
    "aten.layer_norm.default",
    reads_whole=True,
)


_SAFE: Final = """
layer_norm group_norm batch_norm instance_norm rms_norm _fused_rms_norm native_layer_norm
native_group_norm native_batch_norm _native_batch_norm_legit _batch_norm_with_update
_native_batch_norm_legit_functional _native_batch_norm_legit_no_training renorm
"""
register(*aten_names(_SAFE), raises=never)
register("aten.renorm.default", cpu_meta=meta.contiguous)
