"""Functions of PyTorch that stay whole in a joint graph, with their gradients.

The one idea: with autograd above the recording, PyTorch takes `linear` and its like apart before
anybody sees them, and asks about sizes on the way. Here such a function is one step of autograd's:
the operator whole, and a backward that is made of whole operators again.
"""

from __future__ import annotations

import math
import operator
from contextlib import nullcontext
from typing import Any

import torch
import torch.nn.functional as F

from pliant.base.operators import register_functions
from pliant.fake.order import sure
from pliant.fake.tensor import Fake
from pliant.ops.reshaping import flatten

aten = torch.ops.aten
_below_autograd = torch._C._AutoDispatchBelowAutograd


class _Linear(torch.autograd.Function):
    """`F.linear` of an input with any number of dimensions. Its gradients come in eager's order,
    which hooks on parameters show: that of the bias first."""

    @staticmethod
    def forward(ctx: Any, bias: Any, x: Any, weight: Any) -> Any:
        ctx.save_for_backward(x, weight)
        # Autograd records this function as a whole, not the operators in it.
        with _below_autograd():
            return aten.linear.default(x, weight, bias)

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        (grad,) = grads
        x, weight = ctx.saved_tensors
        needs_bias, needs_x, needs_weight = ctx.needs_input_grad
        for_x = for_weight = for_bias = None
        with _once():
            rows = _rows(grad)
            if needs_x:
                for_x = _linear_gradient(grad, weight)
            if needs_weight:
                for_weight = _weight_gradient(rows, _rows(x), weight)
            if needs_bias:
                for_bias = rows.sum(0)
        return for_bias, for_x, for_weight


def _linear_gradient(grad: Any, weight: Any) -> Any:
    if not torch.is_grad_enabled():
        return aten.matmul.default(grad, weight)
    return _Linear.apply(None, grad, weight.t())


def _weight_gradient(rows: Any, flat: Any, weight: Any) -> Any:
    """The gradient of the weight of `linear`, with the layout that autograd's has: by rows if the
    weight is laid out by rows, else by columns."""
    if sure(weight.stride(1) == 1) and sure(weight.stride(0) == weight.size(1)):
        return aten.mm.default(rows.t(), flat)
    return aten.mm.default(flat.t(), rows).t()


def _once() -> Any:
    """Around a backward: below autograd, unless its gradients are wanted too."""
    return nullcontext() if torch.is_grad_enabled() else _below_autograd()


def _rows(t: Any) -> Any:
    """The tensor as a matrix: all but the last dimension are its rows."""
    if t.dim() == 2:
        return t
    flat = flatten(t, 0, -2)
    return t.flatten(0, -2) if flat is NotImplemented else flat


def differentiable_linear(x: Any, weight: Any, bias: Any = None) -> Any:
    tensors = [t for t in (x, weight, bias) if t is not None]
    if not is_plain_float(tensors) or x.dim() < 2 or weight.dim() != 2:
        return NotImplemented
    return _Linear.apply(bias, x, weight)


class _Matmul(torch.autograd.Function):
    """`torch.matmul` of matrices, or of batches of them with equal sizes."""

    @staticmethod
    def forward(ctx: Any, a: Any, b: Any) -> Any:
        ctx.save_for_backward(a, b)
        with _below_autograd():
            return aten.matmul.default(a, b)

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        (grad,) = grads
        a, b = ctx.saved_tensors
        needs_a, needs_b = ctx.needs_input_grad
        multiply = _Matmul.apply if torch.is_grad_enabled() else aten.matmul.default
        with _once():
            for_a = multiply(grad, b.transpose(-1, -2)) if needs_a else None
            for_b = multiply(a.transpose(-1, -2), grad) if needs_b else None
        return for_a, for_b


def _matmul(a: Any, b: Any) -> Any:
    if not is_plain_float([a, b]) or a.dim() < 3:
        return NotImplemented
    if b.dim() == 2:
        return _Linear.apply(None, a, b.t())
    if a.dim() != b.dim():
        return NotImplemented
    batches = zip(a.shape[:-2], b.shape[:-2], strict=True)
    if not all(x is y or sure(x == y) for x, y in batches):
        return NotImplemented
    return _Matmul.apply(a, b)


class _BatchNorm(torch.autograd.Function):
    """`F.batch_norm` in training. The forward also writes to the running statistics."""

    @staticmethod
    def forward(
        ctx: Any, x: Any, weight: Any, bias: Any, mean: Any, var: Any, momentum: Any, eps: Any
    ) -> Any:
        with _below_autograd():
            if mean is None:
                y, own_mean, rstd = aten._native_batch_norm_legit.no_stats(
                    x, weight, bias, True, momentum, eps
                )
            else:
                args = (x, weight, bias, mean, var, True, momentum, eps)
                y, own_mean, rstd, *new = aten._native_batch_norm_legit_functional.default(*args)
                for running, value in zip((mean, var), new, strict=True):
                    # A write of the functional graph. As an operation on the fake autograd would
                    # count it as one.
                    running._world().store(running, value)
        ctx.save_for_backward(x, weight, own_mean, rstd)
        ctx.eps = eps
        return y

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        (grad,) = grads
        x, weight, mean, rstd = ctx.saved_tensors
        mask = list(ctx.needs_input_grad[:3])
        args = (grad, x, weight, None, None, mean, rstd, True, ctx.eps, mask)
        with _once():
            gradients = aten.native_batch_norm_backward.default(*args)
        return (*gradients, None, None, None, None)


