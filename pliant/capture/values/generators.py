"""Generators that the captured program made: a suspended frame, followed further at each `next`."""

from __future__ import annotations

import inspect
import sys
import types
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from pliant.bytecode.tables import Role, opcodes_with
from pliant.capture.failures import handlers
from pliant.capture.interpreter import enter_handler, note_raised, run_frame
from pliant.capture.model import call, type_name
from pliant.capture.native import SHORTCUTS, method
from pliant.capture.value import NONE, Break, Const, Lazy, Raised, Value, boolean
from pliant.capture.values.containers import Sequence
from pliant.capture.values.objects import ExceptionValue

if TYPE_CHECKING:
    from pliant.capture.frame import Frame
    from pliant.capture.residual import Emitter
    from pliant.capture.trace import Trace

STARTS = opcodes_with(Role.STARTS)
STEPS_OF_DELEGATION = opcodes_with(Role.DELEGATES)
ENDS_DELEGATION = opcodes_with(Role.ENDS_DELEGATION)
CLOSE_RETURNS = sys.version_info >= (3, 13)
DELEGATES = 2  # the argument of a RESUME behind the `yield` that a `yield from` contains


class GeneratorValue(Value):
    """A generator or coroutine: a frame that is followed up to the next `yield` each time. `result`
    is what it has returned."""

    __slots__ = ("frame", "result", "running", "started")

    def __init__(self, frame: Frame) -> None:
        super().__init__()
        frame.generator = True
        frame.direct = False
        self.frame = frame
        self.result: Value = NONE
        self.started = False
        self.running = False

    def python_type(self) -> type:
        return types.CoroutineType if self.is_coroutine else types.GeneratorType

    @property
    def is_coroutine(self) -> bool:
        """Whether an `async def` made it: it is driven by `await` and by `send`."""
        return bool(self.frame.code.co_flags & inspect.CO_COROUTINE)

    @property
    def kind(self) -> str:
        return "coroutine" if self.is_coroutine else "generator"

    def children(self) -> list[Value]:
        if self.frame.finished:
            return []
        values = [*self.frame.locals.values(), *self.frame.cells.values(), *self.frame.stack]
        return [*values, *([] if self.frame.function is None else [self.frame.function])]

    def rebuild(self, emit: Emitter) -> str:
        if self.is_coroutine:
            raise Break("coroutine", f"the coroutine {self.frame.code.co_name} in its middle")
        return emit.generator(emit, self)

    @property
    def is_suspended(self) -> bool:
        """Whether it stands at a `yield`."""
        return self.started and not self.frame.finished and not self.running

    # ---- going on

    def advance(self, trace: Trace) -> Value | None:
        return self.send(trace, NONE)

    def send(self, trace: Trace, value: Value) -> Value | None:
        """Continue with `value` as the result of the `yield`. Returns what is yielded next, or None
        if the generator returns."""
        if self.running:
            trace.throw(ValueError(f"{self.kind} already executing"))
        if self.frame.finished:
            self._refuse_reuse(trace)
            return None
        if self.started:
            self.frame.stack.append(value)
        elif not (isinstance(value, Const) and value.value is None):
            trace.throw(TypeError(f"can't send non-None value to a just-started {self.kind}"))
        return self._run(trace)

    def _refuse_reuse(self, trace: Trace) -> None:
        if self.is_coroutine:
            trace.throw(RuntimeError("cannot reuse already awaited coroutine"))

    def _run(self, trace: Trace) -> Value | None:
        self.started = self.running = True
        try:
            value = run_frame(trace, self.frame)
        except Raised as raised:
            self.frame.finished = True
            if issubclass(raised.value.python_type(), StopIteration):
                refuse_stop_iteration(trace, raised.value, self.kind)
            raise
        finally:
            self.running = False
        if self.frame.finished:
            self.result = value
            return None
        # Only these matter when they are dropped; watching all would make every instruction slower.
        if self.has_cleanup():
            trace.suspended.append(self)
        return value

    # ---- exceptions from outside

    def throw_in(self, trace: Trace, exception: Value) -> Value | None:
        """Raise `exception` at the `yield` where the generator is suspended. Returns what is
        yielded next, or None."""
        if self.running:
            trace.throw(ValueError(f"{self.kind} already executing"))
        if self.frame.finished or not self.started:
            if self.frame.finished:
                self._refuse_reuse(trace)
            self.frame.finished = True
            raise Raised(exception)
        inner = self.delegate()
        if inner is None:
            return self._raise_at_yield(trace, Raised(exception))
        try:
            return self._throw_into(trace, inner, exception)
        except Raised as raised:
            return self._raise_at_yield(trace, raised)

    def delegate(self) -> Value | None:
        """The iterator of the `yield from` or `await` that the generator is suspended in; None if
        it is at a plain `yield`."""
        following = self.frame.instruction
        if following.op in STARTS and ((following.arg or 0) & 3) >= DELEGATES:
            return self.frame.stack[-1]
        return None

    def _throw_into(self, trace: Trace, inner: Value, exception: Value) -> Value | None:
        if issubclass(exception.python_type(), GeneratorExit):
            if isinstance(inner, GeneratorValue):
                inner.close(trace)
            raise Raised(exception)
        # Other iterators are taken to have no `throw`: it is raised at the `yield from`.
        if not isinstance(inner, GeneratorValue):
            raise Raised(exception)
        item = inner.throw_in(trace, exception)
        if item is not None:
            return item
        self._leave_delegate(inner.result)
        return self._run(trace)

    def _leave_delegate(self, result: Value) -> None:
        """Continue behind the `yield from`, whose value is `result`: the inner generator has
        returned."""
        frame = self.frame
        # SEND is the instruction whose target lies behind the loop of a `yield from`.
        while frame.instruction.op not in STEPS_OF_DELEGATION:
            frame.index -= 1
        frame.index = frame.instruction.value
        if frame.instruction.op in ENDS_DELEGATION:
            frame.stack.append(result)
        else:
            frame.stack[-1] = result

    def _raise_at_yield(self, trace: Trace, raised: Raised) -> Value | None:
        self.frame.index -= 1  # the yield itself
        self.frame.stack.append(NONE)  # as if sent: the handler of a `yield from` counts it
        trace.frames.append(self.frame)
        try:
            note_raised(trace, self.frame, raised)
            handled = enter_handler(trace, self.frame, raised.value)
        finally:
            trace.frames.pop()
        if not handled:
            self.frame.finished = True
            raise raised
        return self._run(trace)

    # ---- the end

    def close(self, trace: Trace) -> Value:
        """`generator.close()`. From Python 3.13 on, its result is what the generator returns."""
        if not self.started:
            self.frame.finished = True
        if self.frame.finished:
            return NONE
        try:
            # `close` raises GeneratorExit at the yield. A generator that yields once more is in
            # error.
            item = self.throw_in(trace, ExceptionValue(GeneratorExit, []))
        except Raised as raised:
            if issubclass(raised.value.python_type(), GeneratorExit | StopIteration):
                return NONE
            raise
        if item is not None:
            trace.throw(RuntimeError(f"{self.kind} ignored GeneratorExit"))
        return self.result if CLOSE_RETURNS else NONE

    def has_cleanup(self) -> bool:
        """Whether closing the generator where it is suspended would run its code: a `finally` or a
        `with`."""
        if not self.started:
            return False
        inner = self.delegate()
        if isinstance(inner, GeneratorValue) and inner.has_cleanup():
            return True
        return any(handlers(self.frame, self.frame.index - 1))

    def dropped(self, trace: Trace) -> None:
        """Close the generator if the last reference to it is gone, as CPython's reference counting
        does."""
        waiting = any(value is self for value in trace.suspended) and not self.running
        if waiting and not self.frame.finished and not is_referenced(trace, self):
            # Before closing it, which may drop it again.
            trace.suspended = [value for value in trace.suspended if value is not self]
            try:
                self.close(trace)
            except Raised:
                pass  # Python ignores it too


