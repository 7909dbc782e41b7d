"""Kernels in Triton's language that the program itself calls: the graph breaks there, once for the
grid and once for the call, and what is around it is compiled. (Here Triton interprets them.)"""

import pytest
import torch

pytest.importorskip("triton")

import triton
import triton.language as tl
from triton.runtime.interpreter import InterpretedFunction

from tests.support.against_eager import check


def _add_one(x, y, count, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y + at, tl.load(x + at, mask=at < count) + 1, mask=at < count)


add_one = InterpretedFunction(_add_one)
X = torch.arange(10.0)


def with_a_fixed_grid(x):
    x = x * 2
    y = torch.empty_like(x)
    add_one[(1,)](x, y, x.numel(), BLOCK=16)
    return y * 3


def with_a_function_as_grid(x):
    y = torch.empty_like(x)
    add_one[lambda meta: (triton.cdiv(x.numel(), meta["BLOCK"]),)](x, y, x.numel(), BLOCK=4)
    return y * 3


@pytest.mark.parametrize("function", [with_a_fixed_grid, with_a_function_as_grid])
def test_a_kernel_of_the_program(function):
    check(function, X, breaks=2)
