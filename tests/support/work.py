"""Work as a number that is the same on each machine: how many calls of functions there are."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any


def calls(function: Callable[[], Any]) -> int:
    """The calls that a call makes, of functions in Python and in C."""
    count = 0

    def note(frame: Any, event: str, arg: Any) -> None:
        nonlocal count
        count += event in ("call", "c_call")

    before = sys.getprofile()
    sys.setprofile(note)
    try:
        function()
    finally:
        sys.setprofile(before)
    return count


def instructions(function: Callable[[], Any]) -> int:
    """The instructions of Python code that a call runs: unlike `calls`, those of a loop within one
    line are counted too."""
    count = 0

    def note(frame: Any, event: str, arg: Any) -> Any:
        nonlocal count
        frame.f_trace_opcodes, frame.f_trace_lines = True, False
        count += event == "opcode"
        return note

    before = sys.gettrace()
    sys.settrace(note)
    try:
        function()
    finally:
        sys.settrace(before)
    return count


def growth(make: Callable[[int], Callable[[], Any]], small: int, times: int = 4) -> float:
    """How many times the work grows when the size grows `times` times: in a linear program,
    `times` at most."""
    return calls(make(small * times)) / calls(make(small))
