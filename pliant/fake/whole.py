"""Functions of PyTorch that are answered as a whole, without being taken apart into operators.

The one idea: a few functions that every model calls are made of many operators, each of which would
be answered in turn, and which ask questions about symbolic sizes that have nothing to do with the
result (whether a batch is empty, whether two dimensions can be folded into one). What such a
function returns is plain to see. A rule gives it, or None for unusual arguments.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable
from typing import Any

import torch
import torch.nn.functional as F

from pliant.fake.layout import broadcast, contiguous_strides
from pliant.fake.order import is_contiguous
from pliant.fake.tensor import Fake, make

Sizes = tuple[Any, ...]
Rule = Callable[..., Sizes | None]


def answer(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any] | None) -> Fake | None:
    """The result, new and contiguous, if there is a rule for this call."""
    rule = _RULES.get(func)
    if rule is None or kwargs:
        return None
    tensors = [arg for arg in args if arg is not None]
    if not all(type(t) is Fake for t in tensors) or not _alike(tensors):
        return None
    sizes = rule(*args)
    if sizes is None:
        return None
    first = tensors[0]
    shell = make(first._world, sizes, contiguous_strides(sizes), 0, first.dtype, first.device)
    return depending_on(shell, tensors)


def depending_on(made: Any, tensors: Iterable[Any]) -> Any:
    """`made`, of which autograd knows that it was made from these tensors."""
    graded = [t for t in tensors if type(t) is Fake and t.requires_grad]
    if not graded or not torch.is_grad_enabled():
        return made
    return _Made.apply(lambda: made, *graded)


class _Made(torch.autograd.Function):
    """Some function of tensors. Gradients look like the tensors they belong to."""

    @staticmethod
    def forward(ctx: Any, make_it: Callable[[], Fake], *tensors: Fake) -> Fake:
        ctx.save_for_backward(*tensors)
        return make_it()

    @staticmethod
    def backward(ctx: Any, grad: Fake) -> Any:
        tensors = ctx.saved_tensors
        gradients = (depending_on(torch.empty_like(t), (grad, *tensors)) for t in tensors)
        return None, *gradients


def made_by_rule(node: Any) -> bool:
    """Whether a node of autograd stands for a function that a rule has answered."""
    return getattr(type(node), "_forward_cls", None) is _Made


def _alike(tensors: list[Any]) -> bool:
    first = tensors[0]
    return (
        first.dtype.is_floating_point
        and all(t.dtype is first.dtype and t.device == first.device for t in tensors)
        and not any(t.is_neg() for t in tensors)
        and not torch._C._is_any_autocast_enabled()
    )


def _matmul(a: Fake, b: Fake) -> Sizes | None:
    """Of batches of matrices; what is less is one operator, or is folded in several ways."""
    if a.dim() < 3 or b.dim() < 3 or a.size(-1) != b.size(-2):
        return None
    batch = broadcast([a.shape[:-2], b.shape[:-2]])
    return None if batch is None else (*batch, a.size(-2), b.size(-1))


def _linear(x: Fake, weight: Fake, bias: Fake | None = None) -> Sizes | None:
    usual = x.dim() >= 3 and weight.dim() == 2 and is_contiguous(x)
    if not usual or x.size(-1) != weight.size(1):
        return None
    if bias is not None and not (bias.dim() == 1 and bias.size(0) == weight.size(0)):
        return None
    return (*x.shape[:-1], weight.size(0))


_RULES: dict[Any, Rule] = {
    torch.matmul: _matmul,
    operator.matmul: _matmul,
    torch.Tensor.matmul: _matmul,
    torch.Tensor.__matmul__: _matmul,
    F.linear: _linear,
}
