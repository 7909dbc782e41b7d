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
