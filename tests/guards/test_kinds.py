"""Each kind of guard says everything about itself."""

import re

import pytest
import torch

import pliant
from pliant.guards import plan
from pliant.guards.guard import Guard
from pliant.guards.kinds import Difference, GuardKind
from pliant.guards.source import Local


@pytest.mark.parametrize("kind", GuardKind)
def test_the_example_of_a_kind_prints_as_its_guards_do(kind):
    pattern = re.escape(kind.record.text).replace(r"\{0\}", ".+").replace(r"\{1\}", ".+")
    assert re.fullmatch(pattern, kind.record.example)
    assert kind.record.doc


def test_kinds_print_differently():
    assert len({kind.record.text for kind in GuardKind}) == len(GuardKind)


NAMES = Guard(GuardKind.ELEMENTS, Local(0, "names"), ("a", 1))


@pytest.mark.parametrize(
    "names, found", [({1, "b"}, "'b'"), ({"a"}, "['a']"), (set(), "[]"), (frozenset({2}), "[2]")]
)
def test_a_set_with_other_elements_is_told(names, found):
    guard, got = plan.build([NAMES], [], 1).check((names,))
    assert plan.explain(guard, got).startswith("elements of L['names'] are ['a', 1], got [")
    difference = plan.difference(guard, got)
    assert (difference.subject, difference.expected) == ("elements of L['names']", "['a', 1]")
    assert found in difference.found
    assert isinstance(difference, Difference)


@pytest.mark.parametrize("names", [{1.0}, {True}, {1, 2}])
def test_elements_are_of_the_same_type(names):
    guard = Guard(GuardKind.ELEMENTS, Local(0, "names"), (1,))
    assert plan.build([guard], [], 1).check((names,)) is not None
    assert plan.build([guard], [], 1).check(({1},)) is None


def test_a_program_that_asks_a_set_is_compiled_again_for_another(capsys):
    @pliant.compile
    def f(x, names):
        return x + 1 if "a" in names else x

    pliant.set_logs(recompiles=True)
    try:
        assert f(torch.zeros(1), {"a"}) == 1 and f(torch.zeros(1), {"b"}) == 0
    finally:
        pliant.set_logs()
    assert "needs elements of L['names'] are ['a'], got ['b']" in capsys.readouterr().err
