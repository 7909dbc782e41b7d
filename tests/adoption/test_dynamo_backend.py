"""`torch.compile(backend="pliant")`: graphs that PyTorch captured, compiled by pliant."""

import copy

import pytest
import torch
from torch import nn

import pliant
from pliant.adoption.dynamo_backend import pliant as backend

pytestmark = pytest.mark.own_default


@pytest.fixture(autouse=True)
def forget():
    yield
    torch._dynamo.reset()


def compiled_by_both(function, **settings):
    return torch.compile(function, backend=backend, **settings)


def test_constant_sizes():
    def f(x, y):
        return torch.softmax(x @ y, -1).sum(0)

    x, y = torch.randn(4, 3), torch.randn(3, 5)
    torch.testing.assert_close(compiled_by_both(f)(x, y), f(x, y))
    assert pliant.counters["programs"] == 1
    assert pliant.counters["graph_breaks"] == 0


def test_symbolic_sizes_are_compiled_once():
    def f(x, n):
        return torch.softmax(x * n, -1).sum(0) + x.shape[0]

    compiled = compiled_by_both(f, dynamic=True)
    for size in (3, 4, 7, 9):
        x = torch.randn(size, 5)
        torch.testing.assert_close(compiled(x, size), f(x, size))
    assert pliant.counters["compilations"] == 1


def test_sizes_that_turn_out_to_vary():
    compiled = compiled_by_both(lambda x: (x * 2).sum(0))
    for size in (3, 4, 5, 6):
        x = torch.randn(size, 2)
        torch.testing.assert_close(compiled(x), (x * 2).sum(0))
    assert pliant.counters["compilations"] == 2  # constant, then symbolic


def test_training():
    torch.manual_seed(0)
    module = nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, 1))
    other = copy.deepcopy(module)
    compiled = compiled_by_both(other)
    for size in (4, 5, 6):
        x = torch.randn(size, 4)
        for one in (module, compiled):
            one.zero_grad()
            one(x).square().mean().backward()
        for expected, actual in zip(module.parameters(), other.parameters()):
            torch.testing.assert_close(actual.grad, expected.grad)
        for expected, actual in zip(module.buffers(), other.buffers()):
            torch.testing.assert_close(actual, expected)
    assert pliant.counters["compilations"] == 2
    assert pliant.counters["programs"] == 4  # forward and backward


def test_written_inputs_and_views():
    def f(x):
        x[1:] *= 3
        return x[:2], x.t()

    expected, actual = torch.ones(3, 3), torch.ones(3, 3)
    wanted = f(expected)
    results = compiled_by_both(f)(actual)
    assert torch.equal(actual, expected)
    for result, one in zip(results, wanted):
        assert torch.equal(result, one)
        assert result.stride() == one.stride()
        assert result.untyped_storage().data_ptr() == actual.untyped_storage().data_ptr()
    assert pliant.counters["compilations"] == 1


def test_an_error_is_eager_s():
    compiled = compiled_by_both(lambda x, i: x[i] + 1)
    x = torch.zeros(3)
    compiled(x, torch.tensor([2]))
    with pytest.raises(IndexError, match="out of bounds"):
        compiled(x, torch.tensor([3]))


def test_modes_and_options():
    x = torch.randn(3)
    for settings in ({"mode": "max-autotune"}, {"options": {"triton.cudagraphs": False}}):
        assert torch.equal(compiled_by_both(torch.sin, **settings)(x), x.sin())


def test_in_pliant_s_own_compile():
    x = torch.randn(3)
    assert torch.equal(pliant.compile(lambda x: x.sin(), backend=backend)(x), x.sin())
