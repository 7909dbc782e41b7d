"""Conditions on sizes and ints in native code: the machine, and what it reads."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from pliant._native import GuardTree
from pliant.sym.program import BINARY, LARGEST, OPERATIONS, UNARY, SizeProgram, run

SIZE, STRIDE, OFFSET, VALUE = range(4)
INPUTS = 3

NUMBERS = st.one_of(
    st.integers(-3, 70),
    st.integers(-(10**6), 10**6),
    st.sampled_from([2**31, 2**32, 3037000500, 2**62, LARGEST, LARGEST - 1]),
).flatmap(lambda n: st.sampled_from([n, -n]))
LEAVES = st.one_of(
    NUMBERS.map(lambda n: [("const", n)]),
    st.integers(0, INPUTS - 1).map(lambda i: [("load", i)]),
)


def larger(parts):
    unary = st.tuples(st.sampled_from(sorted(UNARY)), parts)
    binary = st.tuples(st.sampled_from(sorted(BINARY)), parts, parts)
    select = st.tuples(st.just("select"), parts, parts, parts)
    return st.one_of(binary, unary, select, binary).map(
        lambda made: [*(step for part in made[1:] for step in part), (made[0], 0)]
    )


PROGRAMS = st.recursive(LEAVES, larger, max_leaves=8)


def kept_and_used(parts):
    """Each part is kept in a register as well, and added to the last."""
    code = [*parts[0], ("keep", 0)]
    for number, part in enumerate(parts[1:], 1):
        code += [*part, ("keep", number), ("mul", 0), ("kept", number - 1), ("add", 0)]
    return code


WITH_REGISTERS = st.lists(PROGRAMS, min_size=1, max_size=4).map(kept_and_used)


def tree_of(code, loads, nlocals, depth=40):
    tree = GuardTree(nlocals)
    reads = [(tree.local(i), what, dim) for i, what, dim in loads]
    numbers = SizeProgram(tuple(code), (), 0).numbers()
    tree.check_expression(reads, numbers, depth, "the guard")
    tree.finish()
    return tree


def holds(code, *values):
    tree = tree_of(code, [(i, VALUE, 0) for i in range(len(values))], len(values))
    result = tree.check(values)
    assert result in (None, ("the guard", values))
    return result is None


@given(st.one_of(PROGRAMS, WITH_REGISTERS), st.tuples(*[NUMBERS] * INPUTS))
@settings(max_examples=1500, deadline=None)
def test_the_machine_agrees_with_its_definition(code, values):
    value = run(SizeProgram(tuple(code), (), 0), values)
    assert holds(code, *values) == bool(value)
    assert holds([*code, ("eq0", 0)], *values) == (value == 0)
    if value is not None:
        assert holds([*code, ("const", -value), ("add", 0), ("eq0", 0)], *values)


EDGES = [-LARGEST, -(2**62), -64, -3, -2, -1, 0, 1, 2, 3, 5, 62, 63, 64, 65, 2**31, 2**62, LARGEST]


@pytest.mark.parametrize("op", sorted(BINARY))
def test_the_edges_of_every_operation(op):
    code = [("load", 0), ("load", 1), (op, 0)]
    tree = tree_of([*code, ("load", 2), ("const", -1), ("mul", 0), ("add", 0), ("eq0", 0)],
                   [(i, VALUE, 0) for i in range(3)], 3)  # fmt: skip
    for a in EDGES:
        for b in EDGES:
            value = run(SizeProgram(tuple(code), (), 0), (a, b))
            for guess in (0, 1, LARGEST, value or 0):
                assert (tree.check((a, b, guess)) is None) == (guess == value), (a, b, guess)


@pytest.mark.parametrize(
    "code, depth",
    [
        ([], 3),
        ([0], 3),
        ([0, 1, 0, 1], 3),  # two values are left
        ([OPERATIONS.index("add"), 0], 3),
        ([0, 1, OPERATIONS.index("add"), 0], 3),
        ([0, 1, OPERATIONS.index("select"), 0], 3),
        ([len(OPERATIONS), 0], 3),
        ([-1, 0], 3),
        ([1, 1], 3),  # a symbol that is not loaded
        ([1, -1], 3),
        ([0, 1, 0, 1, OPERATIONS.index("add"), 0], 1),
        ([OPERATIONS.index("keep"), 0], 3),  # nothing to keep
        ([0, 1, OPERATIONS.index("keep"), 1], 3),  # registers are counted from 0
        ([0, 1, OPERATIONS.index("keep"), -1], 3),
        ([OPERATIONS.index("kept"), 0], 3),  # nothing was kept
    ],
)
def test_a_program_that_cannot_run_is_refused(code, depth):
    tree = GuardTree(1)
    with pytest.raises(ValueError):
        tree.check_expression([(tree.local(0), VALUE, 0)], code, depth, "guard")


def test_wrong_loads_are_refused():
    tree = GuardTree(1)
    for load, error in (((1, 0, 0), IndexError), ((-1, 0, 0), IndexError), ((0, 9, 0), TypeError)):
        tree.local(0)
        with pytest.raises(error):
            tree.check_expression([load], [1, 0], 1, "guard")
    with pytest.raises(OverflowError):
        tree.check_expression([(0, 3, 0)], [0, 2**64], 1, "guard")
    tree.finish()
    with pytest.raises(RuntimeError):
        tree.check_expression([], [0, 1], 1, "guard")


def read(value, what, dim=0):
    """What is found of a value."""
    never = [("load", 0), ("const", 0), ("mul", 0)]
    guard, got = tree_of(never, [(0, what, dim)], 1).check((value,))
    assert guard == "the guard"
    return got[0]


def test_what_is_read_of_a_tensor():
    t = torch.ones(4, 5, 6)[1:, 2:].transpose(0, 2)
    for dim in range(3):
        assert read(t, SIZE, dim) == t.size(dim)
        assert read(t, STRIDE, dim) == t.stride(dim)
    assert read(t, OFFSET) == t.storage_offset() == 42
    assert read(torch.nn.Parameter(t), SIZE, 1) == t.size(1)
    assert read(torch.ones(7, 0), SIZE, 1) == 0


class Dispatching(torch.Tensor):
    @staticmethod
    def __new__(cls, size):
        return torch.Tensor._make_wrapper_subclass(cls, size, dispatch_sizes_strides_policy="sizes")

    @classmethod
    def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
        raise AssertionError("the guards must not run user code")


MISSING = {
    "no such dimension": (torch.ones(3), SIZE, 1),
    "a negative dimension": (torch.ones(3), SIZE, -1),
    "no dimension": (torch.ones(()), STRIDE, 0),
    "no tensor": ([1, 2], SIZE, 0),
    "a layout without strides": (torch.ones(3, 3).to_sparse_csr(), STRIDE, 0),
    "a subclass that would be asked": (Dispatching((3,)), SIZE, 0),
    "a bool": (True, VALUE, 0),
    "a float": (1.0, VALUE, 0),
    "a tensor, not an int": (torch.tensor(3), VALUE, 0),
    "beyond 64 bits": (2**63, VALUE, 0),
    "just beyond": (-(2**63), VALUE, 0),
    "far beyond": (-(10**40), VALUE, 0),
}


@pytest.mark.parametrize("case", MISSING)
def test_what_is_not_there_fails_the_guard(case):
    value, what, dim = MISSING[case]
    assert read(value, what, dim) is None
    assert tree_of([("const", 1)], [(0, what, dim)], 1).check((value,)) == ("the guard", (None,))


def test_conditions_are_checked_on_every_call():
    tree = GuardTree(2)
    container = tree.dict_item(tree.local(0), "t")
    difference = ("load", 0), ("load", 1), ("const", -1), ("mul", 0), ("add", 0)
    equal = SizeProgram((*difference, ("eq0", 0)), (), 3)
    tree.check_expression(
        [(container, SIZE, 0), (tree.local(1), VALUE, 0)], equal.numbers(), 3, "="
    )
    tree.finish()
    values = {"t": torch.ones(3)}
    for size in (3, 5, 5, 2):
        values["t"].resize_(size)
        assert tree.slots((values, size)) == ()
        with pytest.raises(ValueError):
            tree.slots((values, size + 1))
        assert tree.check((values, 9)) == ("=", (size, 9))
    assert tree.failures((values, True)) == [("=", (2, None))]
    assert len(tree.failures(({}, 3))) == 1
