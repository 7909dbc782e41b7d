"""Objects of this process, and what stands for them in data.

The one idea: data that can be written to disk holds no live object. In the place of each it has an
`External`: the number of the object in a table kept beside the data. One structural map goes both
ways: `Externals` takes objects out, a `Binder` puts them back.
"""

from __future__ import annotations

import re
import types
from collections.abc import Callable, Sequence
from typing import Any, Final, Protocol

import torch

from pliant._native import State
from pliant.base.values import dataclass

PLAIN: Final[set[type]] = {
    type(None), type(...), bool, int, float, complex, str, bytes, torch.dtype, torch.device,
    torch.layout, torch.memory_format, torch.Size,
}  # fmt: skip
"""Types of values that are data as they are. Modules add theirs."""

SINGLE: Final[set[type]] = {type(None), type(...), bool}
"""Types whose equal values are the same object, in every process."""


def is_single(value: Any) -> bool:
    """Whether whatever is equal to this value, and of its type, is this object."""
    return type(value) in SINGLE or (type(value) is tuple and not value)


CODE: Final = (types.ModuleType, types.FunctionType, types.BuiltinFunctionType, type)


@dataclass(frozen=True, slots=True)
class External:
    """Stands for object number `index` of the table. `text` describes it for readers; `code` says
    that it is a module, a class or a function."""

    index: int
    text: str
    code: bool = False

    def __repr__(self) -> str:
        return self.text


class Mapper(Protocol):
    """One direction of the map."""

    def visit(self, value: Any) -> Any:
        """The mapped value, where any equal value will do."""

    def identity(self, value: Any) -> Any:
        """The mapped value, where this very object is meant."""


def _tuple(value: tuple[Any, ...], mapper: Mapper) -> tuple[Any, ...]:
    items = tuple([mapper.visit(item) for item in value])
    return value if all(a is b for a, b in zip(items, value, strict=True)) else items


def _slice(value: slice, mapper: Mapper) -> slice:
    return slice(*map(mapper.visit, (value.start, value.stop, value.step)))


STRUCTURES: Final[dict[type, Callable[[Any, Mapper], Any]]] = {tuple: _tuple, slice: _slice}
"""How a value of a type is made of its visited parts; itself if all parts are as they were."""
SHARED: Final[set[type]] = set()
"""Structures that occur many times: each is visited once."""


class Externals:
    """The table of one compilation: collects the objects in the values that it visits."""

    def __init__(self) -> None:
        self.objects: list[Any] = []
        self._known: dict[int, Any] = {}  # by id: what stands for an object or a structure
        self._alive: list[Any] = []

    def visit(self, value: Any) -> Any:
        """The value as data: objects in it are replaced by externals."""
        kind = type(value)
        if kind in PLAIN:
            return value
        key = id(value)
        external = self._known.get(key)  # a shared structure or an object, for the most part
        if external is not None:
            return external
        structure = STRUCTURES.get(kind)
        if structure is None:
            return self.external(value)
        # Not memoised unless shared: most structures occur once, and a table of them would keep
        # them alive.
        data = structure(value, self)
        if kind in SHARED:
            self._known[key] = data
            self._alive.append(value)  # or another object might get its id
        return data

    def identity(self, value: Any) -> Any:
        if is_single(value):
            return value
        external = self._known.get(id(value))
        # An equal number or string may be another object elsewhere, so even those become externals.
        return self.external(value) if external is None else external

    def external(self, value: Any) -> External:
        external = self._known.get(id(value))
        if external is None:
            external = External(len(self.objects), describe(value), isinstance(value, CODE))
            self._known[id(value)] = external
            # Which also keeps it alive, so that its id stays its own.
            self.objects.append(value)
        return external


class Binder:
    """Puts the objects of a table in the places of their externals."""

    def __init__(self, objects: Sequence[Any]) -> None:
        self.objects = objects
        self._visited: dict[int, tuple[Any, Any]] = {}

    def visit(self, value: Any) -> Any:
        """The value with its externals replaced by objects."""
        kind = type(value)
        if kind is External:
            return self.objects[value.index]
        structure = STRUCTURES.get(kind)
        if structure is None:
            return value
        # Shared structures stay shared: sources are compared by identity.
        visited = self._visited.get(id(value))
        if visited is None:
            visited = self._visited[id(value)] = value, structure(value, self)
        return visited[1]

    identity = visit


def without_addresses(text: str) -> str:
    """The text without the addresses in it: they differ from process to process."""
    return re.sub(r" at 0x[0-9a-f]+", "", text)


def describe(value: Any) -> str:
    """What an object is, in words, without running code of the program: no `__repr__`, no
    `__getattr__`."""
    text = _DESCRIBED.get(type(value))
    if text is not None:
        return text(value)
    if isinstance(value, type):
        return f"{type.__getattribute__(value, '__module__')}.{_class_name(value)}"
    return f"<{_class_name(type(value))} object>"


def _class_name(cls: type) -> str:
    return str(type.__getattribute__(cls, "__qualname__"))


def _function_text(function: Any) -> str:
    module = function.__module__
    return f"{module}.{function.__qualname__}" if module else str(function.__qualname__)


def _descriptor_text(descriptor: Any) -> str:
    return f"{_class_name(descriptor.__objclass__)}.{descriptor.__name__}"


_DESCRIBED: Final[dict[type, Callable[[Any], str]]] = {
    types.FunctionType: _function_text,
    types.BuiltinFunctionType: _function_text,
    types.ModuleType: lambda module: f"<module {module.__dict__.get('__name__')}>",
    types.MethodDescriptorType: _descriptor_text,
    types.WrapperDescriptorType: _descriptor_text,
    torch._ops.OpOverload: str,
    State: str,
    types.CodeType: lambda code: f"<code {code.co_qualname}>",
    dict: lambda table: (
        f"<dict of {table['__name__']}>"
        if isinstance(table.get("__name__"), str)
        else "<dict object>"
    ),
}
