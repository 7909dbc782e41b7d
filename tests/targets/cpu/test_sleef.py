"""Functions of vectors from the library that PyTorch has."""

import pytest
import torch

from pliant.loop.ir import Op
from pliant.loop.types import Type
from pliant.targets.cpu import sleef
from pliant.targets.cpu.jit import host
from pliant.targets.cpu.llvm import emit
from pliant.targets.cpu.llvm_lanes import Machine
from tests.targets.cpu.kernels import apply, pointwise

NAMES = "SIN COS TAN SINH COSH ASIN ACOS ATAN ATANH ERF ERFC".split()


def samples(t):
    special = [0.0, -0.0, float("inf"), -float("inf"), float("nan"), 1.0, -1.0, 1e-30, 1e10, -1e10]
    parts = torch.randn(700) * 3, torch.rand(700) * 2 - 1, torch.randn(99) * 1e3
    return torch.cat([*parts, torch.tensor(special)]).to(t.dtype)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("t", [Type.F32, Type.F64])
def test_functions(name, t):
    x = samples(t)
    # One at a time: in vectors, eager's sinh and cosh are infinite too early.
    wanted = torch.cat([getattr(torch, name.lower())(one) for one in x.split(1)])
    torch.testing.assert_close(apply(Op[name], [x], t), wanted, equal_nan=True)


@pytest.mark.parametrize("name", ["POW", "ATAN2", "HYPOT"])
@pytest.mark.parametrize("t", [Type.F32, Type.F64])
def test_functions_of_two(name, t):
    x, y = samples(t), samples(t).flip(0)
    wanted = getattr(torch, name.lower())(x, y)
    torch.testing.assert_close(apply(Op[name], [x, y], t), wanted, equal_nan=True)


def module(target):
    return emit(pointwise([Type.F64], Type.F64, lambda b, x: b(Op.TAN, x)), target)


def test_without_the_library(monkeypatch):
    monkeypatch.setattr(sleef, "_library", lambda path: None)
    sleef.address.cache_clear()
    try:
        assert sleef.vector_function("tan", "double", 64) is None
        assert "Sleef" not in module(Machine(64, True))
    finally:
        sleef.address.cache_clear()


def test_other_machines_have_no_such_functions():
    assert "Sleef" not in module(Machine(16, False))


def test_code_says_what_it_needs():
    if sleef.vector_function("tan", "double", host().target.vector_bytes) is None:
        pytest.skip("not on this machine")
    code = host().compile_source(host().with_key(module(host().target))).object_code
    ((name, address),) = sleef.needed_by(code)
    assert name.startswith("Sleef_tand") and address
