"""What is written down for some operators, and in what form.

Three tables: operators that stay whole, what others are taken apart into, and the functional forms
of those that write to their arguments where the name doesn't tell.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from functools import partial
from typing import Any, Final

import torch
import torch.nn.functional as F

from pliant.fake import selection
from pliant.fake.composites import STAND_INS
from pliant.fake.order import sure


def _batch_norm(*args: Any) -> Any:
    """With the operator's order of arguments."""
    x, weight, bias, mean, variance, training, momentum, eps, *_ = args
    in_order = (x, mean, variance, weight, bias, training, momentum, eps)
    result = STAND_INS["batch_norm"][1](*in_order)
    return F.batch_norm(*in_order) if result is NotImplemented else result


def _resampled(original: Any, x: Any, size: Any, *rest: Any) -> Any:
    """An operator that resamples, given sizes or factors: what its result looks like."""
    found = NotImplemented
    if x._has_symbolic_sizes_strides:
        found = STAND_INS["interpolate"][1](x, size, None if size is not None else rest[-1])
    return original(x, size, *rest) if found is NotImplemented else found


_RESAMPLING: Final = [
    getattr(torch.ops.aten, name).vec
    for name in (
        *("upsample_linear1d", "upsample_bilinear2d", "upsample_bicubic2d", "upsample_trilinear3d"),
        *(f"upsample_nearest{rank}d" for rank in (1, 2, 3)),
        *(f"_upsample_nearest_exact{rank}d" for rank in (1, 2, 3)),
    )
]


def _one_hot(x: torch.Tensor, num_classes: Any = -1) -> Any:
    """Contiguous: PyTorch compares where it knows no data, and keeps the strides then."""
    if type(num_classes) is int and num_classes <= 0:
        return F.one_hot(x, num_classes)
    return x.new_empty((*x.size(), num_classes), dtype=torch.int64)


# Operators that PyTorch would take apart, but that are better called as they are: what they are
# made of asks about sizes, and has nothing in it that could be fused. With the function that tells
# their results.
WHOLE: Final[dict[str, Callable[..., Any]]] = {
    "aten.linear.default": F.linear,
    "aten.matmul.default": torch.matmul,
    "aten.scaled_dot_product_attention.default": F.scaled_dot_product_attention,
    "aten.conv1d.default": torch.conv1d,
    "aten.conv2d.default": torch.conv2d,
    "aten.conv3d.default": torch.conv3d,
    "aten.conv1d.padding": torch.conv1d,
    "aten.conv2d.padding": torch.conv2d,
    "aten.conv_transpose1d.default": torch.conv_transpose1d,
    "aten.conv_transpose2d.input": torch.conv_transpose2d,
    "aten.einsum.default": torch.einsum,
    "aten.bilinear.default": torch.bilinear,
    "aten.lstm.input": torch.lstm,
    "aten.gru.input": torch.gru,
    "aten.group_norm.default": torch.group_norm,
    "aten.batch_norm.default": _batch_norm,
    "aten.cdist.default": torch.cdist,
    "aten.max_pool1d.default": torch.max_pool1d,
    "aten.arange.default": torch.arange,
    "aten.arange.start": torch.arange,
    "aten.arange.start_step": torch.arange,
    "aten.linspace.default": torch.linspace,
    "aten.one_hot.default": _one_hot,
    **{str(op): partial(_resampled, op) for op in _RESAMPLING},
}


def _dropout(x: torch.Tensor, p: float, train: bool) -> Any:
    """What PyTorch does, without asking whether there is anything to drop."""
    if not train or p == 0:
        return x
    if p == 1:
        return x * 0.0
    return x * torch.empty_like(x).bernoulli_(1 - p).div_(1 - p)


def _reduced(loss: torch.Tensor, reduction: int) -> torch.Tensor:
    if reduction == 0:
        return loss
    return loss.mean() if reduction == 1 else loss.sum()


