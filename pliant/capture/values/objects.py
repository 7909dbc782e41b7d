"""Instances of classes that Python code defines, and the small helper objects of the language.

An `Instance` is an object whose behaviour is given by its class's Python code: capture follows that
code, so nothing here knows what any particular class does. Its attributes live in a `Mapping` for
the `__dict__` and a table for `__slots__`; both are read lazily where the object came from outside.
"""

from __future__ import annotations

from types import FunctionType, MethodDescriptorType, WrapperDescriptorType
from typing import TYPE_CHECKING, Any

import torch

from pliant._native import is_python_class
from pliant.base.python_errors import type_name
from pliant.capture.value import FALSE, NONE, TRUE, Break, Const, NotConstant, Unread, Value
from pliant.capture.values.containers import (
    Mapping,
    attribute_values,
    has_foreign_dict,
    instance_dict,
)
from pliant.capture.values.tracebacks import Traceback
from pliant.guards.guard import MISSING, GuardKind
from pliant.guards.predicates import HasNoOwn, LacksAttribute
from pliant.guards.source import Attr, CellContents, Source, attribute

if TYPE_CHECKING:
    from pliant.capture.residual import Emitter
    from pliant.capture.trace import Trace


def _after_missing() -> str:
    """What this Python adds to its message, for an object that has no `__dict__`."""
    try:
        object().missing = 1  # type: ignore[attr-defined]
    except AttributeError as error:
        return str(error).removeprefix("'object' object has no attribute 'missing'")
    return ""


AFTER_MISSING = _after_missing()


def refused_attribute(cls: type, name: str, on_class: bool) -> AttributeError:
    """What writing an attribute raises, of an object that has no `__dict__`."""
    text = f"attribute {name!r} is read-only"
    if not on_class:
        text = f"has no attribute {name!r}{AFTER_MISSING}"
    return AttributeError(f"{type_name(cls)!r} object {text}")


class Instance(Value):
    """An object of class `cls`. `real` is the object itself where it came from outside."""

    __slots__ = ("attributes", "cls", "real", "slots", "stays", "watched", "written")

    def __init__(self, cls: type, real: Any = None, source: Source | None = None) -> None:
        super().__init__(source)
        self.cls = cls
        self.real = real
        self.attributes: Mapping | None = None
        self.slots: dict[str, Value | None] = {}
        self.written: dict[str, None] = {}  # slots stored or deleted
        self.watched = False  # by a weak reference that the program made
        self.stays: Exception | None = None  # to be raised where it leaves the compiled function

    def python_type(self) -> type:
        return self.cls

    @property
    def has_dict(self) -> bool:
        return self.cls.__dictoffset__ != 0

    def children(self) -> list[Value]:
        values = [value for value in self.slots.values() if value is not None]
        return values + attribute_values(self)

    def instance_attribute(self, trace: Trace, name: str) -> Value | None:
        return instance_dict(trace, self).get(trace, name) if self.has_dict else None

    def store_attribute(self, trace: Trace, name: str, value: Value | None) -> None:
        if not self.has_dict:
            on_class = trace.lookup(self.cls, name) is not MISSING
            trace.throw(refused_attribute(self.cls, name, on_class))
        instance_dict(trace, self).store(trace, name, value)

    def dropped(self, trace: Trace) -> None:
        for watching in trace.suspended:
            if getattr(watching, "target", None) is self:  # a weak reference with a callback
                watching.target_dropped(trace)  # type: ignore[attr-defined]

    def slot(self, trace: Trace, name: str) -> Value | None:
        """The value of a `__slots__` member, or None where it is unset."""
        if name == "__dict__" and self.has_dict:
            return instance_dict(trace, self)
        if name == "__weakref__" and self.real is None:
            if self.watched:
                raise Break("unsupported-attribute", f"{self.cls.__name__}.__weakref__")
            return NONE
        if name not in self.slots and self.real is not None and self.source is not None:
            try:
                real = getattr(self.real, name)
            except AttributeError:
                trace.guard(GuardKind.PREDICATE, self.source, LacksAttribute(name))
                return None
            self.slots[name] = unread = Unread(real, attribute(self.source, self.real, name))
            trace.fetched.append(unread)
        return self.slots.get(name)

    def store_slot(self, trace: Trace, name: str, value: Value | None) -> None:
        trace.mutate(self)
        self.slots[name] = value
        self.written[name] = None

    def change_class(self, trace: Trace, value: Value | None) -> None:
        """`obj.__class__ = cls`, for an object made during the capture."""
        if self.source is not None:
            raise Break("attribute-write", f"{self.cls.__name__}.__class__")
        example: Any = object.__new__(self.cls)
        try:
            example.__class__ = None if value is None else trace.read(value).constant()
        except (TypeError, NotConstant) as error:
            raise Break("attribute-write", f"{self.cls.__name__}.__class__") from error
        trace.changes += 1
        self.cls = type(example)

    def snapshot(self) -> None:
        return None

    def rebuild(self, emit: Emitter) -> str:
        if self.stays is not None:
            raise self.stays
        return f"object.__new__({emit.constant(self.cls)})"

    def fill(self, emit: Emitter, name: str) -> None:
        for key, value in self.slots.items():
            if value is not None:
                emit.line(f"object.__setattr__({name}, {key!r}, {emit.expression(value)})")
        if self.attributes is not None and has_foreign_dict(self):
            emit.line(f"{name}.__dict__ = {emit.expression(self.attributes)}")
        elif self.attributes is not None:
            for key, value in self.attributes.items.items():
                if value is not None:
                    place = f"{name}.{key}" if emit.plain_attribute(self, key) else None
                    place = place or f"{name}.__dict__[{emit.key(key)}]"
                    emit.line(f"{place} = {emit.expression(value)}")

    def replay(self, emit: Emitter, before: None) -> None:
        name = emit.expression(self)
        for key in self.written:
            value = self.slots.get(key)
            if value is None:
                emit.line(f"object.__setattr__({name}, {key!r}, None)")  # it may be unset
                emit.line(f"object.__delattr__({name}, {key!r})")
            else:
                emit.line(f"object.__setattr__({name}, {key!r}, {emit.expression(value)})")


