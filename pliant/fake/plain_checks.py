"""Tests of conditions in PyTorch's meta kernels, without its symbolic shapes.

`torch._check` imports them, and sympy with them, to find out that True is true: a quarter of a
second for the first kernel in a process that asks so.
"""

from __future__ import annotations

from typing import Any

import torch

_check_with: Any = torch._check_with


def _check(error_type: Any, cond: Any, message: Any) -> None:
    if cond is not True and not (isinstance(cond, torch.SymBool) and _expected(cond)):
        _check_with(error_type, cond, message)


def _expected(cond: torch.SymBool) -> bool:
    return bool(cond.node.expect_true("", 0))


class plain_checks:
    """What holds is not looked into inside; everything else is as ever, in all threads."""

    def __enter__(self) -> None:
        self._before = torch._check_with
        torch._check_with = _check

    def __exit__(self, *error: object) -> None:
        torch._check_with = self._before
