"""The call instructions."""

from __future__ import annotations

from typing import Any

from pliant.bytecode.decode import Instruction
from pliant.bytecode.tables import Role, opcodes_with
from pliant.capture.frame import Frame
from pliant.capture.interpreter import opcode
from pliant.capture.model import call, drain
from pliant.capture.opcodes.data import iterator_of, mapping_items
from pliant.capture.trace import Trace
from pliant.capture.value import NULL, Value
from pliant.capture.values.containers import Sequence
from pliant.capture.values.functions import called

TAKES_KEYWORDS = opcodes_with(Role.TAKES_KEYWORDS)


@opcode("KW_NAMES")
def kw_names(trace: Trace, frame: Frame, ins: Instruction) -> Any:
    frame.keyword_names = ins.value


@opcode("CALL", "CALL_KW", lazy=True)
def call_op(trace: Trace, frame: Frame, ins: Instruction, *operands: Value) -> Any:
    target, args, kwargs = split_call(frame, operands)
    result = call(trace, target, args, kwargs, direct=True)
    frame.keyword_names = ()
    return result


def split_call(
    frame: Frame, operands: tuple[Value, ...] | list[Value]
) -> tuple[Value, list[Value], dict[str, Value]]:
    """The callable, the positional and the keyword arguments of a call."""
    names = frame.keyword_names
    if frame.instruction.op in TAKES_KEYWORDS:
        *operands, last = operands
        names = last.constant()
    first, second, *rest = operands
    args = rest if NULL in (first, second) else [second, *rest]
    target = second if first is NULL else first
    if not names:
        return target, args, {}
    count = len(args) - len(names)
    return target, args[:count], dict(zip(names, args[count:], strict=True))


@opcode("CALL_FUNCTION_EX", lazy=True)
def call_function_ex(trace: Trace, frame: Frame, ins: Instruction, *operands: Value) -> Any:
    target, positional, *rest = (operand for operand in operands if operand is not NULL)
    positional = trace.read(positional)
    if isinstance(positional, Sequence) and positional.cls in (list, tuple):
        args = positional.items
    else:
        refusal = f"{called(trace, target)}() argument after * must be an iterable, not {{}}"
        args = drain(trace, iterator_of(trace, positional, refusal))
    kwargs: dict[str, Value] = {}
    for key, value in mapping_items(trace, rest[0]) if rest else ():
        kwargs[key.constant()] = value
    return call(trace, target, list(args), kwargs, direct=True)
