"""Branches on floats that vary: a guard says which side, not which float."""

import math

import pytest
import torch

import pliant
from pliant.base import events

FLOATS = (0.9, 0.8, 0.7, 0.6, -0.3, 0.0, -0.0, 1e300, math.inf, math.nan, 0.55, 2)

BRANCHES = {
    "unequal": lambda x, v: x * v if v != 0 else x + 1,
    "equal": lambda x, v: x + 1 if v == 0.8 else x * v,
    "greater": lambda x, v: x * v if v > 0.5 else x + 1,
    "at least": lambda x, v: x * v if 0.6 <= v else x + 1,
    "truth": lambda x, v: x * v if v else x + 1,
    "not": lambda x, v: x * v if not v else x + 1,
    "interval": lambda x, v: x * v if 0.0 <= v < 0.75 else x + 1,
    "either": lambda x, v: x * v if v < 0.0 or v > 0.65 else x + 1,
    "computed": lambda x, v: x * v if v * 2 - 1 > 0.5 else x + 1,
    "is nan": lambda x, v: x + 1 if v != v else x * v,
    "least of both kinds": lambda x, v: x * min(1, v),
    "most of both kinds": lambda x, v: x * max(0, v),
}


def outcome(function, v):
    try:
        return function(torch.ones(3), v)
    except Exception as error:
        return type(error)


@pytest.mark.parametrize("name", BRANCHES)
def test_each_side_is_compiled_once(name: str) -> None:
    function = BRANCHES[name]
    compiled = pliant.compile(function)
    for v in FLOATS * 2:
        mine, theirs = outcome(compiled, v), outcome(function, v)
        if isinstance(theirs, torch.Tensor):
            torch.testing.assert_close(mine, theirs, rtol=0, atol=0, equal_nan=True)
            assert mine.dtype is theirs.dtype
        else:
            assert mine is theirs
    before = events.counters["compilations"]
    for v in (0.91, 0.81, 0.56, 0.51, 0.95):
        torch.testing.assert_close(compiled(torch.ones(3), v), function(torch.ones(3), v))
    assert events.counters["compilations"] == before


def test_a_rate_with_a_warm_up() -> None:
    def function(x, step):
        return x * min(1.0, (step + 1) / 5) if step / 20 < 0.5 else x * (20 - step) / 10

    compiled = pliant.compile(function)
    for step in range(20):
        torch.testing.assert_close(compiled(torch.ones(2), step), function(torch.ones(2), step))
    assert events.counters["compilations"] == 3  # a constant, and the two sides


def test_a_part_of_a_size() -> None:
    def function(x):
        return x.sum() if x.size(0) / 4 > 1.5 else x.mean()

    compiled = pliant.compile(function)
    for size in (5, 6, 3, 4, 7, 8, 9, 10, 0, 1):
        x = torch.arange(float(size))
        torch.testing.assert_close(compiled(x), function(x), equal_nan=True)
    assert events.counters["compilations"] <= 5  # a constant, both sides, 0 and 1


def test_two_floats() -> None:
    """Which become constants where they are compared with one another."""

    def function(x, a, b):
        return x * a if a < b else x * b

    compiled = pliant.compile(function)
    for a, b in ((1.0, 2.0), (1.5, 2.5), (3.5, 2.5), (math.nan, 1.0), (-0.0, 0.0)):
        theirs = function(torch.ones(2), a, b)
        torch.testing.assert_close(compiled(torch.ones(2), a, b), theirs, equal_nan=True)


def test_the_guard_prints_as_its_condition() -> None:
    def function(x, v):
        return x * v if v > 0.5 else x + 1

    compiled = pliant.compile(function, dynamic=True)
    explained = str(pliant.explain(compiled)(torch.ones(2), 0.75).details())
    assert "(lambda v: 0.5 < v)(L['v'])" in explained
