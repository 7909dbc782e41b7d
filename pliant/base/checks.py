"""What compiled code tests while it runs, because it could not be told before.

`check` is a condition that the program itself stated, or an operation demanded. `assume` is one
that was taken to hold when the code was compiled: where it does not, other code has to be used.
"""

from __future__ import annotations

from typing import Any, Final

import torch

from pliant.base.errors import ShapeConstraintError


class AssumptionFailed(Exception):
    """Compiled code met a case that it was not compiled for. Never reaches the user."""

    def __init__(self, condition: str) -> None:
        super().__init__(condition)
        self.condition = condition


class NotAsCaptured(Exception):
    """Compiled code can't run for this call, which it has found out before it did anything. Never
    reaches the user: Python runs the function."""


class SuppositionFailed(RuntimeError):
    """Compiled code met sizes that it was not made for; the graph can do them."""


def check(condition: bool, message: str) -> None:
    if not condition:
        raise RuntimeError(message)


def check_index(condition: bool, message: str) -> None:
    if not condition:
        raise IndexError(message)


def check_value(condition: bool, message: str) -> None:
    if not condition:
        raise ValueError(message)


def check_type(condition: bool, message: str) -> None:
    if not condition:
        raise TypeError(message)


def check_not_implemented(condition: bool, message: str) -> None:
    if not condition:
        raise NotImplementedError(message)


def check_assertion(condition: bool, message: str) -> None:
    """`assert condition, message`"""
    if not condition:
        raise AssertionError(message) if message else AssertionError


def check_truth(condition: Any, expected: bool, message: str) -> None:
    """The node of the graph. Tensors without data are given to what stands for it in PyTorch."""
    if type(condition) not in (torch.Tensor, torch.nn.Parameter):
        torch._assert_async(condition if expected else torch.logical_not(condition), message)
    elif bool(condition) is not expected:
        raise AssertionError(message)


def forbid(condition: bool, message: str) -> None:
    """An assumption whose failure is an error (`oblivious="error"`)."""
    if not condition:
        raise ShapeConstraintError(
            message,
            why="the code was compiled for sizes other than 0 and 1, and may not be used for them",
            remedy="use the option oblivious='recompile', or state it with pliant.check(...)",
        )


def assume(condition: bool, about: str) -> None:
    if not condition:
        raise AssumptionFailed(about)


def suppose(condition: bool, text: str) -> None:
    """What the compilation of a graph took to hold, where the graph itself takes nothing."""
    if not condition:
        raise SuppositionFailed(text)


CHECKS: Final = frozenset(
    (check, check_index, check_value, check_type, check_not_implemented, check_assertion)
    + (forbid, assume, suppose)
)
"""Those that do nothing if their condition, a bool, holds."""
