"""Folding of calls: C code that depends on nothing but its arguments is run during capture."""

from __future__ import annotations

import types
from collections.abc import Callable, Container
from typing import TYPE_CHECKING, Any

from pliant.capture.native import METHODS
from pliant.capture.value import Const, Value
from pliant.capture.values.conversion import from_real, known_object
from pliant.capture.wrap import BUILDERS
from pliant.guards.guard import GuardKind
from pliant.guards.source import Fixed, Source

if TYPE_CHECKING:
    from pliant.capture.trace import Trace


NATIVE_METHODS = (types.MethodDescriptorType, types.WrapperDescriptorType)
LEFT_ALONE = frozenset({"__new__", "__init__", "__getattribute__", "__setattr__", "__delattr__"})


def on_constants(real: Callable[..., Any]) -> Callable[..., Value]:
    """A handler that runs `real` if everything it is given is known."""

    def handler(trace: Trace, /, *args: Value, **kwargs: Value) -> Value:
        real_args = [known_object(arg, trace) for arg in args]
        real_kwargs = {name: known_object(arg, trace) for name, arg in kwargs.items()}
        try:
            return from_real(trace, real(*real_args, **real_kwargs))
        except Exception as error:
            trace.throw(error)

    return handler


def same_from_outside(trace: Trace, real: Any, source: Source) -> Value:
    if not isinstance(source, Fixed):
        trace.guard(GuardKind.IS, source, real)
    return Const(real, source)


def register_methods(
    cls: type, wrap: Callable[[Any], Callable[..., Value]], leave: Container[str] = LEFT_ALONE
) -> None:
    """Register a handler for every C method of a class but those in `leave`."""
    for name, descriptor in vars(cls).items():
        if isinstance(descriptor, NATIVE_METHODS) and name not in leave:
            METHODS.setdefault((cls, name), wrap(descriptor))


def register_immutable(cls: type, wrap: Callable[[Any], Callable[..., Value]]) -> None:
    """Register a class whose objects never change: those from outside are constants."""
    BUILDERS.setdefault(cls, same_from_outside)
    register_methods(cls, wrap)
