"""Seeds that a compiled function sets, in generated code."""

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import pliant
from pliant.base import events


def before_a_draw(x, layer):
    torch.manual_seed(3)
    return x + torch.randn_like(x)


def between_draws(x, layer):
    first = torch.randn_like(x) * 2
    torch.manual_seed(3)
    second = torch.rand_like(x) + x
    torch.manual_seed(5)
    third = torch.randn(3) + second
    torch.manual_seed(3)
    return first, second, third, torch.rand_like(x)


def at_the_end(x, layer):
    y = torch.randn_like(x) + x
    torch.manual_seed(7)
    return y


def alone(x, layer):
    torch.manual_seed(7)
    return x + 1


def with_gradients(x, layer):
    torch.manual_seed(1)
    hidden = F.dropout(layer(x), 0.5)
    torch.manual_seed(1)
    return hidden * F.dropout(layer(x).sin(), 0.5)


def whole_step(x, layer):
    torch.manual_seed(2)
    loss = F.dropout(layer(x), 0.5).square().sum()
    loss.backward()
    with torch.no_grad():
        layer.weight -= 0.1 * layer.weight.grad * torch.rand(())
    return loss.detach()


PROGRAMS = [before_a_draw, between_draws, at_the_end, alone, with_gradients, whole_step]


def calls_of(wrap, program):
    torch.manual_seed(0)
    layer = nn.Linear(3, 3)
    run = wrap(lambda x: program(x, layer))
    told = []
    for number in range(4):
        torch.manual_seed(number)
        layer.zero_grad()
        results = run(torch.linspace(0, 1, 12 + 3 * number).view(-1, 3))
        results = results if isinstance(results, tuple) else (results,)
        if results[0].requires_grad:
            results[0].square().sum().backward()
        told += [t.detach().clone() for t in (*results, *layer.parameters())]
        told += [p.grad.clone() for p in layer.parameters() if p.grad is not None]
        told.append(torch.get_rng_state())
    return told


@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.__name__)
def test_seeds(program, dynamic: bool) -> None:
    mine = calls_of(lambda f: pliant.compile(f, backend="llvm", dynamic=dynamic), program)
    for a, b in zip(mine, calls_of(lambda f: f, program), strict=True):
        torch.testing.assert_close(a, b)
    assert events.counters["not_generated"] == events.counters["fallbacks"] == 0
    assert events.counters["graph_breaks"] == 0 < events.counters["programs"]


def test_a_graph_that_fails_after_a_seed() -> None:
    def function(x, index):
        before = torch.rand(3)
        torch.manual_seed(3)
        return x[index] * torch.rand(3) + before

    compiled = pliant.compile(function, backend="llvm")
    compiled(torch.ones(4, 3), torch.tensor([1]))
    states = []
    for run in (compiled, function):
        torch.manual_seed(0)
        with pytest.raises(IndexError):
            run(torch.ones(4, 3), torch.tensor([9]))
        states.append(torch.get_rng_state())
        torch.manual_seed(0)
        states.append(run(torch.ones(4, 3), torch.tensor([2])))
    assert all(map(torch.equal, states[:2], states[2:]))
    assert events.counters["not_generated"] == 0 < events.counters["programs"]


def test_a_seed_where_torch_manual_seed_is_wrapped(monkeypatch) -> None:
    """As it is once the program has imported PyTorch's compiler."""
    monkeypatch.setattr(torch, "manual_seed", torch._disable_dynamo(torch.random.manual_seed))
    compiled = pliant.compile(lambda x: before_a_draw(x, None), backend="llvm", fullgraph=True)
    torch.testing.assert_close(compiled(torch.ones(2, 3)), before_a_draw(torch.ones(2, 3), None))
    assert events.counters["not_generated"] == 0 < events.counters["programs"]
