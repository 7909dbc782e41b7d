"""Dates and times: immutable, so they are constants. Reading a clock is a graph break."""

from __future__ import annotations

import datetime
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from pliant.capture.library.folding import NATIVE_METHODS, on_constants, same_from_outside
from pliant.capture.native import FUNCTIONS, METHODS, pure
from pliant.capture.value import Const, Value
from pliant.capture.values.conversion import FROM_REAL
from pliant.capture.wrap import BUILDERS

if TYPE_CHECKING:
    from pliant.capture.trace import Trace


DATES = (datetime.date, datetime.time, datetime.datetime, datetime.timedelta, datetime.timezone)

for _cls in DATES:
    pure(_cls)
    BUILDERS[_cls] = same_from_outside
    for _name, _descriptor in vars(_cls).items():
        if isinstance(_descriptor, NATIVE_METHODS):
            METHODS.setdefault((_cls, _name), on_constants(_descriptor))


def _class_constructor(name: str) -> Callable[..., Value]:
    def handler(trace: Trace, cls: Value, /, *args: Value, **kwargs: Value) -> Value:
        return on_constants(getattr(trace.read(cls).constant(), name))(trace, *args, **kwargs)

    return handler


FROM_TEXT = ("fromisoformat", "fromisocalendar", "fromordinal", "combine", "strptime")
for _date in (datetime.date, datetime.time, datetime.datetime):
    for _name in FROM_TEXT:
        if _name in vars(_date):
            METHODS[_date, _name] = _class_constructor(_name)
FROM_REAL[type(datetime.date.min.isocalendar())] = lambda trace, obj: Const(obj)


def _at_a_time(real: Callable[..., Any], needed: int) -> Callable[..., Value]:
    """A function of `time` that reads the clock only if no time is passed."""
    breaking, folding = FUNCTIONS[real], on_constants(real)

    def handler(trace: Trace, *args: Value) -> Value:
        return folding(trace, *args) if len(args) == needed else breaking(trace, *args)

    return handler


FUNCTIONS[time.gmtime] = _at_a_time(time.gmtime, 1)
FUNCTIONS[time.strftime] = _at_a_time(time.strftime, 2)
