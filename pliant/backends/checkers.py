"""The checker of each stage between a functional graph and a program.

They run in tests only (`config.check_ir`), so nothing imports this module before one is wanted.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from pliant.graph.check import check_functional
from pliant.graph.ir import Functional
from pliant.launch.check import check_kernels, check_program
from pliant.launch.kernels import Kernels
from pliant.launch.program import Program
from pliant.loop.check_schedule import check_scheduled
from pliant.loop.scheduled import Scheduled

_CHECKERS: Final[dict[type, Callable[..., object]]] = {
    Functional: check_functional,
    Scheduled: check_scheduled,
    Kernels: check_kernels,
    Program: check_program,
}


def check(stage: Any, *earlier: Any) -> None:
    """Raise an error that lists what is wrong with the value of a stage. Some are compared with
    the values of earlier stages."""
    _CHECKERS[type(stage)](stage, *earlier)
