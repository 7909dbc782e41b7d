"""Values as text for a line of a log: short, and without running a `__repr__` of the user's where a
value is not part of an assumption."""

from __future__ import annotations

import inspect
import types
from typing import Any

import torch

from pliant.guards.source import key_text, text_of


def name_of(value: Any) -> str | None:
    """The name of a class or a function, as a user would write it."""
    first = "__name__" if isinstance(value, types.BuiltinFunctionType) else "__qualname__"
    name = getattr(value, first, None) or getattr(value, "__name__", None)
    return name if isinstance(name, str) else None


def short(value: Any) -> str:
    """A value that is assumed."""
    if isinstance(value, torch.Tensor):
        return key_text(value)
    return cut(name_of(value) or text_of(value))


def cut(text: str) -> str:
    return text if len(text) <= 120 else text[:117] + "..."


_PRINTABLE = (type(None), bool, int, float, complex, str, bytes, tuple, range, slice, torch.dtype)


def describe(value: Any) -> str:
    """What a value is, in a few words, without running a `__repr__` of the user's."""
    if type(value) in _PRINTABLE or isinstance(value, torch.device):
        return cut(repr(value))
    if isinstance(value, type) or inspect.isroutine(value):
        return name_of(value) or str(value)
    return f"<{type(value).__qualname__} object>"


def length(value: Any) -> str:
    return str(len(value)) if hasattr(type(value), "__len__") else describe(value)


def keys(value: Any) -> str:
    return _items(value) if isinstance(value, dict) else describe(value)


def elements(value: Any) -> str:
    return _items(value) if isinstance(value, set | frozenset) else describe(value)


def _items(value: Any) -> str:
    """The first of the keys of a dictionary, or of the elements of a set."""
    shown = [describe(item) for _, item in zip(range(20), value, strict=False)]
    return f"[{', '.join(shown)}{', ...' if len(value) > len(shown) else ''}]"
