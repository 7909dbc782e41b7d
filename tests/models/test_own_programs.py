"""Programs of our own, which need nothing but PyTorch: equal to eager, and in how many pieces."""

import pytest
import torch

import pliant
from benchmarks.model_zoo import SHAPES, tokens
from benchmarks.own_programs import OWN
from benchmarks.programs import MLP, Transformer

# At most, at the first call: graphs and breaks. At all shapes: compilations.
MOST = {
    # How many boxes are left decides how it goes on, and that is up to the last bits of numbers:
    # 13 compilations on one processor are 15 on another (torch.compile: 16).
    "detector, NMS in a loop": (7, 5, 15),
    "detector, matrix NMS": (1, 0, 3),
    "beam search": (4, 3, 8),  # stops when all hypotheses have ended
    "packed LSTM": (1, 0, 2),
    "packed GRU": (1, 0, 2),
    "actor-critic rollout": (1, 0, 2),
}


@pytest.mark.parametrize("name", OWN)
def test_own_program(name, compared):
    make, inputs, grad = OWN[name]
    both = compared(make())
    first = None
    with torch.set_grad_enabled(grad):
        for batch, length in SHAPES:
            both(*inputs(batch, length))
            first = first or both.counts[1:]
    graphs, breaks, compilations = MOST[name]
    assert first[0] <= graphs
    assert first[1] <= breaks
    assert both.counts[0] <= compilations


def test_learning_from_a_rollout():
    """The same steps of an optimizer, with the same draws."""
    make, inputs, _ = OWN["actor-critic rollout"]
    found = []
    for wrap in (lambda model: model, pliant.compile):
        torch.manual_seed(0)
        agent = make()
        act = wrap(agent)
        optimizer = torch.optim.Adam(agent.parameters(), lr=1e-2)
        losses = []
        for batch, length in (*SHAPES, (3, 5)):
            optimizer.zero_grad()
            loss, _ = act(*inputs(batch, length))
            loss.backward()
            optimizer.step()
            losses.append(loss.detach())
        found.append([*losses, *(p.detach() for p in agent.parameters())])
    for mine, theirs in zip(found[1], found[0], strict=True):
        torch.testing.assert_close(mine, theirs)
    assert pliant.counters["compilations"] == 2


@torch.no_grad()
def test_transformer(compared):
    both = compared(Transformer(layers=2).eval())
    for batch, length in SHAPES:
        both(tokens(batch, length))
    assert both.counts == (2, 2, 0)


def test_mlp_in_training(compared):
    both = compared(MLP(layers=3))
    for batch in (2, 5, 1):
        got, expected = both(torch.randn(batch, 16))
        grads = [torch.autograd.grad(out.sum(), both.model.parameters()) for out in (got, expected)]
        for mine, theirs in zip(*grads, strict=True):
            torch.testing.assert_close(mine, theirs)
    assert both.counts == (2, 2, 0)
