"""Accuracy of our functions of floats: against the same function in float64, in units in the last
place, over all magnitudes, and at the special values."""

import math

import pytest
import torch

from pliant.loop.ir import Op
from pliant.loop.types import Type
from pliant.targets.cpu.llvm_lanes import SCALAR
from tests.targets.cpu.kernels import TARGETS, apply, call, pointwise

EDGES = torch.tensor(
    [0.0, -0.0, 1, -1, 2, -2, 0.5, 1.5, math.inf, -math.inf, math.nan, 1e-45, -1e-45, 1e-40, -1e-40]
    + [1.1754944e-38, 3.4028235e38, -3.4028235e38, 88.72, 88.73, -87.4, -103.9, -104.1, 127.99]
    + [-149.0, -149.6, 1e10, -3e9, 2.0**28, math.pi, math.pi / 2, 0.625, 4.0]
)


def samples(step=20_011):
    """Every so many'th float32, values of the usual size, and the edges."""
    bits = torch.arange(-(2**31), 2**31, step, dtype=torch.int64).to(torch.int32)
    usual = [torch.linspace(-a, a, 20_001) for a in (0.3, 3.0, 20.0, 120.0)]
    return torch.cat([bits.view(torch.float32), *usual, EDGES])


def units(found, exact):
    """The error in units in the last place of the exact result; 0 where both are special."""
    rounded = exact.float()
    exponent = torch.frexp(rounded.double())[1]
    unit = torch.ldexp(torch.ones_like(exact), (exponent - 24).clamp(min=-149))
    error = (found.double() - exact).abs() / unit
    alike = (found == rounded) | (found.isnan() & rounded.isnan())
    return torch.where(alike, torch.zeros_like(error), error)


LIMITS = {
    **dict.fromkeys("EXP EXP2 LOG LOG2 LOG10".split(), 1.0),
    **dict.fromkeys("EXPM1 LOG1P SIN COS TANH ERF RSQRT".split(), 1.6),
    "SQRT": 0.51,
}


@pytest.mark.parametrize("name", LIMITS)
def test_functions_of_float32(name):
    x = samples()
    exact = getattr(torch, name.lower())(x.double())
    found = apply(Op[name], [x], Type.F32)
    error = units(found, exact)
    worst = int(error.argmax())
    assert error[worst] <= LIMITS[name], (x[worst].item(), found[worst].item())
    zeros = (found == 0) & (exact == 0)
    assert torch.equal(found.signbit()[zeros], exact.signbit()[zeros])


def test_vector_and_scalar_code_agree_to_the_bit():
    x = samples(1_000_003)
    for name in LIMITS:
        in_lanes, alone = [apply(Op[name], [x], Type.F32, t) for t in (None, SCALAR)]
        assert torch.equal(in_lanes.nan_to_num(7), alone.nan_to_num(7)), name


def test_sigmoid():
    x = samples()
    exact = torch.sigmoid(x.double())
    found = apply(Op.SIGMOID, [x], Type.F32)
    normal = ~(exact < 1e-37)
    assert units(found, exact)[normal].max() <= 2.6
    assert (found[~normal].double() - exact[~normal]).abs().max() < 1e-37  # eager has 0 there too
    assert apply(Op.SIGMOID, [torch.tensor([-math.inf, math.inf])], Type.F32).tolist() == [0, 1]


def test_pow():
    generator = torch.Generator().manual_seed(0)
    bits = torch.randint(-(2**31), 2**31, (200_000,), generator=generator).to(torch.int32)
    x = torch.cat([bits.view(torch.float32), torch.rand(200_000, generator=generator) * 9])
    y = torch.randn(400_000, generator=generator) * 6
    y[::3] = y[::3].round()
    grid = torch.meshgrid(EDGES, torch.cat([EDGES, torch.arange(-6.0, 7.0)]), indexing="ij")
    x, y = torch.cat([x, grid[0].reshape(-1)]), torch.cat([y, grid[1].reshape(-1)])
    found, exact = apply(Op.POW, [x, y], Type.F32), torch.pow(x.double(), y.double())
    assert units(found, exact).max() <= 0.51
    assert torch.equal(found.isnan(), exact.isnan())
    zeros = (found == 0) & (exact == 0)
    assert torch.equal(found.signbit()[zeros], exact.signbit()[zeros])


DOUBLE = "EXP EXP2 EXPM1 LOG LOG2 LOG10 LOG1P TANH SIGMOID SIN COS ERF SQRT RSQRT".split()


