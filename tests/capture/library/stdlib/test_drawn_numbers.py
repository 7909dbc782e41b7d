"""Numbers that `random` and `numpy.random` draw, as inputs of generated code."""

import random

import numpy
import pytest
import torch
from torch import nn

import pliant
from pliant.base import events


def scaled(x):
    return x * random.random() + random.uniform(0.5, 2)


def integers(x):
    return x + random.randint(1, 5), torch.arange(3) * random.choice([1, 2, 3])


def arithmetic(x):
    return x * (1 + 2 * random.gauss(0, 1)) ** 2


def returned(x):
    factor = random.random()
    return x * factor, factor


def cropped(x):
    first = random.randint(0, 2)
    return x[first : first + 2].sin()


def cut_out(x):
    first = random.randint(0, 2)
    y = x.clone()
    y[:, first : first + 1] = 0
    return y


def rows_of_zeros(x):
    return torch.zeros(random.randint(1, 4), 3) + x[0]


def rolled(x):
    return torch.roll(x, random.randint(0, 3), 0)


def large(x):
    return x + (random.getrandbits(100) >> 90)


def numbers_of_numpy(x):
    return x * numpy.random.rand() + int(numpy.random.randint(3)), numpy.random.normal()


def dropped_layer(x):
    """A branch ends the graph, and the parts are generated."""
    y = x.sin()
    return y if random.random() < 0.5 else y + x


PROGRAMS = [
    *(scaled, integers, arithmetic, returned, cropped, cut_out, rows_of_zeros, rolled, large),
    *(numbers_of_numpy, dropped_layer),
]


def calls_of(function):
    told = []
    for seed in range(6):
        random.seed(seed)
        numpy.random.seed(seed)
        x = torch.linspace(0, 1, 12).view(4, 3)
        results = function(x)
        told += results if isinstance(results, tuple) else [results]
        told += [random.getstate(), numpy.random.get_state()[2]]
    return told


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.__name__)
def test_generated_code(program) -> None:
    theirs = calls_of(program)
    mine = calls_of(pliant.compile(program, backend="llvm"))
    for a, b in zip(mine, theirs, strict=True):
        if isinstance(b, torch.Tensor):
            torch.testing.assert_close(a, b)
            assert a.stride() == b.stride()
        else:
            assert a == b
    assert events.counters["not_generated"] == events.counters["fallbacks"] == 0
    assert events.counters["graph_breaks"] == (program is dropped_layer)
    assert events.counters["programs"] > 0


def mixing_step():
    """A whole step on mixed examples."""
    torch.manual_seed(0)
    model = nn.Linear(3, 2)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

    def step(x):
        optimizer.zero_grad()
        share = numpy.random.beta(0.5, 0.5)
        loss = model(share * x + (1 - share) * x.flip(0)).square().mean()
        loss.backward()
        optimizer.step()
        return loss.detach(), *[p.detach().clone() for p in model.parameters()]

    return step


class Scaled(nn.Module):
    """A forward with gradients behind it."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.layer = nn.Linear(3, 2)

    def forward(self, x):
        return self.layer(x).sin() * random.uniform(0.5, 1)


def gradients_of(run, model):
    def gradients(x):
        model.zero_grad()
        run(x).square().sum().backward()
        return tuple([p.grad.clone() for p in model.parameters()])

    return gradients


@pytest.mark.parametrize("whole", [True, False])
def test_training(whole: bool) -> None:
    def run(compiles: bool):
        wrap = (lambda f: pliant.compile(f, backend="llvm")) if compiles else lambda f: f
        model = Scaled()
        return calls_of(wrap(mixing_step()) if whole else gradients_of(wrap(model), model))

    for a, b in zip(run(True), run(False), strict=True):
        if isinstance(b, torch.Tensor):
            torch.testing.assert_close(a, b)
    assert events.counters["not_generated"] == events.counters["graph_breaks"] == 0
    assert events.counters["programs"] > 0


def test_a_size_that_eager_refuses() -> None:
    def function(x):
        return x + torch.zeros(random.randint(-3, 4), 1)

    compiled = pliant.compile(function, backend="llvm")
    for seed in range(8):
        told = []
        for run in (compiled, function):
            random.seed(seed)
            try:
                told.append(run(torch.ones(1, 3)).tolist())
            except RuntimeError as error:
                told.append(str(error))
            told.append(random.getstate())
        assert told[:2] == told[2:]


def test_a_question_about_a_drawn_number_is_not_said_to_be_about_a_tensor():
    compiled = pliant.compile(lambda x: torch.rot90(x, random.randint(0, 3)), fullgraph=True)
    with pytest.raises(pliant.errors.DataDependentError, match="is known when the code runs"):
        compiled(torch.ones(2, 2))
