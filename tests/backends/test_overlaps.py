"""Operators that read what they write: eager PyTorch refuses most of them, and has an order of its
own for the others."""

import random
import warnings

import pytest
import torch

import pliant
from pliant.base import events
from pliant.graph.scatter import overlap
from tests.backends.eager_twin import call, difference

pytestmark = pytest.mark.own_default


def at(*places):
    return torch.tensor(places)


ALL = (6, 1, 2, 3, 4, 5, 0)

WRITES = [
    lambda x: torch.cat([x], out=x),
    lambda x: torch.cat([x[:2], x[2:4]], out=x[1:5]),
    lambda x: torch.cat([x[:2], x[:2]], out=x[4:5].expand(4)),
    lambda x: torch.stack([x[0], x[1]], out=x[:2]),
    lambda x: x.index_add_(0, at(*ALL), x),
    lambda x: x.index_copy_(0, at(0, 1), x[1:3]),
    lambda x: x.index_put_((at(*ALL),), x),
    lambda x: x.index_put_((at(*ALL),), x, accumulate=True),
    lambda x: x.index_put_((x > 0,), x[0]),
    lambda x: x.__setitem__(at(0, 1), x[2]),
    lambda x: x.__setitem__(x > 0, x[0]),
    lambda x: x.__setitem__(slice(0, 3), x[1:4]),
    lambda x: x.scatter_(0, at(*ALL), x),
    lambda x: x.scatter_add_(0, at(*ALL), x),
    lambda x: torch.gather(x, 0, at(*ALL), out=x),
    lambda x: torch.index_select(x, 0, at(*ALL), out=x),
    lambda x: torch.take(x, at(*ALL), out=x),
    lambda x: x.put_(at(*ALL), x),
    lambda x: x.masked_scatter_(x > 0, x),
    lambda x: x.masked_fill_(x > 0, x[0]),
    lambda x: x.fill_(x[3]),
    lambda x: x.copy_(x.flip(0)),
    lambda x: x.unflatten(0, (1, 7)).copy_(x),
    lambda x: x[1:].copy_(x[:-1]),
    lambda x: x[1:].add_(x[:-1]),
    lambda x: x[:4].view(2, 2).add_(x[:4].view(2, 2).t()),
    lambda x: x[::2][:3].add_(x[1::2]),
    lambda x: x[::2].add_(x[:4]),
    lambda x: x[:6].view(2, 3).add_(x[:3]),
    lambda x: x[:6].view(3, 2)[:, 0].mul_(x[:6].view(3, 2)[:, 1]),
    lambda x: x.mul_(x),
    lambda x: torch.add(x[:4], 1, out=x[1:5]),
    lambda x: torch.sum(x, 0, out=x[0]),
    lambda x: torch.cumsum(x, 0, out=x),
    lambda x: torch.bmm(*[x[:4].view(1, 2, 2)] * 2, out=x[:4].view(1, 2, 2)),
    lambda x: torch.where(x[1:] > 0, x[1:], 0.0, out=x[:-1]),
]


@pytest.mark.parametrize("dynamic", [None, True])
@pytest.mark.parametrize("function", WRITES, ids=range(len(WRITES)))
def test_writes_to_what_is_read(function, dynamic):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        outcomes = [
            call(made, [torch.arange(7.0) - 2])
            for made in (pliant.compile(function, dynamic=dynamic), function)
        ]
    assert difference(*outcomes) is None


@pytest.mark.parametrize(
    "function",
    [
        lambda x: x[::2][:3].add_(x[1::2]),
        lambda x: x[:6].view(3, 2)[:, 0].mul_(x[:6].view(3, 2)[:, 1]),
        lambda x: x[:6].view(2, 3)[:, 1:].copy_(x[:6].view(2, 3)[:, :1]),
    ],
)
def test_parts_of_one_memory_that_are_apart_are_compiled(function):
    x, y = torch.arange(7.0), torch.arange(7.0)
    pliant.compile(function)(x)
    function(y)
    assert torch.equal(x, y) and events.counters["programs"] == 1


@pytest.mark.parametrize("seed", range(3))
def test_whether_two_views_overlap(seed):
    rng = random.Random(seed)
    memory = torch.arange(200)

    def view():
        rank = rng.randint(0, 3)
        sizes = [rng.randint(1, 4) for _ in range(rank)]
        return memory.as_strided(
            sizes, [rng.choice([0, 1, 2, 3, 4, 6, 12]) for _ in sizes], rng.randint(0, 30)
        )

    for _ in range(1000):
        a, b = view(), view()
        shared = {*a.flatten().tolist()} & {*b.flatten().tolist()}
        assert overlap(a, b, elementwise=False) is bool(shared)


@pytest.mark.parametrize("function", [torch.sum, torch.argmax, torch.amin])
def test_more_dimensions_than_kernels_take(function):
    x = torch.arange(2.0).reshape([1] * 69 + [2])
    with pytest.raises(RuntimeError, match="only tensors with up to 64 dims are supported"):
        pliant.compile(lambda x: function(x, 0))(x)
    assert pliant.compile(lambda x: x + 1)(x).flatten().tolist() == [1, 2]
