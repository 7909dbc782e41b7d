"""Context variables.

The one idea: writes go to the value and are replayed when the graph has run, as for any object. A
context variable that the program has not written to is asked for plain data only, with a guard.
"""

from __future__ import annotations

import contextvars
from typing import TYPE_CHECKING, Any

from pliant.capture.native import function, method
from pliant.capture.trace import PLAIN
from pliant.capture.value import NONE, Break, Const, Value
from pliant.capture.wrap import BUILDERS
from pliant.guards.guard import GuardKind
from pliant.guards.predicates import GivesSame
from pliant.guards.source import Fixed, Source

if TYPE_CHECKING:
    from pliant.capture.residual import Emitter
    from pliant.capture.trace import Trace

MISSING_TOKEN = Const(contextvars.Token.MISSING)


class ContextVariable(Value):
    """A context variable. `current` is what the program has set, None where it has not."""

    __slots__ = ("args", "current", "kwargs", "real")

    def __init__(self, real: Any, source: Source | None, args: list[Value],
                 kwargs: dict[str, Value]) -> None:  # fmt: skip
        super().__init__(source)
        self.real = real
        self.args = args
        self.kwargs = kwargs
        self.current: Value | None = None

    def python_type(self) -> type:
        return contextvars.ContextVar

    def children(self) -> list[Value]:
        held = [] if self.current is None else [self.current]
        return [*self.args, *self.kwargs.values(), *held]

    def snapshot(self) -> None:
        return None

    def rebuild(self, emit: Emitter) -> str:
        parts = [emit.expression(arg) for arg in self.args]
        parts += [f"{name}={emit.expression(value)}" for name, value in self.kwargs.items()]
        return f"{emit.constant(contextvars.ContextVar)}({', '.join(parts)})"

    def replay(self, emit: Emitter, before: None) -> None:
        if self.current is not None:
            emit.line(f"{emit.expression(self)}.set({emit.expression(self.current)})")


class Token(Value):
    """What `set` gives, for `reset`."""

    __slots__ = ("before", "used", "variable")

    def __init__(self, variable: ContextVariable) -> None:
        super().__init__()
        self.variable = variable
        self.before = variable.current
        self.used = False

    def python_type(self) -> type:
        return contextvars.Token


def variable_from_outside(trace: Trace, real: Any, source: Source) -> Value:
    if not isinstance(source, Fixed):
        trace.guard(GuardKind.IS, source, real)
    return ContextVariable(real, source, [], {})


@function(contextvars.ContextVar)
def make_variable(trace: Trace, name: Value, **kwargs: Value) -> Value:
    text = trace.read(name).constant()
    if not isinstance(text, str) or kwargs.keys() - {"default"}:
        raise Break("bad-arguments", "ContextVar()")  # Python makes the error
    real: Any = contextvars.ContextVar(text)
    return ContextVariable(real, None, [trace.read(name)], dict(kwargs))


def _value_from_outside(trace: Trace, real: Any, *default: Value) -> Value:
    """What a context variable holds, if that is plain data."""
    args = tuple(trace.read(value).constant() for value in default)
    try:
        held = real.get(*args)
    except LookupError as error:
        trace.throw(error)
    if type(held) not in PLAIN:
        raise Break("opaque-object", f"an object in the context variable {real.name}")
    holds = GivesSame(args, {}, held)
    trace.guard(GuardKind.PREDICATE, Fixed(real.get, f"{real.name}.get"), holds)
    return Const(held)


@method(contextvars.ContextVar, "get")
def get_variable(trace: Trace, variable: Value, *default: Value) -> Value:
    variable_value = trace.read(variable)
    assert isinstance(variable_value, ContextVariable)
    if variable_value.current is not None:
        return variable_value.current
    if variable_value.source is not None:
        return _value_from_outside(trace, variable_value.real, *default)
    if default or "default" in variable_value.kwargs:
        return default[0] if default else variable_value.kwargs["default"]
    trace.throw(LookupError(variable_value.real))


@method(contextvars.ContextVar, "set")
def set_variable(trace: Trace, variable: Value, value: Value) -> Value:
    variable_value = trace.read(variable)
    assert isinstance(variable_value, ContextVariable)
    token = Token(variable_value)
    trace.mutate_always(variable_value)
    variable_value.current = value
    return token


@method(contextvars.ContextVar, "reset")
def reset_variable(trace: Trace, variable: Value, token: Value) -> Value:
    variable_value, token_value = trace.read(variable), trace.read(token)
    assert isinstance(variable_value, ContextVariable)
    if (
        not isinstance(token_value, Token)
        or token_value.variable is not variable_value
        or token_value.used
    ):
        raise Break("unsupported-method", "ContextVar.reset")  # Python makes the error
    trace.mutate_always(variable_value)
    token_value.used = True
    variable_value.current = token_value.before
    return NONE


@method(contextvars.ContextVar, "name")
def variable_name(trace: Trace, variable: Value) -> Value:
    variable_value = trace.read(variable)
    assert isinstance(variable_value, ContextVariable)
    return Const(variable_value.real.name)


@method(contextvars.Token, "old_value")
def token_old_value(trace: Trace, token: Value) -> Value:
    token_value = trace.read(token)
    assert isinstance(token_value, Token)
    if token_value.before is not None:
        return token_value.before
    if token_value.variable.source is None:
        return MISSING_TOKEN
    raise Break("unsupported-attribute", "Token.old_value")


@method(contextvars.Token, "var")
def token_variable(trace: Trace, token: Value) -> Value:
    token_value = trace.read(token)
    assert isinstance(token_value, Token)
    return token_value.variable


BUILDERS[contextvars.ContextVar] = variable_from_outside
