"""The tables of opcodes, against ``dis``."""

import ast
import dis
import opcode
import sys
from pathlib import Path

import pytest

import pliant
from pliant.bytecode import OPCODES, Operand
from pliant.bytecode.tables import (
    BINARY_OPERATORS,
    COMPARE_OPERATORS,
    INTRINSICS_1,
    INTRINSICS_2,
    VERSIONS,
    Role,
    opcodes_with,
    real_opcodes,
)

# `dis` books what a call takes on two opcodes; here the second one takes it all.
CALL_HALVES = {"PRECALL", "CALL"} if "PRECALL" in OPCODES else set()
# `dis` leaves out that a generator starts with the first value sent on its stack.
EXCEPTIONS = CALL_HALVES | {"RETURN_GENERATOR"}


def test_every_opcode_is_described():
    assert set(OPCODES) == set(real_opcodes())
    assert OPCODES is VERSIONS[sys.version_info[:2]].OPCODES


def test_tables_of_both_versions_differ_where_python_does():
    older, newer = (set(VERSIONS[version].OPCODES) for version in ((3, 11), (3, 12)))
    assert older - newer > {"PRECALL", "LOAD_METHOD"}
    assert newer - older > {"END_FOR", "RETURN_CONST"}


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
        assert (info.jumps is not None) == (number in dis.hasjrel)
        assert (info.operand is Operand.CONST) == (number in dis.hasconst)
        assert (info.operand is Operand.LOCAL) == (number in dis.haslocal + dis.hasfree)
        assert info.backward == ("BACKWARD" in name)
        assert info.caches == opcode._inline_cache_entries[number]


def test_operators():
    assert dis.cmp_op == COMPARE_OPERATORS
    assert tuple(text for _, text in opcode._nb_ops) == BINARY_OPERATORS
    if sys.version_info >= (3, 12):
        assert tuple(opcode._intrinsic_1_descs) == INTRINSICS_1
        assert tuple(opcode._intrinsic_2_descs) == INTRINSICS_2


# ---- roles


@pytest.mark.parametrize("version", VERSIONS)
def test_every_variable_is_read_or_written(version):
    access = Role.READS_LOCAL | Role.WRITES_LOCAL
    for name, info in VERSIONS[version].OPCODES.items():
        assert (info.operand is Operand.LOCAL) == bool(info.roles & access), name


@pytest.mark.parametrize("version", VERSIONS)
def test_every_role_is_taken(version):
    """An opcode that a version renames must not lose its role. Three roles are not in all."""
    taken = Role(0)
    for info in VERSIONS[version].OPCODES.values():
        taken |= info.roles
    newer = Role.ENDS_LOOP | Role.ENDS_DELEGATION
    assert ~taken == (newer if version == (3, 11) else Role.PREPARES_CALL)


def test_opcodes_with_a_role():
    assert opcodes_with(Role.RAISES) == {"RAISE_VARARGS"}
    assert opcodes_with(Role.RAISES | Role.RERAISES) == {"RAISE_VARARGS", "RERAISE"}


# Tables by opcode, and what writes instructions.
NAMES_OPCODES = (
    "bytecode/opinfo.py", "bytecode/py311.py", "bytecode/py312.py", "bytecode/assemble.py",
    "bytecode/decode.py", "bytecode/resume.py", "capture/opcodes/", "capture/residual_ops.py",
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
