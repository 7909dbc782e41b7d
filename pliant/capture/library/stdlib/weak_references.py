"""Weak references to objects that the program makes: `weakref.ref`, `proxy`, and through them
`WeakKeyDictionary` and its relatives, which are Python code.

The one idea: an object is gone when the program can't reach it any more. References with a callback
watch for that, as suspended generators do.
"""

from __future__ import annotations

import _weakref
import weakref
from typing import TYPE_CHECKING, Any

from pliant.base.python_errors import type_name
from pliant.capture.library.python.classes import class_of, real_object
from pliant.capture.library.python.objects import WeakRef, call_weakref, make_weakref
from pliant.capture.model import CALL, GET, SET, call, equal, get_attribute, set_attribute
from pliant.capture.native import FUNCTIONS, METHODS, function, method
from pliant.capture.value import NONE, Break, Const, Raised, Value, boolean
from pliant.capture.values.containers import Container, Mapping, SetValue
from pliant.capture.values.functions import FunctionValue
from pliant.capture.values.generators import is_referenced
from pliant.capture.values.objects import Instance
from pliant.capture.values.tensors import TensorValue
from pliant.guards.guard import MISSING

if TYPE_CHECKING:
    from pliant.capture.residual import Emitter
    from pliant.capture.trace import Trace

NOT_IMPLEMENTED = Const(NotImplemented)
TARGETS = (Instance, TensorValue, FunctionValue, Container, SetValue)


class ProgramWeakRef(Instance):
    """A weak reference made during the capture to an object that was made there too."""

    __slots__ = ("callback", "target")

    def __init__(self, cls: type, target: Value, callback: Value | None) -> None:
        super().__init__(cls)
        self.target = target
        self.callback = callback

    def children(self) -> list[Value]:
        return [self.target, *self.strong_children()]

    def strong_children(self) -> list[Value]:
        """What the reference keeps alive."""
        return [*super().children(), *([] if self.callback is None else [self.callback])]

    def rebuild(self, emit: Emitter) -> str:
        parts = [emit.constant(self.cls), emit.expression(self.target)]
        parts += [] if self.callback is None else [emit.expression(self.callback)]
        return f"{emit.constant(weakref.ref)}.__new__({', '.join(parts)})"

    def object(self, trace: Trace) -> Value:
        """What calling the reference gives. Objects from outside outlive the call."""
        is_outside = self.target.source is not None or isinstance(self.target, FunctionValue)
        if is_outside or is_referenced(trace, self.target):
            return self.target
        # Nobody can tell when the collector runs.
        if _in_cycle(self.target) or trace.temporaries or trace.class_writes:
            raise Break("unsupported", "a weak reference to an object that may be gone")
        return NONE

    def target_dropped(self, trace: Trace) -> None:
        if is_referenced(trace, self.target) or _in_cycle(self.target):
            return
        trace.suspended = [value for value in trace.suspended if value is not self]
        if self.callback is not None and is_referenced(trace, self):
            try:
                call(trace, self.callback, [self])
            except Raised:
                pass  # Python ignores it too


def _in_cycle(value: Value) -> bool:
    """Whether an object refers to itself: Python collects it some time later."""
    left, visited = list(value.children()), set()
    while left:
        part = left.pop()
        if part is value:
            return True
        if id(part) not in visited:
            visited.add(id(part))
            left += getattr(part, "strong_children", part.children)()
    return False


def new_reference(trace: Trace, cls: Value, obj: Value, callback: Value = NONE) -> Value:
    """`weakref.ref.__new__`."""
    real, target = class_of(trace, cls), trace.read(obj)
    no_callback = isinstance(callback, Const) and callback.value is None
    outside = getattr(target, "real", None) is not None and target.source is not None
    if (outside and real is weakref.ref and no_callback) or not isinstance(target, TARGETS):
        return make_weakref(trace, target)
    if not outside and target.python_type().__weakrefoffset__ == 0:
        name = type_name(target.python_type())
        trace.throw(TypeError(f"cannot create weak reference to '{name}' object"))
    reference = ProgramWeakRef(real, target, None if no_callback else callback)
    if isinstance(target, Instance):
        target.watched = True
    elif not (no_callback or outside) and isinstance(target, Container | SetValue):
        raise Break("unsupported", "a callback for a container that is gone")
    if outside:
        real_object(trace, target)  # assumed to be this one
    elif real is weakref.ref and no_callback:
        # Python makes one plain reference for each object, and returns it again.
        reference = next(
            (existing for existing in _references(trace, target) if existing.callback is None),
            reference,
        )
    elif not no_callback:
        trace.suspended.append(reference)
    trace.keys.append(reference)
    return reference


