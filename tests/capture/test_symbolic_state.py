"""Symbolic numbers that are kept: in containers, objects, closures, across graph breaks, and as
arguments of PyTorch's functions."""

import dataclasses
import math

import pytest
import torch

import pliant
from pliant.base import events
from tests.support.against_eager import compilations, same

SIZES = (3, 7, 2, 5, 1, 0, 4)


def sized():
    return [(torch.arange(size * 4.0).view(size, 4),) for size in SIZES]


class Box:
    def __init__(self):
        self.count = 0


def keep(box, x):
    box.n = x.size(0) * 2
    box.items = [x.size(0)]
    box.table = {"half": x.size(0) / 2, "large": x.size(0) > 3}
    return x + box.n


def test_numbers_written_to_objects():
    boxes = Box(), Box()
    compiled = pliant.compile(lambda x: keep(boxes[1], x), dynamic=True)
    events.counters.reset()
    for (x,) in sized():
        same(compiled(x), keep(boxes[0], x))
        same(vars(boxes[1]), vars(boxes[0]))
    assert events.counters["compilations"] == 1


class Counter(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.step = 0
        self.rate = 1.0

    def forward(self, x):
        self.step += 1
        self.rate *= 0.9
        return x * self.step * self.rate


@pytest.mark.parametrize("dynamic", [True, None])
def test_numbers_of_a_module_that_change(dynamic):
    modules = Counter(), Counter()
    compiled = pliant.compile(modules[1], dynamic=dynamic)
    events.counters.reset()
    for _ in range(6):
        same(compiled(torch.ones(3)), modules[0](torch.ones(3)))
        assert modules[1].step == modules[0].step and modules[1].rate == modules[0].rate
    assert events.counters["compilations"] == 2


@dataclasses.dataclass
class Pair:
    n: int
    half: float


def in_objects(x):
    pair = Pair(x.size(0), x.size(0) / 2)
    pair.n += 1
    return pair, dataclasses.replace(pair, n=pair.n * 2).n


def in_closures(x):
    n = x.size(0)

    def bump(by=n):
        nonlocal n
        n += by

    bump()
    return x * n, n


def in_generators(x):
    def multiples():
        for i in range(3):
            yield i * x.size(0)

    first, *rest = x.shape
    return list(multiples()), first, rest, [i * s for i, s in enumerate(x.shape)]


PROGRAMS = {
    "objects": in_objects,
    "closures": in_closures,
    "generators": in_generators,
    "size": lambda x: (x.shape, x.size()[1:], x.shape[:-1] + (3,), list(x.shape), x.shape[::-1]),
    "counts": lambda x: (len(x), x.numel(), x.shape.numel(), x.dim(), x.stride(), sum(x.shape)),
    "same_size": lambda x: (x.shape == (x + 1).shape, max(x.shape), math.prod(x.shape)),
    "made_size": lambda x: (
        torch.Size([x.size(0), 2]),
        torch.zeros(*x.shape),
        x.new_zeros(x.shape),
    ),
    "of_results": lambda x: (torch.cat([x, x]).shape[0] + 1, (x @ x.t()).size()),
    "made": lambda x: (torch.zeros(x.size(0), 2), torch.arange(x.size(0)), torch.ones([x.size(0)])),
    "filled": lambda x: (torch.full((x.size(0),), x.size(0)), torch.full_like(x, x.size(0) / 2)),
    "tensors": lambda x: (torch.tensor([x.size(0), 1]), torch.tensor(x.size(0) / 2)),
    "scalars": lambda x: (x * x.size(0), x + x.size(0) / 2, x.size(0) - x, x.clamp(max=len(x))),
    "powers": lambda x: (torch.full((2,), 2.0) ** x.size(0), x.size(0) ** torch.ones(2)),
    "sliced": lambda x: (x[: x.size(0) // 2] + 1, x[: int(x.size(0) * 0.5)] + 1),
    "shaped": lambda x: (x.view(x.shape[0] * 2, 2) + 1, x.sum(dim=x.size(0) - x.size(0))),
    "split": lambda x: torch.split(x, [x.size(0) // 2, x.size(0) - x.size(0) // 2]),
    "topk": lambda x: x.topk(x.size(1) // 2).values,
    "where": lambda x: torch.where(x > 2, x.size(0), x),
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_one_compilation_for_all_sizes(name):
    assert compilations(PROGRAMS[name], sized(), dynamic=True, fullgraph=True) == 1


def across_a_break(x):
    n, numbers = x.size(0), {"double": [x.size(0) * 2]}
    half, large = n / 2, n > 4
    y = x + n
    pliant.graph_break()
    numbers["double"].append(n)
    return y * numbers["double"][0] + half, n, numbers, large


def test_numbers_stay_symbolic_across_a_break():
    assert compilations(across_a_break, sized(), dynamic=True) == 2
    assert compilations(across_a_break, sized()) == 4


def test_a_number_read_from_a_tensor_lives_across_a_break():
    def program(x, t):
        n = t.item()
        y = x * n
        pliant.graph_break()
        return y + n, n

    calls = [(torch.ones(3), torch.tensor(n)) for n in range(5)]
    assert compilations(program, calls, dynamic=True) == 2


def test_numbers_in_arguments():
    def program(x, numbers, *rest, factor=1, **more):
        return x * numbers[0] + sum(rest) * factor, numbers, more["bias"] + 1, rest

    events.counters.reset()
    compiled = pliant.compile(program)
    for n in (3, 4, 5, 6):
        args, kwargs = (torch.ones(2), [n, 5], n, 1), {"factor": n / 2, "bias": n}
        same(compiled(*args, **kwargs), program(*args, **kwargs))
    assert events.counters["compilations"] == 2


def test_a_number_goes_through_without_a_graph():
    assert compilations(lambda n: n, [(n,) for n in SIZES], dynamic=True) == 1
    assert compilations(lambda n: [0, 1, 2, 3, 4, 5, 6, 7][:n], [(3,), (5,)], dynamic=True) == 2


def test_a_flag_says_what_an_operation_does():
    def program(x):
        return torch.nn.functional.dropout(x, 0.0, training=bool(x.size(0)))

    assert compilations(program, sized(), dynamic=True, fullgraph=True) == 2
