"""Reductions of everything to one number, which threads share."""

import pytest
import torch

import pliant
from pliant.backends.llvm import llvm
from pliant.base import events
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


FEW = [
    ((8, 256, 256), (1, 2)),
    ((300, 4, 300), (0, 2)),
    ((300, 300, 3), (0, 1)),
    ((1, 8, 100, 100), (2, 3)),
    ((1, 70_000), (1,)),
    ((2, 70_000), (1,)),
    ((6, 1, 1, 200, 100), (1, 3, 4)),
    ((20, 20_000, 1), (2,)),
]


@pytest.mark.parametrize("symbolic", [False, True])
@pytest.mark.parametrize("shape, dims", FEW)
def test_to_few_numbers(shape, dims, symbolic):
    x = torch.randn(shape)
    for keepdim in (False, True):
        args = (x, list(dims), keepdim)
        names = ["sum.dim_IntList", "mean.dim", "var.correction"]
        for name in names if symbolic else [*names, "amax.default"]:
            packet, overload = name.split(".")
            func = getattr(getattr(torch.ops.aten, packet), overload)
            more = {"keepdim": args[2]} if packet == "var" else {}
            given = args[:2] if packet == "var" else args
            found = run_op(func, *given, **more, symbolic=symbolic)
            torch.testing.assert_close(
                found, func(*given, **more), rtol=1e-4, atol=1e-3, equal_nan=True
            )


def test_few_sums_share_the_kernel_of_a_total(seen):
    def program(x, y):
        p = x.sigmoid()
        return (p * y).sum((1, 2)), p.sum((1, 2)), (p - y).mean()

    args = (torch.randn(8, 256, 256), torch.randn(8, 256, 256))
    torch.testing.assert_close(pliant.compile(program, backend=llvm)(*args), program(*args))
    (event,) = seen(events.CodeGenerated)
    large = [kernel for kernel in event.kernels() if "sigmoid" in kernel]
    assert len(large) == 1


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
