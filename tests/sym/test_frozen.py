"""Sizes that only guards read, while the graph reads what is equal to them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F

import pliant


def threshold(unused: Any, x: Any, n: int) -> Any:
    return F.threshold(x, 0, n) if unused.shape[0] == n else x


def full(unused: Any, x: Any, n: int) -> Any:
    return torch.full((n,), n) if unused.shape[0] == n else x


def repeated(unused: Any, x: Any, n: int) -> Any:
    return torch.repeat_interleave(x, n) if unused.shape[0] == n else x


def operator(unused: Any, x: Any, n: int) -> Any:
    return torch.linalg.inv(torch.eye(3)) * x.sum() + n if unused.shape[0] == n else x


def float_of_size(unused: Any, x: Any, n: int) -> Any:
    return x * (n / 2) if unused.shape[0] == n else x


def shifted(unused: Any, x: Any, n: int) -> Any:
    return x.sum() * n + n if unused.shape[0] + 2 == n + 2 else x


def sums(unused: Any, x: Any, n: int) -> Any:
    return x * n + x.shape[0] if unused.shape[0] + 7 == n + x.shape[0] else x


def multiple(unused: Any, x: Any, n: int) -> Any:
    return x + x.shape[0] if unused.shape[0] * 2 == x.shape[0] + 3 else x


def multiple_of_size(unused: Any, x: Any, n: int) -> Any:
    y = torch.cat([x, x, x, x, x])
    return y[: 2 * n] + n if unused.shape[0] * x.shape[0] == y.shape[0] else x


def number(unused: Any, x: Any, n: int) -> Any:
    return n * 2 if unused.shape[0] == n else x


def through_two(unused: Any, x: Any, n: int) -> Any:
    if unused.shape[0] == n and unused.shape[0] + 2 == x.shape[0]:
        return x[:n] * x.shape[0]
    return x


PROGRAMS = [
    threshold,
    full,
    repeated,
    operator,
    float_of_size,
    shifted,
    sums,
    multiple,
    multiple_of_size,
    number,
    through_two,
]


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda p: p.__name__)
def test_numbers_are_read_from_the_inputs_of_the_graph(program: Callable[..., Any]) -> None:
    compiled = pliant.compile(program, backend="llvm", dynamic=True)
    for args in ((5, 7, 5), (5, 7, 5), (6, 8, 6), (9, 11, 9)):
        unused, size, n = args
        x = torch.linspace(-3, 3, size)
        result, expected = (f(torch.ones(unused), x, n) for f in (compiled, program))
        torch.testing.assert_close(result, expected)


def test_a_size_is_not_expressed_by_one_that_no_input_has() -> None:
    def program(unused: Any, x: Any) -> Any:
        return x + x.shape[0] if x.shape[0] == 2 * unused.shape[0] else x

    compiled = pliant.compile(program, backend="llvm", dynamic=True)
    for n in (3, 4, 8):
        x = torch.randn(2 * n)
        torch.testing.assert_close(compiled(torch.ones(n), x), program(torch.ones(n), x))
