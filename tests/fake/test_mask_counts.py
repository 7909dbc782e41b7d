"""A mask that nothing has written to selects as many elements as before."""

from collections.abc import Callable

import pytest
import torch

import pliant
from pliant.base import events
from tests.support.against_eager import run, same_outcome

Tensor = torch.Tensor


def masks_of(count: int) -> list[Tensor]:
    """With none, one and more places, before and after what the programs below write."""
    return [torch.arange(count) % 3 == 0, torch.arange(count) == 1, torch.zeros(count) > 0]


def scaled(x: Tensor, m: Tensor) -> Tensor:
    out = torch.zeros_like(x)
    out[m] = x[m] / (x + 20)[m]
    return out


def twice_computed(x: Tensor, m: Tensor) -> Tensor:
    out = torch.zeros_like(x)
    out[x > 2] = x[x > 2] * x[~(x <= 2)]
    return out


@pytest.mark.parametrize("function", [scaled, twice_computed])
@pytest.mark.parametrize("dynamic", [None, True])
def test_code_is_generated(function: Callable[..., Tensor], dynamic: bool | None) -> None:
    fast = pliant.compile(function, backend="llvm", dynamic=dynamic)
    for count in (5, 1, 0, 8):
        for mask in masks_of(count):
            x = torch.arange(float(count))
            assert torch.equal(fast(x, mask), function(x, mask))
    assert events.counters["not_generated"] == events.counters["graph_breaks"] == 0


def test_gradients() -> None:
    fast = pliant.compile(scaled, backend="llvm", dynamic=True)
    for mask in masks_of(7):
        grads = []
        for function in (fast, scaled):
            x = torch.arange(7.0).requires_grad_()
            function(x, mask).sum().backward()
            grads.append(x.grad)
        torch.testing.assert_close(*grads)
    assert events.counters["not_generated"] == 0


def test_no_assumption_is_needed() -> None:
    """One compilation for all counts."""
    fast = pliant.compile(lambda x, m: x[m] + (x * x)[m], backend="eager", dynamic=True)
    for mask in masks_of(6):
        fast(torch.arange(6.0), mask)
    assert events.counters["compilations"] == 1


def data(m: Tensor) -> None:
    m.data[:1] = True


def out(m: Tensor) -> None:
    torch.logical_not(m, out=m)


def view(m: Tensor) -> None:
    m.view(-1)[1:] = True


WRITES: dict[str, Callable[[Tensor], object]] = {
    "a slice": lambda m: m[:2].logical_not_(),
    "another view": view,
    "data": data,
    "out": out,
    "fill_": lambda m: m.fill_(True),
    "a mask of its own": lambda m: m.masked_fill_(~m, True),
}


@pytest.mark.parametrize("how", WRITES)
@pytest.mark.parametrize("backend", ["eager", "llvm"])
def test_masks_that_are_written(how: str, backend: str) -> None:
    def function(x: Tensor, m: Tensor) -> tuple[Tensor, Tensor, int]:
        before = x[m]
        WRITES[how](m)
        after = x[m]
        return before * 2, after + 1, after.shape[0]

    fast = pliant.compile(function, backend=backend, dynamic=True)
    for mask in masks_of(5):
        x = torch.arange(5.0)
        same_outcome(run(fast, (x, mask.clone())), run(function, (x, mask.clone())))
