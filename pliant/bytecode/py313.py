"""The opcodes of Python 3.13: those of 3.12 that are left, and its own.

Some instructions stand for others: ``parts`` says which, and the decoder puts those in their place.
``END_FOR`` takes one entry, and a ``POP_TOP`` behind it the iterator. What begins a call is the
callable and then the receiver or NULL; before, NULL came first.
"""

from __future__ import annotations

from collections.abc import Mapping

from pliant.bytecode import py312
from pliant.bytecode.opinfo import (
    ALWAYS_BACK,
    Operand,
    OpInfo,
    Part,
    Role,
    arg_plus,
    branch,
)

_GONE = {"FORMAT_VALUE", "KW_NAMES", "LOAD_CLOSURE"}
_TO_BOOL_FLAG = 16  # of COMPARE_OP: what is compared is made a bool


def both(first: str, second: str) -> OpInfo:
    """Two instructions in one, with a slot each."""

    def parts(arg: int) -> tuple[Part, ...]:
        return (first, arg >> 4), (second, arg & 15)

    infos = py312.OPCODES[first], py312.OPCODES[second]
    pops = sum(info.effect(0) < 0 for info in infos)
    pushes = sum(info.effect(0) > 0 for info in infos)
    roles = infos[0].roles | infos[1].roles
    return OpInfo(pops, pushes, Operand.LOCAL, parts=parts, roles=roles)


def _compare_parts(arg: int) -> tuple[Part, ...]:
    if arg & _TO_BOOL_FLAG:
        return ("COMPARE_OP", arg & ~_TO_BOOL_FLAG), ("TO_BOOL", None)
    return (("COMPARE_OP", arg),)


_OWN: dict[str, OpInfo] = {
    "LOAD_FAST_LOAD_FAST": both("LOAD_FAST", "LOAD_FAST"),
    "STORE_FAST_LOAD_FAST": both("STORE_FAST", "LOAD_FAST"),
    "STORE_FAST_STORE_FAST": both("STORE_FAST", "STORE_FAST"),
    "COMPARE_OP": OpInfo(
        2, 1, Operand.COMPARE, caches=1, parts=_compare_parts, meaning="{0} {value} {1}"
    ),
    "CONTAINS_OP": OpInfo(2, 1, Operand.IN, caches=1, meaning="{0} {value} {1}"),
    "TO_BOOL": OpInfo(1, 1, caches=3, roles=Role.TESTS_TRUTH),
    "CONVERT_VALUE": OpInfo(1, 1, Operand.CONVERSION, meaning="{value}({0})"),
    "FORMAT_SIMPLE": OpInfo(1, 1, meaning="format({0})"),
    "FORMAT_WITH_SPEC": OpInfo(2, 1, meaning="format({0}, {1})"),
    "MAKE_FUNCTION": OpInfo(1, 1, roles=Role.DEFINES_FUNCTION),
    "SET_FUNCTION_ATTRIBUTE": OpInfo(2, 1, Operand.NUMBER),
    # The names of the keyword arguments lie on top.
    "CALL_KW": OpInfo(arg_plus(3), 1, Operand.NUMBER, roles=Role.CALLS | Role.TAKES_KEYWORDS),
    "END_FOR": OpInfo(1, 0, roles=Role.ENDS_LOOP),
    "JUMP_BACKWARD": ALWAYS_BACK.with_caches(1),
    "POP_JUMP_IF_FALSE": branch(1, 0).with_caches(1),
    "POP_JUMP_IF_TRUE": branch(1, 0).with_caches(1),
    "POP_JUMP_IF_NONE": branch(1, 0).with_caches(1),
    "POP_JUMP_IF_NOT_NONE": branch(1, 0).with_caches(1),
    # Of the interpreter itself: no function contains them.
    "ENTER_EXECUTOR": OpInfo(0, 0, Operand.NUMBER),
    "EXIT_INIT_CHECK": OpInfo(1, 0),
}

_LEFT = {name: info for name, info in py312.OPCODES.items() if name not in _GONE}
OPCODES: Mapping[str, OpInfo] = {**_LEFT, **_OWN}
CALL_SEQUENCE = ("CALL",)
CALLABLE_FIRST = True
LOAD_CHECKED = "LOAD_FAST_CHECK"
LOOP_END = ("END_FOR", "POP_TOP")
COMPARE_SHIFT = 5  # below lie a mask of caches and the flag that asks for a bool
POSITIONS_ARE_OBJECTS = True
