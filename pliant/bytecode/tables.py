"""The table of opcodes of the running Python, checked against it when imported.

The one idea: a version of Python is supported when it has a table here, and only then; an opcode
that a table lacks, or that Python lacks, is reported on import and not when a function is compiled.
"""

from __future__ import annotations

import dis
import sys
from collections.abc import Mapping

from pliant.bytecode import py311, py312
from pliant.bytecode.opinfo import NO_ROLE, Operand, OpInfo, Role

VERSIONS = {(3, 11): py311, (3, 12): py312}

COMPARE_OPERATORS = ("<", "<=", "==", "!=", ">", ">=")
_PLAIN_OPERATORS = ("+", "&", "//", "<<", "@", "*", "%", "|", "**", ">>", "-", "/", "^")
BINARY_OPERATORS = _PLAIN_OPERATORS + tuple(f"{operator}=" for operator in _PLAIN_OPERATORS)
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
)


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


def _table_of_running_python() -> Mapping[str, OpInfo]:
    version = sys.version_info[:2]
    if version not in VERSIONS:
        supported = ", ".join(f"{major}.{minor}" for major, minor in VERSIONS)
        raise ImportError(f"pliant knows the bytecode of Python {supported}, not of {version}")
    table = VERSIONS[version].OPCODES
    differences = set(table) ^ set(real_opcodes())
    if differences:
        raise ImportError(f"opcode table of Python {version} is wrong about {sorted(differences)}")
    return table


OPCODES: Mapping[str, OpInfo] = _table_of_running_python()
CALL_SEQUENCE: tuple[str, ...] = VERSIONS[sys.version_info[:2]].CALL_SEQUENCE
"""The opcodes that make a call, each with the number of arguments."""
LOAD_CHECKED: str = VERSIONS[sys.version_info[:2]].LOAD_CHECKED
"""The opcode that loads a local variable and raises where it is unbound."""


# As numbers: `&` of an enum takes microseconds, and it is asked thousands of times on import.
_ROLES = {name: info.roles.value for name, info in OPCODES.items() if info.roles is not NO_ROLE}


def opcodes_with(roles: Role) -> frozenset[str]:
    """The opcodes of the running Python that have one of these roles."""
    bits = roles.value
    return frozenset([name for name, has in _ROLES.items() if has & bits])


JUMPS = frozenset(name for name, info in OPCODES.items() if info.jumps is not None)
BACKWARD_JUMPS = frozenset(name for name in JUMPS if OPCODES[name].backward)

# COMPARE_OP keeps a cache mask in the low bits of its argument from Python 3.12 on.
COMPARE_SHIFT = 4 if sys.version_info >= (3, 12) else 0

__all__ = [
    "BACKWARD_JUMPS",
    "BINARY_OPERATORS",
    "CALL_SEQUENCE",
    "COMPARE_OPERATORS",
    "COMPARE_SHIFT",
    "INTRINSICS_1",
    "INTRINSICS_2",
    "JUMPS",
    "LOAD_CHECKED",
    "OPCODES",
    "VERSIONS",
    "OpInfo",
    "Operand",
    "Role",
    "opcodes_with",
    "real_opcodes",
]
