"""Opcodes that have no handler: what their rows say they mean is followed, as Python code."""

from __future__ import annotations

import functools
from typing import Any

from pliant.bytecode.decode import Instruction
from pliant.bytecode.tables import OPCODES
from pliant.capture.frame import Frame
from pliant.capture.interpreter import HANDLERS, Opcode
from pliant.capture.library.python.equivalents import as_value
from pliant.capture.model import call
from pliant.capture.trace import Trace
from pliant.capture.value import Const, Value
from pliant.capture.values.functions import FunctionValue


@functools.cache
def meaning(name: str, count: int) -> FunctionValue:
    """A function of `count` operands and the argument that does what the opcode does."""
    info = OPCODES[name]
    if callable(info.meaning):
        return as_value(info.meaning)
    operands = [f"operand_{index}" for index in range(count)]
    body = info.source(operands, "value")
    if info.pushes:
        body = f"return {body}"
    namespace: dict[str, Any] = {"__name__": __name__}  # a frame of pliant, not of the user
    exec(f"def {name}({', '.join([*operands, 'value'])}): {body}", namespace)
    return as_value(namespace[name])


def follow_meaning(trace: Trace, frame: Frame, ins: Instruction, *operands: Value) -> Any:
    pushes = OPCODES[ins.op].pushes
    function = meaning(ins.op, len(operands))
    result = call(trace, function, [*operands, Const(ins.value)], direct=bool(pushes))
    return result if pushes else None


def add_meanings() -> None:
    """Fill the table of handlers where there is none but a meaning."""
    for name, info in OPCODES.items():
        if info.meaning is not None and name not in HANDLERS:
            HANDLERS[name] = Opcode(follow_meaning, info.pops, lazy=True)
