"""Things that can be called: Python functions, bound methods, partial applications.

A `FunctionValue` is followed by interpreting its bytecode. One from outside keeps the real function
and is guarded by its code, so that a fresh closure over the same code still matches; one made
during capture holds values for its defaults and closure.
"""

from __future__ import annotations

import functools
import types
from typing import TYPE_CHECKING, Any

import torch

from pliant._native import Dispatcher
from pliant.capture.value import Const, Unread, Value
from pliant.capture.values.containers import Mapping, instance_dict
from pliant.capture.values.objects import Cell, Instance, Opaque
from pliant.fake import kind_without_fake
from pliant.guards.guard import GuardKind
from pliant.guards.source import ClosureCell, DictItem, Member, SeqItem, Source

if TYPE_CHECKING:
    from pliant.capture.residual import Emitter
    from pliant.capture.trace import Trace


class FunctionValue(Value):
    """A Python function."""

    __slots__ = (
        "attributes", "cells", "code", "defaults", "globals", "kwdefaults", "name", "own",
        "qualname", "real",
    )  # fmt: skip

    def __init__(
        self,
        code: types.CodeType,
        namespace: dict[str, Any],
        real: types.FunctionType | None = None,
        source: Source | None = None,
    ) -> None:
        super().__init__(source)
        self.code = code
        self.globals = namespace
        self.real = real
        self.name = code.co_name if real is None else real.__name__
        self.qualname = code.co_qualname if real is None else real.__qualname__
        self.cells: list[Cell] | None = None
        self.defaults: list[Value] | None = None
        self.kwdefaults: dict[str, Value] | None = None
        self.attributes: Mapping | None = None
        # __doc__, __module__, __annotations__ and what makes those (3.14: __annotate__), if written
        self.own: dict[str, Value] = {}

    def python_type(self) -> type:
        return types.FunctionType

    def closure(self, trace: Trace) -> list[Cell]:
        """The cells of the free variables, in the order of `co_freevars`."""
        if self.cells is None:
            real = () if self.real is None else self.real.__closure__ or ()
            self.cells = [trace.cell(cell, self._closure_source(i)) for i, cell in enumerate(real)]
        return self.cells

    def _closure_source(self, index: int) -> Source:
        assert self.source is not None
        return ClosureCell(self.source, index)

    def default_values(self, trace: Trace) -> list[Value]:
        if self.defaults is None:
            self.defaults = []
            if self.real is not None and self.source is not None:
                real = self.real.__defaults__
                source = Member(self.source, "__defaults__")
                # A tuple is immutable, so its identity settles all of its items.
                trace.guard(GuardKind.IS, source, real)
                self.defaults = [
                    trace.pinned(item, SeqItem(source, i)) for i, item in enumerate(real or ())
                ]
        return self.defaults

    def keyword_defaults(self, trace: Trace) -> dict[str, Value]:
        if self.kwdefaults is None:
            self.kwdefaults = {}
            if self.real is not None and self.source is not None:
                real = self.real.__kwdefaults__
                source = Member(self.source, "__kwdefaults__")
                if real is None:
                    trace.guard(GuardKind.IS, source, None)
                else:
                    trace.guard(GuardKind.KEYS, source, tuple(real))
                    self.kwdefaults = {
                        key: Unread(item, DictItem(source, key)) for key, item in real.items()
                    }
        return self.kwdefaults

    def instance_attribute(self, trace: Trace, name: str) -> Value | None:
        return instance_dict(trace, self).get(trace, name)

    def store_attribute(self, trace: Trace, name: str, value: Value | None) -> None:
        instance_dict(trace, self).store(trace, name, value)

    def children(self) -> list[Value]:
        values: list[Value] = [*(self.cells or []), *(self.defaults or [])]
        values += (self.kwdefaults or {}).values()
        values += self.own.values()
        return values + ([] if self.attributes is None else self.attributes.contents())

    def rebuild(self, emit: Emitter) -> str:
        # An empty tuple would stay one, where Python has None.
        closure = emit.sequence_of(list(self.cells), tuple) if self.cells else "None"
        defaults = emit.sequence_of(self.defaults, tuple) if self.defaults else "None"
        code, namespace = emit.constant(self.code), emit.constant(self.globals)
        arguments = [code, namespace, repr(self.name), defaults, closure]
        return f"{emit.helper('FunctionType')}({', '.join(arguments)})"

    def fill(self, emit: Emitter, name: str) -> None:
        if self.qualname != self.code.co_qualname:
            emit.line(f"{name}.__qualname__ = {self.qualname!r}")
        if self.kwdefaults:
            items = ", ".join(
                f"{key!r}: {emit.expression(v)}" for key, v in self.kwdefaults.items()
            )
            emit.line(f"{name}.__kwdefaults__ = {{{items}}}")
        for key, written in self.own.items():
            if key == "__annotate__" and "__annotations__" in self.own:
                continue  # Python forgets one when the other is set
            emit.line(f"{name}.{key} = {emit.expression(written)}")
        if self.attributes is not None:
            for key, value in self.attributes.items.items():
                if value is not None:
                    emit.line(f"{name}.{key} = {emit.expression(value)}")


