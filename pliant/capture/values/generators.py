"""Generators that the captured program made: a suspended frame, followed further at each `next`."""

from __future__ import annotations

import types
from typing import TYPE_CHECKING

from pliant.capture.interpreter import enter_handler, run_frame
from pliant.capture.native import method
from pliant.capture.value import NONE, Const, Raised, Value
from pliant.capture.values.objects import ExceptionValue

if TYPE_CHECKING:
    from pliant.capture.emit import Emitter
    from pliant.capture.frame import Frame
    from pliant.capture.trace import Trace


class Generator(Value):
    """A generator object. `result` is what it returned, once it has."""

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
        return types.GeneratorType

    def children(self) -> list[Value]:
        values = [*self.frame.locals.values(), *self.frame.cells.values(), *self.frame.stack]
        return values if not self.frame.finished else []

    def rebuild(self, emit: Emitter) -> str:
        return emit.generator(emit, self)

    def advance(self, trace: Trace) -> Value | None:
        return self.send(trace, NONE)

    def send(self, trace: Trace, value: Value) -> Value | None:
        """Continue with `value` as the result of the `yield`; None when the generator returns."""
        if self.frame.finished:
            return None
        self._check_sendable(trace, value)
        if self.started:
            self.frame.stack.append(value)
        return self._run(trace)

    def _check_sendable(self, trace: Trace, value: Value) -> None:
        if self.running:
            trace.throw(ValueError("generator already executing"))
        none = isinstance(value, Const) and value.value is None
        if not self.started and not none:
            trace.throw(TypeError("can't send non-None value to a just-started generator"))

    def _run(self, trace: Trace) -> Value | None:
        self.started = self.running = True
        try:
            value = run_frame(trace, self.frame)
        except Raised as raised:
            self.frame.finished = True
            if issubclass(raised.value.python_type(), StopIteration):
                error = RuntimeError("generator raised StopIteration")
                trace.throw(error)
            raise
        finally:
            self.running = False
        if self.frame.finished:
            self.result = value
            return None
        return value

    def throw_in(self, trace: Trace, exception: Value) -> Value | None:
        """Raise `exception` at the `yield` where the generator is suspended."""
        if self.frame.finished or not self.started:
            self.frame.finished = True
            raise Raised(exception)
        self.frame.index -= 1  # the yield itself
        if not enter_handler(trace, self.frame, exception):
            self.frame.finished = True
            raise Raised(exception)
        return self._run(trace)


def returned_value(stop: Value) -> Value:
    """The value a StopIteration carries."""
    if isinstance(stop, ExceptionValue) and stop.args:
        return stop.args[0]
    return NONE


def _item_or_stop(trace: Trace, generator: Generator, item: Value | None) -> Value:
    if item is not None:
        return item
    args = [] if isinstance(generator.result, Const) and generator.result.value is None else None
    result, generator.result = generator.result, NONE
    raise Raised(ExceptionValue(StopIteration, [result] if args is None else args))


@method(types.GeneratorType, "__iter__")
def generator_iter(trace: Trace, self: Generator) -> Value:
    return self


@method(types.GeneratorType, "__next__")
def generator_next(trace: Trace, self: Generator) -> Value:
    return _item_or_stop(trace, self, self.advance(trace))


@method(types.GeneratorType, "send")
def generator_send(trace: Trace, self: Generator, value: Value) -> Value:
    return _item_or_stop(trace, self, self.send(trace, trace.read(value)))


@method(types.GeneratorType, "throw")
def generator_throw(trace: Trace, self: Generator, exception: Value, *rest: Value) -> Value:
    exception = make_exception(trace, trace.read(exception))
    return _item_or_stop(trace, self, self.throw_in(trace, exception))


@method(types.GeneratorType, "close")
def generator_close(trace: Trace, self: Generator) -> Value:
    if not self.started:
        self.frame.finished = True
    if self.frame.finished:
        return NONE
    try:
        item = self.throw_in(trace, ExceptionValue(GeneratorExit, []))
    except Raised as raised:
        if issubclass(raised.value.python_type(), GeneratorExit | StopIteration):
            return NONE
        raise
    if item is not None:
        trace.throw(RuntimeError("generator ignored GeneratorExit"))
    return NONE


def make_exception(trace: Trace, value: Value) -> Value:
    """The exception object for what `raise` was given: a class is called."""
    if isinstance(value, Const) and isinstance(value.value, type):
        return ExceptionValue(value.value, [])
    return value
