"""Sizes and numbers that are read from tensors (`tolist()`, `item()`) in training: one program."""

import pytest
import torch

import pliant
from pliant.base import events


def split(x, n):
    parts = torch.split(x, n.tolist())
    return sum([part.sin().sum() * at for at, part in enumerate(parts, 1)])


def sliced(x, n):
    a, b = n.tolist()
    return x[:a].sum() * 2 + x[a:].exp().sum() * b


def by_items(x, n):
    return (x[: n[0].item()] ** 2).mean(1).sum() + x[n[0].item() :].sin().sum()


def narrowed(x, n):
    return x.narrow(0, 0, n.tolist()[0]).sin().sum()


def padded(x, n):
    """Rows of several lengths, as a batch."""
    rows = [part.tanh() for part in torch.split(x, n.tolist())]
    return torch.nn.utils.rnn.pad_sequence(rows, batch_first=True).square().sum()


def factors(x, n):
    first, second = (n * 0.5).tolist()
    return (x * first).sin().sum() + x.sum() * second


def nested(x, n):
    ((a, b), (c, d)) = torch.stack([n, n + 1]).tolist()
    return x.sum() * a * d + x.exp().sum() * b + c


def masked(x, n):
    return (x[x > 0] ** 2).sum() * n.tolist()[1]


PROGRAMS = [split, sliced, by_items, narrowed, factors, nested, masked]
COUNTS = [(2, 3), (1, 4), (3, 2), (5, 0), (0, 5), (4, 1)]


def gradient(function, counts):
    torch.manual_seed(0)
    x = torch.randn(5, 3, requires_grad=True)
    result = function(x, torch.tensor(counts))
    return result.detach(), torch.autograd.grad(result, x)[0]


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.__name__)
def test_numbers_that_vary(program) -> None:
    compiled = pliant.compile(program, backend="llvm")
    for counts in COUNTS:
        for a, b in zip(gradient(compiled, counts), gradient(program, counts), strict=True):
            torch.testing.assert_close(a, b)
            assert a.stride() == b.stride()
    assert events.counters["not_generated"] == events.counters["graph_breaks"] == 0
    assert events.counters["compilations"] == 1


def summed_up(x, n):
    """The gradient's formula asks how many elements there are."""
    return x[: n[0].item()].cumsum(0).sum()


@pytest.mark.parametrize("program", [padded, summed_up], ids=lambda program: program.__name__)
@pytest.mark.parametrize("counts", COUNTS)
def test_what_is_left_to_pytorch(program, counts) -> None:
    compiled = pliant.compile(program, backend="llvm")
    for a, b in zip(gradient(compiled, counts), gradient(program, counts), strict=True):
        torch.testing.assert_close(a, b)


def test_sizes_that_are_wrong() -> None:
    compiled = pliant.compile(split, backend="llvm")
    gradient(compiled, (2, 3))
    for counts in ((2, 2), (-1, 6)):
        with pytest.raises(RuntimeError, match="split"):
            gradient(compiled, counts)
    torch.testing.assert_close(gradient(compiled, (1, 4)), gradient(split, (1, 4)))


def test_a_write_behind_a_list() -> None:
    """The numbers are those from before."""

    def function(x, n):
        counts = n.tolist()
        n.add_(1)
        return x.sum() * counts[0] + n[0]

    for compiles in (False, True):
        run = pliant.compile(function, backend="llvm") if compiles else function
        n = torch.tensor([2, 3])
        x = torch.ones(2, requires_grad=True)
        assert run(x, n).item() == 7 and n.tolist() == [3, 4]


@pytest.mark.parametrize("requires_grad", [False, True])
def test_a_list_that_is_returned(requires_grad: bool) -> None:
    def function(x, n):
        return x.sin(), n.tolist()

    compiled = pliant.compile(function, backend="llvm")
    x = torch.ones(2, requires_grad=requires_grad)
    for numbers in ([1, 2], [3, 4]):
        assert compiled(x, torch.tensor(numbers))[1] == numbers
