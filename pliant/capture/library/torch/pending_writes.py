"""Writes that the program has made and residual code has still to make, when the graph runs.

A node that calls a function of the user's runs before that residual code. If the function can reach
an object with such a write, it would find what was there before; then the graph ends first. What a
function can reach is found on the real objects, generously.
"""

from __future__ import annotations

import types
from typing import Any

import torch

from pliant.capture.trace import Trace, written_objects
from pliant.capture.value import Break
from pliant.capture.values.containers import Mapping

LIMIT = 5000  # objects looked at; beyond that, any write is too many


def assume_settled(trace: Trace, name: str, roots: list[Any]) -> None:
    """End the graph here if one of these functions or objects can reach an object with a pending
    write."""
    values = [value for value, _ in trace.effects.values() if value.source is not None]
    if not values and not trace.class_writes:
        return
    search = _Search({id(real) for real in written_objects(trace) if real is not None})
    search.written |= {id(cls) for cls, _ in trace.class_writes}
    for value in values:
        if isinstance(value, Mapping) and value.backing is not None and value.owner is None:
            # Of globals and other dictionaries it is known which keys were written: only who names
            # one reads it.
            search.variables[id(value.backing)] = set(value.written)
            search.written.discard(id(value.backing))
    if search.finds(roots):
        raise Break("operation-argument", f"{name}, which may read what has just been written")


class _Search:
    """A search through real objects for those with pending writes. It over-approximates: whatever a
    function's code names counts as reached."""

    def __init__(self, written: set[int]) -> None:
        self.written = written
        self.variables: dict[int, set[Any]] = {}  # by dictionary: the keys written
        self.waiting: list[Any] = []
        self.reached = False

    def finds(self, roots: list[Any]) -> bool:
        self.waiting, visited = list(roots), {}
        while self.waiting and not self.reached:
            obj = self.waiting.pop()
            if id(obj) in visited:
                continue
            visited[id(obj)] = obj
            # Giving up counts as reached: then the graph ends, which is always right.
            self.reached = id(obj) in self.written or len(visited) > LIMIT
            self.look_into(obj)
        return self.reached

    def look_into(self, obj: Any) -> None:
        for kind, look in _LOOKS:
            if isinstance(obj, kind):
                look(self, obj)
                return
        if _is_of_user(type(obj)):
            self.waiting.append(type(obj))
        self.waiting += getattr(obj, "__dict__", {}).values()

    def function(self, function: types.FunctionType) -> None:
        self.code(function.__code__, function.__globals__)
        self.waiting += function.__closure__ or ()
        self.waiting += function.__defaults__ or ()

    def code(self, code: types.CodeType, namespace: dict[str, Any]) -> None:
        written = self.variables.get(id(namespace), ())
        self.reached |= any(name in written for name in code.co_names)
        reached = [namespace[name] for name in code.co_names if name in namespace]
        for module in [obj for obj in reached if isinstance(obj, types.ModuleType)]:
            parts = vars(module)
            # `co_names` doesn't tell attributes from globals, so any name may be that of a part of
            # a module.
            reached += [parts[name] for name in code.co_names if name in parts]
        self.waiting += reached
        for const in code.co_consts:
            if isinstance(const, types.CodeType):
                self.code(const, namespace)

    def cell(self, cell: types.CellType) -> None:
        try:
            self.waiting.append(cell.cell_contents)
        except ValueError:  # empty
            return

    def cls(self, cls: type) -> None:
        if _is_of_user(cls):
            self.waiting += [*vars(cls).values(), *cls.__bases__]

    def mapping(self, obj: dict[Any, Any]) -> None:
        self.reached |= bool(self.variables.get(id(obj)))
        self.waiting += obj.values()

    def items(self, obj: Any) -> None:
        self.waiting += obj

    def method(self, obj: Any) -> None:
        self.waiting += [obj.__func__, getattr(obj, "__self__", None)]

    def nothing(self, obj: Any) -> None:
        """A leaf of the search."""


def _is_of_user(cls: type) -> bool:
    return cls.__module__.partition(".")[0] not in ("torch", "builtins")


_LOOKS: tuple[tuple[Any, Any], ...] = (
    ((torch.Tensor, types.ModuleType, str, int, float), _Search.nothing),
    (types.FunctionType, _Search.function),
    ((types.MethodType, staticmethod, classmethod), _Search.method),
    (types.CellType, _Search.cell),
    (type, _Search.cls),
    (dict, _Search.mapping),
    ((list, tuple, set, frozenset), _Search.items),
)
