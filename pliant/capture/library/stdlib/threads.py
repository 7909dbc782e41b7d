"""Locks that the program makes, and the attributes of `threading.local`."""

from __future__ import annotations

import _thread
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from pliant.capture.model import SET
from pliant.capture.native import FUNCTIONS, METHODS
from pliant.capture.value import NONE, TRUE, Break, Const, Unread, Value, boolean
from pliant.capture.values.objects import Opaque
from pliant.capture.wrap import BUILDERS
from pliant.guards.guard import GuardKind
from pliant.guards.predicates import LacksAttribute
from pliant.guards.source import Attr, Fixed, Source

if TYPE_CHECKING:
    from pliant.capture.residual import Emitter
    from pliant.capture.trace import Trace


LOCK_TYPES = {_thread.allocate_lock: type(_thread.allocate_lock()), _thread.RLock: _thread.RLock}


class LockValue(Value):
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
    return lambda trace: LockValue(maker)


def _acquire(trace: Trace, lock: LockValue, *args: Value, **kwargs: Value) -> Value:
    if lock.held and lock.maker is not _thread.RLock:
        waits = kwargs.get("blocking", args[0] if args else TRUE)
        if isinstance(trace.read(waits), Const) and not trace.read(waits).constant():
            return boolean(False)
        raise Break("unsupported-method", "waiting for a lock")
    trace.changes += 1
    lock.held += 1
    return TRUE


def _release(trace: Trace, lock: LockValue, *args: Value) -> Value:
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
if threading.Lock is not _thread.allocate_lock:  # from Python 3.13 on: the class
    FUNCTIONS[threading.Lock] = _make_lock(_thread.allocate_lock)
METHODS[LOCK_TYPES[_thread.allocate_lock], "locked"] = lambda trace, lock: boolean(lock.held > 0)


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


def set_local(trace: Trace, obj: ThreadLocal, name: str, value: Value | None) -> None:
    """Written by residual code, and known until then."""
    trace.mutate(obj)
    obj.written[name] = value


SET[ThreadLocal] = set_local
