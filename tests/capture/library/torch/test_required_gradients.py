"""Inputs that the program makes leaves: `x.requires_grad_()`, `x.requires_grad = True`."""

import pytest
import torch
from torch import nn

import pliant
from pliant.backends import registry
from pliant.base import events
from tests.support.against_eager import run, same_outcome
from tests.support.side_by_side import outcome


def by_method(x, y):
    x.requires_grad_()
    return (x * y).sin()


def by_attribute(x, y):
    x.requires_grad = True
    return x * y, x


def penalty(x, y):
    x.requires_grad_(True)
    out = (x**3 * y).sum()
    (grad,) = torch.autograd.grad(out, x, create_graph=True)
    return grad.square().sum() + out


def behind_a_use(x, y):
    z = x * y
    x.requires_grad_()
    return z + x.exp()


def behind_its_size(x, y):
    y = y * x.size(0)
    x.requires_grad_(requires_grad=True)
    return x.exp() * y


def both(x, y):
    x.requires_grad_()
    y.requires_grad_()
    return x * y.exp()


def with_a_break(x, y):
    x.requires_grad_()
    z = x.exp()
    pliant.graph_break()
    return z * x + y


def frozen_again(x, y):
    x.requires_grad_()
    z = x * y
    x.requires_grad_(False)
    return z


def only_that(x, y):
    x.requires_grad_()
    return y


PROGRAMS = [
    by_method, by_attribute, penalty, behind_a_use, behind_its_size, both, with_a_break,
    frozen_again, only_that,
]  # fmt: skip


def gradients(function, x, y):
    """What a call returns, and the gradients of what it made leaves."""
    result = function(x, y)
    parts = result if isinstance(result, tuple) else (result,)
    if parts[0].requires_grad:
        parts[0].sum().backward()
    return result, x, y, x.grad, y.grad


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.__name__)
@pytest.mark.parametrize("backend", ["eager", "llvm"])
def test_leaves(program, backend, monkeypatch) -> None:
    monkeypatch.setattr(registry, "DEFAULT", backend)  # which says how close results have to be
    compiled = pliant.compile(program)
    for size in (3, 4, 5, 1):
        for required in (False, True):
            x, y = torch.randn(size, 2), torch.randn(size, 2)
            pairs = []
            for function in (compiled, program):
                args = [t.clone().requires_grad_(required) for t in (x, y)]
                pairs.append(run(lambda *args, f=function: gradients(f, *args), tuple(args)))
            same_outcome(*pairs)
    assert events.counters["fallbacks"] == 0


@pytest.mark.parametrize("program", [by_method, by_attribute, penalty, both])
def test_code_is_generated(program) -> None:
    compiled = pliant.compile(program, backend="llvm", fullgraph=True)
    for size in (3, 4, 5):
        gradients(compiled, torch.randn(size, 2), torch.randn(size, 2))
    assert events.counters["not_generated"] == 0 and events.counters["compilations"] == 2


def test_a_whole_step() -> None:
    """As for a differential equation: the loss has derivatives by the inputs."""

    def train(compile):
        torch.manual_seed(0)
        model = nn.Sequential(nn.Linear(2, 8), nn.Tanh(), nn.Linear(8, 1))
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

        @compile
        def step(x, t):
            x.requires_grad_()
            t.requires_grad = True
            u = model(torch.stack([x, t], 1)).squeeze(1)
            ux, ut = torch.autograd.grad(u.sum(), (x, t), create_graph=True)
            (uxx,) = torch.autograd.grad(ux.sum(), x, create_graph=True)
            loss = (ut + u * ux - 0.1 * uxx).square().mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            return loss

        for size in (4, 4, 5, 6):
            x, t = torch.randn(size), torch.rand(size)
            yield step(x, t).detach(), x.grad, t.grad, model[0].weight.detach().clone()

    compiled = list(train(lambda step: pliant.compile(step, backend="llvm", fullgraph=True)))
    for actual, expected in zip(compiled, list(train(lambda step: step)), strict=True):
        for a, b in zip(actual, expected, strict=True):
            torch.testing.assert_close(a, b)
    assert events.counters["not_generated"] == events.counters["fallbacks"] == 0


def test_one_tensor_as_both_arguments() -> None:
    def program(x, y):
        x.requires_grad_()
        return x * 2, y.requires_grad, y * 3

    compiled = pliant.compile(program)
    for shared in (False, True, False):
        x = torch.ones(2)
        results = compiled(x, x if shared else torch.ones(2))
        assert results[1] is shared and results[2].requires_grad is shared


def test_a_failure_takes_it_back() -> None:
    """Then Python runs the function, which sees the tensor as it was."""
    seen = []

    def program(x, at):
        seen.append(x.requires_grad)
        x.requires_grad_()
        return x[at] * 2

    compiled = pliant.compile(program, backend="llvm")
    compiled(torch.ones(3), torch.tensor([1]))
    for function in (compiled, program):
        x = torch.ones(3)
        assert outcome(function, x, torch.tensor([7]))[0] is IndexError and x.requires_grad
    assert not any(seen)


@pytest.mark.parametrize("make", [torch.arange, lambda n: torch.ones(n, requires_grad=True) * 2])
def test_what_can_not_be_a_leaf(make) -> None:
    def off(x):
        x.requires_grad_(False)
        return x + 1

    def on(x):
        return x.requires_grad_() + 1

    for program in (on, off):
        compiled = pliant.compile(program)
        expected, actual = outcome(program, make(3)), outcome(compiled, make(3))
        if isinstance(expected, tuple):
            assert actual == expected
        else:
            torch.testing.assert_close(actual, expected)


def test_a_mode_sees_the_call() -> None:
    names = []

    class Mode(torch.overrides.TorchFunctionMode):
        def __torch_function__(self, func, types, args=(), kwargs=None):
            names.append(func.__name__)
            return func(*args, **(kwargs or {}))

    def program(x):
        with Mode():
            return x.requires_grad_() * 2

    expected = program(torch.ones(2))
    before = names[:]
    actual = pliant.compile(program)(torch.ones(2))
    torch.testing.assert_close(actual, expected)
    assert names == before * 2
