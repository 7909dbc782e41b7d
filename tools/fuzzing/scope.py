"""The globals of a random program."""

from __future__ import annotations

from typing import Any

from tools.fuzzing.program import IMPORTS, PREAMBLE

_PREAMBLE = compile("\n\n".join([IMPORTS, *PREAMBLE.values()]), "<fuzz preamble>", "exec")


def new_scope() -> dict[str, Any]:
    """What every program can use: modules and a few functions and objects of its own."""
    scope: dict[str, Any] = {"__name__": "fuzzed"}
    exec(_PREAMBLE, scope)
    return scope
