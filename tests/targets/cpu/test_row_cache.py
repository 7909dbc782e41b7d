"""Costly values that several loops over a row need: computed once, kept in memory of the kernel."""

import pytest
import torch
import torch.nn.functional as F

import pliant
from pliant.backends.llvm import llvm
from pliant.loop.build import Builder
from pliant.loop.check import check
from pliant.loop.ir import Access, LoopKind, Op, values
from pliant.loop.types import Type
from pliant.targets.cpu.row_cache import LONGEST, cache_rows
from tests.support.loop_interpreter import run
from tests.targets.cpu.kernels import TARGETS, call


def softmax(columns=None, op=Op.EXP, stride=1):
    """Rows of some function of the distance to the largest, divided by their sum."""
    build = Builder("softmax")
    m = build.size("s0")
    n = build.size("s1") if columns is None else columns
    x, y = build.buffer("x", Type.F32), build.buffer("y", Type.F32, Access.WRITE)

    def far(i, j, top):
        return build(op, build(Op.SUB, build.load(x, (i * n + j) * stride), top))

    with build.loop(m) as i:
        with build.loop(n, LoopKind.REDUCTION) as j:
            top = build(Op.MAX, build.load(x, (i * n + j) * stride))
        with build.loop(n, LoopKind.REDUCTION) as j:
            total = build(Op.SUM, far(i, j, top))
        with build.loop(n) as j:
            build.store(y, i * n + j, build(Op.DIV, far(i, j, top), total))
    return build.kernel()


def size(expr):
    return expr.value or 100


def count(kernel, op):
    return len([value for value in values(kernel.body) if value.op is op])


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("shape", [(3, 5), (1, 1), (0, 3), (2, 0), (7, 64), (5, 1000), (2, 9000)])
def test_kept_rows_change_nothing(shape, target):
    for kernel, sizes in [
        (cache_rows(softmax(), size), shape),
        (cache_rows(softmax(shape[1]), size), shape[:1]),
    ]:
        x, y = torch.randn(shape), torch.empty(shape)
        call(check(kernel), [x, y], sizes, target)
        torch.testing.assert_close(y, torch.softmax(x, 1))


def test_exp_is_computed_once():
    kernel = cache_rows(softmax(), size)
    assert count(softmax(), Op.EXP) == 2 and count(kernel, Op.EXP) == 1
    assert [str(own.size) for own in kernel.own] == ["s1"]
    x, y = torch.randn(3, 5), torch.empty(3, 5)
    run(check(kernel), [x.view(-1), y.view(-1)], (3, 5))
    torch.testing.assert_close(y, torch.softmax(x, 1))
    assert "own0: f32 own[s1]" in str(kernel)


def test_what_is_cheap_is_computed_again():
    kernel = softmax(op=Op.ABS)
    assert cache_rows(kernel, size) is kernel


def test_rows_that_are_too_long_or_scattered_are_not_kept():
    kernel = softmax()
    assert cache_rows(kernel, lambda expr: LONGEST + 1) is kernel
    scattered = softmax(stride=3)
    assert cache_rows(scattered, size) is scattered


@pytest.mark.parametrize("dynamic", [False, True])
def test_programs(dynamic):
    def program(x, w):
        y = F.gelu(x + w)
        z = F.layer_norm(y, y.shape[-1:])
        return torch.softmax(z.masked_fill(x > 1, float("-inf")), -1) * w, z.to(torch.bfloat16)

    compiled = pliant.compile(program, backend=llvm, dynamic=dynamic)
    with torch.no_grad():
        for rows, columns in [(4, 33), (1, 700), (3, 5000)]:
            args = torch.randn(rows, columns), torch.randn(columns)
            torch.testing.assert_close(compiled(*args), program(*args))


def test_softmax_of_halves_is_not_rounded_between():
    x = torch.randn(8, 300).bfloat16()
    found = pliant.compile(lambda x: torch.softmax(x, -1), backend=llvm)(x)
    assert torch.equal(found, torch.softmax(x.float(), -1).bfloat16())
