"""Constants in the text of graphs and of residual code mean what they are."""

from __future__ import annotations

import math
import operator

import numpy as np
import pytest
import torch

import pliant
from tests.support.against_eager import check

NEGATIVE = [-1, -3, -2.5, -0.0, -math.inf]


@pytest.mark.parametrize("backend", ["eager", "llvm"])
@pytest.mark.parametrize("base", NEGATIVE)
def test_power_of_a_negative_constant(base, backend):
    def power(x):
        return base**x, x + 1

    check(power, torch.tensor([0.0, 1.0, 2.0]), backend=backend)
    check(power, torch.tensor(0.0), backend=backend)


@pytest.mark.parametrize("function", [pow, operator.pow, operator.ipow])
def test_power_by_a_function(function):
    def power(x):
        return function(-2, x)

    check(power, torch.tensor([0.0, 1.0, 2.0]), backend="eager")


def test_power_of_a_negative_constant_to_an_array():
    def power(x):
        return (-2) ** x

    compiled = pliant.compile(power, backend="eager")
    assert compiled(np.array([0, 1, 2])).tolist() == [1, -2, 4]


def test_power_of_a_negative_constant_to_a_symbolic_number():
    def power(x, n):
        return x * (-2) ** n, x.new_ones(2) * (-2) ** x.shape[0]

    compiled = check(power, torch.ones(3), 4, backend="eager", dynamic=True)
    for size in (2, 5):
        eager, ours = power(torch.ones(size), size), compiled(torch.ones(size), size)
        assert all(map(torch.equal, eager, ours))


@pytest.mark.parametrize("backend", ["eager", "llvm"])
@pytest.mark.parametrize(
    "number",
    [complex(a, b) for a in (0.0, -0.0, 1.0, -2.0) for b in (0.0, -0.0, 2.0, -2.0)],
)
def test_signs_of_zeros_in_complex_constants(number, backend):
    def use(x):
        filled = torch.full((2,), number)
        listed = torch.stack([x, torch.full_like(x, number)])
        return (
            torch.view_as_real(filled),
            torch.view_as_real(listed),
            torch.view_as_real(x - number),
        )

    x = torch.zeros(2, dtype=torch.complex64)
    compiled = pliant.compile(use, backend=backend)
    for ours, eager in zip(compiled(x), use(x), strict=True):
        assert torch.equal(ours, eager)
        assert torch.equal(ours.signbit(), eager.signbit())


@pytest.mark.parametrize("number", [5, -5, 2.5, -2.5, True])
def test_method_of_a_constant(number):
    def method(x):
        return x + 1, number.conjugate

    compiled = pliant.compile(method)
    assert compiled(torch.ones(2))[1]() == number.conjugate()
