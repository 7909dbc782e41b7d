"""Whole steps in which some parameters don't require gradients for a while."""

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import pliant
from pliant.base import events


def by_attribute(module, required: bool) -> None:
    for p in module.parameters():
        p.requires_grad = required


def by_method(module, required: bool) -> None:
    for p in module.parameters():
        p.requires_grad_(required)


def of_the_module(module, required: bool) -> None:
    module.requires_grad_(required)


def adversaries(set_required):
    """The steps of a generator and a discriminator, which is frozen in those of the other."""
    torch.manual_seed(0)
    generator = nn.Sequential(nn.Linear(3, 6), nn.Tanh(), nn.Linear(6, 4))
    critic = nn.Sequential(nn.Linear(4, 6), nn.Tanh(), nn.Linear(6, 1))
    optimizers = [torch.optim.Adam(m.parameters(), lr=0.01) for m in (generator, critic)]

    def step(noise, real):
        set_required(critic, False)
        optimizers[0].zero_grad()
        made = generator(noise)
        loss = F.softplus(-critic(made)).mean()
        loss.backward()
        optimizers[0].step()
        set_required(critic, True)
        optimizers[1].zero_grad()
        other = F.softplus(critic(made.detach())).mean() + F.softplus(-critic(real)).mean()
        other.backward()
        optimizers[1].step()
        return loss, other

    return step, [*generator.parameters(), *critic.parameters()]


def frozen_before_backward(set_required):
    """What has been computed keeps its history."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(3, 6), nn.Tanh(), nn.Linear(6, 1))

    def step(noise, real):
        model.zero_grad()
        loss = model(noise).square().mean()
        set_required(model[0], False)
        other = model(noise * 2).sum()
        (loss + other).backward()
        set_required(model[0], True)
        return loss, other

    return step, list(model.parameters())


def frozen_for_good(set_required):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(3, 6), nn.Tanh(), nn.Linear(6, 1))

    def step(noise, real):
        set_required(model[0], False)
        loss = model(noise).square().mean()
        loss.backward()
        return loss, loss

    return step, list(model.parameters())


def told_by(make, set_required, compiles: bool):
    step, parameters = make(set_required)
    run = pliant.compile(step, backend="llvm") if compiles else step
    told = []
    for number in range(4):
        torch.manual_seed(number)
        losses = run(torch.randn(5, 3), torch.randn(5, 4))
        told += [loss.detach() for loss in losses]
        told += [p.detach().clone() for p in parameters]
        told += [p.grad.clone() if p.grad is not None else p.requires_grad for p in parameters]
        told.append([(p.requires_grad, p._version) for p in parameters])
    return told


def compare(make, set_required) -> None:
    mine, theirs = (told_by(make, set_required, compiles) for compiles in (True, False))
    for a, b in zip(mine, theirs, strict=True):
        if isinstance(b, torch.Tensor):
            torch.testing.assert_close(a, b)
        else:
            assert a == b
    assert events.counters["fallbacks"] == events.counters["graph_breaks"] == 0


@pytest.mark.parametrize("set_required", [by_attribute, by_method, of_the_module])
@pytest.mark.parametrize("make", [adversaries, frozen_before_backward])
def test_frozen_for_a_while(make, set_required) -> None:
    compare(make, set_required)
    assert events.counters["not_generated"] == 0 < events.counters["programs"]


@pytest.mark.parametrize("set_required", [by_attribute, by_method])
def test_frozen_for_good(set_required) -> None:
    """PyTorch runs the step that freezes them; those after it freeze nothing."""
    compare(frozen_for_good, set_required)
    assert events.counters["not_generated"] == 1 < events.counters["compilations"]


@pytest.mark.parametrize("set_required", [by_attribute, by_method])
def test_what_requires_gradients_already(set_required) -> None:
    torch.manual_seed(0)
    model = nn.Linear(3, 2)

    def forward(x):
        set_required(model, True)
        return model(x).sin()

    compiled = pliant.compile(forward, backend="llvm")
    for _ in range(3):
        x, gradients = torch.randn(4, 3), []
        for run in (compiled, forward):
            model.zero_grad()
            run(x).sum().backward()
            gradients.append([p.grad.clone() for p in model.parameters()])
        torch.testing.assert_close(*gradients)
    assert events.counters["not_generated"] == events.counters["graph_breaks"] == 0
    assert events.counters["programs"] > 0
