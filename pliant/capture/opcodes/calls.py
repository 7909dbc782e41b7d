"""The call instructions."""

from __future__ import annotations

from typing import Any

from pliant.bytecode.decode import Instruction
from pliant.capture.frame import Frame
from pliant.capture.interpreter import opcode
from pliant.capture.model import call, drain
from pliant.capture.opcodes.data import mapping_items
from pliant.capture.trace import Trace
from pliant.capture.value import NULL, Null, Value
from pliant.capture.values.containers import Sequence
from pliant.capture.values.functions import called
from pliant.guards.guard import MISSING


@opcode("KW_NAMES")
def kw_names(trace: Trace, frame: Frame, ins: Instruction) -> Any:
    frame.keyword_names = ins.value


@opcode("CALL", lazy=True)
def call_op(trace: Trace, frame: Frame, ins: Instruction, *operands: Value) -> Any:
    target, args, kwargs = split_call(frame, operands)
    result = call(trace, target, args, kwargs, direct=True)
    frame.keyword_names = ()
    return result


def split_call(
    frame: Frame, operands: tuple[Value, ...] | list[Value]
) -> tuple[Value, list[Value], dict[str, Value]]:
    """The callable, the positional and the keyword arguments of a CALL."""
    first, second, *rest = operands
    args = rest if first is NULL else [second, *rest]
    target = second if first is NULL else first
    names = frame.keyword_names
    if not names:
        return target, args, {}
    count = len(args) - len(names)
    return target, args[:count], dict(zip(names, args[count:], strict=True))


@opcode("CALL_FUNCTION_EX", lazy=True)
def call_function_ex(trace: Trace, frame: Frame, ins: Instruction, *operands: Value) -> Any:
    _, target, positional, *rest = operands
    assert isinstance(operands[0], Null)
    positional = trace.read(positional)
    cls = positional.python_type()
    if trace.lookup(cls, "__iter__") is MISSING and trace.lookup(cls, "__getitem__") is MISSING:
        name = called(trace, target)
        trace.throw(TypeError(f"{name}() argument after * must be an iterable, not {cls.__name__}"))
    args = positional.items if isinstance(positional, Sequence) else drain(trace, positional)
    kwargs: dict[str, Value] = {}
    for key, value in mapping_items(trace, rest[0]) if rest else ():
        kwargs[key.constant()] = value
    return call(trace, target, list(args), kwargs, direct=True)
