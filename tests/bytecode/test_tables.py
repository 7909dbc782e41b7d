"""The tables of opcodes, against ``dis``."""

import dis
import opcode
import sys

import pytest

from pliant.bytecode import OPCODES, Operand
from pliant.bytecode.tables import (
    BINARY_OPERATORS,
    COMPARE_OPERATORS,
    INTRINSICS_1,
    INTRINSICS_2,
    VERSIONS,
    real_opcodes,
)

# `dis` books what a call takes on two opcodes; here the second one takes it all.
CALL_HALVES = {"PRECALL", "CALL"} if "PRECALL" in OPCODES else set()
# `dis` leaves out that a generator starts with the first value sent on its stack.
EXCEPTIONS = CALL_HALVES | {"RETURN_GENERATOR"}


def test_every_opcode_is_described():
    assert set(OPCODES) == set(real_opcodes())
    assert OPCODES is VERSIONS[sys.version_info[:2]]


def test_tables_of_both_versions_differ_where_python_does():
    assert set(VERSIONS[3, 11]) - set(VERSIONS[3, 12]) > {"PRECALL", "LOAD_METHOD"}
    assert set(VERSIONS[3, 12]) - set(VERSIONS[3, 11]) > {"END_FOR", "RETURN_CONST"}


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
