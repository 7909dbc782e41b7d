"""The tables of opcodes, against ``dis``."""

import ast
import dis
import opcode
import sys
from itertools import pairwise
from pathlib import Path

import pytest

import pliant
from pliant.bytecode import OPCODES, Operand
from pliant.bytecode.tables import (
    BINARY_OPERATORS,
    COMMON_CONSTANTS,
    COMPARE_OPERATORS,
    INTRINSICS_1,
    INTRINSICS_2,
    SPECIAL_METHODS,
    VERSIONS,
    Role,
    opcodes_with,
    real_opcodes,
)

# `dis` books what a call takes on two opcodes; here the second one takes it all.
CALL_HALVES = {"PRECALL", "CALL"} if "PRECALL" in OPCODES else set()
# `dis` leaves out that a generator starts with the first value sent on its stack.
EXCEPTIONS = CALL_HALVES | {"RETURN_GENERATOR"}
if sys.version_info >= (3, 14):
    EXCEPTIONS |= {"RETURN_VALUE"}  # `dis` counts what the caller gets
# For `dis` this is a jump, because its argument says where the loop is.
NOT_JUMPS = {"END_ASYNC_FOR"}


def test_every_opcode_is_described():
    assert set(OPCODES) == set(real_opcodes())
    assert OPCODES is VERSIONS[sys.version_info[:2]].OPCODES


def test_tables_of_two_versions_differ_where_python_does():
    tables = [set(version.OPCODES) for version in VERSIONS.values()]
    gone = [old - new for old, new in pairwise(tables)]
    added = [new - old for old, new in pairwise(tables)]
    assert gone[0] > {"PRECALL", "LOAD_METHOD"} and added[0] > {"END_FOR", "RETURN_CONST"}
    assert gone[1] > {"KW_NAMES", "LOAD_CLOSURE"} and added[1] > {"CALL_KW", "TO_BOOL"}
    assert gone[2] > {"BEFORE_WITH", "RETURN_CONST"} and added[2] > {"LOAD_SPECIAL", "POP_ITER"}


@pytest.mark.parametrize("version", VERSIONS)
def test_parts_do_what_the_whole_does(version):
    table = VERSIONS[version].OPCODES
    for info in table.values():
        for arg in (0, 1, 16, 17, 0x21) if info.parts else ():
            parts = info.parts(arg)
            assert sum(table[name].effect(part) for name, part in parts) == info.effect(arg)
            operands = {table[name].operand for name, _ in parts}
            assert not parts or info.operand in operands


@pytest.mark.parametrize("name", sorted(set(OPCODES) - EXCEPTIONS))
def test_stack_effect(name):
    info, number = OPCODES[name], dis.opmap[name]
    args = range(70) if info.operand is not Operand.NONE else [None]
    for arg in args:
        for jump in (False, True) if info.jumps else (False,):
            assert info.effect(arg, jump) == dis.stack_effect(number, arg, jump=jump)
            assert min(info.stack(arg, jump)) >= 0


@pytest.mark.skipif(not CALL_HALVES, reason="calls are one opcode")
def test_stack_effect_of_both_halves_of_a_call():
    for arg in range(9):
        ours = sum(OPCODES[name].effect(arg) for name in CALL_HALVES)
        assert ours == sum(dis.stack_effect(dis.opmap[name], arg) for name in CALL_HALVES)


def test_arguments_jumps_and_caches():
    has_arg = getattr(dis, "hasarg", range(dis.HAVE_ARGUMENT, 256))
    for name, info in OPCODES.items():
        number = dis.opmap[name]
        assert (info.operand is not Operand.NONE) == (number in has_arg)
        assert (info.jumps is not None) == (number in dis.hasjrel and name not in NOT_JUMPS)
        assert (info.operand is Operand.CONST) == (number in dis.hasconst)
        assert (info.operand is Operand.LOCAL) == (number in dis.haslocal + dis.hasfree)
        assert info.backward == ("BACKWARD" in name)
        assert info.caches == _cache_entries(name)


def _cache_entries(name):
    entries = opcode._inline_cache_entries  # by number, and from 3.13 on by name
    return entries.get(name, 0) if isinstance(entries, dict) else entries[dis.opmap[name]]


def test_operators():
    assert dis.cmp_op == COMPARE_OPERATORS
    _begins_with(BINARY_OPERATORS, [text for _, text in opcode._nb_ops])
    if sys.version_info >= (3, 12):
        _begins_with(INTRINSICS_1, opcode._intrinsic_1_descs)
        _begins_with(INTRINSICS_2, opcode._intrinsic_2_descs)
    if sys.version_info >= (3, 14):
        _begins_with(COMMON_CONSTANTS, opcode._common_constants)
        _begins_with(SPECIAL_METHODS, opcode._special_method_names)


def _begins_with(ours, theirs):
    """Later versions only add."""
    assert ours[: len(theirs)] == tuple(theirs) and len(theirs) > 3


# ---- roles


@pytest.mark.parametrize("version", VERSIONS)
def test_every_variable_is_read_or_written(version):
    access = Role.READS_LOCAL | Role.WRITES_LOCAL
    for name, info in VERSIONS[version].OPCODES.items():
        assert (info.operand is Operand.LOCAL) == bool(info.roles & access), name


@pytest.mark.parametrize("version", VERSIONS)
def test_every_role_is_taken(version):
    """An opcode that a version renames must not lose its role. Some roles are not in all."""
    taken = Role(0)
    for info in VERSIONS[version].OPCODES.values():
        taken |= info.roles
    loops = Role.ENDS_LOOP | Role.ENDS_DELEGATION
    booleans = Role.TAKES_KEYWORDS | Role.TESTS_TRUTH
    missing = {(3, 11): loops | booleans, (3, 12): booleans | Role.PREPARES_CALL}
    assert ~taken == missing.get(version, Role.PREPARES_CALL | Role.NAMES_KEYWORDS)


def test_opcodes_with_a_role():
    assert opcodes_with(Role.RAISES) == {"RAISE_VARARGS"}
    assert opcodes_with(Role.RAISES | Role.RERAISES) == {"RAISE_VARARGS", "RERAISE"}


# Tables by opcode, and what writes instructions.
NAMES_OPCODES = (
    "bytecode/opinfo.py", "bytecode/py3", "bytecode/assemble.py", "bytecode/decode.py",
    "bytecode/resume.py", "capture/opcodes/", "capture/residual_ops.py",
)  # fmt: skip


def test_no_opcode_is_named_outside_the_tables():
    names = {name for version in VERSIONS.values() for name in version.OPCODES}
    root = Path(pliant.__file__).parent
    for path in sorted([*root.glob("capture/**/*.py"), *root.glob("bytecode/*.py")]):
        if path.relative_to(root).as_posix().startswith(NAMES_OPCODES):
            continue
        for node in ast.walk(ast.parse(path.read_text())):
            named = isinstance(node, ast.Constant) and node.value in names
            assert not named, f"{path}:{node.lineno} names the opcode {node.value}: give it a role"
