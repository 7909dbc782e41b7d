"""Reductions of few results in two steps give what they give in one."""

import pytest
import torch

import pliant
from pliant.backends import compile_graph, training
from pliant.graph import split_reductions

pytestmark = pytest.mark.own_default


@pytest.fixture
def split(monkeypatch):
    """As on a GPU, also on a CPU; returns what was split."""
    count = []
    original, in_two_steps = compile_graph.simplify, split_reductions._in_two_steps

    def simplify(function, target, hint):
        original(function, target, hint)
        split_reductions.split_reductions(function, hint)

    def counted(node, place):
        count.append(node)
        return in_two_steps(node, place)

    monkeypatch.setattr(compile_graph, "simplify", simplify)
    monkeypatch.setattr(training, "simplify", simplify)
    monkeypatch.setattr(split_reductions, "_in_two_steps", counted)
    return count


TALL = torch.randn(4096, 24)
DEEP = torch.randn(3, 1536, 20)
LONG = torch.randn(3, 40_000)
PROGRAMS = {
    "columns": (lambda x: x.sum(0), TALL),
    "columns, kept": (lambda x: x.sum(0, keepdim=True), TALL),
    "columns of halves": (lambda x: x.sum(0), TALL.bfloat16()),
    "columns as floats": (lambda x: x.sum(0, dtype=torch.float32), TALL.bfloat16()),
    "two dimensions": (lambda x: x.sum((0, 1)), DEEP),
    "two dimensions, kept": (lambda x: x.sum((0, 1), True), DEEP),
    "largest": (lambda x: x.amax((0, 1)), DEEP),
    "smallest, kept": (lambda x: x.amin(0, True), TALL),
    "rows": (lambda x: x.sum(1), LONG),
    "rows, kept": (lambda x: x.sum(-1, True), LONG),
    "everything": (lambda x: x.sum(), LONG),
    "what is computed": (lambda x: (x.exp() * 2).sum(0) + 1, TALL),
    "beside it": (lambda x: ((x + 1).sum(0), x + 1), TALL),
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_programs(name, split):
    function, x = PROGRAMS[name]
    result = pliant.compile(function, fullgraph=True)(x)
    exact = function(x.double())
    expected = function(x)
    torch.testing.assert_close(result, expected, atol=1e-2, rtol=1e-3)
    if torch.is_tensor(result):
        assert result.stride() == expected.stride()
        off, allowed = (result - exact).abs().max(), (expected - exact).abs().max()
        assert off <= 4 * allowed + 1e-4  # no more is lost than in one step
    assert len(split) == 1


OTHERS = {
    "short": (lambda x: x.sum(0), torch.randn(512, 24)),
    "many columns": (lambda x: x.sum(0), torch.randn(1024, 9000)),
    "many rows": (lambda x: x.sum(1), torch.randn(200, 40_000)),
    "a prime": (lambda x: x.sum(0), torch.randn(4099, 24)),
    "transposed": (lambda x: x.sum(0), torch.randn(24, 4096).t()),
    "integers": (lambda x: x.sum(0), torch.ones(4096, 24, dtype=torch.long)),
    "nothing": (lambda x: x.sum(0), torch.randn(4096, 0)),
}


@pytest.mark.parametrize("name", OTHERS)
def test_programs_that_stay(name, split):
    function, x = OTHERS[name]
    result = pliant.compile(function, fullgraph=True)(x)
    torch.testing.assert_close(result, function(x), atol=1e-2, rtol=1e-3)
    assert not split


SYMBOLIC = {
    "columns of an input": (lambda x: x.sum(0), TALL),
    "largest of an input": (lambda x: x.amax((0, 1)), DEEP),
    "rows of an input": (lambda x: x.sum(1), LONG),
    "everything in an input": (lambda x: x.sum(), LONG),
    "columns": (lambda x: (x * 2).sum(0), TALL),
    "columns of halves, kept": (lambda x: (x * 2).sum(0, keepdim=True), TALL.bfloat16()),
    "largest": (lambda x: (x - 9).amax((0, 1)), DEEP),
    "smallest, kept": (lambda x: (x + 9).amin(0, True), TALL),
    "rows": (lambda x: x.exp().sum(1) + 1, LONG),
    "everything": (lambda x: (x * x).sum(), LONG),
    "of a view": (lambda x: (x * 2).view(-1, 24).sum(0), TALL),
}


@pytest.mark.parametrize("name", SYMBOLIC)
def test_symbolic_sizes(name, split):
    """They are filled up: the same code is for sizes that the inner part doesn't divide."""
    function, x = SYMBOLIC[name]
    compiled = pliant.compile(function, fullgraph=True, dynamic=True)
    for used in (x, x[:-1, 5:].contiguous() if x.dim() == 2 and x is LONG else x[1:], x):
        expected = function(used)
        result = compiled(used)
        torch.testing.assert_close(result, expected, atol=1e-1, rtol=1e-2)
        assert result.stride() == expected.stride() and result.dtype is expected.dtype
    assert len(split) == 1


def test_gradients(split):
    """Of a bias, which is a sum of columns."""
    results = []
    function = lambda x, b: ((x + b).tanh() ** 2).sum()  # noqa: E731
    for call in (function, pliant.compile(function, fullgraph=True)):
        bias = torch.ones(24, requires_grad=True)
        call(TALL, bias).backward()
        results.append(bias.grad)
    torch.testing.assert_close(*results, atol=1e-2, rtol=1e-3)
    assert len(split) == 1
