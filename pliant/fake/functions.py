"""Functions of PyTorch that are answered in a way of our own, without PyTorch taking them apart.

The one idea: PyTorch composes such a function of many operators, and asks about sizes to choose the
fastest way (fold a batch, skip a copy, leave out what is empty). Each question would become a
guard, though the result looks the same whichever way is taken. The record of the function has the
sizes of the result (`sizes`), or one way for all sizes (`symbolic`), which returns NotImplemented
for "as usual". Only the look of the result counts, and that autograd sees which arguments it
depends on; when the graph runs, PyTorch's own function does.
"""

from __future__ import annotations

import numbers
from collections.abc import Callable, Iterable
from typing import Any

import torch

from pliant.base.operators import FunctionRecord
from pliant.fake.layout import contiguous_strides
from pliant.fake.tensor import Fake, make
from pliant.sym.node import SYMBOLIC


def answer(record: FunctionRecord, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Fake | None:
    """The result of the function as a new contiguous fake, if its record has a rule for its sizes
    that fits the arguments; otherwise None."""
    rule = record.sizes
    if rule is None or kwargs:
        return None
    tensors = [arg for arg in args if arg is not None]
    # Mixed dtypes or devices: PyTorch's own promotion and errors apply.
    if not all(type(t) is Fake for t in tensors) or not _alike(tensors):
        return None
    sizes = rule(*args)
    if sizes is None:
        return None
    first = tensors[0]
    shell = make(first._world, sizes, contiguous_strides(sizes), 0, first.dtype, first.device)
    return depending_on(shell, tensors)


def symbolic_form(
    record: FunctionRecord, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> Callable[..., Any] | None:
    """What to call in place of the function for arguments with symbolic sizes, or None."""
    function = record.symbolic
    if function is None or (torch._C._is_any_autocast_enabled() and not record.cast_by_parts):
        return None
    if not any(map(_is_symbolic, (*args, *kwargs.values()))):
        return None
    if not _takes(function, len(args), kwargs):
        return None
    return _on_plain(function) if any(map(_has_foreign, (*args, *kwargs.values()))) else function


def depending_on(result: Any, tensors: Iterable[Any]) -> Any:
    """`result`, with a gradient function that records these tensors as its inputs."""
    graded = [t for t in tensors if type(t) is Fake and t.requires_grad]
    if not graded or not torch.is_grad_enabled():
        return result
    return _Made.apply(lambda: result, *graded)


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
    return made_by(node, _Made)


def made_by(node: Any, function: type[torch.autograd.Function]) -> bool:
    """Whether a node of autograd stands for a call of this function."""
    return getattr(type(node), "_forward_cls", None) is function


def _alike(tensors: list[Any]) -> bool:
    first = tensors[0]
    return (
        first.dtype.is_floating_point
        and all(t.dtype is first.dtype and t.device == first.device for t in tensors)
        and not any(t.is_neg() for t in tensors)
        and not torch._C._is_any_autocast_enabled()
    )


def _takes(function: Callable[..., Any], count: int, kwargs: dict[str, Any]) -> bool:
    """Whether the function knows these arguments by these names."""
    code = function.__code__
    named = code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]
    varargs, by_name = code.co_flags & VARARGS, code.co_flags & VARKEYWORDS
    if count > code.co_argcount and not varargs:
        return False
    return bool(by_name) or all(name in named[count:] for name in kwargs)


def _has_foreign(value: Any) -> bool:
    """Whether there is an integer of another library (`numpy.int64`) in an argument."""
    if type(value) in (tuple, list):
        return any(map(_has_foreign, value))
    known = type(value) in _KNOWN or isinstance(value, SYMBOLIC)
    return not known and isinstance(value, numbers.Integral)


_KNOWN = frozenset((Fake, int, bool, float, str, type(None), torch.dtype))


def _on_plain(function: Callable[..., Any]) -> Callable[..., Any]:
    """The function on Python's integers: PyTorch's own parser of arguments takes those of other
    libraries for these."""

    def plain(value: Any) -> Any:
        if type(value) in (tuple, list):
            return type(value)(map(plain, value))
        return int(value) if _has_foreign(value) else value

    def call(*args: Any, **kwargs: Any) -> Any:
        return function(*map(plain, args), **{name: plain(value) for name, value in kwargs.items()})

    return call


def _is_symbolic(value: Any) -> bool:
    if type(value) is Fake:
        return bool(value._has_symbolic_sizes_strides)
    return isinstance(value, SYMBOLIC)


VARARGS, VARKEYWORDS = 0x04, 0x08
