"""The table of opcodes of the running Python, checked against it when imported.

The one idea: a version of Python is supported when it has a table here, and only then; an opcode
that a table lacks, or that Python lacks, is reported on import and not when a function is compiled.
"""

from __future__ import annotations

import dis
import sys
from collections.abc import Mapping
from types import ModuleType

from pliant.bytecode import py311, py312, py313, py314
from pliant.bytecode.opinfo import NO_ROLE, Operand, OpInfo, Role

VERSIONS = {(3, 11): py311, (3, 12): py312, (3, 13): py313, (3, 14): py314}

COMPARE_OPERATORS = ("<", "<=", "==", "!=", ">", ">=")
_PLAIN_OPERATORS = ("+", "&", "//", "<<", "@", "*", "%", "|", "**", ">>", "-", "/", "^")
BINARY_OPERATORS = (
    *_PLAIN_OPERATORS,
    *(f"{operator}=" for operator in _PLAIN_OPERATORS),
    "[]",  # from Python 3.14 on
)
INTRINSICS_1 = (
    "INTRINSIC_1_INVALID",
    "INTRINSIC_PRINT",
    "INTRINSIC_IMPORT_STAR",
    "INTRINSIC_STOPITERATION_ERROR",
    "INTRINSIC_ASYNC_GEN_WRAP",
    "INTRINSIC_UNARY_POSITIVE",
    "INTRINSIC_LIST_TO_TUPLE",
    "INTRINSIC_TYPEVAR",
    "INTRINSIC_PARAMSPEC",
    "INTRINSIC_TYPEVARTUPLE",
    "INTRINSIC_SUBSCRIPT_GENERIC",
    "INTRINSIC_TYPEALIAS",
)
INTRINSICS_2 = (
    "INTRINSIC_2_INVALID",
    "INTRINSIC_PREP_RERAISE_STAR",
    "INTRINSIC_TYPEVAR_WITH_BOUND",
    "INTRINSIC_TYPEVAR_WITH_CONSTRAINTS",
    "INTRINSIC_SET_FUNCTION_TYPE_PARAMS",
    "INTRINSIC_SET_TYPEPARAM_DEFAULT",  # from Python 3.13 on
)
COMMON_CONSTANTS = (AssertionError, NotImplementedError, tuple, all, any)
SPECIAL_METHODS = ("__enter__", "__exit__", "__aenter__", "__aexit__")


def real_opcodes() -> dict[str, int]:
    """The opcodes that ``co_code`` of the running Python can contain.

    Left out are the compiler's pseudo-instructions and the instrumented forms, which ``co_code``
    never shows. (Specialised forms are not in ``dis.opmap`` at all.)
    """
    return {
        name: number
        for name, number in dis.opmap.items()
        if number < 256 and not name.startswith("INSTRUMENTED_")
    }


def _running_version() -> ModuleType:
    version = sys.version_info[:2]
    if version not in VERSIONS:
        supported = ", ".join(f"{major}.{minor}" for major, minor in VERSIONS)
        raise ImportError(f"pliant knows the bytecode of Python {supported}, not of {version}")
    differences = set(VERSIONS[version].OPCODES) ^ set(real_opcodes())
    if differences:
        raise ImportError(f"opcode table of Python {version} is wrong about {sorted(differences)}")
    return VERSIONS[version]


_RUNNING = _running_version()
OPCODES: Mapping[str, OpInfo] = _RUNNING.OPCODES
CALL_SEQUENCE: tuple[str, ...] = _RUNNING.CALL_SEQUENCE
"""The opcodes that make a call, each with the number of arguments."""
CALLABLE_FIRST: bool = _RUNNING.CALLABLE_FIRST
"""Whether the callable lies below the receiver or NULL, and not NULL below the callable."""
LOAD_CHECKED: str = _RUNNING.LOAD_CHECKED
"""The opcode that loads a local variable and raises where it is unbound."""
LOOP_END: tuple[str, ...] = _RUNNING.LOOP_END
"""The instructions at the end of a ``for`` that take an exhausted iterator off the stack."""
POSITIONS_ARE_OBJECTS: bool = _RUNNING.POSITIONS_ARE_OBJECTS
"""Whether the position of a failed instruction lies on the stack as a number like others."""
COMPARE_SHIFT: int = _RUNNING.COMPARE_SHIFT
"""How many bits of the argument of COMPARE_OP lie below the operator."""


# As numbers: `&` of an enum takes microseconds, and it is asked thousands of times on import.
_ROLES = {name: info.roles.value for name, info in OPCODES.items() if info.roles is not NO_ROLE}


def opcodes_with(roles: Role) -> frozenset[str]:
    """The opcodes of the running Python that have one of these roles."""
    bits = roles.value
    return frozenset([name for name, has in _ROLES.items() if has & bits])


JUMPS = frozenset(name for name, info in OPCODES.items() if info.jumps is not None)
BACKWARD_JUMPS = frozenset(name for name in JUMPS if OPCODES[name].backward)

__all__ = [
    "BACKWARD_JUMPS",
    "BINARY_OPERATORS",
    "CALLABLE_FIRST",
    "CALL_SEQUENCE",
    "COMMON_CONSTANTS",
    "COMPARE_OPERATORS",
    "COMPARE_SHIFT",
    "INTRINSICS_1",
    "INTRINSICS_2",
    "JUMPS",
    "LOAD_CHECKED",
    "LOOP_END",
    "OPCODES",
    "POSITIONS_ARE_OBJECTS",
    "SPECIAL_METHODS",
    "VERSIONS",
    "OpInfo",
    "Operand",
    "Role",
    "opcodes_with",
    "real_opcodes",
]
