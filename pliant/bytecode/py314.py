"""The opcodes of Python 3.14: those of 3.13 that are left, and its own.

A borrowed reference is an optimisation of the interpreter's: here it is a reference like others.
"""

from __future__ import annotations

from collections.abc import Mapping

from pliant.bytecode import py313
from pliant.bytecode.opinfo import (
    ARG,
    Operand,
    OpInfo,
    Part,
    Role,
    arg_plus,
    low_bit_plus,
)
from pliant.bytecode.py313 import both
from pliant.bytecode.semantics import build_interpolation, build_template

_GONE = {
    "BEFORE_ASYNC_WITH",
    "BEFORE_WITH",
    "BINARY_SUBSCR",
    "BUILD_CONST_KEY_MAP",
    "LOAD_ASSERTION_ERROR",
    "RETURN_CONST",
}


def _owned(arg: int) -> tuple[Part, ...]:
    return (("LOAD_FAST", arg),)


def _nothing(arg: int) -> tuple[Part, ...]:
    return ()


_LOADS = Role.READS_LOCAL | Role.PLAIN_LOCAL

_OWN: dict[str, OpInfo] = {
    "LOAD_FAST_BORROW": OpInfo(0, 1, Operand.LOCAL, parts=_owned, roles=_LOADS),
    "LOAD_FAST_BORROW_LOAD_FAST_BORROW": both("LOAD_FAST", "LOAD_FAST"),
    # Marks for tools that observe branches.
    "NOT_TAKEN": OpInfo(0, 0, parts=_nothing),
    "LOAD_SMALL_INT": OpInfo(0, 1, Operand.NUMBER, roles=Role.LOADS_CONST),
    "LOAD_COMMON_CONSTANT": OpInfo(0, 1, Operand.COMMON_CONSTANT, roles=Role.LOADS_ASSERTION_ERROR),
    # The method, and its receiver or NULL, in place of the object.
    "LOAD_SPECIAL": OpInfo(1, 2, Operand.SPECIAL),
    "BINARY_OP": OpInfo(2, 1, Operand.BINARY, caches=5),
    "BUILD_INTERPOLATION": OpInfo(low_bit_plus(2), 1, Operand.NUMBER, meaning=build_interpolation),
    "BUILD_SLICE": OpInfo(ARG, 1, Operand.NUMBER, meaning="slice({all})"),
    "BUILD_TEMPLATE": OpInfo(2, 1, meaning=build_template),
    # Without keyword arguments there is NULL in their place.
    "CALL_FUNCTION_EX": OpInfo(4, 1),
    "CALL_KW": OpInfo(
        arg_plus(3), 1, Operand.NUMBER, caches=3, roles=Role.CALLS | Role.TAKES_KEYWORDS
    ),
    # `__exit__` is the method and its receiver.
    "WITH_EXCEPT_START": OpInfo(5, 6, roles=Role.LEAVES_WITH),
    # The argument is for tools that observe branches.
    "END_ASYNC_FOR": OpInfo(2, 0, Operand.NUMBER),
    "POP_ITER": OpInfo(1, 0, roles=Role.DISCARDS),
    "RETURN_VALUE": OpInfo(1, 0, terminal=True, roles=Role.RETURNS),
}

_LEFT = {name: info for name, info in py313.OPCODES.items() if name not in _GONE}
OPCODES: Mapping[str, OpInfo] = {**_LEFT, **_OWN}
CALL_SEQUENCE = ("CALL",)
CALLABLE_FIRST = True
LOAD_CHECKED = "LOAD_FAST_CHECK"
LOOP_END = ("END_FOR", "POP_ITER")
COMPARE_SHIFT = 5
POSITIONS_ARE_OBJECTS = (
    False  # of failed instructions, on the stack; not references to numbers any more
)
