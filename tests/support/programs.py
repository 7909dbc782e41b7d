"""Programs to be compared with eager PyTorch, and operations in them that break the graph."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import pliant


class Programs:
    """A collection of programs, each with arguments and what `check` is to expect of it::

    program = Programs()

    @program(X, [], breaks=1)
    def prints(x, log): ...

    @pytest.mark.parametrize(("function", "args", "expected"), program.cases)
    def test_same_as_eager(function, args, expected):
        check(function, *args, **expected)
    """

    def __init__(self, **default: Any) -> None:
        self.default = default
        self.cases: list[Any] = []

    def __call__(self, *args: Any, **expected: Any) -> Callable[[Any], Any]:
        def register(function: Any) -> Any:
            values = (function, args, {**self.default, **expected})
            self.cases.append(pytest.param(*values, id=function.__name__))
            return function

        return register


@pliant.disable
def note(log: list[Any], what: Any) -> int:
    """An operation that breaks the graph and whose time matters."""
    log.append(what)
    return len(log)


@pliant.disable
def fail(error: BaseException) -> None:
    """An operation that breaks the graph and raises."""
    raise error
