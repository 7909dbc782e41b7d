"""Scans over a dimension, which PyTorch writes in Python with `vmap`, also over no elements."""

import pytest
import torch
from torch._higher_order_ops.associative_scan import associative_scan

import pliant


def first_order(left, right):
    """One step of `h = a * h + b`, for pairs of `a` and `b`."""
    (a, b), (c, d) = left, right
    return a * c, c * b + d


@pytest.mark.parametrize("length", [1, 2, 3, 9, 12])
def test_associative_scan(length):
    def program(a, b):
        return associative_scan(first_order, (a, b), dim=1, combine_mode="generic")

    a, b = torch.rand(2, length, 3), torch.rand(2, length, 3)
    torch.testing.assert_close(pliant.compile(program, fullgraph=True)(a, b), program(a, b))


def test_vmap_over_nothing():
    def program(x):
        return torch.vmap(lambda row: row.sin() + 1)(x)

    x = torch.rand(0, 3)
    torch.testing.assert_close(pliant.compile(program, fullgraph=True)(x), program(x))
