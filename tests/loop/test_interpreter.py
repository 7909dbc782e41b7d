"""The interpreter against eager PyTorch: it is what emitters are compared with."""

import pytest
import torch

from pliant.loop.build import Builder
from pliant.loop.check import check
from pliant.loop.ir import Access, LoopKind, LoopValue, Op
from pliant.loop.types import BY_DTYPE, Type
from pliant.sym.expr import ONE
from tests.support.loop_interpreter import FLOATS, INTEGERS, SHIFTS, run, work


def softmax():
    build = Builder("softmax")
    m, n = build.size("s0"), build.size("s1")
    x, y = build.buffer("x", Type.F32), build.buffer("y", Type.F32, Access.WRITE)
    with build.loop(m) as i:
        with build.loop(n, LoopKind.REDUCTION) as j:
            top = build(Op.MAX, build.load(x, i * n + j))
        with build.loop(n, LoopKind.REDUCTION) as j:
            total = build(Op.SUM, build(Op.EXP, build(Op.SUB, build.load(x, i * n + j), top)))
        with build.loop(n) as j:
            e = build(Op.EXP, build(Op.SUB, build.load(x, i * n + j), top))
            build.store(y, i * n + j, build(Op.DIV, e, total))
    return check(build.kernel())


@pytest.mark.parametrize("shape", [(3, 5), (1, 1), (0, 3), (2, 0)])
def test_softmax(shape):
    x, y = torch.randn(shape), torch.empty(shape)
    run(softmax(), [x.view(-1), y.view(-1)], shape)
    torch.testing.assert_close(y, torch.softmax(x, 1))


def test_part_of_the_grid():
    x, y = torch.randn(3, 5), torch.zeros(3, 5)
    kernel = softmax()
    assert work(kernel, (3, 5)) == 3
    run(kernel, [x.view(-1), y.view(-1)], (3, 5), part=(1, 2))
    assert torch.equal(y[0], torch.zeros(5)) and y[1].sum() > 0.9 and torch.equal(y[2], y[0])


def one(op, *tensors):
    """The operation on whole tensors."""
    build = Builder("one")
    buffers = [build.buffer(f"x{i}", BY_DTYPE[x.dtype]) for i, x in enumerate(tensors)]
    with build.loop(len(tensors[0])) as i:
        value = build(op, *[build.load(buffer, i) for buffer in buffers])
        build.store(build.buffer("y", value.type, Access.WRITE), i, value)
    out = torch.empty(len(tensors[0]), dtype=value.type.dtype)
    run(check(build.kernel()), [*tensors, out], [])
    return out


def test_integers_wrap_and_divide_as_pytorchs():
    x = torch.tensor([127, -128, 100, -7, 7, -1], dtype=torch.int8)
    y = torch.tensor([1, -3, 100, 2, -2, 3], dtype=torch.int8)
    assert torch.equal(one(Op.ADD, x, y), x + y) and torch.equal(one(Op.MUL, x, y), x * y)
    assert torch.equal(one(Op.FLOOR_DIV, x, y), x // y) and torch.equal(
        one(Op.REMAINDER, x, y), x % y
    )
    assert torch.equal(one(Op.TRUNC_DIV, x, y), torch.div(x, y, rounding_mode="trunc"))
    assert torch.equal(one(Op.FMOD, x, y), torch.fmod(x, y))
    assert torch.equal(one(Op.SHL, x, y), x << y) and torch.equal(one(Op.SHR, x, y), x >> y)
    assert torch.equal(one(Op.NOT, x), ~x) and torch.equal(one(Op.NOT, x > 0), ~(x > 0))


def test_every_operation_can_be_run():
    elsewhere = "LOAD STORE CONSTANT IOTA AS_INDEX CAST BITCAST WELFORD WELFORD_M2 SUM PROD MAX MIN"
    elsewhere += " ARG_MAX ARG_MIN ANY ALL CARRIED CARRY ATOMIC_ADD PHILOX"
    assert set(FLOATS) | set(INTEGERS) | set(SHIFTS) | {Op[n] for n in elsewhere.split()} == set(Op)


def test_what_is_added_to_one_place():
    build = Builder("sums")
    x, y = build.buffer("x", Type.F32), build.buffer("y", Type.F32, Access.READ_WRITE)
    with build.loop(4) as i:
        some = build(Op.LT, build.iota(i), build.constant(3, Type.I64))
        args = (build.load(x, i), some)
        build.add(LoopValue(Op.ATOMIC_ADD, Type.F32, args, ONE, y))
    kernel = check(build.kernel())
    assert "atomic_add y[1] += v3 if v2" in str(kernel)
    result = torch.zeros(2)
    run(kernel, [torch.arange(4.0), result], [])
    assert result.tolist() == [0, 3]


def test_what_is_out_of_bounds_is_an_error():
    build = Builder("beyond")
    x = build.buffer("x", Type.F32)
    with build.loop(4) as i:
        build.load(x, i - 1)
    with pytest.raises(IndexError, match=r"x\[-1\] of 4"):
        run(check(build.kernel()), [torch.zeros(4)], [])
