"""`max` and `min` of tensors with one element: which of them it is, is in the data.

The one idea: a tensor that nobody else refers to can't be told from a copy of it. Where that is so
of all of them, the result is a new tensor with the number of the one that Python would choose.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch

from pliant.capture.model import call, compare
from pliant.capture.value import Const, Null, Value
from pliant.capture.values.generators import referenced
from pliant.capture.values.tensors import TensorValue
from pliant.fake import Fake

if TYPE_CHECKING:
    from pliant.capture.trace import Trace


def chosen(
    trace: Trace, function: Callable[..., Any], symbol: str, items: list[Value]
) -> Value | None:
    """The result of `max` or `min` of tensors with one element, as `torch.where`; None for other
    arguments. `symbol` is the comparison it uses."""
    tensors = [trace.read(item) for item in items]
    if len(tensors) < 2 or not all(_is_single(trace, tensor) for tensor in tensors):
        return None
    kinds = {_kind(tensor) for tensor in tensors}
    if len(kinds) > 1 or not _is_called(trace, function) or _are_shared(trace, tensors):
        return None
    best = tensors[0]
    for tensor in tensors[1:]:
        exceeds = compare(trace, symbol, tensor, best)
        best = call(trace, Const(torch.where), [exceeds, tensor, best])
    return best


def _is_single(trace: Trace, value: Value) -> bool:
    """Whether it is a new tensor of one element, of which nothing but its number can be seen. One
    with a gradient shows where it came from."""
    if not isinstance(value, TensorValue) or type(value.fake) is not Fake or value.plain:
        return False
    fake = value.fake
    is_new = value.real is None and _memory(value) not in trace.graph_effects.outside
    plain = value.cls is torch.Tensor and not value.slots and value.attributes is None
    return is_new and plain and not fake.requires_grad and list(fake.shape) == [1] * fake.dim()


def _kind(value: Any) -> tuple[Any, ...]:
    fake = value.fake
    return fake.dim(), fake.dtype, fake.device, tuple(fake.stride())


def _is_called(trace: Trace, function: Callable[..., Any]) -> bool:
    """Whether the present instruction is the call of `function` itself. If another function makes
    the call, it may keep the tensors."""
    frame = trace.frames[-1]
    operands = [v for v in frame.stack[-frame.operands :] if not isinstance(v, Null)]
    callee = trace.read(operands[0]) if operands else None
    return isinstance(callee, Const) and callee.value is function


def _are_shared(trace: Trace, tensors: list[Any]) -> bool:
    """Whether something else refers to one of the tensors, or to its memory."""
    memory = set(map(_memory, tensors))
    others = referenced(trace, trace.frames[-1].operands)
    return any(isinstance(v, TensorValue) and _memory(v) in memory for v in others)


def _memory(value: Any) -> int:
    number: int = value.fake.untyped_storage()._cdata
    return number
