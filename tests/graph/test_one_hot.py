"""Sums of what is 0 in all places but one: no pass over the places."""

import pytest
import torch
import torch.nn.functional as F

import pliant
from pliant.backends import compile_graph
from pliant.graph import one_hot

pytestmark = pytest.mark.own_default


@pytest.fixture
def found(monkeypatch):
    """The sums that were replaced."""
    nodes = []
    original = one_hot._chosen
    monkeypatch.setattr(one_hot, "_chosen", lambda n, s: nodes.append(n) or original(n, s))
    return nodes


def chosen(x, target, keepdim=True, count=50):
    target = target.unsqueeze(1)
    at_target = (torch.arange(count) == target) & (target != 7)
    return torch.where(at_target, x.unsqueeze(1), 0.0).sum(1, keepdim)


X = torch.randn(6)
Y = torch.randn(6, 50)
TARGETS = {
    "classes": torch.randint(0, 50, (6,)),
    "ignored": torch.tensor([7, 0, 49, 7, 3, 7]),
    "outside": torch.tensor([-1, 50, 100, 2**62, -(2**62), 1]),
}
NUMBERS = {"random": X, "zeros": X * -0.0, "infinite": X / 0, "no rows": X[:0]}


@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("keepdim", [True, False])
@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("numbers", NUMBERS)
def test_sums(numbers, target, keepdim, dynamic, found):
    x, target = NUMBERS[numbers], TARGETS[target]
    target = target[: x.size(0)]
    compiled = pliant.compile(chosen, dynamic=dynamic, fullgraph=True)
    actual, expected = compiled(x, target, keepdim), chosen(x, target, keepdim)
    torch.testing.assert_close(actual, expected, rtol=0, atol=0, equal_nan=True)
    assert torch.equal(actual.signbit(), expected.signbit())
    assert len(found) == 1


@pytest.mark.parametrize("count", [0, 1, 3])
def test_few_classes(count):
    for target in TARGETS.values():
        actual = pliant.compile(chosen, dynamic=True)(X, target, True, count)
        assert torch.equal(actual, chosen(X, target, True, count))


NOT_ONE_HOT = {
    "another number": lambda x, t: torch.where(
        torch.arange(50) == t.unsqueeze(1), x[:, None], 1.0
    ).sum(1),
    "numbers by class": lambda x, t: torch.where(torch.arange(50) == t.unsqueeze(1), Y, 0.0).sum(1),
    "along rows": lambda x, t: torch.where(torch.arange(50) == t.unsqueeze(1), x[:, None], 0.0).sum(
        0
    ),
    "other places": lambda x, t: torch.where(
        torch.arange(0, 100, 2) == t.unsqueeze(1), x[:, None], 0.0
    ).sum(1),
    "either": lambda x, t: torch.where(
        (torch.arange(50) == t.unsqueeze(1)) | (t.unsqueeze(1) == 3), x[:, None], 0.0
    ).sum(1),
    "a mean": lambda x, t: torch.where(torch.arange(50) == t.unsqueeze(1), x[:, None], 0.0).mean(1),
    "in float64": lambda x, t: torch.where(torch.arange(50) == t.unsqueeze(1), x[:, None], 0.0).sum(
        1, dtype=torch.float64
    ),
    "of all rows at once": lambda x, t: torch.where(
        torch.arange(50).expand(6, 50) == t[:1], x[:1, None], 0.0
    ).sum(1),
}


@pytest.mark.parametrize("name", NOT_ONE_HOT)
def test_other_sums_stay(name, found):
    program = NOT_ONE_HOT[name]
    for target in TARGETS.values():
        torch.testing.assert_close(pliant.compile(program)(X, target), program(X, target))
    assert not found


LOSSES = {
    "mean": {},
    "sum": {"reduction": "sum"},
    "none": {"reduction": "none"},
    "smoothing": {"label_smoothing": 0.1},
    "ignored": {"ignore_index": 3},
}


@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("name", LOSSES)
def test_gradients_of_cross_entropy(name, dynamic, found):
    options = LOSSES[name]
    target = torch.tensor([3, 0, 49, 3, 3, 12])

    def loss(x):
        return F.cross_entropy(x, target, **options).sum()

    gradients = []
    for function in (loss, pliant.compile(loss, dynamic=dynamic, fullgraph=True)):
        x = Y.clone().requires_grad_()
        gradients.append(torch.autograd.grad(function(x), x))
    torch.testing.assert_close(*gradients)
    assert bool(found) == (name != "smoothing")


def test_images_of_classes(found):
    """The classes are dimension 1 of 4."""
    x, target = torch.randn(2, 5, 4, 3), torch.randint(0, 5, (2, 4, 3))
    gradients = []
    for function in (F.cross_entropy, pliant.compile(F.cross_entropy, fullgraph=True)):
        leaf = x.clone().requires_grad_()
        gradients.append(torch.autograd.grad(function(leaf, target), leaf))
    torch.testing.assert_close(*gradients)
    assert len(found) == 1


def test_it_is_part_of_the_pipeline():
    assert compile_graph.sum_one_hot is one_hot.sum_one_hot