CONSTRUCTORS = ("__new__", "__init__")


class ExceptionValue(Instance):
    """An exception object.

    `args` are its constructor arguments, `chain` the exceptions behind it as far as they were read
    or written, `trail` its traceback as far as it was made during capture.
    """

    __slots__ = ("args", "chain", "trail")

    def __init__(
        self, cls: type, args: list[Value], real: Any = None, source: Source | None = None
    ) -> None:
        super().__init__(cls, real, source)
        self.args = args
        self.chain: dict[str, Value] = {}  # __cause__, __context__, __suppress_context__
        self.trail: Traceback | None = None

    def link(self, trace: Trace, name: str) -> Value:
        """`__cause__`, `__context__` or `__suppress_context__`."""
        if name not in self.chain:
            if self.real is None or self.source is None:
                if name == "__context__" and self.trail:
                    trace.nothing_handled()
                return FALSE if name == "__suppress_context__" else NONE
            self.chain[name] = Unread(getattr(self.real, name), Attr(self.source, name))
        return trace.read(self.chain[name])

    def set_args(self, trace: Trace, args: list[Value]) -> None:
        trace.mutate(self)
        self.args = args
        self.written["args"] = None

    def set_link(self, trace: Trace, name: str, value: Value) -> None:
        trace.mutate(self)
        self.chain[name] = value
        self.written[name] = None
        if name == "__cause__":
            self.set_link(trace, "__suppress_context__", TRUE)

    def set_context(self, trace: Trace, handled: Value | None) -> None:
        """Note that this is raised while `handled` is being handled. As in CPython, a cycle of
        contexts is broken up."""
        handled = None if handled is None else trace.read(handled)
        if handled is None or handled is self:
            return
        visited, last = set(), handled
        # Walk the chain of contexts; if it leads back to this exception, cut it there.
        while isinstance(last, ExceptionValue) and id(last) not in visited:
            visited.add(id(last))
            context = last.link(trace, "__context__")
            if context is self:
                last.set_link(trace, "__context__", NONE)
            last = context
        self.set_link(trace, "__context__", handled)

    def children(self) -> list[Value]:
        trail = [] if self.trail is None else [self.trail]
        return [*super().children(), *self.args, *self.chain.values(), *trail]

    def rebuild(self, emit: Emitter) -> str:
        if self.real is not None:
            return emit.constant(self.real)
        arguments = ", ".join(emit.expression(arg) for arg in self.args)
        name = emit.constant(self.cls)
        # With constructors in C only, calling the class repeats nothing that was followed.
        makers = [base.__dict__.get(m) for base in self.cls.__mro__ for m in CONSTRUCTORS]
        if not any(isinstance(maker, FunctionType | staticmethod) for maker in makers):
            return f"{name}({arguments})"
        # Not by a `__new__` of the program's, which has run.
        owners = (base for base in self.cls.__mro__ if "__new__" in base.__dict__)
        native = next(base for base in owners if not is_python_class(base))
        make = f"{emit.constant(native)}.__new__"
        return f"{make}({', '.join([name, *([arguments] if arguments else [])])})"

    def fill(self, emit: Emitter, name: str) -> None:
        if self.real is not None:
            return
        super().fill(emit, name)
        for key, value in self.chain.items():
            emit.line(f"{name}.{key} = {emit.expression(value)}")
        if self.trail:
            emit.line(f"{name}.__traceback__ = {emit.expression(self.trail)}")

    def replay(self, emit: Emitter, before: None) -> None:
        name = emit.expression(self)
        if "args" in self.written:
            del self.written["args"]
            emit.line(f"{name}.args = {emit.sequence_of(self.args, tuple)}")
        for key in [key for key in self.written if key in self.chain]:
            del self.written[key]
            emit.line(f"{name}.{key} = {emit.expression(self.chain[key])}")
        super().replay(emit, before)


