"""Backends of others that look at the example inputs (AOTAutograd) compile for each size anew."""

import random

import numpy
import pytest
import torch
from torch import fx
from torch._functorch.aot_autograd import aot_module_simplified, make_boxed_func

import pliant
from pliant.backends import by_sizes


class Aot:
    """A backend on AOTAutograd, which counts its calls."""

    def __init__(self):
        self.calls = 0

    def __call__(self, gm, examples):
        self.calls += 1
        return aot_module_simplified(
            gm, examples, fw_compiler=lambda gm, _: make_boxed_func(gm.forward)
        )


def sizes(x, number):
    return x.new_ones(x.shape[0]).sum() * x.reshape(-1) * x.shape[0]


def numbers(x, number):
    return torch.add(x, x, alpha=number)


def floats(x, number):
    return x * (number + 0.5)


def in_place(x, number):
    y = x.clone()
    y *= x.shape[0]
    return y


@pytest.mark.parametrize("function", [sizes, numbers, floats, in_place])
@pytest.mark.parametrize("dynamic", [True, None])
def test_values_are_those_of_eager(function, dynamic):
    compiled = pliant.compile(function, backend=Aot(), dynamic=dynamic)
    for rows in (3, 5, 4, 3):
        x = torch.arange(2.0 * rows).reshape(rows, 2)
        number = rows if function is numbers else rows + 0.25
        assert torch.equal(compiled(x, number), function(x, number))


def test_gradients_of_other_sizes():
    def function(x, w):
        return ((x @ w) * x.shape[0]).sum()

    compiled = pliant.compile(function, backend=Aot(), dynamic=True)
    for rows in (3, 5, 3):
        x, w = torch.ones(rows, 2), torch.ones(2, 2, requires_grad=True)
        actual = torch.autograd.grad(compiled(x, w), w)
        assert torch.equal(*actual, *torch.autograd.grad(function(x, w), w))


def test_backend_is_called_once_for_each_size():
    backend = Aot()
    compiled = pliant.compile(sizes, backend=backend, dynamic=True)
    for rows in (3, 5, 3, 5):
        compiled(torch.ones(rows, 2), 1)
    assert backend.calls == 2
    assert pliant.counters["compilations"] == 1


def test_many_sizes_run_the_graph_as_it_is(monkeypatch):
    monkeypatch.setattr(by_sizes, "LIMIT", 2)
    backend = Aot()
    compiled = pliant.compile(sizes, backend=backend, dynamic=True)
    for rows in range(2, 7):
        x = torch.ones(rows, 2)
        assert torch.equal(compiled(x, 1), sizes(x, 1))
    assert backend.calls == 2


def test_a_backend_that_does_not_look_is_called_once():
    graphs = []

    def backend(gm: fx.GraphModule, examples):
        graphs.append(gm)
        return gm.forward

    compiled = pliant.compile(sizes, backend=backend, dynamic=True)
    for rows in (3, 5, 4):
        x = torch.ones(rows, 2)
        assert torch.equal(compiled(x, 1), sizes(x, 1))
    assert len(graphs) == 1


@pytest.mark.parametrize("kind", [numpy.float64, numpy.float32, numpy.int64])
def test_numbers_of_numpy(kind):
    compiled = pliant.compile(floats, backend=Aot())
    plain = pliant.compile(torch.mul, backend=Aot())
    for number in (1, 2, 3, 4, 2):
        x = torch.arange(3.0)
        assert torch.equal(compiled(x, kind(number)), floats(x, kind(number)))
        assert torch.equal(plain(x, kind(number)), x * number)


def test_numbers_drawn_at_random():
    def function(x):
        return x * random.randint(1, 1000)

    compiled = pliant.compile(function, backend=Aot())
    for seed in (1, 2, 3):
        random.seed(seed)
        actual = compiled(torch.ones(2))
        random.seed(seed)
        assert torch.equal(actual, function(torch.ones(2)))
