"""Generators: a frame that is suspended at each `yield`. Coroutines are not followed."""

from __future__ import annotations

from typing import Any

from pliant.bytecode.decode import Instruction
from pliant.capture.frame import Frame
from pliant.capture.interpreter import opcode
from pliant.capture.model import advance, call, get_attribute, iterate
from pliant.capture.trace import Trace
from pliant.capture.value import NONE, Break, Const, Raised, Value
from pliant.capture.values.generators import Generator, returned_value


@opcode("RETURN_GENERATOR")
def return_generator(trace: Trace, frame: Frame, ins: Instruction) -> Any:
    """The generator object exists already; its frame goes on behind this instruction."""
    return NONE


@opcode("YIELD_VALUE", lazy=True)
def yield_value(trace: Trace, frame: Frame, ins: Instruction, value: Value) -> Any:
    frame.returned = value


@opcode("GET_YIELD_FROM_ITER")
def get_yield_from_iter(trace: Trace, frame: Frame, ins: Instruction, value: Value) -> Any:
    return value if isinstance(value, Generator) else iterate(trace, value)


@opcode("SEND")
def send(trace: Trace, frame: Frame, ins: Instruction, iterator: Value, value: Value) -> Any:
    """One step of `yield from`: what the inner iterator yields, or its result and a jump."""
    item, result = _send_into(trace, iterator, value)
    if item is not None:
        return (iterator, item)
    frame.next = ins.value
    if frame.instructions[ins.value].op == "END_SEND":
        return (iterator, result)
    return result


def _send_into(trace: Trace, iterator: Value, value: Value) -> tuple[Value | None, Value]:
    try:
        if isinstance(iterator, Generator):
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


@opcode(
    "GET_AWAITABLE", "GET_AITER", "GET_ANEXT", "BEFORE_ASYNC_WITH", "END_ASYNC_FOR",
    "ASYNC_GEN_WRAP",
)  # fmt: skip
def coroutine_only(trace: Trace, frame: Frame, ins: Instruction, *operands: Value) -> Any:
    raise Break("coroutine", ins.op)
