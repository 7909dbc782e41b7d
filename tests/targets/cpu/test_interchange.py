"""Loops of a few iterations: not the ones that run in lanes."""

import pytest
import torch

import pliant
from pliant.backends.llvm import llvm
from pliant.loop.build import Builder
from pliant.loop.ir import Access, LoopKind, Op
from pliant.loop.types import Type
from pliant.targets.cpu.llvm_lanes import Machine, plan
from pliant.targets.cpu.loop_nest import SHORT, interchange
from tests.targets.cpu.kernels import TARGETS, call, reduction


def interleaving(few):
    """y[i, c] = x[c, i]"""
    build = Builder("interleave")
    n = build.size("s0")
    x, y = build.buffer("x", Type.F32), build.buffer("y", Type.F32, Access.WRITE)
    with build.loop(n) as i, build.loop(few) as c:
        build.store(y, i * few + c, build.load(x, c * n + i))
    return build.kernel()


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("few", [2, 3, 5, SHORT])
def test_the_longer_loop_is_inside(few, target):
    kernel = interchange(interleaving(few))
    assert [str(loop.extent) for loop in kernel.grid] == [str(few), "s0"]
    for n in (1, 15, 16, 50, 100):
        x, y = torch.randn(few, n), torch.empty(n, few)
        call(kernel, [x, y], [n], target, cuts=(n // 2,))
        assert torch.equal(y, x.t())


def test_other_loops_stay():
    kernel = interleaving(SHORT + 1)
    assert interchange(kernel) is kernel


def test_reductions_of_a_few_elements_have_rows_in_lanes():
    target = Machine(64, True)
    whole = reduction(Op.SUM, Type.F32, Type.F32)
    assert not {loop for loop in plan(whole, target) if loop in whole.grid}
    build = Builder("few")
    n = build.size("s0")
    x, y = build.buffer("x", Type.F32), build.buffer("y", Type.F32, Access.WRITE)
    with build.loop(n) as i:
        with build.loop(3, LoopKind.REDUCTION) as j:
            found = build(Op.SUM, build.load(x, i * 3 + j))
        build.store(y, i, found)
    kernel = build.kernel()
    assert list(plan(kernel, target)) == [kernel.grid[-1]]
    a, b = torch.randn(77, 3), torch.empty(77)
    for target in TARGETS:
        call(kernel, [a, b], [77], target)
        torch.testing.assert_close(b, a.sum(1))


@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("few", [1, 2, 3, 4, 7, 8])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.int64])
def test_programs(few, dtype, dynamic):
    def program(x, b):
        turned = x.permute(1, 2, 0).contiguous()
        both = torch.stack((x[0] * 2, x[-1] + 1), -1).flatten(-2)
        every = torch.stack([x[0], x[0] * 3, x[-1]], 1)
        return turned * 2, turned + b, turned.sum(-1), turned.amax(-1), both, every, both[:, ::2]

    compiled = pliant.compile(program, backend=llvm, dynamic=dynamic)
    for n, m in [(5, 33), (2, 16), (1, 3)]:
        args = [(torch.randn(*sizes) * 9).to(dtype) for sizes in ((few, n, m), (few,))]
        torch.testing.assert_close(compiled(*args), program(*args))


@pytest.mark.parametrize("dynamic", [False, True])
def test_interleaved_rotary_positions(dynamic):
    def program(x, cos, sin):
        a, b = x[..., ::2], x[..., 1::2]
        return torch.stack((a * cos - b * sin, a * sin + b * cos), -1).flatten(-2)

    compiled = pliant.compile(program, backend=llvm, dynamic=dynamic)
    for half in (32, 17, 3):
        args = torch.randn(2, 5, 2 * half), torch.randn(5, half), torch.randn(5, half)
        torch.testing.assert_close(compiled(*args), program(*args))