def _bce_with_logits(
    x: torch.Tensor,
    target: torch.Tensor,
    weight: torch.Tensor | None = None,
    pos_weight: torch.Tensor | None = None,
    reduction: int = 1,
) -> torch.Tensor:
    log_sigmoid = torch.nn.functional.logsigmoid(x)
    if pos_weight is not None:
        log_sigmoid = log_sigmoid * ((pos_weight - 1) * target + 1)
    # In place, as PyTorch has it: the result is laid out like its first factor.
    loss = (1 - target).mul_(x).sub_(log_sigmoid)
    return _reduced(loss if weight is None else loss.mul_(weight), reduction)


def _soft_margin_loss(x: torch.Tensor, target: torch.Tensor, reduction: int = 1) -> torch.Tensor:
    return _reduced((-x).mul_(target).exp().log1p(), reduction)


def _ldexp(x: torch.Tensor, other: torch.Tensor) -> Any:
    if x.is_floating_point() and not other.is_floating_point():
        return NotImplemented  # exact, even where the power alone is too large for a float
    return x * torch.pow(2.0, other)


# What to take apart instead of what PyTorch takes apart, which asks about sizes; and what PyTorch
# runs in these very steps.
INSTEAD: Final[dict[str, Callable[..., Any]]] = {
    "aten.binary_cross_entropy_with_logits.default": _bce_with_logits,
    "aten.soft_margin_loss.default": _soft_margin_loss,
    "aten.ldexp.Tensor": _ldexp,
    "aten.dropout.default": _dropout,
    "aten.reshape.default": STAND_INS["reshape"][1],
    "aten.flatten.using_ints": STAND_INS["flatten"][1],
}


OUT_TO: Final = {"out": "Tensor"}
FUNCTIONAL_FORMS: Final = {
    "aten.bernoulli_.float": torch.ops.aten.bernoulli.p,
    "aten.normal_.default": torch.ops.aten.normal_functional.default,
    "aten.pow_.Scalar": torch.ops.aten.pow.Tensor_Scalar,
    "aten.pow_.Tensor": torch.ops.aten.pow.Tensor_Tensor,
    "aten.floor_divide_.Tensor": torch.ops.aten.floor_divide.default,
    "aten.ldexp_.default": torch.ops.aten.ldexp.Tensor,
}


def _loss(inner: Callable[..., Any]) -> Callable[..., Any]:
    """A loss of two tensors of the same shape, and a number: PyTorch would broadcast them first."""

    def general(*args: Any, reduction: str = "mean", **more: Any) -> Any:
        others = [value for name, value in more.items() if name not in _NUMBERS]
        numbers = [value for name, value in more.items() if name in _NUMBERS]
        usual = len(args) == 2 and reduction in _REDUCTIONS and others.count(None) == len(others)
        if not usual or not all(isinstance(n, int | float) and n > 0 for n in numbers):
            return NotImplemented
        x, target = args
        same = all(a is b or sure(a == b) for a, b in zip(x.size(), target.size()))
        if x.dim() != target.dim() or not same:
            return NotImplemented
        return inner(x, target, _REDUCTIONS[reduction], *numbers)

    return general


_REDUCTIONS: Final = {"none": 0, "mean": 1, "sum": 2}
_NUMBERS: Final = ("beta", "delta")


def _with_selection(general: Callable[..., Any]) -> Callable[..., Any]:
    """PyTorch asks a symbolic number in a key for its value."""

    def chosen(tensor: Any, key: Any, *value: Any) -> Any:
        items = key if isinstance(key, tuple) else (key,)
        selects = any(isinstance(item, torch.SymInt) for item in items)
        if not selects or not isinstance(tensor, torch.Tensor):
            return NotImplemented
        return general(tensor, key, *value)

    return chosen


# What to call instead of functions of PyTorch that ask about sizes.
GENERAL: Final[dict[Any, Callable[..., Any]]] = {
    F.mse_loss: _loss(torch._C._nn.mse_loss),
    F.l1_loss: _loss(torch._C._nn.l1_loss),
    F.smooth_l1_loss: _loss(torch._C._nn.smooth_l1_loss),
    F.huber_loss: _loss(torch._C._nn.huber_loss),
    operator.getitem: _with_selection(selection.get),
    operator.setitem: _with_selection(selection.put),
}