def is_referenced(trace: Trace, target: Value) -> bool:
    """Whether the program can still reach `target`: a search of everything reachable, so it is only
    made for generators with cleanup and weak references."""
    return any(value is target for value in referenced(trace))


def referenced(trace: Trace, operands: int = 0) -> Iterator[Value]:
    """Everything that the program can still reach, apart from the topmost `operands` entries of the
    stack, which the present instruction takes."""
    # What was stored in objects from outside is reachable from there.
    left: list[Value] = [child for value, _ in trace.effects.values() for child in value.children()]
    for frame in trace.frames:
        left += [*frame.locals.values(), *frame.cells.values(), *frame.stack, *frame.handled]
        if frame is trace.frames[-1] and operands:
            del left[len(left) - len(frame.handled) - operands : len(left) - len(frame.handled)]
    visited: set[int] = set()
    while left:
        value: Value | None = left.pop()
        if isinstance(value, Lazy):
            value = value.seen
        if value is not None and id(value) not in visited:
            visited.add(id(value))
            yield value
            left += getattr(value, "strong_children", value.children)()


def refuse_stop_iteration(trace: Trace, stop: Value, kind: str = "generator") -> None:
    """Raise RuntimeError in place of a StopIteration that leaves a generator (PEP 479)."""
    error = ExceptionValue(RuntimeError, [Const(f"{kind} raised StopIteration")])
    error.set_link(trace, "__cause__", stop)
    error.set_link(trace, "__context__", stop)
    raised = Raised(error)
    raised.has_context = True
    raise raised


