"""Items of tensors chosen by numbers that are not known while the program is followed.

PyTorch asks such a number (a size, or what a tensor without dimensions holds) for its value before
it selects by it; `select` itself does not. So selections are made first, the rest of the key after
them, which is what PyTorch does with plain numbers.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import torch

from pliant.capture.model import call_special
from pliant.capture.trace import Trace
from pliant.capture.value import Value
from pliant.capture.values.containers import Sequence
from pliant.capture.values.number import Number
from pliant.capture.values.objects import Instance, SliceValue
from pliant.capture.values.tensors import TensorValue
from pliant.guards.guard import MISSING

INTEGERS = frozenset((torch.int8, torch.int16, torch.int32, torch.int64))

Read = Callable[[Trace, TensorValue], Value]


def with_indices(trace: Trace, key: Value) -> Value:
    """The key with the numbers that objects of the program give for themselves (`__index__`)."""
    known = trace.read(key)
    if isinstance(known, Sequence) and known.cls is tuple:
        items = [with_indices(trace, item) for item in known.items]
        same = all(a is b for a, b in zip(items, known.items, strict=True))
        return key if same else Sequence(tuple, items)
    if isinstance(known, SliceValue):
        parts = [with_indices(trace, part) for part in known.parts]
        same = all(a is b for a, b in zip(parts, known.parts, strict=True))
        return key if same else SliceValue(parts)
    if not isinstance(known, Instance) or trace.lookup(known.cls, "__getitem__") is not MISSING:
        return key  # among others what PyTorch takes for a sequence
    return call_special(trace, known, "__index__") or key


def with_numbers(trace: Trace, key: Value, read: Read) -> tuple[Value, bool]:
    """The key with numbers for tensors that hold one, and whether there is one in it that is not
    known."""
    if isinstance(key, Sequence) and key.cls is tuple:
        pairs = [_as_number(trace, trace.read(item), read) for item in key.items]
        if not any(selects for _, selects in pairs):
            return key, False
        return Sequence(tuple, [item for item, _ in pairs]), True
    return _as_number(trace, key, read)


def _as_number(trace: Trace, item: Value, read: Read) -> tuple[Value, bool]:
    if isinstance(item, TensorValue) and not item.fake.dim() and item.fake.dtype in INTEGERS:
        item = read(trace, item)
    return item, isinstance(item, Number) and item.python_type() is int


def get(tensor: torch.Tensor, key: Any) -> Any:
    """`tensor[key]`"""
    found = _selected(tensor, key)
    return operator.getitem(tensor, key) if found is None else _rest(*found)


def _rest(tensor: torch.Tensor, key: tuple[Any, ...]) -> torch.Tensor:
    return tensor[key] if key else tensor


def put(tensor: torch.Tensor, key: Any, value: Any) -> None:
    """`tensor[key] = value`"""
    found = _selected(tensor, key)
    if found is None:
        tensor[key] = value
    else:
        view, rest = found
        view[rest or ...] = value


def _selected(tensor: torch.Tensor, key: Any) -> tuple[torch.Tensor, tuple[Any, ...]] | None:
    """The tensor with the symbolic numbers of the key selected, and the rest of the key. None for a
    key that PyTorch has something to say about."""
    items = key if isinstance(key, tuple) else (key,)
    takes = [_dimensions(item) for item in items]
    left = tensor.dim() - sum(takes)
    if left < 0 or sum(item is ... for item in items) > 1:
        return None
    dim, selections, rest = 0, [], []
    for item, count in zip(items, takes, strict=True):
        if isinstance(item, torch.SymInt):
            selections.append((dim, item))
        else:
            rest.append(item)
        dim += left if item is ... else count
    for dim, index in reversed(selections):
        tensor = tensor.select(dim, index)
    return tensor, tuple(rest)


def _dimensions(item: Any) -> int:
    """How many dimensions of the tensor an item of a key is about."""
    if item is None or item is ... or isinstance(item, bool):
        return 0
    if isinstance(item, torch.Tensor) and item.dtype in (torch.bool, torch.uint8):
        return item.dim()
    return 1
