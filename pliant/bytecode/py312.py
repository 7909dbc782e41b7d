"""The opcodes of Python 3.12: those it shares with 3.11, and its own.

``FOR_ITER`` and ``SEND`` are described as the compiler sees them: when the jump is taken, the
iterator stays below one more entry and the ``END_FOR`` or ``END_SEND`` at the target removes it.
(The interpreter takes a short cut over ``END_FOR``; the stack after it is the same.)
"""

from __future__ import annotations

from collections.abc import Mapping

from pliant.bytecode.opinfo import (
    SHARED,
    Operand,
    OpInfo,
    Role,
    arg_plus,
    branch,
    low_bit_plus,
)

_OWN: dict[str, OpInfo] = {
    "RESERVED": OpInfo(0, 0),
    "INTERPRETER_EXIT": OpInfo(1, 0, terminal=True),
    "BINARY_SUBSCR": OpInfo(2, 1, caches=1, meaning="{0}[{1}]"),
    "BINARY_SLICE": OpInfo(3, 1, meaning="{0}[{1}:{2}]"),
    "STORE_SLICE": OpInfo(4, 0, meaning="{1}[{2}:{3}] = {0}", roles=Role.WRITES_OBJECT),
    "COMPARE_OP": OpInfo(2, 1, Operand.COMPARE, caches=1, meaning="{0} {value} {1}"),
    "LOAD_GLOBAL": OpInfo(0, low_bit_plus(1), Operand.GLOBAL, caches=4, roles=Role.LOADS_GLOBAL),
    "LOAD_ATTR": OpInfo(1, low_bit_plus(1), Operand.ATTR, caches=9),
    "LOAD_SUPER_ATTR": OpInfo(3, low_bit_plus(1), Operand.SUPER_ATTR, caches=1),
    "LOAD_FAST_CHECK": OpInfo(0, 1, Operand.LOCAL, roles=Role.READS_LOCAL | Role.PLAIN_LOCAL),
    "LOAD_FAST_AND_CLEAR": OpInfo(0, 1, Operand.LOCAL, roles=Role.READS_LOCAL | Role.WRITES_LOCAL),
    "LOAD_LOCALS": OpInfo(0, 1),
    "LOAD_FROM_DICT_OR_DEREF": OpInfo(1, 1, Operand.LOCAL, roles=Role.READS_LOCAL),
    "LOAD_FROM_DICT_OR_GLOBALS": OpInfo(1, 1, Operand.NAME),
    "CALL": OpInfo(arg_plus(2), 1, Operand.NUMBER, caches=3, roles=Role.CALLS),
    "CALL_INTRINSIC_1": OpInfo(1, 1, Operand.INTRINSIC_1),
    "CALL_INTRINSIC_2": OpInfo(2, 1, Operand.INTRINSIC_2),
    "RETURN_CONST": OpInfo(0, 0, Operand.CONST, terminal=True, roles=Role.RETURNS),
    "FOR_ITER": OpInfo(1, 2, Operand.JUMP, jumps="maybe", caches=1, roles=Role.ITERATES),
    "END_FOR": OpInfo(2, 0, roles=Role.ENDS_LOOP),
    "POP_JUMP_IF_FALSE": branch(1, 0),
    "POP_JUMP_IF_TRUE": branch(1, 0),
    "POP_JUMP_IF_NONE": branch(1, 0),
    "POP_JUMP_IF_NOT_NONE": branch(1, 0),
    # The caller gets the generator; the generator itself starts with the first sent value pushed.
    "RETURN_GENERATOR": OpInfo(0, 1),
    "YIELD_VALUE": OpInfo(1, 1, Operand.NUMBER, roles=Role.YIELDS),
    "SEND": OpInfo(2, 2, Operand.JUMP, jumps="maybe", caches=1, roles=Role.DELEGATES),
    "END_SEND": OpInfo(2, 1, roles=Role.ENDS_DELEGATION),
    "CLEANUP_THROW": OpInfo(3, 2),
}

OPCODES: Mapping[str, OpInfo] = {**SHARED, **_OWN}
CALL_SEQUENCE = ("CALL",)
CALLABLE_FIRST = False
LOAD_CHECKED = "LOAD_FAST_CHECK"  # LOAD_FAST does not look whether the slot is filled
LOOP_END = ("END_FOR",)
COMPARE_SHIFT = 4  # the low bits of the argument are a mask of caches
POSITIONS_ARE_OBJECTS = True
