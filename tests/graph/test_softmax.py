"""Softmax in parts: the backward computes it again from the largest number and sum of each row."""

import pytest
import torch
import torch.nn.functional as F

import pliant
from pliant.backends import training
from pliant.base import events
from pliant.graph import softmax

pytestmark = pytest.mark.own_default


@pytest.fixture
def split(monkeypatch):
    """As on a GPU, also on a CPU; returns how many were split."""
    count = []
    original, parts = training.simplify, softmax._parts

    def simplify(function, target, hint):
        softmax.split_softmax(function)
        original(function, target, hint)

    monkeypatch.setattr(training, "simplify", simplify)
    monkeypatch.setattr(softmax, "_parts", lambda node: count.append(node) or parts(node))
    return count


def loss(x, w, target):
    return F.cross_entropy((x @ w).float(), target)


def gradients(function, *args):
    x, w, target = args
    leaves = [x.clone().requires_grad_(), w.clone().requires_grad_()]
    result = function(*leaves, target)
    result.backward()
    return result.detach(), *[leaf.grad for leaf in leaves]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
@pytest.mark.parametrize("dynamic", [False, True])
def test_gradients(dtype, dynamic, split):
    x, w = torch.randn(6, 8), torch.randn(8, 2000)
    args = (x.to(dtype), w.to(dtype), torch.randint(0, 2000, (6,)))
    actual = gradients(pliant.compile(loss, dynamic=dynamic, fullgraph=True), *args)
    torch.testing.assert_close(actual, gradients(loss, *args))
    assert len(split) == (0 if dynamic else 1)  # a symbolic size may be small, or 0


ROWS = {
    "infinite": torch.full((2, 1500), float("-inf")).index_fill(1, torch.tensor([3]), 1.0),
    "nan": torch.randn(2, 1500).index_fill(1, torch.tensor([3]), float("nan")),
    "large": torch.randn(2, 1500) * 1e4,
    "transposed": torch.randn(1500, 2).t(),
}


@pytest.mark.parametrize("name", ROWS)
def test_rows(name, split):
    results = []
    for function in (F.log_softmax, pliant.compile(F.log_softmax, fullgraph=True)):
        x = ROWS[name].clone().requires_grad_()
        result = function(x, 1)
        result[:, 3].sum().backward()
        results.append((result.detach(), x.grad))
    torch.testing.assert_close(*results, equal_nan=True)
    assert len(split) == 1


def test_short_rows_and_halves_stay(split):
    for x in (torch.randn(4, 100), torch.randn(4, 2000).bfloat16()):
        pliant.compile(F.log_softmax, fullgraph=True)(x.requires_grad_(), 1).sum().backward()
    assert not split


def test_what_is_saved(split, stream, monkeypatch):
    """On a GPU, where arithmetic costs next to nothing: a number or two for each row."""
    prices = training.Prices
    monkeypatch.setattr(training, "Prices", lambda size, budget, _: prices(size, budget, 0.1))
    x, w = torch.randn(6, 8).bfloat16(), torch.randn(8, 2000).bfloat16()
    gradients(pliant.compile(loss, fullgraph=True), x, w, torch.randint(0, 2000, (6,)))
    (event,) = [e for e in stream if isinstance(e, events.GraphPartitioned)]
    saved = [line for line in event.report().splitlines() if line.startswith("saved ")]
    assert not any("float32[6, 2000]" in line or "bool[6, 2000]" in line for line in saved), saved
