"""Differences from eager PyTorch that stay, each with its reason: see docs/differences.md."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tools.fuzzing.program import Program

Rule = Callable[[Program, dict[str, Any]], bool]

RULES: dict[str, Rule] = {}


def reason(program: Program, finding: dict[str, Any]) -> str | None:
    """Why the finding is accepted, if it is."""
    return next((why for why, holds in RULES.items() if holds(program, finding)), None)