def returned_value(stop: Value) -> Value:
    """The value that a StopIteration carries."""
    if isinstance(stop, ExceptionValue) and stop.args:
        return stop.args[0]
    return NONE


# ---- methods


def _item_or_stop(trace: Trace, generator: GeneratorValue, item: Value | None) -> Value:
    if item is not None:
        return item
    result, generator.result = generator.result, NONE
    is_none = isinstance(result, Const) and result.value is None
    raise Raised(ExceptionValue(StopIteration, [] if is_none else [result]))


@method(types.GeneratorType, "__iter__")
def generator_iter(trace: Trace, self: GeneratorValue) -> Value:
    return self


@method(types.GeneratorType, "__next__")
def generator_next(trace: Trace, self: GeneratorValue) -> Value:
    return _item_or_stop(trace, self, self.advance(trace))


@method(types.CoroutineType, "__await__")
def coroutine_await(trace: Trace, self: GeneratorValue) -> Value:
    """Python makes a thin wrapper here, which the coroutine itself can stand for."""
    return self


@method(types.CoroutineType, "send")
@method(types.GeneratorType, "send")
def generator_send(trace: Trace, self: GeneratorValue, value: Value) -> Value:
    return _item_or_stop(trace, self, self.send(trace, trace.read(value)))


def is_exception_class(real: Any) -> bool:
    return isinstance(real, type) and issubclass(real, BaseException)


def _arguments(value: Value) -> list[Value]:
    """What an exception is made of that is given as its class and a value."""
    if isinstance(value, Const) and value.value is None:
        return []
    return list(value.items) if isinstance(value, Sequence) and value.cls is tuple else [value]


@method(types.CoroutineType, "throw")
@method(types.GeneratorType, "throw")
def generator_throw(
    trace: Trace,
    self: GeneratorValue,
    exception: Value,
    value: Value = NONE,
    traceback: Value = NONE,
) -> Value:
    """`throw(error)`, or in the old form `throw(class, error or arguments, traceback)`."""
    exception, value = trace.read(exception), trace.read(value)
    if issubclass(value.python_type(), BaseException):
        exception = value
    elif isinstance(exception, Const) and is_exception_class(exception.value):
        exception = trace.read(call(trace, exception, _arguments(value)))
    if not issubclass(exception.python_type(), BaseException):
        text = "exceptions must be classes or instances deriving from BaseException"
        trace.throw(TypeError(f"{text}, not {type_name(exception.python_type())}"))
    return _item_or_stop(trace, self, self.throw_in(trace, exception))


@method(types.CoroutineType, "close")
@method(types.GeneratorType, "close")
def generator_close(trace: Trace, self: GeneratorValue) -> Value:
    return self.close(trace)


@method(types.CoroutineType, "__name__")
@method(types.GeneratorType, "__name__")
def generator_name(trace: Trace, self: GeneratorValue) -> Value:
    return Const(self.frame.code.co_name)


@method(types.CoroutineType, "__qualname__")
@method(types.GeneratorType, "__qualname__")
def generator_qualname(trace: Trace, self: GeneratorValue) -> Value:
    return Const(self.frame.code.co_qualname)


@method(types.CoroutineType, "cr_running")
@method(types.GeneratorType, "gi_running")
def generator_running(trace: Trace, self: GeneratorValue) -> Value:
    return boolean(self.running)


@method(types.CoroutineType, "cr_suspended")
@method(types.GeneratorType, "gi_suspended")
def generator_suspended(trace: Trace, self: GeneratorValue) -> Value:
    return boolean(self.is_suspended)


@method(types.CoroutineType, "cr_await")
@method(types.GeneratorType, "gi_yieldfrom")
def generator_yieldfrom(trace: Trace, self: GeneratorValue) -> Value:
    return (self.delegate() if self.is_suspended else None) or NONE


def generator_state(
    trace: Trace, args: list[Value], kwargs: dict[str, Value], direct: bool
) -> Value | None:
    """`inspect.getgeneratorstate`, which looks for a frame to learn that nothing has run yet."""
    generator = trace.read(args[0]) if len(args) == 1 and not kwargs else None
    if not isinstance(generator, GeneratorValue) or generator.started or generator.frame.finished:
        return None
    created = inspect.CORO_CREATED if generator.is_coroutine else inspect.GEN_CREATED
    return Const(created)


SHORTCUTS[inspect.getgeneratorstate] = SHORTCUTS[inspect.getcoroutinestate] = generator_state
