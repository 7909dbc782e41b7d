"""Classes and functions of the standard library that are run on constants: dates, JSON, regular
expressions with a function, type variables; and locks made during the capture."""

from __future__ import annotations

import _thread
import ast
import contextvars
import datetime
import json
import pprint
import re
import sys
import threading
import types
import typing
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from pliant.capture.model import GET, call
from pliant.capture.native import FUNCTIONS, METHODS, function, method, pure
from pliant.capture.trace import PLAIN
from pliant.capture.value import NONE, TRUE, Break, Const, Unread, Value, boolean
from pliant.capture.values.conversion import from_real, known_object
from pliant.capture.values.functions import BuiltinMethod
from pliant.capture.values.objects import Opaque
from pliant.capture.values.program_classes import MadeObject
from pliant.capture.wrap import BUILDERS
from pliant.guards.guard import GuardKind
from pliant.guards.predicates import GivesSame, LacksAttribute
from pliant.guards.source import Attr, Fixed, Source

if TYPE_CHECKING:
    from pliant.capture.residual import Emitter
    from pliant.capture.trace import Trace


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


for _real in (json.dumps, json.loads, ast.literal_eval, pprint.pformat):
    function(_real)(on_constants(_real))


@function(sys.getrecursionlimit)
def recursion_limit(trace: Trace) -> Value:
    return Const(trace.depth_limit)


# ---- dates

DATES = (datetime.date, datetime.time, datetime.datetime, datetime.timedelta, datetime.timezone)


def same_from_outside(trace: Trace, real: Any, source: Source) -> Value:
    if not isinstance(source, Fixed):
        trace.guard(GuardKind.IS, source, real)
    return Const(real, source)


for _cls in DATES:
    pure(_cls)
    BUILDERS[_cls] = same_from_outside
    for _name, _descriptor in vars(_cls).items():
        if isinstance(_descriptor, types.MethodDescriptorType | types.WrapperDescriptorType):
            METHODS.setdefault((_cls, _name), on_constants(_descriptor))


# ---- regular expressions


def _substitute(trace: Trace, pattern: re.Pattern[str], args: list[Value]) -> Value:
    """`pattern.sub(function, text)`: the function is followed for each match."""
    repl, text, *rest = args
    limit = trace.read(rest[0]).constant() if rest else 0
    subject = trace.read(text).constant()
    parts, end = [], 0
    for number, match in enumerate(pattern.finditer(subject)):
        if limit and number >= limit:
            break
        replaced = trace.read(call(trace, repl, [Const(match)]))
        parts += [subject[end : match.start()], replaced.constant()]
        end = match.end()
    return Const(type(subject)().join([*parts, subject[end:]]))


def _with_function(known: Callable[..., Value], compiled: bool) -> Callable[..., Value]:
    names = ("repl", "string", "count", "flags")

    def handler(trace: Trace, first: Value, *args: Value, **kwargs: Value) -> Value:
        given = [*args, *(kwargs[name] for name in names[len(args) :] if name in kwargs)]
        if given and isinstance(trace.read(given[0]), Const):
            return known(trace, first, *args, **kwargs)
        flags = 0 if compiled or len(given) < 4 else trace.read(given.pop()).constant()
        pattern = re.compile(trace.read(first).constant(), flags)
        return _substitute(trace, pattern, given)

    return handler


METHODS[re.Pattern, "sub"] = _with_function(METHODS[re.Pattern, "sub"], compiled=True)
FUNCTIONS[re.sub] = _with_function(FUNCTIONS[re.sub], compiled=False)


# ---- type variables

for _variable in (typing.TypeVar, typing.ParamSpec, typing.TypeVarTuple):
    BUILDERS[_variable] = same_from_outside


@function(typing.TypeVar)
def make_type_variable(trace: Trace, /, *args: Value, **kwargs: Value) -> Value:
    real_args = [known_object(arg, trace) for arg in args]
    make: Any = typing.TypeVar
    real = make(*real_args, **{k: known_object(v, trace) for k, v in kwargs.items()})
    real.__module__ = trace.frames[-1].globals.get("__name__", "")
    trace.stand_ins[id(real)] = MadeObject(real, Const(typing.TypeVar), list(args), kwargs)
    return Const(real)


# ---- methods of built-in classes, as objects


def get_builtin_method_attribute(trace: Trace, obj: BuiltinMethod, name: str) -> Value | None:
    if name == "__self__":
        return obj.obj
    return Const(obj.name) if name == "__name__" else None


