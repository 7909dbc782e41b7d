"""The referee of the capture tests: the same program run eagerly by Python and PyTorch."""

import collections
import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch

import pliant
from tests.support.closeness import exact


def outcome(function: Callable[..., Any], args: tuple[Any, ...]) -> tuple[str, Any]:
    try:
        return "returned", function(*args)
    except pliant.errors.PliantError:
        raise
    except Exception as error:
        return "raised", error


def assert_same(got: Any, expected: Any) -> None:
    """Equal in type, structure and value; tensors bit for bit, objects by their attributes."""
    assert type(got) is type(expected), f"{type(got)} instead of {type(expected)}"
    if isinstance(expected, torch.Tensor):
        torch.testing.assert_close(got, expected, **exact(), equal_nan=True)
    elif isinstance(expected, BaseException):
        assert str(got) == str(expected)
        assert_same(got.args, expected.args)
        assert vars(got).keys() == vars(expected).keys()
    elif isinstance(expected, dict):
        assert list(got) == list(expected)
        for key in expected:
            assert_same(got[key], expected[key])
    elif isinstance(expected, list | tuple | collections.deque):
        assert len(got) == len(expected), f"{got} instead of {expected}"
        for item, wanted in zip(got, expected):
            assert_same(item, wanted)
    elif (
        hasattr(expected, "__dict__") and not isinstance(expected, type) and not callable(expected)
    ):
        assert_same(vars(got), vars(expected))
    elif expected == expected:
        assert got == expected


@pytest.fixture
def check() -> Callable[..., None]:
    """`check(f, *args)`: f compiled as one graph does what f does, also when called again."""

    def check(function: Callable[..., Any], *args: Any) -> None:
        compiled = pliant.compile(function, backend="eager", fullgraph=True)
        for _ in range(2):
            mine, theirs = copy.deepcopy(args), copy.deepcopy(args)
            expected = outcome(function, theirs)
            assert_same(outcome(compiled, mine), expected)
            assert_same(mine, theirs)

    return check


@pytest.fixture
def breaks() -> Callable[..., None]:
    """`breaks(f, *args, code=...)`: f can't be one graph, for the cause with that code."""

    def breaks(function: Callable[..., Any], *args: Any, code: str) -> None:
        compiled = pliant.compile(function, backend="eager", fullgraph=True)
        with pytest.raises(pliant.errors.GraphBreakError) as caught:
            compiled(*args)
        assert caught.value.code == code

    return breaks