def _batch_norm(
    x: Any,
    running_mean: Any = None,
    running_var: Any = None,
    weight: Any = None,
    bias: Any = None,
    training: bool = False,
    momentum: Any = 0.1,
    eps: Any = 1e-5,
) -> Any:
    tensors = [t for t in (x, running_mean, running_var, weight, bias) if t is not None]
    consistent = (running_mean is None) is (running_var is None)
    if not training or not consistent or not is_plain_float(tensors) or x.dim() < 2:
        return NotImplemented
    if x.dtype not in (torch.float32, torch.float64):
        return NotImplemented
    if any(t.requires_grad for t in (running_mean, running_var) if t is not None):
        return NotImplemented
    if math.prod(x.shape) == x.size(1):  # which PyTorch refuses
        return NotImplemented
    if type(momentum) is torch.SymFloat and running_mean is not None:
        running = (running_mean, running_var)
        return _symbolic_momentum(_batch_norm, x, running, weight, bias, momentum, eps)
    return _BatchNorm.apply(x, weight, bias, running_mean, running_var, momentum, eps)


def _instance_norm(
    x: Any,
    running_mean: Any = None,
    running_var: Any = None,
    weight: Any = None,
    bias: Any = None,
    use_input_stats: bool = True,
    momentum: Any = 0.1,
    eps: Any = 1e-5,
) -> Any:
    """Each channel of each sample is one of a batch norm, as in PyTorch's C++."""
    if not use_input_stats or x.dim() < 3 or type(x) is not Fake or not x.is_contiguous():
        return NotImplemented
    rows, channels, *rest = x.shape
    mean, var, weight, bias = (
        t if t is None else t.repeat(rows) for t in (running_mean, running_var, weight, bias)
    )
    channelwise = x.view(1, rows * channels, *rest)
    result = _batch_norm(channelwise, mean, var, weight, bias, True, momentum, eps)
    if result is NotImplemented:
        return NotImplemented
    with torch.no_grad():
        for running, repeated in ((running_mean, mean), (running_var, var)):
            if running is not None and repeated is not None:
                running.copy_(repeated.view(rows, channels).mean(0))
    return result.view(x.shape)


def _symbolic_momentum(
    function: Any, x: Any, running: tuple[Any, Any], weight: Any, bias: Any, momentum: Any, eps: Any
) -> Any:
    """`momentum=None` of a layer counts batches, in a tensor. Operators take a plain number, so the
    statistics are made by one whose momentum is 1, and averaged here."""
    new = torch.zeros_like(running[0]), torch.zeros_like(running[1])
    result = function(x, *new, weight, bias, True, 1.0, eps)
    with torch.no_grad():
        for average, value in zip(running, new, strict=True):
            average.mul_(1 - momentum).add_(value * momentum)
    return result


def _overridden_batch_norm(
    x: Any,
    running_mean: Any = None,
    running_var: Any = None,
    weight: Any = None,
    bias: Any = None,
    training: bool = False,
    momentum: Any = 0.1,
    eps: Any = 1e-5,
) -> Any:
    if type(momentum) is not torch.SymFloat or not training or running_mean is None:
        return NotImplemented
    running = (running_mean, running_var)
    return _symbolic_momentum(F.batch_norm, x, running, weight, bias, momentum, eps)


def _in_order_of_operator(function: Any) -> Any:
    """The rule for `torch.batch_norm`, whose arguments are in another order: weight and bias come
    first, and whether to use cuDNN last."""

    def rule(x: Any, weight: Any, bias: Any, mean: Any, var: Any, *rest: Any) -> Any:
        *options, _ = rest
        return function(x, mean, var, weight, bias, *options)

    return rule


def is_plain_float(tensors: list[Any]) -> bool:
    """Whether they are tensors of one floating-point dtype, and autocast is off."""
    if not all(type(t) is Fake for t in tensors) or torch._C._is_any_autocast_enabled():
        return False
    dtype = tensors[0].dtype
    return dtype.is_floating_point and all(t.dtype is dtype for t in tensors)


register_functions((F.linear,), differentiable=differentiable_linear)
register_functions(
    (F.batch_norm,),
    override=_overridden_batch_norm,
    differentiable=_batch_norm,
)
register_functions((F.instance_norm,), differentiable=_instance_norm)
register_functions((torch.batch_norm,), differentiable=_in_order_of_operator(_batch_norm))
register_functions((torch.instance_norm,), differentiable=_in_order_of_operator(_instance_norm))
register_functions((torch.matmul, operator.matmul, torch.Tensor.matmul), differentiable=_matmul)
