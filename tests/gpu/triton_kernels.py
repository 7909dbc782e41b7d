"""Programs that call Triton kernels of their own."""

import torch
import triton
import triton.language as tl


@triton.jit
def add(x, y, count, amount, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y + at, tl.load(x + at, mask=at < count) + amount, mask=at < count)


@triton.jit
def count_positive(x, total, count, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    positive = tl.load(x + at, mask=at < count, other=0) > 0
    tl.atomic_add(total, tl.sum(positive.to(tl.int32), 0))


def with_a_grid(x):
    y = torch.empty_like(x)
    add[(triton.cdiv(x.numel(), 128),)](x * 2, y, x.numel(), 1.5, BLOCK=128, num_warps=2)
    return y * 3


def with_a_function_as_grid(x):
    y = torch.empty_like(x)
    add[lambda meta: (triton.cdiv(x.numel(), meta["BLOCK"]),)](x, y, x.numel(), 1, BLOCK=64)
    return y.relu()


def in_place(x):
    add[(triton.cdiv(x.numel(), 64),)](x, x, x.numel(), 1, BLOCK=64)
    return x * 2


def one_after_another(x):
    total = torch.zeros(1, dtype=torch.int32, device=x.device)
    count_positive[(triton.cdiv(x.numel(), 64),)](x.sin(), total, x.numel(), BLOCK=64)
    return total + 1, x + total


PROGRAMS = [with_a_grid, with_a_function_as_grid, in_place, one_after_another]
