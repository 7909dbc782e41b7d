"""Reductions of everything to one number, which threads share."""

import pytest
import torch

import pliant
from pliant.backends.llvm import llvm
from pliant.ops.reductions import SHARED_FROM
from tests.ops.harness import run_op

SHAPES = [(300, 500), (96_000,), (100_003,), (40_000, 3), (2, 3, 400, 50), (1, 70_000, 1)]
assert all(torch.Size(shape).numel() >= SHARED_FROM for shape in SHAPES)


@pytest.mark.parametrize("symbolic", [False, True])
@pytest.mark.parametrize("shape", SHAPES)
def test_sums(shape, symbolic):
    x = torch.randn(shape)
    exact = x.double().sum()
    found = run_op(torch.ops.aten.sum.default, x, symbolic=symbolic)
    assert found.shape == () and abs(found - exact) < 1e-2 * abs(x).double().sum() * 2**-20
    dims = list(range(x.dim()))
    found = run_op(torch.ops.aten.sum.dim_IntList, x, dims, True, symbolic=symbolic)
    assert found.shape == (1,) * x.dim() and abs(found.item() - exact) < 1e-2


@pytest.mark.parametrize("shape", SHAPES)
def test_others(shape):
    x = torch.randn(shape)
    torch.testing.assert_close(run_op(torch.ops.aten.mean.default, x), x.mean())
    assert torch.equal(run_op(torch.ops.aten.amax.default, x), x.amax())
    assert torch.equal(run_op(torch.ops.aten.any.default, x > 3), (x > 3).any())
    whole = (x * 100).to(torch.int32)
    assert torch.equal(run_op(torch.ops.aten.sum.default, whole), whole.sum())
    assert torch.equal(run_op(torch.ops.aten.argmax.default, x), x.argmax())
    torch.testing.assert_close(run_op(torch.ops.aten.var.correction, x), x.var())
    half = x.bfloat16()
    wanted = half.double().mean().bfloat16()
    torch.testing.assert_close(run_op(torch.ops.aten.mean.default, half), wanted)


@pytest.mark.parametrize("dynamic", [False, True])
def test_the_number_of_threads_makes_no_difference(dynamic):
    def program(x):
        y = x.relu()
        return y, y.sum(), (x * x).mean()

    x = torch.randn(700, 900)
    compiled = pliant.compile(program, backend=llvm, dynamic=dynamic)
    before = torch.get_num_threads()
    try:
        found = []
        for threads in (1, 2, 3):
            torch.set_num_threads(threads)
            found.append(compiled(x))
    finally:
        torch.set_num_threads(before)
    for some in found:
        assert all(torch.equal(a, b) for a, b in zip(some, found[0], strict=True))
        torch.testing.assert_close(some, program(x))
