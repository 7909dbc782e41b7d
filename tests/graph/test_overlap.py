"""Inputs in one memory: parts that don't touch are written like tensors of their own."""

from itertools import permutations

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import pliant
from pliant.base import events
from pliant.graph.overlap import inputs_that_share


def parts(kind):
    memory = torch.arange(12.0)
    pairs = {
        "apart": (memory[:4], memory[6:10]),
        "adjacent": (memory[4:8], memory[:4]),
        "interleaved": (memory[0:8:2], memory[1:9:2]),
        "overlapping": (memory[:4], memory[2:6]),
        "of their own": (torch.arange(4.0), torch.arange(4.0) + 3),
    }
    return memory, *pairs[kind]


def write_both(a, b):
    a.mul_(2)
    total = a + b.sum()
    b.add_(1)
    return total, a * b.sum()


@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize(
    "kinds", list(permutations(["apart", "interleaved", "overlapping", "of their own"]))
)
def test_parts_of_one_memory(kinds, dynamic) -> None:
    """What was compiled for one kind of parts is called with others."""
    compiled = pliant.compile(write_both, backend="llvm", dynamic=dynamic)
    for kind in (kinds[0], *kinds, "adjacent"):
        theirs, mine = parts(kind), parts(kind)
        wanted, results = write_both(*theirs[1:]), compiled(*mine[1:])
        for a, b in zip((*results, *mine), (*wanted, *theirs), strict=True):
            assert torch.equal(a, b)


@pytest.mark.parametrize("kind, shared", [("apart", 0), ("adjacent", 0), ("overlapping", 2)])
def test_which_inputs_share(kind: str, shared: int) -> None:
    _, *pair = parts(kind)
    assert len(inputs_that_share(pair)) == shared


def test_one_that_spans_others() -> None:
    memory = torch.zeros(10)
    apart = torch.zeros(3)
    inputs = [memory[7:9], apart, memory[:8], 3, memory[1:2], memory[9:]]
    assert inputs_that_share(inputs) == {0, 2, 4}


def test_parameters_in_one_buffer() -> None:
    """As of a recurrent network that PyTorch has flattened."""

    def train(compiles: bool):
        torch.manual_seed(0)
        model = nn.Sequential(nn.Linear(3, 8), nn.GELU(), nn.Linear(8, 2))
        buffer = torch.cat([p.detach().flatten() for p in model.parameters()])
        start = 0
        for parameter in model.parameters():
            parameter.data = buffer[start : start + parameter.numel()].view_as(parameter)
            start += parameter.numel()
        optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)

        def step(x):
            optimizer.zero_grad()
            loss = F.mse_loss(model(x), x[:, :2])
            loss.backward()
            optimizer.step()
            return loss.detach()

        run = pliant.compile(step, backend="llvm") if compiles else step
        return [*[run(torch.full((4, 3), float(n))) for n in range(5)], buffer]

    theirs = train(False)
    events.counters.reset()
    mine = train(True)
    assert events.counters["not_generated"] == events.counters["graph_breaks"] == 0
    torch.testing.assert_close(mine, theirs, rtol=1e-4, atol=1e-5)


def pull_row(table, at):
    table[0] = table[at.argmax()]


def pull_column(table, at):
    table[:, 1] = table[:, at.argmax()]


def swap_elements(table, at):
    high, low = at.argmax(), at.argmin()
    table[high, low] = table[low, high]
    table[low] *= table[high]


@pytest.mark.parametrize("step", [pull_row, pull_column, swap_elements])
@pytest.mark.parametrize("dynamic", [False, True])
def test_rows_that_the_data_select(step, dynamic) -> None:
    """They are the same row or share nothing, so that it doesn't matter which ones they are."""
    compiled = pliant.compile(step, backend="llvm", dynamic=dynamic)
    for at in ([5, 1, 2], [1, 5, 2], [2, 1, 5]):
        mine, theirs = torch.arange(12.0).view(4, 3), torch.arange(12.0).view(4, 3)
        compiled(mine, torch.tensor(at))
        step(theirs, torch.tensor(at))
        assert torch.equal(mine, theirs)
    assert events.counters["not_generated"] == 0


def test_rows_of_windows_that_overlap() -> None:
    compiled = pliant.compile(pull_row, backend="llvm")
    for at in ([5, 1, 2], [1, 5, 2], [2, 1, 5]):
        sides = []
        for run in (compiled, pull_row):
            memory = torch.arange(12.0)
            with pytest.raises(RuntimeError) as error:
                run(memory.unfold(0, 4, 1), torch.tensor(at))
                raise RuntimeError("none")
            sides.append((str(error.value), memory.tolist()))
        assert sides[0] == sides[1]