class Handled(Value):
    """The stack entry that marks an exception as being handled, until POP_EXCEPT."""

    __slots__ = ("exception",)

    def __init__(self, exception: Value) -> None:
        super().__init__()
        self.exception = exception

    def children(self) -> list[Value]:
        return [self.exception]


class Opaque(Value):
    """An object from outside of a type that capture does not know. It can only be passed along."""

    __slots__ = ("real",)

    def __init__(self, real: Any, source: Source | None) -> None:
        super().__init__(source)
        self.real = real

    def python_type(self) -> type:
        return type(self.real)

    def instance_attribute(self, trace: Trace, name: str) -> Value | None:
        """None, if `name` is a method and the object has surely no such attribute itself: then only
        the call breaks the graph, and not the look at it as well."""
        cls = type(self.real)
        found = trace.lookup(cls, name)
        if found is MISSING or isinstance(found, NATIVE_METHODS):
            access = trace.lookup(cls, "__getattribute__")
            if access is object.__getattribute__ and not cls.__dictoffset__:
                return None
            usual = cls is torch.Tensor and self.source is not None
            if usual and name not in object.__getattribute__(self.real, "__dict__"):
                trace.guard(GuardKind.PREDICATE, self.source, HasNoOwn(name))
                return None
        raise Break("opaque-object", f"{cls.__name__}.{name}")


NATIVE_METHODS = (MethodDescriptorType, WrapperDescriptorType)


class Cell(Value):
    """A closure cell. `contents` is None while the variable is unbound."""

    __slots__ = ("contents", "real")

    def __init__(
        self, contents: Value | None, real: Any = None, source: Source | None = None
    ) -> None:
        super().__init__(source)
        self.contents = contents
        self.real = real

    def python_type(self) -> type:
        return type((lambda: self).__closure__[0])  # type: ignore[index]

    @staticmethod
    def from_outside(real: Any, source: Source) -> Cell:
        try:
            contents: Value | None = Unread(real.cell_contents, CellContents(source))
        except ValueError:
            contents = None
        return Cell(contents, real, source)

    def store(self, trace: Trace, value: Value | None) -> None:
        trace.mutate(self)
        self.contents = value

    def children(self) -> list[Value]:
        return [] if self.contents is None else [self.contents]

    def snapshot(self) -> None:
        return None

    def rebuild(self, emit: Emitter) -> str:
        return f"{emit.helper('CellType')}()"

    def fill(self, emit: Emitter, name: str) -> None:
        if self.contents is not None:
            emit.line(f"{name}.cell_contents = {emit.expression(self.contents)}")

    def replay(self, emit: Emitter, before: None) -> None:
        name = emit.expression(self)
        if self.contents is None:
            emit.line(f"del {name}.cell_contents")
        else:
            emit.line(f"{name}.cell_contents = {emit.expression(self.contents)}")


class Super(Value):
    """`super(cls, obj)`: attribute look-up that starts after `cls` in the MRO of `obj`'s class."""

    __slots__ = ("cls", "obj")

    def __init__(self, cls: type, obj: Value) -> None:
        super().__init__()
        self.cls = cls
        self.obj = obj

    def python_type(self) -> type:
        return super

    def children(self) -> list[Value]:
        return [self.obj]

    def rebuild(self, emit: Emitter) -> str:
        return f"super({emit.constant(self.cls)}, {emit.expression(self.obj)})"


class SliceValue(Value):
    """`slice(start, stop, step)` with values that need not be constant."""

    __slots__ = ("parts",)

    def __init__(self, parts: list[Value], source: Source | None = None) -> None:
        super().__init__(source)
        self.parts = parts

    def python_type(self) -> type:
        return slice

    def constant(self) -> Any:
        return slice(*[part.constant() for part in self.parts])

    def children(self) -> list[Value]:
        return self.parts

    def rebuild(self, emit: Emitter) -> str:
        return f"slice({', '.join(emit.expression(part) for part in self.parts)})"


def make_slice(parts: list[Value]) -> Value:
    value = SliceValue(parts)
    constant = all(isinstance(part, Const) for part in parts)
    return Const(value.constant()) if constant else value
