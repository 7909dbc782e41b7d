"""Attributes of classes that the program writes.

A class from outside is not touched during capture: what is written is found by later look-ups and
replayed by residual code. A class made during the capture is a placeholder and simply changed.
"""

from __future__ import annotations

import enum
import types
from typing import TYPE_CHECKING, Any

from pliant.base.python_errors import type_name
from pliant.capture.value import Break, Value
from pliant.capture.values.containers import Mapping
from pliant.capture.values.program_classes import placeholder_for
from pliant.guards.guard import MISSING, GuardKind
from pliant.guards.predicates import Defines, HasNames
from pliant.guards.source import ClassAttr, Fixed

if TYPE_CHECKING:
    from pliant.capture.residual import Emitter
    from pliant.capture.trace import Trace

IMMUTABLE_TYPE = 1 << 8  # Py_TPFLAGS_IMMUTABLETYPE
STRUCTURE = frozenset({"__class__", "__bases__", "__name__", "__qualname__", "__mro__", "__dict__"})


class ClassWrites(Value):
    """The attributes of one class from outside that the program has written. None stands for a
    deleted one."""

    __slots__ = ("cls", "values")

    def __init__(self, cls: type) -> None:
        super().__init__(Fixed(cls, cls.__qualname__))
        self.cls = cls
        self.values: dict[str, Value | None] = {}

    def python_type(self) -> type:
        return type(self.cls)

    def snapshot(self) -> None:
        return None

    def children(self) -> list[Value]:
        return [value for value in self.values.values() if value is not None]

    def replay(self, emit: Emitter, before: None) -> None:
        name = emit.constant(self.cls)
        for key, value in self.values.items():
            if value is None:
                emit.line(f"type.__delattr__({name}, {key!r})")
            else:
                emit.line(f"type.__setattr__({name}, {key!r}, {emit.expression(value)})")


class ClassNamespace(Mapping):
    """`cls.__dict__` as a dictionary. Each name is guarded when it is looked up."""

    __slots__ = ("space",)

    def __init__(self, cls: type) -> None:
        super().__init__(dict)
        self.space = cls

    def get(self, trace: Trace, key: Any) -> Value | None:
        if not isinstance(key, str):
            return None
        written = trace.class_writes.get((self.space, key))
        if written is not None:
            return written[1]
        trace.lookup(self.space, key)  # what is found along the MRO tells whether it is here
        if key not in vars(self.space):
            return None
        source = ClassAttr(Fixed(self.space, self.space.__qualname__), key)
        return trace.pinned(vars(self.space)[key], source)

    def read_all(self, trace: Trace) -> dict[Any, Value]:
        if any(cls is self.space for cls, _ in trace.class_writes):
            raise Break("unsupported", "the namespace of a class that was written to")
        names = tuple(vars(self.space))
        if not self.space.__flags__ & IMMUTABLE_TYPE:
            source = Fixed(self.space, self.space.__qualname__)
            trace.guard(GuardKind.PREDICATE, source, HasNames(names))
        values = {name: self.get(trace, name) for name in names}
        self.items = dict(values)
        return {name: value for name, value in values.items() if value is not None}

    def children(self) -> list[Value]:
        return []

    def rebuild(self, emit: Emitter) -> str:
        return f"{emit.constant(self.space)}.__dict__"


def set_on_class(trace: Trace, cls: type, name: str, value: Value | None) -> None:
    """`type.__setattr__(cls, name, value)`, or with None `type.__delattr__`."""
    if cls.__flags__ & IMMUTABLE_TYPE:
        text = f"cannot set {name!r} attribute of immutable type {type_name(cls)!r}"
        trace.throw(TypeError(text))
    if name in STRUCTURE or issubclass(cls, enum.Enum):
        raise Break("attribute-write", f"{cls.__name__}.{name}")
    # Made in this capture, so that nobody else sees it.
    if id(cls) in trace.temporaries:
        _change(trace, cls, name, value)
    else:
        _note(trace, cls, name, value)
    trace.forget_lookups(name)


def _change(trace: Trace, cls: type, name: str, value: Value | None) -> None:
    trace.changes += 1
    if value is not None:
        # Past a `__setattr__` of the metaclass, which has been followed.
        type.__setattr__(cls, name, placeholder_for(trace, value))
        return
    try:
        type.__delattr__(cls, name)
    except AttributeError as error:
        trace.throw(error)


def _note(trace: Trace, cls: type, name: str, value: Value | None) -> None:
    before = trace.class_writes.get((cls, name))
    is_defined = name in cls.__dict__
    if value is None:
        trace.guard(GuardKind.PREDICATE, Fixed(cls, cls.__qualname__), Defines(name, is_defined))
        # As the program sees it: after its own writes.
        present = is_defined if before is None else before[0] is not MISSING
        if not present:
            trace.throw(AttributeError(f"type object {type_name(cls)!r} has no attribute {name!r}"))
        real: Any = MISSING
    else:
        value = trace.read(value)
        real = placeholder_for(trace, value)
        plain = isinstance(real, types.FunctionType) or not hasattr(type(real), "__get__")
        # Reading it back would run its `__get__`, on a placeholder.
        if not plain:
            raise Break("attribute-write", f"the descriptor {cls.__name__}.{name}")
    writes = _writes_of(trace, cls)
    trace.mutate(writes)
    writes.values[name] = value
    if value is None and not is_defined:
        del writes.values[name]  # it comes and goes
    trace.class_writes[cls, name] = (real, value)


def _writes_of(trace: Trace, cls: type) -> ClassWrites:
    for value, _ in trace.effects.values():
        if isinstance(value, ClassWrites) and value.cls is cls:
            return value
    return ClassWrites(cls)
