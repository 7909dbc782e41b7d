"""Serial loops and what they carry: alone, side by side, around and inside of lanes."""

import pytest
import torch

from pliant.loop.build import Builder
from pliant.loop.check import MalformedKernelError, check
from pliant.loop.ir import Access, LoopKind, LoopValue, Op
from pliant.loop.types import Type
from tests.support.loop_interpreter import run
from tests.targets.cpu.kernels import TARGETS, call

targets = pytest.mark.parametrize("target", TARGETS)
SIZES = [(1, 1), (3, 5), (4, 7), (9, 0), (0, 3), (6, 16), (17, 33), (5, 300)]


def carried(build, start):
    return build.add(LoopValue(Op.CARRIED, start.type, (start,)))


def running_sums(across):
    """y[i, j] is the sum of x[i, :j + 1], or of x[:i + 1, j]; both start with the number of the row
    (or column)."""
    build = Builder("sums")
    m, n = build.size("s0"), build.size("s1")
    x, y = build.buffer("x", Type.I64), build.buffer("y", Type.I64, Access.WRITE)
    with build.loop(n if across else m) as i:
        start = build.iota(i)
        with build.loop(m if across else n, LoopKind.SERIAL) as j:
            place = j * n + i if across else i * n + j
            before = carried(build, start)
            after = build(Op.ADD, before, build.load(x, place))
            build.store(y, place, after)
            build(Op.CARRY, before, after)
    return check(build.kernel())


@targets
@pytest.mark.parametrize("shape", SIZES, ids=str)
@pytest.mark.parametrize("across", [False, True])
def test_running_sums(across, shape, target):
    x, out, plain = torch.randint(-9, 9, shape), torch.zeros(shape), torch.zeros(shape)
    out, plain = out.long(), plain.long()
    kernel = running_sums(across)
    call(kernel, [x, out], shape, target, cuts=[min(shape) // 2])
    run(kernel, [x.view(-1), plain.view(-1)], shape)
    start = torch.arange(shape[1]) if across else torch.arange(shape[0])[:, None]
    assert torch.equal(out, x.cumsum(0 if across else 1) + start)
    assert torch.equal(plain, out)


@targets
def test_two_values_that_change_places(target):
    """What is carried is that of the iteration before, whatever is carried first."""
    build = Builder("swapped")
    y = build.buffer("y", Type.I64, Access.WRITE)
    zero, one = build.constant(0, Type.I64), build.constant(1, Type.I64)
    with build.loop(7, LoopKind.SERIAL) as i:
        a, b = carried(build, zero), carried(build, one)
        build(Op.CARRY, a, b)
        build(Op.CARRY, b, a)
        build.store(y, i, a)
    out, plain = torch.empty(7, dtype=torch.int64), torch.empty(7, dtype=torch.int64)
    call(build.kernel(), [out], [], target)
    run(build.kernel(), [plain], [])
    assert out.tolist() == plain.tolist() == [0, 1, 0, 1, 0, 1, 0]


@targets
def test_updates_in_order(target):
    """y[k[i], j] += x[i, j]: rows one after the other, columns in lanes."""
    build = Builder("updates")
    m, n = build.size("s0"), build.size("s1")
    k, x = build.buffer("k", Type.I64), build.buffer("x", Type.F32)
    y = build.buffer("y", Type.F32, Access.READ_WRITE)
    with build.loop(m, LoopKind.SERIAL) as i:
        row = build.as_index(build.load(k, i))
        with build.loop(n) as j:
            place = row * n + j
            build.store(y, place, build(Op.ADD, build.load(y, place), build.load(x, i * n + j)))
    for rows, columns in SIZES:
        given, source = torch.randn(4, columns), torch.randn(rows, columns)
        index = torch.randint(4, (rows,))
        out = given.clone()
        call(build.kernel(), [index, source, out], [rows, columns], target)
        assert torch.equal(out, given.index_add(0, index, source))


def test_what_is_carried_has_its_loop():
    build = Builder("misplaced")
    start = build.constant(0, Type.I64)
    with build.loop(3):
        before = carried(build, start)
        build(Op.CARRY, before, start)
        build(Op.CARRY, start, before)
    with pytest.raises(MalformedKernelError) as error:
        check(build.kernel())
    assert "carried outside of a serial loop" in str(error.value)
    assert "its first argument has to be carried" in str(error.value)