@pytest.mark.parametrize("name", DOUBLE)
def test_functions_of_float64_are_eagers_to_some_units(name):
    x = torch.cat(
        [samples(200_003).double() * 1.2345678, torch.tensor([710.2, -745.2, -708.5, 5e-324])]
    )
    found, eager = apply(Op[name], [x], Type.F64), getattr(torch, name.lower())(x)
    torch.testing.assert_close(found, eager, rtol=1e-15, atol=1e-307, equal_nan=True)


LIBRARY = "TAN ERFC SINH COSH ASIN ACOS ATAN ASINH ACOSH ATANH LGAMMA".split()


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("name", LIBRARY)
def test_functions_of_the_c_library(name, dtype):
    x = torch.cat([torch.linspace(-5, 5, 37), EDGES[:15]]).to(dtype)
    t = next(t for t in Type if t.dtype == dtype)
    found, eager = apply(Op[name], [x], t), getattr(torch, name.lower())(x)
    torch.testing.assert_close(found, eager, rtol=4e-6, atol=1e-6, equal_nan=True)


@pytest.mark.parametrize("name", ["ATAN2", "HYPOT", "NEXTAFTER", "COPYSIGN"])
def test_functions_of_two_floats(name):
    x, y = [part.reshape(-1) for part in torch.meshgrid(EDGES, EDGES, indexing="ij")]
    found, eager = apply(Op[name], [x, y], Type.F32), getattr(torch, name.lower())(x, y)
    torch.testing.assert_close(found, eager, rtol=1e-6, atol=0, equal_nan=True)


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("name", ["SINH", "COSH"])
def test_hyperbolic_functions_are_finite_up_to_the_limit(name, target):
    """Sleef's are infinite before that, and so are eager's in vectors."""
    x = torch.cat([torch.linspace(87.9, 89.41, 99), torch.tensor([89.42, 1e30, math.inf])])
    x = torch.cat([x, -x])
    exact = getattr(torch, name.lower())(x.double())
    assert units(apply(Op[name], [x], Type.F32, target), exact).max() <= 1.0
    large = torch.tensor([709.5, 709.9, 710.4, -710.4, 710.5], dtype=torch.float64)
    alone = torch.stack([getattr(torch, name.lower())(one) for one in large])
    found = apply(Op[name], [large], Type.F64, target)
    torch.testing.assert_close(found, alone, rtol=3e-16, atol=0)


@pytest.mark.parametrize("t", [Type.F32, Type.F64])
@pytest.mark.parametrize("name", "EXPM1 LOG1P SIN TAN TANH SINH ASIN ATAN ASINH ATANH".split())
def test_subnormal_numbers_stay_as_they_are(name, t):
    tiny = torch.finfo(t.dtype).smallest_normal
    steps = torch.arange(1, 40, dtype=t.dtype) * torch.finfo(t.dtype).eps * tiny
    x = torch.cat(
        [steps, -steps, torch.tensor([0.0, -0.0, tiny / 3, -tiny / 3, tiny], dtype=t.dtype)]
    )
    for target in TARGETS:
        found = apply(Op[name], [x], t, target)
        assert torch.equal(found, x) and torch.equal(found.signbit(), x.signbit()), target


@pytest.mark.parametrize("t", [Type.F32, Type.F64])
def test_sigmoid_is_subnormal_before_it_is_0(t):
    ends = (-88.7, -87.0) if t is Type.F32 else (-709.7, -708.0)
    x = torch.linspace(*ends, 77, dtype=t.dtype)
    for target in TARGETS:
        found, eager = apply(Op.SIGMOID, [x], t, target), torch.sigmoid(x)
        assert (found > 0).all()
        torch.testing.assert_close(found, eager, rtol=2e-6 if t is Type.F32 else 1e-14, atol=3e-45)


@pytest.mark.parametrize("target", TARGETS)
def test_the_c_library_is_called_for_each_lane_in_its_place(target):
    """With vectors of several registers, as for bfloat16."""
    x = (torch.arange(1, 200) * 7.1e12).bfloat16()
    kernel = pointwise(
        [Type.BF16], Type.BF16, lambda b, v: b.cast(b(Op.SIN, b.cast(v, Type.F32)), Type.BF16)
    )
    found = torch.empty_like(x)
    call(kernel, [x, found], [len(x)], target)
    assert torch.equal(found, torch.sin(x.double()).bfloat16())
