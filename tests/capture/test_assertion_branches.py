"""Branches on data of which one way only raises are no breaks: the graph tests the data.

PYTEST_DONT_REWRITE: it would make something else of the assertions.
"""

import random

import pytest
import torch

import pliant
from tests.support.against_eager import check
from tests.support.closeness import exact

GOOD, BAD = torch.tensor([1.0, 2.0]), torch.tensor([1.0, -2.0])


def both(function, *others, **expected):
    check(function, GOOD.clone(), *others, **expected)
    check(function, BAD.clone(), *others, **expected)


def test_assert():
    def f(x):
        y = x + 1
        assert (x > 0).all(), f"not positive: {x.tolist()}"
        return y * 2

    both(f, graphs=1)


def test_raise():
    def f(x):
        if (x < 0).any():
            raise ValueError(f"{int((x < 0).sum())} of {x.numel()} values are negative")
        return x.sqrt()

    both(f, graphs=1)


def test_raise_otherwise():
    def f(x):
        if (x > 0).all():
            x = x.sqrt()
        else:
            raise ArithmeticError("negative")
        return x + 1

    both(f, graphs=1)


def test_not():
    def f(x):
        if not (x > 0).all():
            raise ValueError
        return x + 1

    both(f, graphs=1)


def test_handled():
    def f(x):
        try:
            assert (x > 0).all()
            y = x + 1
        except AssertionError:
            y = x - 1
        return y * 2

    both(f, graphs=1)


def test_in_a_loop_of_an_inner_function():
    def require(x, least):
        assert (x > least).all(), f"below {least}"
        return x

    def f(x):
        for least in range(-1, 1):
            x = require(x, least) + 1
        return x

    both(f, graphs=1)


def test_effects_before_and_after():
    def f(x, seen):
        seen.append("before")
        x.mul_(2)
        assert (x > 0).all()
        x.add_(1)
        seen.append("after")
        return x

    both(f, [], graphs=1)


@pytest.mark.parametrize("x", [GOOD, BAD])
def test_random_numbers(x):
    def f(x):
        y = x + random.random() + torch.rand(2)
        assert (x > 0).all()
        return y

    def outcome(function):
        random.seed(1)
        torch.manual_seed(1)
        try:
            result = function(x)
        except AssertionError:
            result = None
        return result, random.random(), torch.rand(1)

    compiled = pliant.compile(f)
    for _ in range(2):
        for got, wanted in zip(outcome(compiled), outcome(f)):
            torch.testing.assert_close(got, wanted, **exact())


def test_what_can_not_be_undone_breaks_instead():
    """A gradient accumulated into a tensor from outside stays when the program raises later."""
    weight = torch.ones(2, requires_grad=True)

    def f(x):
        (weight * x).sum().backward()
        assert (x > 0).all(), "after the backward"
        return x + 1

    compiled = pliant.compile(f)
    for x in (GOOD, BAD, GOOD):
        outcomes = []
        for function in (f, compiled):
            weight.grad = None
            try:
                outcomes.append((function(x), None, weight.grad))
            except AssertionError as error:
                outcomes.append((None, str(error), weight.grad))
        assert outcomes[0][1] == outcomes[1][1]
        torch.testing.assert_close(outcomes[0][0], outcomes[1][0])
        torch.testing.assert_close(outcomes[0][2], outcomes[1][2])


def test_after_a_break():
    def f(x, seen):
        y = x + 1
        seen.append(1)
        pliant.graph_break()
        seen.append(2)
        assert (x > 0).all()
        return y * 2

    both(f, [], breaks=1)


def test_two_ways_that_raise():
    def f(x):
        if (x > 0).all():
            raise ValueError("positive")
        raise TypeError("negative")

    both(f, breaks=None)


def test_many_elements_are_ambiguous():
    def f(x):
        assert x > 0
        return x

    both(f, breaks=None)


def test_in_a_transformed_function():
    def f(x):
        def g(x):
            assert x.dim() == 0
            return x * 2

        return torch.func.vmap(g)(x)

    both(f)


@pytest.mark.parametrize("count", [2, 3, 4])
def test_numbers_read_from_data(count):
    def f(x, n):
        number = n.item()
        if number > x.shape[0]:
            raise IndexError(f"{number} of {x.shape[0]}")
        return x[:2] + number

    check(f, torch.ones(3), torch.tensor(count), graphs=1)


@pytest.mark.parametrize("dynamic", [False, True])
def test_numbers_read_twice(dynamic):
    """The same element holds the same number, until somebody writes to it."""

    def f(x, sizes):
        zeros = torch.zeros(int(sizes[0]), 2)
        ones = torch.ones(sizes[0].item(), 2)
        if zeros.shape != ones.shape:
            return x
        sizes[0] = 3
        return zeros + ones, torch.full((int(sizes[0]),), 2.0)

    check(f, torch.ones(3), torch.tensor([2, 5]), graphs=1, dynamic=dynamic)
