"""The backward operators of PyTorch as operators that fuse.

The one idea: what autograd calls for the gradient of a function is one kernel in PyTorch; written
in terms of arithmetic and sums it becomes part of the kernels around it. Halves are computed as
floats, as those kernels do.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import wraps
from typing import Any, Final

import torch

from pliant.base.operators import register
from pliant.base.torch_versions import MSE_GRADIENT_PROMOTES
from pliant.fake import shapes
from pliant.fake.tensor import Fake

HALVES: Final = (torch.bfloat16, torch.float16)
Rule = Callable[..., Any]


def gradient(name: str) -> Callable[[Rule], Rule]:
    """Register a function as the decomposition of a backward operator."""

    def enter(rule: Rule) -> Rule:
        register(name, decomposition=rule)
        return rule

    return enter


def in_floats(rule: Rule) -> Rule:
    """The rule, computed in float32 and rounded once if the gradient is of halves."""

    @wraps(rule)
    def compute(grad: Any, *args: Any, **kwargs: Any) -> Any:
        if grad.dtype not in HALVES:
            return rule(grad, *args, **kwargs)
        wide = [a.float() if type(a) is Fake and a.dtype in HALVES else a for a in args]
        result = rule(grad.float(), *wide, **kwargs)
        return result if result is NotImplemented else result.to(grad.dtype)

    return compute


# --------------------------------------------------------------------------------------------------
# Activations


@gradient("aten.threshold_backward.default")
def threshold(grad: Any, x: Any, limit: Any) -> Any:
    # In this order, as NaN is not below the limit: PyTorch lets the gradient through there.
    return torch.where(x <= limit, 0, grad)


@gradient("aten.rrelu_with_noise_backward.default")
def rrelu(
    grad: Any, x: Any, slopes: Any, low: float, high: float, training: bool, in_place: bool
) -> Any:
    return slopes * grad if training and high - low > 1e-6 else NotImplemented


@gradient("aten.sigmoid_backward.default")
@in_floats
def sigmoid(grad: Any, y: Any) -> Any:
    return grad * (1 - y) * y


@gradient("aten.tanh_backward.default")
@in_floats
def tanh(grad: Any, y: Any) -> Any:
    return grad * (1 - y * y)


@gradient("aten.silu_backward.default")
@in_floats
def silu(grad: Any, x: Any) -> Any:
    s = torch.sigmoid(x)
    return grad * s * (1 + x * (1 - s))


@gradient("aten.gelu_backward.default")
@in_floats
def gelu(grad: Any, x: Any, approximate: str = "none") -> Any:
    if approximate == "none":
        cdf = 0.5 * (1 + torch.erf(x * math.sqrt(0.5)))
        pdf = torch.exp(x * x * -0.5) * (1 / math.sqrt(2 * math.pi))
        return grad * (cdf + x * pdf)
    beta, kappa = math.sqrt(2 / math.pi), 0.044715
    inner = beta * (x + kappa * x * x * x)
    t = torch.tanh(inner)
    slope = beta * (1 + 3 * kappa * x * x)
    return grad * (0.5 * (1 + t) + 0.5 * x * (1 - t * t) * slope)


@gradient("aten.leaky_relu_backward.default")
@in_floats
def leaky_relu(grad: Any, x: Any, slope: Any, of_result: bool) -> Any:
    return torch.where(x > 0, grad, grad * slope)


@gradient("aten.softshrink_backward.default")
@gradient("aten.hardshrink_backward.default")
@in_floats
def shrink(grad: Any, x: Any, limit: Any) -> Any:
    # In this order, as NaN is not between the limits.
    return torch.where((x >= -limit) & (x <= limit), 0, grad)


register(
    "aten.softshrink_backward.default",
    "aten.hardshrink_backward.default",
    shape=shapes.pointwise(2, shapes.floats_only),
)


@gradient("aten.hardtanh_backward.default")
@in_floats
def hardtanh(grad: Any, x: Any, low: Any, high: Any) -> Any:
    return torch.where((x <= low) | (x >= high), 0, grad)


@gradient("aten.hardsigmoid_backward.default")
@in_floats
def hardsigmoid(grad: Any, x: Any) -> Any:
    return torch.where((x > -3) & (x < 3), grad * (1 / 6), 0)


@gradient("aten.hardswish_backward.default")
@in_floats
def hardswish(grad: Any, x: Any) -> Any:
    inner = torch.where(x <= 3, grad * (x / 3 + 0.5), grad)
    return torch.where(x <= -3, 0, inner)


@gradient("aten.elu_backward.default")
@in_floats
def elu(grad: Any, alpha: Any, scale: Any, input_scale: Any, of_result: bool, x: Any) -> Any:
    if of_result:
        negative = grad * input_scale * (x + alpha * scale)
    else:
        negative = grad * input_scale * (alpha * scale) * torch.exp(x * input_scale)
    return torch.where(x <= 0, negative, grad * scale)


@gradient("aten.softplus_backward.default")
@in_floats
def softplus(grad: Any, x: Any, beta: Any, limit: Any) -> Any:
    z = torch.exp(x * beta)
    return torch.where(x * beta > limit, grad, grad * z / (z + 1))


@gradient("aten.mish_backward.default")
@in_floats
def mish(grad: Any, x: Any) -> Any:
    s = torch.sigmoid(x)
    t = torch.tanh(torch.nn.functional.softplus(x))
    return grad * (t + x * s * (1 - t * t))


@gradient("aten.log_sigmoid_backward.default")
@in_floats
def log_sigmoid(grad: Any, x: Any, buffer: Any) -> Any:
    z = torch.exp(-x.abs())
    return grad * (torch.where(x < 0, 1, 0) - torch.where(x < 0, 1, -1) * (z / (1 + z)))


@gradient("aten.native_dropout_backward.default")
@in_floats
def dropout(grad: Any, mask: Any, scale: Any) -> Any:
    return grad * mask * scale  # the bools are a quarter of what their factors are to save


# --------------------------------------------------------------------------------------------------
# Softmax and norms


@gradient("aten._softmax_backward_data.default")
def softmax(grad: Any, y: Any, dim: int, dtype: torch.dtype) -> Any:
    grad, y = _widened(grad, y)
    # Of softmax, the gradient is y * (grad - sum(grad * y)).
    product = grad * y
    # Those kernels lay out what they return plainly, whatever they are given.
    return (product - y * product.sum(dim, keepdim=True)).to(dtype).contiguous()


@gradient("aten._log_softmax_backward_data.default")
def log_softmax(grad: Any, y: Any, dim: int, dtype: torch.dtype) -> Any:
    grad, y = _widened(grad, y)
    return (grad - torch.exp(y) * grad.sum(dim, keepdim=True)).to(dtype).contiguous()


def _widened(*tensors: Any) -> list[Any]:
    return [t.float() if t is not None and t.dtype in HALVES else t for t in tensors]


@gradient("aten.native_layer_norm_backward.default")
def layer_norm(
    grad: Any, x: Any, shape: Any, mean: Any, rstd: Any, weight: Any, bias: Any, mask: Any
) -> Any:
    dtype = x.dtype
    grad, x, mean, rstd, wide = _widened(grad, x, mean, rstd, weight)
    # The dimensions that are normalized over, and those of the batch.
    inner = list(range(x.dim() - len(shape), x.dim()))
    outer = list(range(x.dim() - len(shape)))
    count = math.prod(shape)
    normal = (x - mean) * rstd
    scaled = grad if weight is None else grad * wide
    for_x = for_weight = for_bias = None
    if mask[0]:
        total = scaled.sum(inner, keepdim=True) / count
        along = (scaled * normal).sum(inner, keepdim=True) / count
        # The gradient of (x - mean) * rstd, in which mean and rstd depend on x, too: the mean of
        # the gradient is taken off, and its share along the normalized x.
        for_x = ((scaled - total - normal * along) * rstd).to(dtype)
    if mask[1] and weight is not None:
        for_weight = (_summed(grad * normal, outer)).to(weight.dtype)
    if mask[2] and bias is not None:
        for_bias = _summed(grad, outer).to(bias.dtype)
    return for_x, for_weight, for_bias


def _summed(t: Any, dims: list[int]) -> Any:
    return t.sum(dims) if dims else t.clone()


@gradient("aten.native_group_norm_backward.default")
def group_norm(*args: Any) -> Any:
    grad, x, mean, rstd, weight, batch, channels, spatial, groups, mask = args
    if any(type(n) is not int for n in (channels, groups)):
        return NotImplemented
    dtype = x.dtype
    grad, x, mean, rstd, wide = _widened(grad, x, mean, rstd, weight)
    # As in a layer norm, of each group of channels.
    width = channels // groups
    shape = (batch, groups, width, spatial)
    g, v = grad.reshape(shape), x.reshape(shape)
    normal = (v - mean.view(batch, groups, 1, 1)) * rstd.view(batch, groups, 1, 1)
    scaled = g if weight is None else g * wide.view(1, groups, width, 1)
    for_x = for_weight = for_bias = None
    if mask[0]:
        count = width * spatial
        total = scaled.sum((2, 3), keepdim=True) / count
        along = (scaled * normal).sum((2, 3), keepdim=True) / count
        inner = (scaled - total - normal * along) * rstd.view(batch, groups, 1, 1)
        for_x = inner.reshape(x.shape).to(dtype)
    if mask[1]:
        for_weight = (g * normal).sum((0, 3)).view(channels).to(weight.dtype)
    if mask[2]:
        for_bias = g.sum((0, 3)).view(channels).to(dtype if weight is None else weight.dtype)
    return for_x, for_weight, for_bias


@gradient("aten.native_batch_norm_backward.default")
def batch_norm(*args: Any) -> Any:
    grad, x, weight, running_mean, running_var, mean, rstd, training, eps, mask = args
    dtype = x.dtype
    grad, x, mean, rstd, wide = _widened(grad, x, mean, rstd, weight)
    if not training:
        mean, rstd = _widened(running_mean, running_var)
        rstd = torch.rsqrt(rstd + eps)
    # Everything but the channels.
    outer = [0, *range(2, x.dim())]
    shape = [1, x.size(1), *[1] * (x.dim() - 2)]
    count = math.prod([x.size(d) for d in outer])
    centered = x - mean.view(shape)
    along, total = (grad * centered).sum(outer), grad.sum(outer)
    scale = rstd if weight is None else rstd * wide
    for_x = for_weight = for_bias = None
    if mask[0]:
        inner = grad
        if training:
            # In training, mean and rstd depend on x, too.
            slope = along * rstd * rstd / count
            inner = grad - (total / count).view(shape) - centered * slope.view(shape)
        for_x = (inner * scale.view(shape)).to(dtype)
    if mask[1]:
        for_weight = along * rstd if weight is None else (along * rstd).to(weight.dtype)
    if mask[2]:
        for_bias = total if weight is None else total.to(weight.dtype)
    return for_x, for_weight, for_bias


# --------------------------------------------------------------------------------------------------
# Losses


@gradient("aten.nll_loss_backward.default")
def nll_loss(
    grad: Any, x: Any, target: Any, weight: Any, reduction: int, ignored: Any, total: Any
) -> Any:
    if x.dim() != 2 or x.dtype in HALVES:
        return NotImplemented
    return _nll(grad, x, target, weight, reduction, ignored, total)


@gradient("aten.nll_loss2d_backward.default")
def nll_loss2d(
    grad: Any, x: Any, target: Any, weight: Any, reduction: int, ignored: Any, total: Any
) -> Any:
    if x.dtype in HALVES:
        return NotImplemented
    return _nll(grad, x, target, weight, reduction, ignored, total)


def _nll(
    grad: Any, x: Any, target: Any, weight: Any, reduction: int, ignored: Any, total: Any
) -> Any:
    """Nothing but at the places that the targets name."""
    shape = [1, x.size(1), *[1] * (x.dim() - 2)]
    classes = torch.arange(x.size(1), device=x.device).view(shape)
    target = target.unsqueeze(1)
    slope = grad.unsqueeze(1) if reduction == 0 else grad
    if reduction == 1:
        slope = slope / total
    if weight is not None:
        slope = slope * weight.view(shape)
    # A comparison with every class fuses; a scatter would be a kernel of its own. An ignored target
    # may be no class at all, which is no error here.
    chosen = (classes == target) & (target != ignored)
    return torch.where(chosen, -slope, 0)


@gradient("aten.mse_loss_backward.default")
def mse_loss(grad: Any, x: Any, target: Any, reduction: int) -> Any:
    if target.dtype is not x.dtype and not MSE_GRADIENT_PROMOTES:
        return NotImplemented  # PyTorch refuses it
    return _mse_loss(grad, x, target, reduction)


@in_floats
def _mse_loss(grad: Any, x: Any, target: Any, reduction: int) -> Any:
    # These are numbers of Python, whose division by 0 raises where the tensor is empty.
    norm = 2 / torch.sym_max(x.numel(), 1) if reduction == 1 else 2.0
    return (grad * norm * _difference(x, target)).to(x.dtype)


def _difference(x: Any, target: Any) -> Any:
    """x - target, where the target may be a mask: PyTorch doesn't subtract bools."""
    return x - (target.to(x.dtype) if target.dtype is torch.bool else target)


