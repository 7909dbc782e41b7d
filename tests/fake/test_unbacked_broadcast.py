"""Sizes that are in the data are broadcast as eager PyTorch does it, whatever they turn out to be:
0, 1, the other size, or one that does not fit."""

import itertools
from collections.abc import Callable

import pytest
import torch
from torch.nn import functional as F

import pliant
from tests.support.against_eager import run, same_outcome

Tensor = torch.Tensor

SIZES: dict[str, Callable[[Tensor], Tensor]] = {
    "nonzero": lambda y: torch.nonzero(y).squeeze(1) + 0.5,
    "unique": lambda y: torch.unique(y) + 0.5,
    "mask": lambda y: y[y > 0] + 0.5,
    "item": lambda y: torch.ones(int((y > 0).sum().item())),
    "repeat_interleave": lambda y: torch.ones(1).repeat_interleave((y > 0).sum().reshape(1)),
}

OPERATIONS: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "add": lambda x, u: x + u,
    "eq": lambda x, u: u == x,
    "lerp": lambda x, u: torch.lerp(x, u, 0.25),
    "addcmul": lambda x, u: torch.addcmul(x, x, u),
    "clamp": lambda x, u: torch.clamp(x, u, u + 1),
    "masked_fill": lambda x, u: x.masked_fill(u > 1, 7.0),
    "masked_fill of the data": lambda x, u: u.masked_fill(x > 1, 7.0),
    "masked_fill with a tensor": lambda x, u: x.masked_fill(u > 1, x.sum()),
    "where": lambda x, u: torch.where(u > 1, x, 0.0),
    "where of the data": lambda x, u: torch.where(x > 1, u, x),
    "expand": lambda x, u: u.expand(x.shape) + 0,
    "broadcast_tensors": lambda x, u: torch.stack(torch.broadcast_tensors(x, u)),
    "matmul": lambda x, u: x.reshape(-1, 1, 1) @ u.reshape(-1, 1, 1),
    "einsum": lambda x, u: torch.einsum("i,i->i", x.reshape(-1), u),
    "einsum of the data": lambda x, u: torch.einsum("i,ij->ij", u, x.reshape(-1, 1)),
    "mse_loss": lambda x, u: F.mse_loss(x, u, reduction="none"),
    "add_": lambda x, u: x.clone().add_(u),
    "outer": lambda x, u: x.reshape(-1, 1) * u,
}

DATA = [
    torch.tensor(rows)
    for rows in ([2, 0, 0, 0], [1, 2, 3, 0], [0, 0, 0, 0], [1, 1, 0, 0], [3, 2, 1, 4], [5, 5, 5, 5])
]
SHAPES = [(3,), (1,), (0,), (3, 1), (2, 3)]


@pytest.mark.filterwarnings("ignore:Using a target size")
@pytest.mark.parametrize("backend", ["eager", "llvm"])
@pytest.mark.parametrize("operation", OPERATIONS)
def test_broadcast_as_in_eager(operation: str, backend: str) -> None:
    first = list(OPERATIONS).index(operation)
    makers = itertools.islice(itertools.cycle(SIZES.values()), first, None)
    for shape, make, writes in zip(SHAPES, makers, itertools.cycle((False, True, True))):
        _compare(OPERATIONS[operation], make, torch.Size(shape), writes, backend)


def _compare(
    operation: Callable[[Tensor, Tensor], Tensor],
    make: Callable[[Tensor], Tensor],
    shape: torch.Size,
    writes: bool,
    backend: str,
) -> None:
    x = torch.arange(float(shape.numel())).reshape(shape)

    def function(x: Tensor, y: Tensor) -> Tensor:
        if writes:  # to an input, so that the function can't be run again without further ado
            x += 1
        result = operation(x, make(y))
        return result if result.numel() else result.new_empty(result.shape)

    compiled = pliant.compile(function, backend=backend)
    for y in DATA:
        actual = run(compiled, (x.clone(), y.clone()))
        same_outcome(actual, run(function, (x.clone(), y.clone())))


@pytest.mark.parametrize("backend", ["eager", "llvm"])
def test_each_case_is_compiled_once(backend: str) -> None:
    runs: list[bool] = []

    def function(x: Tensor, y: Tensor) -> Tensor:
        runs.append(pliant.is_compiling())
        return x + torch.unique(y)

    compiled = pliant.compile(function, backend=backend)
    one, all_four = DATA[5], DATA[1]
    for y in (all_four, one):
        compiled(torch.ones(4), y)
    runs.clear()
    for y in (one, all_four, all_four, one):
        compiled(torch.ones(4), y)
    assert all(runs), "a case that was compiled ran eagerly"


LAYOUTS: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "first": lambda x, u: x[:1, :2] + u,
    "second": lambda x, u: u * x[:1, :2],
    "three": lambda x, u: torch.where(u > 0, x[:1, :2], u),
    "column": lambda x, u: x[:1, :1] + u.T,
    "more": lambda x, u: x[:2, None, :2] + u,
}


@pytest.mark.parametrize("backend", ["eager", "llvm"])
@pytest.mark.parametrize("operation", LAYOUTS.values(), ids=LAYOUTS)
def test_layout_with_a_row_of_another_order(
    operation: Callable[[Tensor, Tensor], Tensor], backend: str
) -> None:
    """`nonzero` lays its columns out one after the other."""

    def function(x: Tensor, y: Tensor) -> Tensor:
        return operation(x, torch.nonzero(y))

    x = torch.arange(12).reshape(3, 4)
    compiled = pliant.compile(function, backend=backend, fullgraph=True, dynamic=True)
    for rows in (3, 2, 1, 0):
        y = torch.zeros(3, 3)
        y[:rows, 1] = 1
        actual, expected = compiled(x, y), function(x, y)
        assert torch.equal(actual, expected)
        if rows > 1:  # the strides for 0 and 1 are a difference of their own
            assert actual.stride() == expected.stride()


@pytest.mark.parametrize("backend", ["eager", "llvm"])
def test_neighbours(backend: str) -> None:
    """`u[1:]` and `u[:-1]` are of one size, whatever it is."""

    def function(y: Tensor) -> Tensor:
        u = torch.nonzero(y).squeeze(1)
        steps = torch.zeros_like(u)
        steps[1:] = u[1:] - u[:-1]
        return steps

    compiled = pliant.compile(function, backend=backend, fullgraph=True)
    for y in DATA:
        assert torch.equal(compiled(y), function(y))
    assert pliant.counters["compilations"] == 1


@pytest.mark.parametrize("dynamic", [None, False, True])
def test_possibilities_that_a_size_leaves(dynamic: bool | None) -> None:
    """A product is a view if it has no elements, or one row: what is assumed of its size later has
    to agree with that."""

    def function(y: Tensor) -> Tensor:
        u = torch.arange(int((y > 0).sum())) + 0
        return torch.cartesian_prod(u.flatten()[:2], u.flatten()[:2])

    compiled = pliant.compile(function, backend="llvm", dynamic=dynamic)
    for y in (torch.ones(()), torch.zeros(()), torch.ones(2), torch.ones(5), torch.ones(1)):
        assert torch.equal(compiled(y), function(y))
