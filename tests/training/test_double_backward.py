"""`create_graph=True` through a compiled graph: PyTorch runs the graph again and differentiates it,
with what there was before the forward, and without anything happening twice."""

import pytest
import torch
from torch import nn

import pliant
from pliant.base import events


def compiled(function):
    return pliant.compile(function, backend="llvm")


def second_order(run, inputs, wanted=None):
    """First and second gradients."""
    wanted = inputs if wanted is None else wanted
    first = torch.autograd.grad(run(*inputs).pow(2).sum(), wanted, create_graph=True)
    total = sum(g.pow(2).sum() for g in first)
    return [*first, *torch.autograd.grad(total, wanted)]


def leaf(*sizes):
    return torch.randn(*sizes, dtype=torch.float64, requires_grad=True)


def test_hooks_of_inputs_run_once() -> None:
    def function(a, b):
        return (a * b).sin()

    calls = []

    def hook(grad):
        calls.append(grad.shape)
        return grad * 3

    x, y = leaf(3, 4), leaf(3, 4)
    x.register_hook(hook)
    theirs = second_order(function, (x, y))
    count = len(calls)
    torch.testing.assert_close(second_order(compiled(function), (x, y)), theirs)
    assert len(calls) == 2 * count


def test_inputs_that_depend_on_one_another() -> None:
    """The way from one input to another is outside of the graph, and is gone once."""

    def function(a, b):
        return (a * b).sin()

    def around(run):
        x = torch.linspace(0, 1, 6, dtype=torch.float64, requires_grad=True)
        return second_order(lambda x: run(x, x.exp()), (x,))

    torch.testing.assert_close(around(compiled(function)), around(function))


class Average(nn.Module):
    """Results depend on a buffer that is written to."""

    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(4, 4, dtype=torch.float64)
        self.register_buffer("mean", torch.ones(4, dtype=torch.float64))

    def forward(self, x):
        y = self.linear(x) * self.mean.clone()
        self.mean.lerp_(y.detach().mean(0), 0.5)
        return y.tanh() + self.mean


def spectral():
    return nn.utils.parametrizations.spectral_norm(nn.Linear(4, 4, dtype=torch.float64))


@pytest.mark.parametrize("make", [Average, spectral])
def test_buffers_that_are_written_to(make) -> None:
    gradients, buffers = [], []
    x = torch.randn(5, 4, dtype=torch.float64)
    for wrap in (compiled, lambda module: module):
        torch.manual_seed(0)
        module = make()
        run = wrap(module)
        for _ in range(2):
            inputs = (x.clone().requires_grad_(), *module.parameters())
            gradients.append(second_order(lambda x, *_: run(x), inputs))  # noqa: B023
            buffers.append([b.clone() for b in module.buffers()])
    torch.testing.assert_close(gradients[:2], gradients[2:])
    torch.testing.assert_close(buffers[:2], buffers[2:])
    assert events.counters["not_generated"] == 0


def test_twice_through_the_same_graph() -> None:
    """What is kept of a buffer isn't written to when the graph runs again."""
    module = Average()
    x = leaf(5, 4)
    result = compiled(module)(x).pow(2).sum()
    first = [
        torch.autograd.grad(result, x, create_graph=True, retain_graph=True)[0] for _ in range(2)
    ]
    torch.testing.assert_close(*first)