@gradient("aten.smooth_l1_loss_backward.default")
@in_floats
def smooth_l1_loss(grad: Any, x: Any, target: Any, reduction: int, beta: Any) -> Any:
    difference = _difference(x, target)
    slope = torch.where(difference.abs() < beta, difference / beta, torch.sign(difference))
    return (slope * grad / x.numel() if reduction == 1 else slope * grad).to(x.dtype)


@gradient("aten.huber_loss_backward.default")
@in_floats
def huber_loss(grad: Any, x: Any, target: Any, reduction: int, delta: Any) -> Any:
    if target.dtype is not x.dtype:
        return NotImplemented  # PyTorch refuses it
    difference = x - target
    slope = torch.clamp(difference, -delta, delta)
    return slope * grad / x.numel() if reduction == 1 else slope * grad


@gradient("aten.binary_cross_entropy_backward.default")
@in_floats
def binary_cross_entropy(
    grad: Any, x: Any, target: Any, weight: Any = None, reduction: int = 1
) -> Any:
    slope = grad * (x - target) / torch.clamp((1 - x) * x, min=1e-12)
    slope = slope if weight is None else slope * weight
    return slope / x.numel() if reduction == 1 else slope


# --------------------------------------------------------------------------------------------------
# Parts


@gradient("aten.slice_backward.default")
def slice_of(grad: Any, sizes: Any, dim: int, start: Any, end: Any, step: Any) -> Any:
    return torch.slice_scatter(grad.new_zeros(sizes), grad, dim, start, end, step)


