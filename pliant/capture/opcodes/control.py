"""Jumps and loops. A branch asks for the truth of a value; asking a tensor breaks the graph."""

from __future__ import annotations

from typing import Any

from pliant.bytecode.decode import Instruction
from pliant.bytecode.tables import Role, opcodes_with
from pliant.capture.assertion_branches import way_past_assertion
from pliant.capture.frame import Frame
from pliant.capture.interpreter import opcode
from pliant.capture.library.torch.symbolic_functions import branch
from pliant.capture.model import advance, is_none, iterate, truth
from pliant.capture.speculated_branches import speculated_way
from pliant.capture.trace import Trace
from pliant.capture.value import NONE, Const, Value

ENDS_LOOP = opcodes_with(Role.ENDS_LOOP)  # from 3.12 on: takes the exhausted iterator off


@opcode("JUMP_FORWARD", "JUMP_BACKWARD", "JUMP_BACKWARD_NO_INTERRUPT")
def jump(trace: Trace, frame: Frame, ins: Instruction) -> Any:
    frame.next = ins.value


def jump_if(frame: Frame, ins: Instruction, condition: bool) -> None:
    if condition:
        frame.next = ins.value


def _jumps(trace: Trace, frame: Frame, ins: Instruction, value: Value, jump_on: bool) -> bool:
    # A tensor as the condition: an assertion, else a speculation, else the branch breaks the graph.
    jumps = way_past_assertion(trace, frame, ins, value, jump_on)
    if jumps is None:
        jumps = speculated_way(trace, frame, ins, value, jump_on)
    return branch(trace, frame, ins, value, jump_on) if jumps is None else jumps


@opcode("POP_JUMP_IF_TRUE", "POP_JUMP_FORWARD_IF_TRUE", "POP_JUMP_BACKWARD_IF_TRUE")
def pop_jump_if_true(trace: Trace, frame: Frame, ins: Instruction, value: Value) -> Any:
    jump_if(frame, ins, _jumps(trace, frame, ins, value, True))


@opcode("POP_JUMP_IF_FALSE", "POP_JUMP_FORWARD_IF_FALSE", "POP_JUMP_BACKWARD_IF_FALSE")
def pop_jump_if_false(trace: Trace, frame: Frame, ins: Instruction, value: Value) -> Any:
    jump_if(frame, ins, _jumps(trace, frame, ins, value, False))


@opcode("POP_JUMP_IF_NONE", "POP_JUMP_FORWARD_IF_NONE", "POP_JUMP_BACKWARD_IF_NONE", lazy=True)
def pop_jump_if_none(trace: Trace, frame: Frame, ins: Instruction, value: Value) -> Any:
    jump_if(frame, ins, is_none(trace, value))


@opcode(
    "POP_JUMP_IF_NOT_NONE",
    "POP_JUMP_FORWARD_IF_NOT_NONE",
    "POP_JUMP_BACKWARD_IF_NOT_NONE",
    lazy=True,
)
def pop_jump_if_not_none(trace: Trace, frame: Frame, ins: Instruction, value: Value) -> Any:
    jump_if(frame, ins, not is_none(trace, value))


@opcode("JUMP_IF_TRUE_OR_POP")
def jump_if_true_or_pop(trace: Trace, frame: Frame, ins: Instruction, value: Value) -> Any:
    return _keep_if(frame, ins, value, truth(trace, value))


@opcode("JUMP_IF_FALSE_OR_POP")
def jump_if_false_or_pop(trace: Trace, frame: Frame, ins: Instruction, value: Value) -> Any:
    return _keep_if(frame, ins, value, not truth(trace, value))


def _keep_if(frame: Frame, ins: Instruction, value: Value, condition: bool) -> Value | None:
    jump_if(frame, ins, condition)
    return value if condition else None


@opcode("GET_ITER")
def get_iter(trace: Trace, frame: Frame, ins: Instruction, value: Value) -> Any:
    return iterate(trace, value)


@opcode("FOR_ITER")
def for_iter(trace: Trace, frame: Frame, ins: Instruction, iterator: Value) -> Any:
    item = advance(trace, iterator)
    if item is not None:
        return (iterator, item)
    frame.next = ins.value
    # END_FOR pops two: the iterator, and what FOR_ITER would have pushed.
    if frame.instructions[ins.value].op in ENDS_LOOP:
        return (iterator, NONE)
    return None


@opcode("RETURN_VALUE", lazy=True)
def return_value(trace: Trace, frame: Frame, ins: Instruction, value: Value) -> Any:
    frame.returned = value
    frame.finished = True


@opcode("RETURN_CONST")
def return_const(trace: Trace, frame: Frame, ins: Instruction) -> Any:
    frame.returned = Const(ins.value)
    frame.finished = True
