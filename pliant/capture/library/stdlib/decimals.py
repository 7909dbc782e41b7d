"""Decimal numbers: folded, with a guard on the decimal context that results depend on."""

from __future__ import annotations

import decimal
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from pliant.capture.library.folding import on_constants, register_immutable
from pliant.capture.native import FUNCTIONS
from pliant.capture.value import Value
from pliant.guards.guard import GuardKind
from pliant.guards.predicates import Gives
from pliant.guards.source import Fixed

if TYPE_CHECKING:
    from pliant.capture.trace import Trace


def decimal_context() -> str:
    """Everything that results of decimal arithmetic depend on, besides the numbers."""
    context = decimal.getcontext()
    traps = sorted(signal.__name__ for signal, on in context.traps.items() if on)
    return f"{context.prec} {context.rounding} {context.Emin} {context.Emax} {traps}"


def _in_context(real: Any) -> Callable[..., Value]:
    run = on_constants(real)

    def handler(trace: Trace, /, *args: Value, **kwargs: Value) -> Value:
        expected = Gives((), decimal_context())
        trace.guard(GuardKind.PREDICATE, Fixed(decimal_context, "decimal_context"), expected)
        return run(trace, *args, **kwargs)

    return handler


def register() -> None:
    FUNCTIONS[decimal.Decimal] = _in_context(decimal.Decimal)
    register_immutable(decimal.Decimal, _in_context)
