"""Calls of the program's own code by compiled code: hooks, which run in the backward."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import torch


def call_program(function: Callable[..., Any], *args: Any) -> Any:
    """Call a function of the program in the backward. What it raises is the program's own."""
    with torch.no_grad():
        return function(*args)


_CALL: Final = call_program.__code__


def is_of_program(error: BaseException) -> bool:
    """Whether an error was raised by code of the program that was called in this way: then nothing
    may be run again."""
    trace = error.__traceback__
    while trace is not None and trace.tb_frame.f_code is not _CALL:
        trace = trace.tb_next
    return trace is not None
