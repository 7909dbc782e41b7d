"""Places and masks of accesses: what is the same for a row, positions, pairs of bfloat16."""

import pytest
import torch

import pliant
from pliant.backends.llvm import llvm
from pliant.loop.build import Builder
from pliant.loop.ir import Access, Op
from pliant.loop.types import Type
from pliant.targets.cpu.llvm import emit
from pliant.targets.cpu.llvm_access import fixed
from pliant.targets.cpu.llvm_lanes import Machine
from pliant.targets.cpu.llvm_pairs import in_pairs
from tests.targets.cpu.kernels import TARGETS, call, pointwise


def rows_of_a_table():
    """y[i, j] = table[which[i], j], with a flag for those that are outside."""
    build = Builder("rows")
    n, m, known = build.size("s0"), build.size("s1"), build.size("s2")
    which, table = build.buffer("which", Type.I64), build.buffer("table", Type.F32)
    y = build.buffer("y", Type.F32, Access.WRITE)
    flag = build.buffer("flag", Type.I64, Access.WRITE)
    with build.loop(n) as i, build.loop(m) as j:
        row = build.load(which, i)
        outside = build(Op.GE, row, build.iota(known))
        build.store(flag, 0, build.constant(1, Type.I64), outside)
        inside = build(Op.NOT, outside)
        at = build.as_index(row)
        build.store(y, i * m + j, build.load(table, at * m + j, inside))
    return build.kernel()


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("width", [1, 7, 16, 50])
def test_what_is_the_same_for_a_row(width, target):
    kernel = rows_of_a_table()
    assert len(fixed(kernel.grid[-1])) == len(kernel.grid[-1].body) - 2  # all but load and store
    table, which = torch.randn(5, width), torch.tensor([4, 0, 2, 2])
    y, flag = torch.empty(4, width), torch.zeros(1, dtype=torch.int64)
    cuts = (width // 2, width + 1, 3 * width)
    call(kernel, [which, table, y, flag], [4, width, 5], target, cuts)
    assert torch.equal(y, table[which]) and flag.item() == 0
    which[3] = 5
    call(kernel, [which, table, y, flag], [4, width, 5], target, cuts)
    assert torch.equal(y[3], torch.zeros(width)) and flag.item() == 1


@pytest.mark.parametrize("target", TARGETS)
def test_what_is_written_is_not_the_same_for_a_row(target):
    """What was stored is loaded again."""
    build = Builder("twice")
    n, m = build.size("s0"), build.size("s1")
    x, y = build.buffer("x", Type.F32, Access.READ_WRITE), build.buffer("y", Type.F32, Access.WRITE)
    with build.loop(n) as i, build.loop(m) as j:
        found = build.load(x, i * m + j)
        build.store(x, i * m + j, build(Op.ADD, found, build.constant(1.0, Type.F32)))
        build.store(y, i * m + j, build.load(x, i * m + j))
    a, b = torch.randn(3, 9), torch.empty(3, 9)
    wanted = a + 1
    call(build.kernel(), [a, b], [3, 9], target)
    assert torch.equal(a, wanted) and torch.equal(b, wanted)


COMPARISONS = {
    Op.LT: torch.lt, Op.LE: torch.le, Op.GT: torch.gt,
    Op.GE: torch.ge, Op.EQ: torch.eq, Op.NE: torch.ne,
}  # fmt: skip


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("number", [-(2**40), -1, 0, 1, 15, 16, 20, 36, 37, 38, 2**33, 2**40])
def test_positions_are_compared_as_numbers(number, target):
    for op, eager in COMPARISONS.items():
        for other_way in (False, True):
            build = Builder("positions")
            n, k = build.size("s0"), build.size("s1")
            y = build.buffer("y", Type.BOOL, Access.WRITE)
            with build.loop(n) as i:
                sides = build.iota(i + 3), build.iota(k)
                build.store(y, i, build(op, *(sides[::-1] if other_way else sides)))
            out = torch.empty(37, dtype=torch.bool)
            call(build.kernel(), [out], [37, number], target)
            sides = torch.arange(3, 40), torch.full((37,), number)
            assert torch.equal(out, eager(*(sides[::-1] if other_way else sides)))


def half_sum(build, x, y):
    total = build(Op.ADD, build.cast(x, Type.F32), build.cast(y, Type.F32))
    short = build.cast(build.cast(total, Type.BF16), Type.F32)
    return build.cast(build(Op.MUL, short, build.constant(1 / 3, Type.F32)), Type.BF16)


@pytest.mark.parametrize("target", TARGETS)
def test_pairs_of_bfloat16(target):
    kernel = pointwise([Type.BF16, Type.BF16], Type.BF16, half_sum)
    assert in_pairs(kernel.grid[-1])
    for size in (1, 2, 31, 32, 33, 63, 64, 100, 1001):
        x, y = (torch.randn(size) * 10).bfloat16(), torch.randn(size).bfloat16()
        x[0] = float("nan")
        x[size // 2] = 1e-40
        y[size // 2] = 0
        out = torch.empty(size, dtype=torch.bfloat16)
        call(kernel, [x, y, out], [size], target, cuts=(size // 3,))
        wanted = (x + y) * torch.tensor(1 / 3)
        torch.testing.assert_close(out, wanted, rtol=0, atol=0, equal_nan=True)


def test_pairs_are_for_bfloat16_alone():
    wide = Machine(64, True)
    kernel = pointwise(
        [Type.BF16, Type.F32], Type.BF16, lambda b, x, y: half_sum(b, x, b.cast(y, Type.BF16))
    )
    assert not in_pairs(kernel.grid[-1]) and "<32 x" not in emit(kernel, wide)
    copied = pointwise([Type.BF16], Type.BF16, lambda b, x: x)
    assert not in_pairs(copied.grid[-1])


@pytest.mark.parametrize("dynamic", [False, True])
def test_programs_in_bfloat16(dynamic):
    def program(x, y, b):
        return (
            torch.relu(x * y + b) * 0.5 - x,
            x.float() + y,
            (x > y).bfloat16() * b,
            x[:, ::2] * y[:, 1::2],
        )

    compiled = pliant.compile(program, backend=llvm, dynamic=dynamic)
    for m, n in [(4, 34), (3, 64), (1, 2), (5, 130)]:
        args = [torch.randn(m, n).bfloat16() for _ in range(2)] + [torch.randn(n).bfloat16()]
        for found, wanted in zip(compiled(*args), program(*args), strict=True):
            assert torch.equal(found, wanted)
