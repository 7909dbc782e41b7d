"""A function of the user's as text, for failures that are not those of a graph.

The one idea: a script should run where the user's files are not. So the function is written out,
with what it refers to; what can't be written is imported, or saved beside the script.
"""

from __future__ import annotations

import ast
import builtins
import inspect
import sys
import textwrap
import types
from collections.abc import Iterator
from typing import Any

import torch

from pliant.base.values import dataclass
from pliant.reproduce.inputs import InputWriter

MOST = 20  # definitions; a program that needs more is imported


@dataclass(frozen=True, slots=True)
class FunctionSource:
    """Code that defines `f`, and what it takes from a file beside the script."""

    text: str
    saved: dict[str, Any]


class NotWritten(Exception):
    """There is no text for a function."""


def source_of(function: Any) -> FunctionSource:
    """The text that defines a callable as `f`."""
    writer = _SourceWriter()
    if isinstance(function, types.FunctionType):
        try:
            name = writer.function(function)
            return FunctionSource(writer.text(f"f = {name}\n"), writer.saved)
        except (NotWritten, OSError, SyntaxError):
            writer = _SourceWriter()
    line = _import_of(function)
    if line is not None:
        return FunctionSource(f"{line}\nf = {function.__name__}\n", {})
    for kind in {type(module) for module in _modules(function)}:
        if kind.__module__ == "__main__":  # the script will be `__main__`
            writer.definition(kind)
    writer.saved["f"] = function
    return FunctionSource(writer.text(""), writer.saved)


def _modules(value: Any) -> Iterator[Any]:
    if isinstance(value, torch.nn.Module):
        yield from value.modules()


class _SourceWriter:
    def __init__(self) -> None:
        self.imports: list[str] = []
        self.definitions: list[str] = []
        self.saved: dict[str, Any] = {}
        self._written: dict[str, Any] = {}

    def text(self, last: str) -> str:
        parts = ["\n".join(self.imports), *self.definitions, last]
        return "\n\n\n".join(part.strip("\n") for part in parts if part.strip("\n")) + "\n"

    def function(self, function: types.FunctionType) -> str:
        """Write a function and what it refers to; its name."""
        if len(self.definitions) >= MOST:
            raise NotWritten
        node, source = _definition(function)
        self._refer(function)
        if isinstance(node, ast.Lambda):
            name = f"function_{len(self.definitions)}"
            source = f"{name} = {source}"
        else:
            name = function.__name__
        self.definitions.append(source)
        return name

    def definition(self, kind: type) -> None:
        """Write a class."""
        if len(self.definitions) >= MOST:
            raise NotWritten
        _, source = _definition(kind)
        for member in vars(kind).values():
            if isinstance(member, types.FunctionType):
                self._refer(member)
        for base in kind.__bases__:
            self._provide(base.__name__, base)
        self.definitions.append(source)

    def _refer(self, function: types.FunctionType) -> None:
        """Provide the names that a function reads."""
        cells = dict(zip(function.__code__.co_freevars, function.__closure__ or (), strict=True))
        for name in sorted(_names(function.__code__)):
            if name in cells:
                self._provide(name, cells[name].cell_contents)
            elif name in function.__globals__:
                self._provide(name, function.__globals__[name])

    def _provide(self, name: str, value: Any) -> None:
        if name in self._written:
            if self._written[name] is not value:
                raise NotWritten  # two values of one name
            return
        if name == "torch" or getattr(builtins, name, None) is value or name == "__class__":
            return
        self._written[name] = value
        if isinstance(value, types.ModuleType):
            self.imports.append(_as(f"import {value.__name__}", value.__name__, name))
        elif _is_users(value) and isinstance(value, types.FunctionType | type):
            self._define(name, value)
        elif (line := _import_of(value)) is not None:
            self.imports.append(_as(line, value.__name__, name))
        else:
            self._assign(name, value)

    def _define(self, name: str, value: Any) -> None:
        if isinstance(value, type):
            self.definition(value)
            written = value.__name__
        else:
            written = self.function(value)
        if written != name:
            self.definitions.append(f"{name} = {written}\n")

    def _assign(self, name: str, value: Any) -> None:
        code = InputWriter(lambda tensor: True).write(value)
        if code.saved or code.lines:
            self.saved[name] = value
        else:
            self.definitions.append(f"{name} = {code.expression}\n")


def _as(line: str, imported: str, name: str) -> str:
    return line if imported == name else f"{line} as {name}"


def _is_users(value: Any) -> bool:
    """Whether it is from the user's own files, and not of an installed package."""
    module = sys.modules.get(getattr(value, "__module__", None) or "")
    file = getattr(module, "__file__", None) or ""
    installed = "site-packages" in file or "dist-packages" in file or file.startswith(sys.prefix)
    return not installed and not getattr(value, "__module__", "").startswith("pliant.")


def _import_of(value: Any) -> str | None:
    """The import that gives this value, if there is one."""
    module, name = getattr(value, "__module__", None), getattr(value, "__name__", None)
    if module in (None, "__main__") or name is None:
        return None
    if getattr(sys.modules.get(module), name, None) is not value:
        return None
    return f"from {module} import {name}"


def _definition(value: Any) -> tuple[ast.AST, str]:
    """The definition of a function or class, without decorators."""
    source = textwrap.dedent(inspect.getsource(value))
    tree = ast.parse(source)
    statement = tree.body[0]
    if isinstance(statement, ast.FunctionDef | ast.ClassDef):
        text = ast.get_source_segment(source, statement)
        return statement, (text or "") + "\n"
    lambdas = [node for node in ast.walk(tree) if isinstance(node, ast.Lambda)]
    if len(lambdas) != 1:
        raise NotWritten
    return lambdas[0], (ast.get_source_segment(source, lambdas[0]) or "") + "\n"


def _names(code: types.CodeType) -> set[str]:
    inner = [constant for constant in code.co_consts if isinstance(constant, types.CodeType)]
    return {*code.co_names, *code.co_freevars}.union(*map(_names, inner))
