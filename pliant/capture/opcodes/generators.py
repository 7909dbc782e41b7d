"""Generators and coroutines: frames that are suspended at each `yield`. Generators that are
coroutines at the same time are not followed."""

from __future__ import annotations

import inspect
import sys
from typing import Any

from pliant.bytecode.decode import Instruction
from pliant.bytecode.tables import Role, opcodes_with
from pliant.capture.frame import Frame
from pliant.capture.interpreter import opcode
from pliant.capture.model import (
    advance,
    call,
    call_special,
    get_attribute,
    iterate,
    special,
    type_name,
)
from pliant.capture.opcodes.exceptions import need_manager_method
from pliant.capture.trace import Trace
from pliant.capture.value import NONE, Break, Const, Raised, Value
from pliant.capture.values.generators import GeneratorValue, returned_value

ENDS_DELEGATION = opcodes_with(Role.ENDS_DELEGATION)
NOT_AWAITABLE = (
    "'{}' object can't be awaited"
    if sys.version_info >= (3, 14)
    else "object {} can't be used in 'await' expression"
)


@opcode("RETURN_GENERATOR")
def return_generator(trace: Trace, frame: Frame, ins: Instruction) -> Any:
    """The generator object exists already; its frame goes on behind this instruction."""
    return NONE


@opcode("YIELD_VALUE", lazy=True)
def yield_value(trace: Trace, frame: Frame, ins: Instruction, value: Value) -> Any:
    frame.returned = value


@opcode("GET_YIELD_FROM_ITER")
def get_yield_from_iter(trace: Trace, frame: Frame, ins: Instruction, value: Value) -> Any:
    return value if isinstance(value, GeneratorValue) else iterate(trace, value)


@opcode("SEND")
def send(trace: Trace, frame: Frame, ins: Instruction, iterator: Value, value: Value) -> Any:
    """One step of `yield from`: what the inner iterator yields, or its result and a jump."""
    item, result = _send_into(trace, iterator, value)
    if item is not None:
        return (iterator, item)
    frame.next = ins.value
    if frame.instructions[ins.value].op in ENDS_DELEGATION:
        return (iterator, result)
    return result


def _send_into(trace: Trace, iterator: Value, value: Value) -> tuple[Value | None, Value]:
    try:
        if isinstance(iterator, GeneratorValue):
            return iterator.send(trace, value), iterator.result
        if isinstance(value, Const) and value.value is None:
            return advance(trace, iterator), NONE
        return call(trace, get_attribute(trace, iterator, "send"), [value]), NONE
    except Raised as raised:
        if issubclass(raised.value.python_type(), StopIteration):
            return None, returned_value(raised.value)
        raise


@opcode("END_SEND", lazy=True)
def end_send(trace: Trace, frame: Frame, ins: Instruction, iterator: Value, value: Value) -> Any:
    return value


@opcode("CLEANUP_THROW")
def cleanup_throw(
    trace: Trace, frame: Frame, ins: Instruction, iterator: Value, sent: Value, exception: Value
) -> Any:
    """An exception came out of a `yield from`; StopIteration is its result."""
    if issubclass(exception.python_type(), StopIteration):
        return (NONE, returned_value(exception))
    raise Raised(exception, again=True)


# ---- coroutines, as far as the program drives them itself


@opcode("GET_AWAITABLE")
def get_awaitable(trace: Trace, frame: Frame, ins: Instruction, value: Value) -> Any:
    """What `await` goes over."""
    if isinstance(value, GeneratorValue):
        flags = inspect.CO_COROUTINE | inspect.CO_ITERABLE_COROUTINE
        if value.frame.code.co_flags & flags:
            return value
    iterator = call_special(trace, value, "__await__")
    name = type_name(value.python_type())
    if iterator is None:
        trace.throw(TypeError(NOT_AWAITABLE.format(name)))
    return trace.read(iterator)


@opcode("GET_AITER")
def get_aiter(trace: Trace, frame: Frame, ins: Instruction, value: Value) -> Any:
    iterator = call_special(trace, value, "__aiter__")
    name = type_name(value.python_type())
    if iterator is None:
        text = f"'async for' requires an object with __aiter__ method, got {name}"
        trace.throw(TypeError(text))
    return trace.read(iterator)


@opcode("GET_ANEXT")
def get_anext(trace: Trace, frame: Frame, ins: Instruction, iterator: Value) -> Any:
    item = call_special(trace, iterator, "__anext__")
    name = type_name(iterator.python_type())
    if item is None:
        text = f"'async for' requires an iterator with __anext__ method, got {name}"
        trace.throw(TypeError(text))
    return (iterator, get_awaitable(trace, frame, ins, trace.read(item)))


@opcode("END_ASYNC_FOR")
def end_async_for(
    trace: Trace, frame: Frame, ins: Instruction, iterator: Value, exception: Value
) -> Any:
    if not issubclass(exception.python_type(), StopAsyncIteration):
        raise Raised(exception, again=True)


@opcode("BEFORE_ASYNC_WITH")
def before_async_with(trace: Trace, frame: Frame, ins: Instruction, manager: Value) -> Any:
    for name in ("__aenter__", "__aexit__"):
        need_manager_method(trace, manager.python_type(), name)
    leave = special(trace, manager, "__aexit__")
    return (leave, call(trace, special(trace, manager, "__aenter__"), []))


@opcode("ASYNC_GEN_WRAP")
def coroutine_only(trace: Trace, frame: Frame, ins: Instruction, *operands: Value) -> Any:
    raise Break("coroutine", ins.op)