class BoundMethod(Value):
    """`obj.method`: a callable with its first argument."""

    __slots__ = ("function", "obj")

    def __init__(self, function: Value, obj: Value, source: Source | None = None) -> None:
        super().__init__(source)
        self.function = function
        self.obj = obj

    def python_type(self) -> type:
        return types.MethodType

    def children(self) -> list[Value]:
        return [self.function, self.obj]

    def rebuild(self, emit: Emitter) -> str:
        function, obj = emit.expression(self.function), emit.expression(self.obj)
        return f"{emit.helper('MethodType')}({function}, {obj})"


class BuiltinMethod(Value):
    """A method of a built-in type with its receiver: `[].append`, `tensor.view`, `"".join`."""

    __slots__ = ("descriptor", "name", "obj", "owner")

    def __init__(self, owner: type, name: str, descriptor: Any, obj: Value) -> None:
        super().__init__()
        self.owner = owner
        self.name = name
        self.descriptor = descriptor
        self.obj = obj

    def python_type(self) -> type:
        return types.BuiltinMethodType

    def children(self) -> list[Value]:
        return [self.obj]

    def rebuild(self, emit: Emitter) -> str:
        obj = emit.operand(self.obj)
        for cls in self.obj.python_type().__mro__:
            if self.name in cls.__dict__:
                if cls.__dict__[self.name] is self.descriptor:
                    return f"{obj}.{self.name}"
                break
        # reached through super(): the class of the object has another method of this name
        return f"{emit.constant(self.owner)}.{self.name}.__get__({obj})"


class CompiledFunction(Value):
    """A function given to `pliant.compile`. `function` is the function itself."""

    __slots__ = ("fullgraph", "function")

    def __init__(self, function: Value, source: Source, fullgraph: bool = False) -> None:
        super().__init__(source)
        self.function = function
        self.fullgraph = fullgraph

    def python_type(self) -> type:
        return Dispatcher


class Partial(Instance):
    """`functools.partial(function, *args, **keywords)`, or of a subclass. May have attributes."""

    __slots__ = ("args", "function", "keywords")

    def __init__(
        self,
        cls: type,
        function: Value,
        args: list[Value],
        keywords: dict[str, Value],
        real: functools.partial[Any] | None = None,
        source: Source | None = None,
    ) -> None:
        super().__init__(cls, real, source)
        self.function = function
        self.args = args
        self.keywords = keywords

    def children(self) -> list[Value]:
        return [self.function, *self.args, *self.keywords.values(), *super().children()]

    def rebuild(self, emit: Emitter) -> str:
        parts = [emit.expression(self.function), *map(emit.expression, self.args)]
        parts += [f"{key}={emit.expression(value)}" for key, value in self.keywords.items()]
        if self.cls is functools.partial:
            return f"{emit.constant(self.cls)}({', '.join(parts)})"
        # without what its `__init__` does, which has been followed
        maker = emit.constant(functools.partial)
        return f"{maker}.__new__({', '.join([emit.constant(self.cls), *parts])})"


def called(trace: Trace, value: Value) -> str:
    """The name of a callable as Python writes it in errors about calls: with its module."""
    value = trace.read(value)
    if isinstance(value, FunctionValue):
        module = value.globals.get("__name__")
        return f"{module}.{value.qualname}" if module not in (None, "builtins") else value.qualname
    return called(trace, value.function) if isinstance(value, BoundMethod) else named(value)


def named(value: Value) -> str:
    """The name of a callable or an argument for a message."""
    if isinstance(value, FunctionValue):
        return value.qualname
    if isinstance(value, BuiltinMethod):
        return f"{value.owner.__name__}.{value.name}"
    if isinstance(value, Const):
        real = value.value
        module = getattr(real, "__module__", None)
        name = getattr(real, "__qualname__", None) or getattr(real, "__name__", None) or repr(real)
        if isinstance(real, types.BuiltinFunctionType) and module is not None:
            name = real.__name__  # not `_VariableFunctionsClass.cat`
        return name if module in (None, "builtins") else f"{module}.{name}"
    shown = f"a {value.python_type().__name__}"
    if isinstance(value, Opaque) and isinstance(value.real, torch.Tensor):
        kind = kind_without_fake(value.real)
        return shown if kind is None else f"{shown} ({kind})"
    return shown
