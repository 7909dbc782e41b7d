"""Raising, catching and `with`."""

from __future__ import annotations

from typing import Any

from pliant.bytecode.decode import Instruction
from pliant.capture.frame import Frame
from pliant.capture.interpreter import current_exception, opcode
from pliant.capture.library.python.exception_groups import match_group, to_raise
from pliant.capture.model import call, get_attribute, special
from pliant.capture.opcodes.variables import method_entries
from pliant.capture.trace import Trace
from pliant.capture.value import NULL, Break, Const, Raised, Value, boolean
from pliant.capture.values.containers import Sequence
from pliant.capture.values.objects import ExceptionValue, Handled
from pliant.guards.guard import MISSING


@opcode("PUSH_EXC_INFO")
def push_exc_info(trace: Trace, frame: Frame, ins: Instruction, exception: Value) -> Any:
    frame.handled.append(exception)
    return (Handled(exception), exception)


@opcode("POP_EXCEPT", lazy=True)
def pop_except(trace: Trace, frame: Frame, ins: Instruction, handled: Value) -> Any:
    frame.handled.pop()


@opcode("CHECK_EXC_MATCH")
def check_exc_match(
    trace: Trace, frame: Frame, ins: Instruction, exception: Value, expected: Value
) -> Any:
    return (exception, boolean(matches(trace, exception, expected)))


def matches(trace: Trace, exception: Value, expected: Value) -> bool:
    """Whether `except expected` catches `exception`."""
    expected = trace.read(expected)
    if isinstance(expected, Sequence):
        return any(matches(trace, exception, item) for item in expected.items)
    cls = expected.constant()
    if not (isinstance(cls, type) and issubclass(cls, BaseException)):
        text = "catching classes that do not inherit from BaseException is not allowed"
        trace.throw(TypeError(text))
    return issubclass(exception.python_type(), cls)


@opcode("CHECK_EG_MATCH")
def check_eg_match(
    trace: Trace, frame: Frame, ins: Instruction, exception: Value, expected: Value
) -> Any:
    """`except* expected`: what is caught is the exception being handled from here on."""
    rest, match = match_group(trace, exception, expected)
    if isinstance(match, Const):
        return (exception, match)
    frame.handled[-1] = match
    return (rest, match)


@opcode("PREP_RERAISE_STAR")
def prep_reraise_star(
    trace: Trace, frame: Frame, ins: Instruction, original: Value, raised: Value
) -> Any:
    assert isinstance(raised, Sequence)
    return to_raise(trace, original, raised.items)


@opcode("RAISE_VARARGS")
def raise_varargs(trace: Trace, frame: Frame, ins: Instruction, *operands: Value) -> Any:
    if not operands:
        handled = current_exception(trace)
        if handled is None:  # a caller of the compiled function may be handling one
            raise Break("bad-arguments", "raise outside of an except block")
        raise Raised(handled, again=True)
    exception = exception_object(trace, operands[0])
    if len(operands) == 2:
        cause = operands[1]
        if not (isinstance(cause, Const) and cause.value is None):
            cause = exception_object(trace, cause)
        if isinstance(exception, ExceptionValue):
            exception.set_link(trace, "__cause__", cause)
    raise Raised(exception)


def exception_object(trace: Trace, value: Value) -> Value:
    """What `raise value` raises: an exception, or an instance of the class given."""
    if isinstance(value, Const) and isinstance(value.value, type):
        value = trace.read(call(trace, value, []))
    if not issubclass(value.python_type(), BaseException):
        trace.throw(TypeError("exceptions must derive from BaseException"))
    return value


@opcode("RERAISE", lazy=True)
def reraise(trace: Trace, frame: Frame, ins: Instruction, *operands: Value) -> Any:
    # `again`: its traceback has this frame already.
    raise Raised(trace.read(operands[-1]), again=True)


# ---- with


@opcode("BEFORE_WITH")
def before_with(trace: Trace, frame: Frame, ins: Instruction, manager: Value) -> Any:
    name = manager.python_type().__name__
    if trace.lookup(manager.python_type(), "__enter__") is MISSING:
        text = f"'{name}' object does not support the context manager protocol"
        trace.throw(TypeError(text))
    if trace.lookup(manager.python_type(), "__exit__") is MISSING:
        text = f"'{name}' object does not support the context manager protocol"
        trace.throw(TypeError(f"{text} (missed __exit__ method)"))
    # Before `__enter__` is called, as Python does: entering may change the class.
    leave = special(trace, manager, "__exit__")
    return (leave, call(trace, special(trace, manager, "__enter__"), []))


PROTOCOLS = {
    "__enter__": "context manager",
    "__exit__": "context manager",
    "__aenter__": "asynchronous context manager",
    "__aexit__": "asynchronous context manager",
}


@opcode("LOAD_SPECIAL")
def load_special(trace: Trace, frame: Frame, ins: Instruction, manager: Value) -> Any:
    """A method of a context manager, ready to be called."""
    cls = manager.python_type()
    if trace.lookup(cls, ins.value) is MISSING:
        plain = cls.__module__ in ("builtins", "__main__")
        name = cls.__qualname__ if plain else f"{cls.__module__}.{cls.__qualname__}"
        text = f"'{name}' object does not support the {PROTOCOLS[ins.value]} protocol"
        trace.throw(TypeError(f"{text} (missed {ins.value} method)"))
    return method_entries(special(trace, manager, ins.value), manager)


@opcode("WITH_EXCEPT_START", lazy=True)
def with_except_start(trace: Trace, frame: Frame, ins: Instruction, *operands: Value) -> Any:
    """`__exit__` is one entry of the stack, or the method and its receiver."""
    *leave, lasti, handled, exception = operands
    exception = trace.read(exception)
    traceback = get_attribute(trace, exception, "__traceback__")
    method, *receiver = (each for each in leave if each is not NULL)
    arguments = [*receiver, Const(exception.python_type()), exception, traceback]
    return (*leave, lasti, handled, exception, call(trace, method, arguments))
