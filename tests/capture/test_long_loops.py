"""Loops too long to be unrolled, or that end only by an error in the data, are left to Python."""

import pytest
import torch

import pliant
from pliant.base.errors import GraphBreakError
from pliant.capture import interpreter
from tests.support.against_eager import check

X, LAST = torch.arange(40.0), torch.arange(3, 40)


@pytest.fixture
def short(monkeypatch):
    monkeypatch.setattr(interpreter, "MOST_OPERATIONS", 400)
    monkeypatch.setattr(interpreter, "MOST_STEPS", 20_000)
    monkeypatch.setattr(interpreter, "STEPS_BETWEEN_CHECKS", 16)


def until_out_of_range(x, i):
    while True:
        x = x.index_select(0, i) + 1


def until_a_test_fails(x):
    rounds = 0
    while True:
        if x.sum() > 10_000:
            raise ValueError("large")
        x = x + 1
        rounds += 1


@pytest.mark.parametrize("program, args", [(until_out_of_range, (X, LAST)),
                                           (until_a_test_fails, (X,))])  # fmt: skip
def test_a_loop_that_an_error_in_the_data_ends(short, program, args):
    check(program, *args, breaks=1, graphs=0)
    assert pliant.counters.breaks == {"too-long": 1}


def test_the_error_may_be_handled(short):
    def program(x, i):
        try:
            until_out_of_range(x, i)
        except IndexError:
            return x + 1

    check(program, X, LAST, breaks=None)


def test_only_the_function_with_the_loop_is_left_to_python(short):
    def loop(x):
        for _ in range(1000):
            x = x * 0.5
        return x

    def program(x):
        return loop(x + 1).sin() * 2

    check(program, X, breaks=1, graphs=2)
    assert pliant.counters.breaks == {"too-long": 1}


def test_the_loop_is_not_that_of_the_function_it_calls(short):
    def step(x):
        return (x * 0.5 + 0.25).sin()

    def program(x):
        for _ in range(1000):
            x = step(x)
        return x

    check(program, X, breaks=1, graphs=0)


def test_a_loop_that_draws_on_a_generator(short):
    def numbers():
        while True:
            yield 0.5

    def program(x):
        for number in numbers():
            x = x.index_select(0, LAST) * number

    check(program, X, breaks=1, graphs=0)


def test_a_loop_without_tensors(short):
    def program(x):
        total = 0
        for i in range(10_000):
            total += i
        return x + total

    check(program, X, breaks=1, graphs=0)


def test_a_whole_graph_was_asked_for(short):
    with pytest.raises(GraphBreakError, match="too-long") as caught:
        pliant.compile(until_out_of_range, fullgraph=True)(X, LAST)
    assert "test_long_loops.py" in str(caught.value)


@pytest.mark.long
def test_the_limits_are_reached():
    check(until_out_of_range, X, LAST, breaks=1, graphs=0)
