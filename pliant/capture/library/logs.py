"""Log calls that do nothing: below the level of the logger, which is then assumed to stay.

A call that would make a record breaks the graph, because it happens at a time that matters.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

from pliant.capture.native import function
from pliant.capture.trace import Trace, written_objects
from pliant.capture.value import NONE, Break, Const, Value
from pliant.capture.values.objects import Instance
from pliant.guards.guard import Kind
from pliant.guards.predicates import Gives
from pliant.guards.source import Attr

LEVELS = {
    "debug": logging.DEBUG,
    "info": logging.INFO,
    "warning": logging.WARNING,
    "error": logging.ERROR,
    "exception": logging.ERROR,
    "critical": logging.CRITICAL,
}

SETTINGS = (logging.Logger, logging.LoggerAdapter, logging.Manager)


def _log_at(level: int, what: str) -> Callable[..., Value]:
    def handler(trace: Trace, logger: Value, *args: Value, **kwargs: Value) -> Value:
        if not _is_silent(trace, logger, level):
            raise Break("logging", what)
        return NONE

    return handler


def _is_silent(trace: Trace, logger: Value, level: int) -> bool:
    """Whether the logger ignores this level, and is assumed to go on doing so."""
    known = trace.read(logger)
    if not isinstance(known, Instance) or known.real is None or known.source is None:
        return False
    changed = any(isinstance(real, SETTINGS) for real in written_objects(trace))
    if changed or known.real.isEnabledFor(level):
        return False
    trace.guard(Kind.PREDICATE, Attr(known.source, "isEnabledFor"), Gives((level,), False))
    return True


def _register(cls: type) -> None:
    for name, level in LEVELS.items():
        real: Any = getattr(cls, name)
        function(real)(_log_at(level, f"{real.__qualname__}()"))

    def log(trace: Trace, logger: Value, level: Value, *args: Value, **kwargs: Value) -> Value:
        known = trace.read(level)
        if not isinstance(known, Const) or not isinstance(known.value, int):
            raise Break("logging", f"{cls.__name__}.log()")
        return _log_at(known.value, f"{cls.__name__}.log()")(trace, logger)

    function(cls.log)(log)  # type: ignore[attr-defined]


_register(logging.Logger)
_register(logging.LoggerAdapter)
