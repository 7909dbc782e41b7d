"""Raising, catching and `with`."""

from __future__ import annotations

from typing import Any

from pliant.base.python_errors import MANAGER_METHODS, no_manager
from pliant.bytecode.decode import Instruction
from pliant.capture.frame import Frame
from pliant.capture.interpreter import current_exception, opcode
from pliant.capture.library.python.exception_groups import match_group, to_raise
from pliant.capture.library.python.exceptions import catch_classes, is_caught
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
    return (exception, boolean(is_caught(exception, catch_classes(trace, expected))))


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
            cause = exception_object(trace, cause, "exception causes")
        if isinstance(exception, ExceptionValue):
            exception.set_link(trace, "__cause__", cause)
    raise Raised(exception)


def exception_object(trace: Trace, value: Value, what: str = "exceptions") -> Value:
    """What `raise value` raises: an exception, or an instance of the class given."""
    cls = value.value if isinstance(value, Const) and isinstance(value.value, type) else None
    if cls is not None and issubclass(cls, BaseException):
        value = trace.read(call(trace, value, []))
        kind = value.python_type()
        if not issubclass(kind, BaseException) and what == "exceptions":
            text = f"calling {cls!r} should have returned an instance of BaseException, "
            text += f"not {kind!r}"
            trace.throw(TypeError(text))
    if not issubclass(value.python_type(), BaseException):
        trace.throw(TypeError(f"{what} must derive from BaseException"))
    return value


@opcode("RERAISE", lazy=True)
def reraise(trace: Trace, frame: Frame, ins: Instruction, *operands: Value) -> Any:
    # `again`: its traceback has this frame already.
    raise Raised(trace.read(operands[-1]), again=True)


# ---- with


@opcode("BEFORE_WITH")
def before_with(trace: Trace, frame: Frame, ins: Instruction, manager: Value) -> Any:
    for name in ("__enter__", "__exit__"):
        need_manager_method(trace, manager.python_type(), name)
    trace.graph_effects.enter_block(manager)
    # Before `__enter__` is called, as Python does: entering may change the class.
    leave = special(trace, manager, "__exit__")
    return (leave, call(trace, special(trace, manager, "__enter__"), []))


def need_manager_method(trace: Trace, cls: type, name: str) -> None:
    """Raise Python's error if a class has no such method of context managers."""
    if trace.lookup(cls, name) is MISSING:
        methods = [method for method in MANAGER_METHODS if trace.lookup(cls, method) is not MISSING]
        trace.throw(no_manager(cls, methods, name.startswith("__a")))


@opcode("LOAD_SPECIAL")
def load_special(trace: Trace, frame: Frame, ins: Instruction, manager: Value) -> Any:
    """A method of a context manager, ready to be called."""
    need_manager_method(trace, manager.python_type(), ins.value)
    trace.graph_effects.enter_block(manager)
    return method_entries(special(trace, manager, ins.value), manager)


@opcode("WITH_EXCEPT_START", lazy=True)
def with_except_start(trace: Trace, frame: Frame, ins: Instruction, *operands: Value) -> Any:
    """`__exit__` is one entry of the stack, or the method and its receiver."""
    *leave, lasti, handled, exception = operands
    exception = trace.read(exception)
    traceback = get_attribute(trace, exception, "__traceback__")
    method, *receiver = (operand for operand in leave if operand is not NULL)
    arguments = [*receiver, Const(exception.python_type()), exception, traceback]
    return (*leave, lasti, handled, exception, call(trace, method, arguments))