GET[BuiltinMethod] = get_builtin_method_attribute


# ---- locks

LOCK_TYPES = {_thread.allocate_lock: type(_thread.allocate_lock()), _thread.RLock: _thread.RLock}


class MadeLock(Value):
    """A lock made during the capture, of which no other thread can know yet."""

    __slots__ = ("held", "maker")

    def __init__(self, maker: Any) -> None:
        super().__init__()
        self.maker = maker
        self.held = 0

    def python_type(self) -> type:
        return LOCK_TYPES[self.maker]

    def rebuild(self, emit: Emitter) -> str:
        if self.held:
            raise Break("cannot-rebuild", "a lock that is held")
        return f"{emit.constant(self.maker)}()"


def _make_lock(maker: Any) -> Callable[..., Value]:
    return lambda trace: MadeLock(maker)


def _acquire(trace: Trace, lock: MadeLock, *args: Value, **kwargs: Value) -> Value:
    if lock.held and lock.maker is not _thread.RLock:
        waits = kwargs.get("blocking", args[0] if args else TRUE)
        if isinstance(trace.read(waits), Const) and not trace.read(waits).constant():
            return boolean(False)
        raise Break("unsupported-method", "waiting for a lock")
    trace.changes += 1
    lock.held += 1
    return TRUE


def _release(trace: Trace, lock: MadeLock, *args: Value) -> Value:
    if not lock.held:
        text = "release unlocked lock" if lock.maker is not _thread.RLock else None
        trace.throw(RuntimeError(text or "cannot release un-acquired lock"))
    trace.changes += 1
    lock.held -= 1
    return NONE


for _maker, _lock_type in LOCK_TYPES.items():
    FUNCTIONS[_maker] = _make_lock(_maker)
    METHODS[_lock_type, "__enter__"] = METHODS[_lock_type, "acquire"] = _acquire
    METHODS[_lock_type, "__exit__"] = METHODS[_lock_type, "release"] = _release
FUNCTIONS[threading.RLock] = _make_lock(_thread.RLock)
METHODS[LOCK_TYPES[_thread.allocate_lock], "locked"] = lambda trace, lock: boolean(lock.held > 0)


# ---- context variables


@method(contextvars.ContextVar, "get")
def context_variable_get(trace: Trace, variable: Value, *default: Value) -> Value:
    """What a context variable holds, if that is plain data."""
    real = trace.read(variable).constant()
    args = tuple(trace.read(value).constant() for value in default)
    try:
        found = real.get(*args)
    except LookupError as error:
        trace.throw(error)
    if type(found) not in PLAIN:
        raise Break("opaque-object", f"an object in the context variable {real.name}")
    holds = GivesSame(args, {}, found)
    trace.guard(GuardKind.PREDICATE, Fixed(real.get, f"{real.name}.get"), holds)
    return Const(found)


BUILDERS[contextvars.ContextVar] = same_from_outside


# ---- data of threads


class ThreadLocal(Opaque):
    """A `threading.local` from outside: its attributes are those of this thread."""

    __slots__ = ("written",)

    def __init__(self, real: Any, source: Source) -> None:
        super().__init__(real, source)
        self.written: dict[str, Value | None] = {}  # None: deleted

    def children(self) -> list[Value]:
        return [value for value in self.written.values() if value is not None]

    def snapshot(self) -> None:
        return None

    def replay(self, emit: Emitter, before: None) -> None:
        name = emit.expression(self)
        for key, value in self.written.items():
            if value is not None:
                emit.line(f"setattr({name}, {key!r}, {emit.expression(value)})")
            elif hasattr(self.real, key):
                emit.line(f"delattr({name}, {key!r})")

    def instance_attribute(self, trace: Trace, name: str) -> Value | None:
        assert self.source is not None
        if name in self.written:
            return self.written[name]
        if not hasattr(self.real, name):
            trace.guard(GuardKind.PREDICATE, self.source, LacksAttribute(name))
            return None
        return Unread(getattr(self.real, name), Attr(self.source, name))


def thread_local_from_outside(trace: Trace, real: Any, source: Source) -> Value:
    if not isinstance(source, Fixed):
        trace.guard(GuardKind.TYPE, source, type(real))
    return ThreadLocal(real, source)


BUILDERS[_thread._local] = thread_local_from_outside
