"""Without gradients, an `autograd.Function` whose forward breaks the graph breaks in its middle."""

import time

import pytest
import torch

from tests.support.against_eager import check


class Slow(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, factor):
        y = x * factor
        ctx.save_for_backward(y)
        ctx.factor = factor
        for _ in range(2):
            time.time()
            y = y + 1
        return y.sin(), ctx.factor, ctx.needs_input_grad

    @staticmethod
    def backward(ctx, grad, *others):
        return grad, None


class Returned(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        time.time()
        return x

    @staticmethod
    def backward(ctx, grad):
        return grad


@torch.no_grad()
def test_breaks_in_its_middle():
    def f(x):
        y, factor, needs = Slow.apply(x + 1, 3)
        return y * factor, needs

    check(f, torch.randn(3), breaks=2, graphs=3)


@pytest.mark.parametrize("needs", [False, True])
def test_is_left_to_python_with_gradients(needs):
    def f(x):
        y, factor, _ = Slow.apply(x + 1, 3)
        return y * factor

    check(f, torch.randn(3).requires_grad_(needs), breaks=1, graphs=2)


@torch.no_grad()
def test_what_was_given_comes_back():
    def f(x):
        y = Returned.apply(x)
        return y is x, y

    check(f, torch.randn(3), breaks=None)


class Counting(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, seen):
        seen.append(x.shape[0])
        return x * 2

    @staticmethod
    def backward(ctx, grad):
        return grad * 2, None


@torch.no_grad()
def test_side_effects():
    def f(x, seen):
        return Counting.apply(x + 1, seen) + 1, len(seen)

    check(f, torch.randn(3), [], graphs=1)
