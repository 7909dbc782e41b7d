"""Numbers in indices and arguments: tensors that hold a number, and objects with an `__index__`."""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable
from typing import Any

import torch

from pliant.base.python_errors import type_name
from pliant.capture.model import call_special
from pliant.capture.sequence_operators import SEQUENCES
from pliant.capture.trace import Trace
from pliant.capture.value import Value
from pliant.capture.values.containers import Sequence
from pliant.capture.values.number import Number
from pliant.capture.values.objects import Instance, SliceValue
from pliant.capture.values.tensors import TensorValue
from pliant.guards.guard import MISSING

INTEGERS = frozenset((torch.int8, torch.int16, torch.int32, torch.int64))

# Sequences are repeated as often as a tensor says, and texts are formatted with what is in it.
REPEATING = frozenset({operator.mul, operator.imul, operator.mod, operator.imod})

Read = Callable[[Trace, TensorValue], Value]


# What PyTorch makes tensors of where they are indices, by value class; None where it does not.
AS_INDEX: dict[type, Callable[[Trace, Any], Value | None]] = {}


def with_indices(trace: Trace, key: Value) -> Value:
    """The key with objects of the program replaced by what their `__index__` returns, and arrays by
    tensors."""
    key_value = trace.read(key)
    as_index = AS_INDEX.get(type(key_value))
    if as_index is not None:
        return as_index(trace, key_value) or key
    if isinstance(key_value, Sequence) and key_value.cls is tuple:
        items = [with_indices(trace, item) for item in key_value.items]
        unchanged = all(a is b for a, b in zip(items, key_value.items, strict=True))
        return key if unchanged else Sequence(tuple, items)
    if isinstance(key_value, SliceValue):
        parts = [with_indices(trace, part) for part in key_value.parts]
        unchanged = all(a is b for a, b in zip(parts, key_value.parts, strict=True))
        return key if unchanged else SliceValue(parts)
    if (
        not isinstance(key_value, Instance)
        or trace.lookup(key_value.cls, "__getitem__") is not MISSING
    ):
        return key  # among others what PyTorch takes for a sequence
    return call_special(trace, key_value, "__index__") or key  # PyTorch has its own error


def repeats(real: Callable[..., object], operands: Iterable[Value]) -> bool:
    """Whether this is an operator of a sequence or text with a tensor as its number: `[0] * t`,
    `"%d" % t`."""
    return real in REPEATING and any(issubclass(v.python_type(), SEQUENCES) for v in operands)


def own_index(trace: Trace, value: Value) -> Value | None:
    """What the `__index__` of an object returns; None if its class has none."""
    index = call_special(trace, value, "__index__")
    if index is None:
        return None
    index = trace.read(index)
    if not issubclass(index.python_type(), int):
        kind = type_name(index.python_type())
        trace.throw(TypeError(f"__index__ returned non-int (type {kind})"))
    return index


def with_numbers(trace: Trace, key: Value, read: Read) -> tuple[Value, bool]:
    """The key with numbers in place of the tensors that hold one, and whether one of these is
    symbolic: then the item has to be selected by it."""
    if isinstance(key, Sequence) and key.cls is tuple:
        items = [_with_bounds(trace, trace.read(item), read) for item in key.items]
        pairs = [_as_number(trace, item, read) for item in items]
        if any(selects for _, selects in pairs):
            return Sequence(tuple, [item for item, _ in pairs]), True
        unchanged = all(a is trace.read(b) for a, b in zip(items, key.items, strict=True))
        return key if unchanged else Sequence(tuple, items), False
    return _as_number(trace, _with_bounds(trace, key, read), read)


def _with_bounds(trace: Trace, item: Value, read: Read) -> Value:
    """A slice with numbers for the tensors that are its bounds."""
    if not isinstance(item, SliceValue):
        return item
    parts = [trace.read(part) for part in item.parts]
    if not any(isinstance(part, TensorValue) for part in parts):
        return item
    return SliceValue([_as_number(trace, part, read)[0] for part in parts])


def _as_number(trace: Trace, item: Value, read: Read) -> tuple[Value, bool]:
    if isinstance(item, TensorValue) and not item.fake.dim() and item.fake.dtype in INTEGERS:
        item = read(trace, item)
    return item, isinstance(item, Number) and item.python_type() is int


def with_argument_read(
    trace: Trace, values: list[Value], tensor: torch.Tensor, read: Read
) -> list[Value]:
    """The arguments of a call, with `tensor` replaced by the number that it holds."""

    def with_number(value: Value) -> Value:
        value = trace.read(value)
        if isinstance(value, TensorValue) and value.fake is tensor:
            return read(trace, value)
        if isinstance(value, Sequence):
            return Sequence(value.cls, [with_number(item) for item in value.items])
        return value

    return [with_number(value) for value in values]


def tensors_of(trace: Trace, key: Value) -> list[Value] | None:
    """The tensors that a key consists of; None if there is anything else in it."""
    is_tuple = isinstance(key, Sequence) and key.cls is tuple
    items = [trace.read(item) for item in key.items] if is_tuple else [key]  # type: ignore[attr-defined]
    return items if items and all(isinstance(item, TensorValue) for item in items) else None


def at(tensor: torch.Tensor, *indices: torch.Tensor) -> torch.Tensor:
    """`tensor[indices]` as one operator, which doesn't look at the numbers in the indices."""
    return torch.ops.aten.index.Tensor(tensor, list(indices))