def _references(trace: Trace, target: Value) -> list[ProgramWeakRef]:
    references = [reference for reference in trace.keys if isinstance(reference, ProgramWeakRef)]
    return [
        reference
        for reference in references
        if reference.target is target and reference.cls is weakref.ref
    ]


@function(weakref.ref)
def make_reference(trace: Trace, obj: Value, callback: Value = NONE) -> Value:
    return new_reference(trace, Const(weakref.ref), obj, trace.read(callback))


METHODS[weakref.ref, "__new__"] = new_reference
METHODS[weakref.ref, "__init__"] = lambda trace, obj, *args: NONE


@method(weakref.ref, "__call__")
def call_reference(trace: Trace, obj: Value) -> Value:
    if isinstance(obj, ProgramWeakRef):
        return obj.object(trace)
    reference = obj if isinstance(obj, WeakRef) else WeakRef(obj.constant())
    return call_weakref(trace, reference, [], {}, False)


@method(weakref.ref, "__hash__")
def hash_reference(trace: Trace, obj: Value) -> Value:
    """A number that differs between references to different objects."""
    if not isinstance(obj, ProgramWeakRef):
        return Const(hash(obj.constant()))
    if obj.target.source is not None:
        return Const(hash(real_object(trace, obj.target)))
    if trace.lookup(obj.target.python_type(), "__hash__") is object.__hash__:
        return Const(id(obj.target))
    return FUNCTIONS[hash](trace, obj.target)


@method(weakref.ref, "__eq__")
def equal_references(trace: Trace, obj: Value, other: Value) -> Value:
    other = trace.read(other)
    if obj is other:
        return boolean(True)
    if not issubclass(other.python_type(), weakref.ref):
        return NOT_IMPLEMENTED
    objects = [trace.read(call_reference(trace, value)) for value in (obj, other)]
    if any(isinstance(value, Const) and value.value is None for value in objects):
        return boolean(False)
    return boolean(equal(trace, *objects))


@function(_weakref._remove_dead_weakref)  # type: ignore[attr-defined]
def remove_dead(trace: Trace, table: Value, key: Value) -> Value:
    """What `WeakValueDictionary` does when a value is gone."""
    mapping = trace.read(table)
    assert isinstance(mapping, Mapping)
    METHODS[dict, "pop"](trace, mapping, key, NONE)
    return NONE


# ---- proxies


class ProgramWeakProxy(Value):
    """`weakref.proxy(obj)` of an object made during the capture."""

    __slots__ = ("reference",)

    def __init__(self, reference: ProgramWeakRef) -> None:
        super().__init__()
        self.reference = reference

    def python_type(self) -> type:
        return weakref.ProxyType

    def children(self) -> list[Value]:
        return [self.reference.target]

    def strong_children(self) -> list[Value]:
        return []

    def rebuild(self, emit: Emitter) -> str:
        return f"{emit.constant(weakref.proxy)}({emit.expression(self.reference.target)})"

    def object(self, trace: Trace) -> Value:
        referent = self.reference.object(trace)
        if isinstance(referent, Const) and referent.value is None:
            trace.throw(ReferenceError("weakly-referenced object no longer exists"))
        return referent


@function(weakref.proxy)
def make_proxy(trace: Trace, obj: Value, *callback: Value) -> Value:
    target = trace.read(obj)
    if callback or not isinstance(target, Instance):
        raise Break("unsupported-function", f"weakref.proxy of a {target.python_type().__name__}")
    if trace.lookup(target.cls, "__call__") is not MISSING:
        raise Break("unsupported-function", "weakref.proxy of a callable")
    target.watched = True
    return ProgramWeakProxy(ProgramWeakRef(weakref.ref, target, None))


def _get_through(trace: Trace, proxy: ProgramWeakProxy, name: str) -> Value:
    return get_attribute(trace, proxy.object(trace), name)


def _set_through(trace: Trace, proxy: ProgramWeakProxy, name: str, value: Value | None) -> None:
    set_attribute(trace, proxy.object(trace), name, value)


def _call_reference(
    trace: Trace, target: Any, args: list[Value], kwargs: dict[str, Value], direct: bool
) -> Value:
    method = trace.lookup(target.cls, "__call__")
    if method is not weakref.ref.__dict__["__call__"]:
        method_of = get_attribute(trace, target, "__call__")
        return call(trace, method_of, args, kwargs, direct)
    return call_reference(trace, target, *args, **kwargs)


GET[ProgramWeakProxy] = _get_through
SET[ProgramWeakProxy] = _set_through
CALL[ProgramWeakRef] = _call_reference
