"""Symbolic numbers that are out of the range of a dtype, which eager PyTorch refuses."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F

import pliant
from pliant.base import events

PLACES = torch.tensor([0, 1, 1])
OPERATORS: dict[str, Callable[[torch.Tensor, Any], Any]] = {
    "fill_": lambda x, v: x.fill_(v),
    "fill_ of a view": lambda x, v: x[1:].fill_(v),
    "full": lambda x, v: torch.full((3,), v, dtype=x.dtype),
    "full_like": lambda x, v: torch.full_like(x, v) + x,
    "new_full": lambda x, v: x.new_full((3,), v),
    "masked_fill": lambda x, v: x.masked_fill(x > 1, v),
    "index_fill": lambda x, v: x.index_fill(0, PLACES, v),
    "scatter": lambda x, v: x.scatter(0, PLACES, v),
    "item": lambda x, v: x.__setitem__(0, v),
    "items by mask": lambda x, v: x.__setitem__(x > 1, v),
    "where": lambda x, v: torch.where(x > 1, x, v),
    "where, first": lambda x, v: torch.where(x > 1, v, x),
    "add alpha": lambda x, v: torch.add(x, x, alpha=v),
    "sub alpha": lambda x, v: torch.sub(x, x, alpha=v),
    "add_ alpha": lambda x, v: x.add_(x, alpha=v),
    "clamp": lambda x, v: x.clamp(v),
    "clamp max": lambda x, v: x.clamp(max=v),
    "derived": lambda x, v: x.fill_(v / 2 if isinstance(v, float) else v * 3),
    "pow": lambda x, v: x.abs() ** v,
    # These never refuse.
    "add": lambda x, v: x + v,
    "mul": lambda x, v: x * v,
    "compare": lambda x, v: x > v,
}
FLOATS: dict[str, Callable[[torch.Tensor, Any], Any]] = {
    "leaky_relu": lambda x, v: F.leaky_relu(x, v),
    "elu": lambda x, v: F.elu(x, v),
    "threshold": lambda x, v: F.threshold(x, v, v),
    "softplus": lambda x, v: F.softplus(x, v),
    "hardshrink": lambda x, v: F.hardshrink(x, v),
    "softshrink": lambda x, v: F.softshrink(x, abs(v)),
    "addcmul": lambda x, v: torch.addcmul(x, x, x, value=v),
    "addcdiv": lambda x, v: torch.addcdiv(x, x, x, value=v),
    "lerp": lambda x, v: torch.lerp(x, x + 1, v),
}
VALUES: dict[torch.dtype, tuple[Any, ...]] = {
    torch.float32: (1e40, -1e40, 3e38, float("inf"), float("nan")),
    torch.float16: (1e5, 1e40, 65504.0, 65505.0, float("-inf"), 100_000),
    torch.bfloat16: (1e40, 3.4e38, 3.3e38),
    torch.float64: (1e40, 1e308),
    torch.int8: (300, 127, -128, -129),
    torch.int32: (1 << 40, 1 << 31, (1 << 31) - 1),
    torch.uint8: (300, 255, -3),
    torch.int64: (1 << 62,),
}
CASES = [(n, dtype) for n in OPERATORS for dtype in VALUES]
CASES += [(n, dtype) for n in FLOATS for dtype in VALUES if dtype.is_floating_point]


def outcome(function: Any, x: torch.Tensor, value: Any) -> tuple[Any, Any, torch.Tensor]:
    x = x.clone()
    try:
        with torch.no_grad():
            return function(x, value), None, x
    except RuntimeError as error:
        return None, str(error).split("\n")[0], x


@pytest.mark.parametrize("name, dtype", CASES)
def test_out_of_range(name: str, dtype: torch.dtype) -> None:
    operator = {**OPERATORS, **FLOATS}[name]
    x = torch.tensor([1, 2, 3]).to(dtype)
    seen: list[Any] = []
    function = lambda x, v: operator(x, v)
    compiled = {kind: pliant.compile(function, dynamic=True) for kind in (int, float)}
    for value in VALUES[dtype]:
        outcome(compiled[type(value)], x, type(value)(2))
        with events.listening(seen.append):
            actual = outcome(compiled[type(value)], x, value)
        expected = outcome(function, x, value)
        assert actual[1] == expected[1], value
        torch.testing.assert_close(actual[::2], expected[::2], equal_nan=True)
    assert not [e for e in seen if isinstance(e, events.CompileFinished)]


@pytest.mark.parametrize("name, dtype", CASES)
def test_out_of_range_though_nobody_needs_the_result(name: str, dtype: torch.dtype) -> None:
    operator = {**OPERATORS, **FLOATS}[name]

    def function(x: torch.Tensor, v: Any) -> torch.Tensor:
        operator(x.clone(), v)
        return x + 1

    x = torch.tensor([1, 2, 3]).to(dtype)
    compiled = {kind: pliant.compile(function, dynamic=True) for kind in (int, float)}
    for value in VALUES[dtype]:
        outcome(compiled[type(value)], x, type(value)(2))
        actual, expected = outcome(compiled[type(value)], x, value), outcome(function, x, value)
        assert actual[1] == expected[1], value


@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("value", [70_000, 1e39, 2**40])
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_exponents_are_converted_to_half_types(dtype: Any, value: Any, dynamic: bool) -> None:
    x = torch.tensor([0, 1, 2]).to(dtype)
    function = lambda x, v: x**v
    compiled = pliant.compile(function, dynamic=dynamic, backend="llvm")
    actual, expected = outcome(compiled, x, value), outcome(function, x, value)
    assert actual[1] == expected[1]
    torch.testing.assert_close(actual[0], expected[0])


@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("dtype", [torch.int8, torch.int16, torch.int32, torch.uint8])
@pytest.mark.parametrize("name", ["sub", "rsub", "add"])
def test_factors_of_what_is_subtracted(name: str, dtype: torch.dtype, dynamic: bool) -> None:
    """Eager PyTorch adds times minus the factor, which has to be in range as well."""
    x, info = torch.tensor([1, 2, 3]).to(dtype), torch.iinfo(dtype)
    function = lambda x, v: getattr(torch, name)(x, x * 2, alpha=v)
    compiled = pliant.compile(function, dynamic=dynamic, backend="llvm")
    for value in (2, info.min, info.max, -info.max):
        actual, expected = outcome(compiled, x, value), outcome(function, x, value)
        assert actual[1] == expected[1], value
        torch.testing.assert_close(actual[0], expected[0])


@pytest.mark.parametrize("dtype", [torch.float16, torch.float32, torch.float64])
def test_a_number_that_has_to_be_positive(dtype: torch.dtype) -> None:
    x = torch.tensor([-2.0, 1.0, 3.0]).to(dtype)
    compiled = {
        kind: pliant.compile(F.softshrink, dynamic=True, backend="llvm") for kind in (int, float)
    }
    values = (-1.0, 0.0, 2.0, float("nan"), float("inf"), float("-inf"), 3, -1, 0, -(1 << 62))
    for value in values:
        outcome(compiled[type(value)], x, type(value)(2))
        actual, expected = outcome(compiled[type(value)], x, value), outcome(F.softshrink, x, value)
        assert actual[1] == expected[1], value
        torch.testing.assert_close(actual[::2], expected[::2])


def test_nothing_was_written_before_the_error() -> None:
    def step(x: torch.Tensor, v: float) -> torch.Tensor:
        x.add_(1)
        return torch.full_like(x, v)

    compiled = pliant.compile(step, dynamic=True)
    x, y = torch.zeros(3), torch.zeros(3)
    compiled(x, 2.0), step(y, 2.0)
    for function, t in ((compiled, x), (step, y)):
        with pytest.raises(RuntimeError, match="without overflow"):
            function(t, 1e40)
    assert torch.equal(x, y)


def test_sizes_have_the_range_of_integers() -> None:
    compiled = pliant.compile(lambda x: x.new_full((2,), x.shape[0]), dynamic=True)
    with torch.no_grad():
        compiled(torch.ones(3, dtype=torch.float16))
        with pytest.raises(RuntimeError, match="without overflow"):
            compiled(torch.ones(70_000, dtype=torch.float16))
