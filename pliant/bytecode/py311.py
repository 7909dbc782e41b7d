"""The opcodes of Python 3.11: those it shares with 3.12, and its own.

``PRECALL`` leaves the arguments where they are and ``CALL`` takes them all. (``dis.stack_effect``
books the arguments on ``PRECALL``; the sum of the two is the same.)
"""

from __future__ import annotations

from collections.abc import Mapping

from pliant.bytecode.opinfo import (
    ARG,
    SHARED,
    Operand,
    OpInfo,
    Role,
    arg_plus,
    branch,
    low_bit_plus,
)

_OWN: dict[str, OpInfo] = {
    "UNARY_POSITIVE": OpInfo(1, 1, meaning="+{0}"),
    "BINARY_SUBSCR": OpInfo(2, 1, caches=4, meaning="{0}[{1}]"),
    "COMPARE_OP": OpInfo(2, 1, Operand.COMPARE, caches=2, meaning="{0} {value} {1}"),
    "LIST_TO_TUPLE": OpInfo(1, 1, meaning="tuple({0})"),
    "PRINT_EXPR": OpInfo(1, 0),
    "IMPORT_STAR": OpInfo(1, 0),
    "LOAD_GLOBAL": OpInfo(0, low_bit_plus(1), Operand.GLOBAL, caches=5, roles=Role.LOADS_GLOBAL),
    "LOAD_ATTR": OpInfo(1, 1, Operand.NAME, caches=4),
    "LOAD_METHOD": OpInfo(1, 2, Operand.NAME, caches=10),
    "LOAD_CLASSDEREF": OpInfo(0, 1, Operand.LOCAL, roles=Role.READS_LOCAL),
    "PRECALL": OpInfo(ARG, ARG, Operand.NUMBER, caches=1, roles=Role.PREPARES_CALL),
    "CALL": OpInfo(arg_plus(2), 1, Operand.NUMBER, caches=4, roles=Role.CALLS),
    # The exhausted iterator goes away when the loop is left.
    "FOR_ITER": OpInfo(1, 2, Operand.JUMP, jumps="maybe", jump_pushes=0, roles=Role.ITERATES),
    "JUMP_IF_FALSE_OR_POP": OpInfo(1, 0, Operand.JUMP, jumps="maybe", jump_pushes=1),
    "JUMP_IF_TRUE_OR_POP": OpInfo(1, 0, Operand.JUMP, jumps="maybe", jump_pushes=1),
    "POP_JUMP_FORWARD_IF_FALSE": branch(1, 0),
    "POP_JUMP_FORWARD_IF_TRUE": branch(1, 0),
    "POP_JUMP_FORWARD_IF_NONE": branch(1, 0),
    "POP_JUMP_FORWARD_IF_NOT_NONE": branch(1, 0),
    "POP_JUMP_BACKWARD_IF_FALSE": branch(1, 0, backward=True),
    "POP_JUMP_BACKWARD_IF_TRUE": branch(1, 0, backward=True),
    "POP_JUMP_BACKWARD_IF_NONE": branch(1, 0, backward=True),
    "POP_JUMP_BACKWARD_IF_NOT_NONE": branch(1, 0, backward=True),
    "PREP_RERAISE_STAR": OpInfo(2, 1),
    # The caller gets the generator; the generator itself starts with the first sent value pushed.
    "RETURN_GENERATOR": OpInfo(0, 1),
    "YIELD_VALUE": OpInfo(1, 1, roles=Role.YIELDS),
    "ASYNC_GEN_WRAP": OpInfo(1, 1),
    # The jump is taken when the iterator is exhausted: only its return value stays.
    "SEND": OpInfo(2, 2, Operand.JUMP, jumps="maybe", jump_pushes=1, roles=Role.DELEGATES),
}

OPCODES: Mapping[str, OpInfo] = {**SHARED, **_OWN}
CALL_SEQUENCE = ("PRECALL", "CALL")
CALLABLE_FIRST = False  # a plain call begins with NULL, then the callable
LOAD_CHECKED = "LOAD_FAST"  # always looks whether the slot is filled
LOOP_END: tuple[str, ...] = ()  # what takes an exhausted iterator off the stack
COMPARE_SHIFT = 0
POSITIONS_ARE_OBJECTS = True
