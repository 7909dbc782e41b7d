"""Decoding, against ``dis``, over whole modules of the standard library."""

import _pydecimal
import argparse
import ast
import asyncio.base_events
import dis
import tarfile
import types
import typing

import pytest

from pliant.bytecode import OPCODES, decode
from tests.bytecode.offsets import index_at

MODULES = [_pydecimal, argparse, ast, asyncio.base_events, tarfile, typing]


def code_objects(module):
    with open(module.__file__, encoding="utf-8") as file:
        pending = [compile(file.read(), module.__file__, "exec")]
    while pending:
        code = pending.pop()
        yield code
        pending.extend(each for each in code.co_consts if isinstance(each, types.CodeType))


def parts(instruction):
    """What is decoded for an instruction: opcode, argument, and where they come from."""
    if instruction.opname == "EXTENDED_ARG":
        return []
    split = OPCODES[instruction.opname].parts
    if split is None:
        return [(instruction.opname, instruction.arg, instruction)]
    return [(op, arg, instruction) for op, arg in split(instruction.arg)]


@pytest.mark.parametrize("module", MODULES, ids=lambda module: module.__name__)
def test_instructions_are_those_of_dis(module):
    for code in code_objects(module):
        decoded = decode(code)
        expected = [part for each in dis.get_instructions(code) for part in parts(each)]
        assert len(expected) == len(decoded.instructions)
        for index, (ours, (op, arg, theirs)) in enumerate(zip(decoded.instructions, expected)):
            assert (ours.index, ours.offset, ours.op) == (index, theirs.offset, op)
            assert (ours.arg, ours.positions) == (arg, tuple(theirs.positions))
            assert ours.line == theirs.positions.lineno
            if ours.target is not None:
                assert index_at(decoded, theirs.argval) == ours.target == ours.value
            elif theirs.opcode in dis.haslocal + dis.hasfree:
                names = theirs.argval if isinstance(theirs.argval, tuple) else (theirs.argval,)
                assert ours.value.removeprefix(".") in [name.removeprefix(".") for name in names]
            elif theirs.opcode in dis.hasconst and theirs.opname != "KW_NAMES":
                assert ours.value is theirs.argval


@pytest.mark.parametrize("module", MODULES, ids=lambda module: module.__name__)
def test_handlers_and_stack_depths(module):
    for code in code_objects(module):
        decoded = decode(code)
        for entry in dis._parse_exception_table(code):
            ours = decoded.handler(index_at(decoded, entry.start))
            assert decoded.instructions[ours.start].offset >= entry.start
            assert ours.end == index_at(decoded, entry.end)
            assert (ours.target, ours.depth) == (index_at(decoded, entry.target), entry.depth)
            assert ours.lasti == entry.lasti
        depths = [decoded.depth_before(each.index) for each in decoded.instructions]
        assert max(depth or 0 for depth in depths) <= code.co_stacksize
        for each, depth in zip(decoded.instructions, depths):
            info = OPCODES[each.op]
            if depth is not None and info.falls_through:
                assert depths[each.index + 1] == depth + info.effect(each.arg)
            if depth is not None and each.target is not None:
                assert depths[each.target] == depth + info.effect(each.arg, jump=True)


def test_values():
    def sample(a, *, b=(1, 2)):
        a.name += len(b)
        return f"{a!r:>3}" if a is not b or a <= 2 else lambda: a

    values = {each.op: each.value for each in decode(sample.__code__).instructions}
    assert values["LOAD_GLOBAL"] == ("len", True)
    assert values["BINARY_OP"] == "+="
    assert values["COMPARE_OP"] == "<="
    assert values["IS_OP"] == "is not"
    if "FORMAT_VALUE" in OPCODES:
        assert values["FORMAT_VALUE"] == (repr, True)
    else:
        assert values["CONVERT_VALUE"] is repr
    assert values["STORE_ATTR"] == "name"
    assert values["LOAD_CLOSURE" if "LOAD_CLOSURE" in OPCODES else "LOAD_FAST"] == "a"
    assert values["RETURN_VALUE"] is None


def test_long_code_has_prefixes_folded_away():
    names = [f"v{i}" for i in range(400)]
    source = "def f(a):\n while a:\n" + "".join(f"  {n} = a.{n}\n" for n in names) + " return v399"
    namespace = {}
    exec(source, namespace)
    decoded = decode(namespace["f"].__code__)
    stores = [each.value for each in decoded.instructions if each.op == "STORE_FAST"]
    assert stores == names
    jumps = [each for each in decoded.instructions if each.target is not None]
    assert all(0 < each.target < len(decoded.instructions) for each in jumps)


def test_offset_of_a_cache_or_prefix_belongs_to_its_instruction():
    decoded = decode((lambda x: x.attribute).__code__)
    load = next(each for each in decoded.instructions if each.op == "LOAD_ATTR")
    assert index_at(decoded, load.offset) == index_at(decoded, load.offset + 4) == load.index


def test_decoding_is_remembered_per_code_object():
    first, second = ((lambda: 1).__code__ for _ in range(2))
    copy = first.replace(co_filename="elsewhere")
    assert decode(first) is decode(first)
    assert decode(copy) is not decode(first)


def live_at_line(function, line, name):
    decoded = decode(function.__code__)
    wanted = function.__code__.co_firstlineno + line
    index = next(each.index for each in decoded.instructions if each.line == wanted)
    return name in decoded.live_before(index)


def test_liveness_follows_loops_and_overwriting():
    def sample(n, a):
        b = a  # line 1
        for i in range(n):  # 2
            print(b)  # 3
            b = i  # 4
        a = 1  # 5
        return a

    assert live_at_line(sample, 1, "a")
    assert not live_at_line(sample, 3, "a")
    assert live_at_line(sample, 3, "b")
    assert not live_at_line(sample, 4, "b")
    assert not live_at_line(sample, 5, "b")


def test_liveness_follows_exceptions():
    def sample(n):
        a = n  # line 1
        try:  # 2
            a = f(n)  # 3
        except ValueError:
            return a  # 5
        return n  # 6

    def f(n):
        return n

    assert live_at_line(sample, 3, "a")
    assert not live_at_line(sample, 6, "a")


def test_liveness_of_deleted_and_unbound_variables():
    def sample(n):
        if n:  # line 1
            a = 1  # 2
        del a  # 3
        return n  # 4

    assert live_at_line(sample, 1, "a")
    assert live_at_line(sample, 3, "a")
    assert not live_at_line(sample, 4, "a")


def test_what_looks_at_the_frame_keeps_variables_alive():
    class Sample(dict):
        def own(self, n):
            n = 1  # line 1
            return super().copy()  # 2

        def locals(self, n):
            n = 1  # line 1
            return locals()  # 2

    assert live_at_line(Sample.own, 2, "self")
    assert not live_at_line(Sample.own, 2, "n")
    assert live_at_line(Sample.locals, 2, "n")


def test_cells_are_live_while_the_frame_uses_them():
    def sample(n):
        count = n  # line 1

        def inner():  # 3
            return count

        count = inner() + 1  # 6
        return inner  # 7

    assert live_at_line(sample, 3, "count")
    assert live_at_line(sample, 6, "count")
    assert not live_at_line(sample, 7, "count")
