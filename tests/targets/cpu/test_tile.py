"""Transposed accesses in blocks: whole blocks, and what is left of them."""

import pytest
import torch

import pliant
from pliant.backends.llvm import llvm
from pliant.loop.build import Builder
from pliant.loop.ir import Access
from pliant.loop.types import Type
from pliant.targets.cpu.tile import SIDE, tile
from tests.targets.cpu.kernels import TARGETS, call

SIZES = [(1, 40), (SIDE + 1, SIDE + 1), (3 * SIDE, 2 * SIDE), (50, 17), (100, 33)]


def transposing(t):
    """y[i, j] = x[j, i], without blocks."""
    build = Builder("transpose")
    rows, columns = build.size("s0"), build.size("s1")
    x, y = build.buffer("x", t), build.buffer("y", t, Access.WRITE)
    with build.loop(rows) as i, build.loop(columns) as j:
        build.store(y, i * columns + j, build.load(x, j * rows + i))
    return build.kernel()


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("t", [Type.F32, Type.F64, Type.BF16, Type.I64, Type.U8, Type.BOOL])
def test_blocks_change_nothing(t, target):
    kernel = tile(transposing(t))
    assert len(kernel.grid) == 2 and kernel.grid[-1].body != transposing(t).grid[-1].body
    for rows, columns in SIZES:
        x = (torch.arange(rows * columns) % 251).to(t.dtype).view(columns, rows)
        y = torch.zeros(rows, columns, dtype=t.dtype)
        call(kernel, [x, y], [rows, columns], target)
        assert torch.equal(y, x.t())


@pytest.mark.parametrize("dynamic", [False, True])
def test_programs_with_transposed_operands(dynamic):
    def program(x, y, z):
        return x.t() + y * z.permute(1, 0), (x.t().exp() + y).sum(0)

    compiled = pliant.compile(program, backend=llvm, dynamic=dynamic)
    for n, m in [(40, 70), (0, 5), (1, 17), (64, 48)]:
        args = torch.randn(n, m), torch.randn(m, n), torch.randn(n, m)
        torch.testing.assert_close(compiled(*args), program(*args))