@gradient("aten.select_backward.default")
def select(grad: Any, sizes: Any, dim: int, index: Any) -> Any:
    return torch.select_scatter(grad.new_zeros(sizes), grad, dim, index)


# --------------------------------------------------------------------------------------------------
# Left to PyTorch, which has no meta kernels for them


def _like_second_meta(func: Any, grad: Any, t: Any, *rest: Any, **kwargs: Any) -> Any:
    return t.new_empty(t.size())


register(
    "aten.multi_margin_loss_backward.default",
    "aten.multilabel_margin_loss_backward.default",
    "aten.fractional_max_pool3d_backward.default",
    meta=_like_second_meta,
)


def _batch_norm_backward_meta(func: Any, grad: Any, x: Any, weight: Any, *rest: Any) -> Any:
    """The metadata of this backward. PyTorch's meta kernel does the arithmetic on meta tensors, and
    asks about sizes for that."""
    *_, mask = rest
    if not x.is_contiguous() or (weight is not None and weight.dtype is not x.dtype):
        return func(grad, x, weight, *rest)
    sizes = x.size(), x.size()[1:2], x.size()[1:2]
    return tuple([x.new_empty(n) if m else None for n, m in zip(sizes, mask, strict=True)])


register("aten.native_batch_norm_backward.default", meta=_batch_norm_backward_meta)
register("aten._ctc_loss_backward.Tensor", meta=_like_second_meta, mixed_devices=True)
# Reads of its workspace as much as the sizes ask for, however small that is.
register("aten.mkldnn_rnn_layer_backward.default", trusts_sizes=True)
