"""Integers that the program computes and that don't fit into 64 bits: Python's have no limit, those
of kernels have."""

import math
import sys
from collections.abc import Callable
from typing import Any

import pytest
import torch

import pliant
from pliant.base import events
from tests.support.against_eager import run, same_outcome

LARGEST = sys.maxsize

# Of a tensor of six elements and of a number whose 20th power is beyond 64 bits from 9 on.
PROGRAMS: dict[str, Callable[[torch.Tensor, int], Any]] = {
    "factor": lambda x, n: x * n**20,
    "summand in a wide type": lambda x, n: x.double() + (n << 62),
    "quotient": lambda x, n: x / n**20,
    "reciprocal": lambda x, n: x * (1 / n**20),
    "float": lambda x, n: x * float(n**20),
    "root": lambda x, n: x * math.sqrt(n**20),
    "remainder": lambda x, n: x + n**20 % 1000,
    "hash": lambda x, n: x + ((n * 6364136223846793005 + 1442695040888963407) % 2**64 >> 33),
    "comparison": lambda x, n: x < n**20,
    "condition": lambda x, n: x * (n**20 > 5),
    "choice": lambda x, n: torch.where(x > 1, x, n**20),
    "minimum": lambda x, n: x * min(n**20, 1000),
    "alpha": lambda x, n: torch.add(x, x, alpha=n**20),
    "exponent": lambda x, n: x ** (n**20),
    "base": lambda x, n: (n**20) ** (x / 10),
    "fill": lambda x, n: x.clone().fill_(n**20),
    "bound": lambda x, n: x.clamp(max=n**20),
    "index": lambda x, n: x[n**20 % 3] * 2,
    "selected": lambda x, n: (x * 2).view(2, 3).select(1, n**20 % 3) + 1,
    "start": lambda x, n: (x * 2)[n**20 % 4 :],
    "shift": lambda x, n: x.roll(n**20 % 7, 0) + 1,
    "branch": lambda x, n: x + 1 if n**20 else x,
    "branch on a rounded quotient": lambda x, n: x * math.floor(n**20 / 3),
    "result": lambda x, n: (x + 1, n**20),
}
NUMBERS = (1, 2, 3, 9, 100, -100)


@pytest.mark.parametrize("dynamic", [None, True])
@pytest.mark.parametrize("dtype", [torch.float32, torch.int64])
@pytest.mark.parametrize("name", PROGRAMS)
def test_numbers_that_do_not_fit(name: str, dtype: torch.dtype, dynamic: bool | None) -> None:
    program, x = PROGRAMS[name], torch.arange(6).to(dtype)
    compiled = pliant.compile(lambda x, n: program(x, n), backend="llvm", dynamic=dynamic)
    for n in NUMBERS:
        same_close(run(compiled, (x, n)), run(program, (x, n)))
    assert events.counters["fallbacks"] == 0


@pytest.mark.parametrize("name", PROGRAMS)
def test_sizes_and_data_whose_powers_do_not_fit(name: str) -> None:
    x = torch.arange(6.0)
    programs: list[tuple[Any, Callable[[int], torch.Tensor], tuple[int, ...]]] = [
        (lambda x, y: PROGRAMS[name](x, y.shape[0]), lambda n: torch.empty(n, 1), (2, 3, 9, 100)),
        (lambda x, y: PROGRAMS[name](x, y.item()), torch.tensor, NUMBERS),
    ]
    for program, make, numbers in programs:
        compiled = pliant.compile(program, backend="llvm", dynamic=True)
        for n in numbers:
            same_close(run(compiled, (x, make(n))), run(program, (x, make(n))))
    assert events.counters["fallbacks"] == 0


def same_close(actual: Any, expected: Any) -> None:
    """Equal, but for the last digits of floats."""
    assert type(actual.error) is type(expected.error), (actual, expected)
    torch.testing.assert_close(actual.result, expected.result, equal_nan=True)


BRANCHES: dict[str, Callable[[int], bool]] = {
    "above the smallest": lambda n: n > -LARGEST,
    "below the largest": lambda n: n < LARGEST,
    "not the smallest": lambda n: n != -LARGEST,
    "a sum": lambda n: n + LARGEST > 0,
    "a product": lambda n: n * LARGEST < 0,
    "a power": lambda n: n**40 < 5,
}


@pytest.mark.parametrize("name", BRANCHES)
def test_questions_with_large_numbers(name: str) -> None:
    """A guard that can't be computed with 64 bits would fail for the call that it is made for."""

    def function(x: torch.Tensor, n: int) -> torch.Tensor:
        return x + 1 if BRANCHES[name](n) else x - 1

    for dynamic in (None, True):
        compiled = pliant.compile(function, dynamic=dynamic)
        for n in (2, -5, 100, 7, LARGEST, -LARGEST, -LARGEST - 1, LARGEST + 1):
            same_outcome(run(compiled, (torch.ones(2), n)), run(function, (torch.ones(2), n)))
    assert events.counters["fallbacks"] == 0


# Of a tensor of three elements and a constant that is an integer without a sign in PyTorch. (It
# refuses to promote most other types with these.)
UNSIGNED: dict[str, Callable[[torch.Tensor, int], Any]] = {
    "copied": lambda x, k: x.clone().copy_(k),
    "copied to a part": lambda x, k: x.clone()[:2].copy_(k),
    "added": lambda x, k: x + k,
    "reversed": lambda x, k: k - x,
    "multiplied in place": lambda x, k: x.clone().mul_(k),
    "divided": lambda x, k: x / k,
    "remainder": lambda x, k: x % k,
    "compared": lambda x, k: x < k,
    "chosen": lambda x, k: torch.where(x > 1, x, k),
    "bits": lambda x, k: x & k,
    "alpha": lambda x, k: torch.add(x, x, alpha=k),
    "negative alpha": lambda x, k: torch.sub(x, x, alpha=k),
    "range": lambda x, k: x[:1] + torch.arange(0.0, k, k // 3),
}


@pytest.mark.parametrize("dtype", [torch.bool, torch.uint8, torch.int64, torch.float32])
@pytest.mark.parametrize("name", UNSIGNED)
def test_constants_without_a_sign(name: str, dtype: torch.dtype) -> None:
    for number in (2**63, 2**63 + 2**40, 2**64 - 1):

        def program(x: torch.Tensor, k: int = number) -> Any:
            return UNSIGNED[name](x, k)

        x = torch.tensor([1, 2, 3]).to(dtype)
        for dynamic in (None, True):
            compiled = pliant.compile(program, backend="llvm", dynamic=dynamic)
            same_outcome(run(compiled, (x,)), run(program, (x,)))
    assert events.counters["fallbacks"] == 0


def test_sizes_beyond_64_bits() -> None:
    """Where an element is read has a factor that kernels can neither compute nor be given."""

    def function(x: torch.Tensor) -> torch.Tensor:
        return torch.nn.functional.interpolate(x[None], scale_factor=10**25)

    for dynamic in (None, True):
        compiled = pliant.compile(function, backend="llvm", dynamic=dynamic)
        for shape in ((3, 4), (2, 5), (2, 3)):
            same_outcome(run(compiled, (torch.ones(shape),)), run(function, (torch.ones(shape),)))
    assert events.counters["fallbacks"] == 0
