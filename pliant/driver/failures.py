"""Listeners for failures of pliant. They get the call, so that it can be repeated.

The one idea: a failure is noticed deep inside a compilation, where the call isn't at hand. So a
compilation is watched from outside, and a failure is reported after it has ended and released its
lock.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

from pliant._native import Dispatcher, Entry
from pliant.base import events
from pliant.base.errors import InternalError

Observer = Callable[[Dispatcher, tuple[Any, ...]], None]

_observers: list[Observer] = []
_busy = threading.local()


def observe(observer: Observer) -> Callable[[], None]:
    """Call `observer` after each failure. Returns a function that ends it."""
    _observers.append(observer)
    return lambda: _observers.remove(observer)


def watched(
    on_miss: Callable[[Dispatcher, tuple[Any, ...]], Entry | None],
    dispatcher: Dispatcher,
    values: tuple[Any, ...],
) -> Entry | None:
    """Call `on_miss`, and tell the observers afterwards if pliant failed in it. An observer
    compiles too, so that its own failures are not observed."""
    if not _observers or getattr(_busy, "now", False):
        return on_miss(dispatcher, values)
    thread, failures = threading.get_ident(), 0

    def listen(event: events.Event) -> None:
        nonlocal failures
        failures += isinstance(event, events.FellBack) and threading.get_ident() == thread

    try:
        with events.listening(listen):
            return on_miss(dispatcher, values)
    except InternalError:
        failures += 1
        raise
    # After the compilation has released its lock, whether it raised or fell back.
    finally:
        if failures:
            _tell(dispatcher, values)


def _tell(dispatcher: Dispatcher, values: tuple[Any, ...]) -> None:
    _busy.now = True
    try:
        for observer in list(_observers):
            observer(dispatcher, values)
    finally:
        _busy.now = False
