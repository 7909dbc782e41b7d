"""Calls that compute the same, and those that only look so."""

import pytest
import torch

import pliant
from pliant.base import events
from tests.backends.eager_twin import call, difference

pytestmark = pytest.mark.own_default


def used_twice(x, w):
    return (x @ w).relu() + (x @ w).exp()


def through_views(x, w):
    return (x.t() @ w).sum(0) + (x.t() @ w).sum(1)


def returned_apart(x, w):
    y = (x @ w).exp()
    z = (x @ w).exp()
    return y, z, z.t()


def returned_calls(x, w):
    return x @ w, x @ w


def written_between(x, w):
    y = x @ w
    x.add_(1)
    return y, x @ w


def other_kinds_of_numbers(x, w):
    return torch.addmm(x, x, w, alpha=1), torch.addmm(x, x, w, alpha=2), x / 0.0, x / -0.0


def drawn(x, w):
    return torch.rand(3) - torch.rand(3), torch.dropout(x, 0.5, True) - torch.dropout(x, 0.5, True)


@pytest.mark.parametrize(
    ("function", "products"),
    [
        (used_twice, 1),
        (through_views, 1),
        (returned_apart, 1),
        (returned_calls, 2),
        (written_between, 2),
        (other_kinds_of_numbers, 2),
        (drawn, 0),
    ],
)
def test_same_as_eager(function, products):
    called = {}
    with events.listening(lambda event: called.update(getattr(event, "called", {}))):
        compiled = pliant.compile(function)
        for _ in range(2):
            x, w = torch.randn(3, 3), torch.randn(3, 3)
            actual = call(compiled, (x.clone(), w), "no_grad")
            assert difference(actual, call(function, (x.clone(), w), "no_grad")) is None
    assert sum(n for name, n in called.items() if "mm." in name or "matmul." in name) == products


def index_put(t, at, x):
    t[at] = x


MAKES = {
    "zeros": lambda x: torch.zeros(x.size(0)),
    "an expression": lambda x: x * 2,
    "a row": lambda x: torch.zeros(2, x.size(0))[0],
    "of PyTorch": lambda x: torch.sort(x)[0],
}
WRITES = {
    "scatter": lambda t, at, x: t.scatter_(0, at[:1], 1),
    "scatter nothing": lambda t, at, x: t.scatter_(0, at[:0], 5),
    "index_add": lambda t, at, x: t.index_add_(0, at, x),
    "index_put": index_put,
    "slice": lambda t, at, x: t[1:].mul_(3),
    "whole": lambda t, at, x: t.mul_(3),
}


@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("make", MAKES)
@pytest.mark.parametrize("second", WRITES)
@pytest.mark.parametrize("first", WRITES)
def test_equal_tensors_that_are_both_overwritten(first, second, make, dynamic):
    """They are equal only until then."""
    made, write, write_other = MAKES[make], WRITES[first], WRITES[second]

    def function(x):
        at = torch.arange(x.size(0)).flip(0)
        a = made(x)
        write(a, at, x)
        b = made(x)
        write_other(b, at, x)
        return a.sum(), b

    compiled = pliant.compile(function, fullgraph=True, dynamic=dynamic)
    for size in (4, 1):
        x = torch.arange(1.0, size + 1)
        for ours, eager in zip(compiled(x), function(x), strict=True):
            assert ours.equal(eager)


def test_means_of_segments():
    def function(x, segment):
        totals = torch.zeros(5).index_add_(0, segment, x)
        counts = torch.zeros(5).index_add_(0, segment, torch.ones_like(x))
        return totals / counts

    x, segment = torch.arange(20.0), torch.arange(20) % 5
    assert pliant.compile(function, fullgraph=True)(x, segment).equal(function(x, segment))
