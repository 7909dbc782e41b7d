"""LSTM and GRU: forward and backward, with sizes that vary."""

import copy

import pytest
import torch
from torch import nn

import pliant
from pliant.backends.training import MOST_VARIANTS
from pliant.base import events
from tests.training.gradients_of import compare, outcome

FORMS = [
    {},
    {"num_layers": 2, "dropout": 0.3},
    {"bidirectional": True, "batch_first": True},
    {"bias": False, "num_layers": 2, "bidirectional": True},
]


class Around(nn.Module):
    """A recurrent network between other layers; all of its results are returned."""

    def __init__(self, kind, **form):
        super().__init__()
        self.net = kind(4, 8, **form)
        self.head = nn.Linear(16 if form.get("bidirectional") else 8, 2)

    def forward(self, x):
        output, state = self.net(x.tanh())
        return self.head(output).sin(), state


def trains_as_eager(model, sizes, dynamic, dtype=torch.float32) -> None:
    model = model.to(dtype).train()
    ours = copy.deepcopy(model)
    compiled = pliant.compile(ours, backend="llvm", dynamic=dynamic)
    for size in sizes:
        model.zero_grad()
        ours.zero_grad()
        x = torch.randn(size, dtype=dtype, requires_grad=True)
        compare(outcome(compiled, [x], ours), outcome(model, [x], model), rtol=1e-4, atol=1e-5)
    assert events.counters["fallbacks"] == 0
    assert events.counters["not_generated"] == 0
    assert events.counters["programs"] >= 2


@pytest.mark.parametrize("form", FORMS[1:3], ids=str)
@pytest.mark.parametrize("kind", [nn.LSTM, nn.GRU, nn.RNN])
def test_fixed_sizes(kind, form) -> None:
    trains_as_eager(Around(kind, **form), [(5, 3, 4)] * 2, False)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("form", FORMS[2:], ids=str)
@pytest.mark.parametrize("kind", [nn.LSTM, nn.GRU, nn.RNN])
def test_batches_that_vary(kind, form, dtype) -> None:
    sizes = [(5, 3, 4), (5, 6, 4), (5, 2, 4)]
    if form.get("batch_first"):
        sizes = [(batch, time, width) for time, batch, width in sizes]
    trains_as_eager(Around(kind, **form), sizes, None, dtype)
    assert events.counters["compilations"] == 2


def test_batches_of_rectified_steps() -> None:
    model = Around(nn.RNN, nonlinearity="relu", num_layers=2)
    trains_as_eager(model, [(5, 3, 4), (5, 6, 4), (5, 2, 4)], None)
    assert events.counters["compilations"] == 2


@pytest.mark.parametrize("form", FORMS, ids=str)
def test_lengths_that_vary(form) -> None:
    sizes = [(5, 3, 4), (7, 4, 4), (4, 6, 4), (9, 2, 4)]
    trains_as_eager(Around(nn.LSTM, **form), sizes, True)
    assert events.counters["compilations"] == 1


@pytest.mark.parametrize("kind", [nn.GRU, nn.RNN])
def test_lengths_of_what_is_unrolled(kind) -> None:
    """Each has code of its own, up to a limit. All others share one that calls the network."""
    net = kind(2, 3)
    compiled = pliant.compile(lambda x: net(x)[0], backend="llvm", dynamic=True)

    def is_compiled(length):
        x = torch.randn(length, 2, 2)
        parameters = list(net.parameters())
        ours, eager = compiled(x), net(x)[0]
        torch.testing.assert_close(ours, eager)
        gradients = [torch.autograd.grad(result.sum(), parameters) for result in (ours, eager)]
        torch.testing.assert_close(*gradients)
        return type(ours.grad_fn).__name__ == "PliantBackward"

    lengths = [*range(2, 2 + MOST_VARIANTS + 1), 3, 2]
    assert [is_compiled(length) for length in lengths] == [True] * len(lengths)
    assert events.counters["not_generated"] == 0
    before = events.counters["programs"]
    assert [is_compiled(length) for length in (20, 21, 3)] == [True] * 3
    assert events.counters["not_generated"] == 0
    assert events.counters["programs"] == before + 2


def test_a_state_that_is_given() -> None:
    class Given(nn.Module):
        def __init__(self):
            super().__init__()
            self.net = nn.LSTM(4, 8)
            self.start = nn.Parameter(torch.randn(2, 1, 3, 8))

        def forward(self, x):
            return self.net(x, (self.start[0], self.start[1]))[1][1]

    trains_as_eager(Given(), [(5, 3, 4), (6, 3, 4), (8, 3, 4)], None)


def test_gradients_of_gradients() -> None:
    """oneDNN has none in eager either; the step-by-step form has."""
    net = nn.GRU(2, 3).double()
    x = torch.randn(3, 2, 2, dtype=torch.float64, requires_grad=True)
    run = pliant.compile(lambda x: net(x)[0], backend="llvm")
    assert torch.autograd.gradgradcheck(run, (x,))
