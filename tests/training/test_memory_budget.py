"""The option `activation_memory_budget`, and the log of what is saved."""

import copy
import re

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import pliant
from pliant.base import events
from pliant.base.errors import InvalidOptionError
from tests.training.gradients_of import compare, outcome
from tests.training.test_gradients import Attention

BUDGETS = (1, 0.9, 0.5, 0.1, 0.0)


class Convolutional(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.MaxPool2d(2))

    def forward(self, x):
        return self.net(x).mean((2, 3))


class Writes(nn.Module):
    """Its backward needs what is computed from a buffer, before a write to that."""

    def __init__(self):
        super().__init__()
        self.first = nn.Linear(4, 4)
        self.register_buffer("scale", torch.ones(4))

    def forward(self, x):
        y = self.first(x) * self.scale.sin()
        self.scale.mul_(0.9)
        return y.tanh()


def perceptron():
    return nn.Sequential(
        *(nn.Linear(8, 32), nn.GELU(), nn.Dropout(0.1)),
        *(nn.LayerNorm(32), nn.Linear(32, 32), nn.Softmax(-1), nn.Linear(32, 1)),
    )


PROGRAMS = {
    "perceptron": (perceptron, (16, 8)),
    "attention": (Attention, (2, 5, 16)),
    "convnet": (Convolutional, (3, 1, 8, 8)),
    "writes": (Writes, (3, 4)),
}


def partitions(seen) -> list[str]:
    return [event.report() for event in seen(events.GraphPartitioned)]


def saved_bytes(report: str) -> int:
    count = re.search(r"([\d,]+) of them neither", report)
    assert count is not None
    return int(count[1].replace(",", ""))


@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("name", PROGRAMS)
def test_gradients_at_all_budgets(name, dynamic, seen) -> None:
    make, sizes = PROGRAMS[name]
    model = make().train()
    x = torch.randn(sizes, requires_grad=True)
    for budget in BUDGETS:
        ours, theirs = copy.deepcopy(model), copy.deepcopy(model)
        options = {"activation_memory_budget": budget}
        compiled = pliant.compile(ours, backend="llvm", dynamic=dynamic, options=options)
        mine = outcome(compiled, [x], ours)
        compare(mine, outcome(theirs, [x], theirs), rtol=1e-4, atol=1e-5)
    assert events.counters["not_generated"] == 0
    assert events.counters["programs"] == 2 * len(BUDGETS)
    sizes = [saved_bytes(report) for report in partitions(seen)]
    assert sizes == sorted(sizes, reverse=True)
    assert name == "writes" or sizes[-1] < sizes[0]


def test_at_zero_only_what_cannot_be_repeated_is_saved(seen) -> None:
    model = perceptron()
    options = {"activation_memory_budget": 0}
    pliant.compile(model, backend="llvm", options=options)(torch.randn(16, 8))
    (report,) = partitions(seen)
    saved = [line for line in report.split("\n") if line.startswith("saved")]
    reasons = {re.split(r" bytes +", line)[1] for line in saved}
    assert reasons == {"is an input", "can't be computed again"}


def test_random_numbers_are_drawn_once(seen) -> None:
    def function(x):
        return F.dropout(x.exp(), 0.5).sin() * torch.rand_like(x)

    for budget in (0, 1):
        options = {"activation_memory_budget": budget}
        compiled = pliant.compile(function, backend="llvm", options=options)
        x = torch.randn(50, requires_grad=True)
        compare(outcome(compiled, [x]), outcome(function, [x]), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("value", [-0.1, 1.5, True, "half", None])
def test_other_values(value) -> None:
    with pytest.raises(InvalidOptionError, match="a number from 0 to 1"):
        pliant.compile(torch.sin, options={"activation_memory_budget": value})


def test_the_log(seen, capsys) -> None:
    pliant.set_logs(partition=True)
    try:
        x = torch.randn(4, 8, requires_grad=True)
        pliant.compile(lambda x, w: torch.tanh(x @ w) * 2, backend="llvm")(x, torch.randn(8, 2))
    finally:
        pliant.set_logs()
    text = capsys.readouterr().err
    assert "[pliant partition]" in text
    assert re.search(r"saved +l_w +float32\[8, 2\] +64 bytes +is an input", text)


def test_bytes_of_a_log_without_anything_saved(seen) -> None:
    x = torch.randn(4, requires_grad=True)
    pliant.compile(lambda x: x * 2, backend="llvm")(x)
    (report,) = partitions(seen)
    assert report.startswith("0 tensors saved, 0 bytes")
