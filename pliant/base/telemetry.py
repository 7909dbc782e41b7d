"""Compilations as spans of OpenTelemetry, for programs that use it.

The one idea: a program that traces itself has imported `opentelemetry`, and has said where spans
go. A compilation is a span within that which is under way in its thread; its phases are spans
within it. What happened on the way (graph breaks, reasons of a recompilation) are its events.
"""

from __future__ import annotations

import secrets
import sys
import threading
import time
from collections.abc import Mapping
from typing import Any

from opentelemetry import trace  # type: ignore[import-not-found, unused-ignore]

from pliant.base import events
from pliant.base.events import Event

_thread = threading.local()


def note(event: Event) -> None:
    """Take note of an event."""
    handler = _HANDLERS.get(type(event))
    if handler is not None:
        handler(event)


class _Ids:
    """Numbers of spans. OpenTelemetry draws them from Python's `random`, from which the program has
    to draw what it would draw without pliant."""

    def generate_span_id(self) -> int:
        return secrets.randbits(64) or 1  # 0 is none

    def generate_trace_id(self) -> int:
        return secrets.randbits(128) or 1

    def is_trace_id_random(self) -> bool:
        return True


def _tracer() -> Any:
    tracer: Any = trace.get_tracer("pliant")  # nobody else has it
    sdk = sys.modules.get("opentelemetry.sdk.trace.id_generator")
    if sdk is not None and type(getattr(tracer, "id_generator", None)) is sdk.RandomIdGenerator:
        tracer.id_generator = _Ids()
    return tracer


def _open() -> list[Any]:
    """The compilations under way in this thread: one may lead to another."""
    spans: list[Any] = getattr(_thread, "spans", [])
    _thread.spans = spans
    return spans


def _started(event: Event) -> None:
    attributes: dict[str, Any] = {"pliant.function": event.function, "pliant.index": event.index}
    if event.position is not None:
        attributes["code.file.path"] = event.position.file
        attributes["code.line.number"] = event.position.line
    span = _tracer().start_span(f"compile {event.function}", attributes=attributes)
    for reason in getattr(_thread, "reasons", ()):
        span.add_event("guard failed", {"pliant.guard": reason.guard})
    _thread.reasons = ()
    _open().append(span)


def _finished(event: events.CompileFinished) -> None:
    if not (spans := _open()):  # it began before the program had OpenTelemetry
        return
    span = spans.pop()
    _add_phases(span, event.seconds, event.phases)
    span.end()


def _add_phases(span: Any, seconds: float, phases: Mapping[str, float]) -> None:
    tracer, context = _tracer(), trace.set_span_in_context(span)
    start = time.time_ns() - int(seconds * 1e9)
    for name, duration in phases.items():
        stop = start + int(duration * 1e9)
        tracer.start_span(name, context=context, start_time=start).end(stop)
        start = stop


def _abandoned(event: Event) -> None:
    if spans := _open():
        span = spans.pop()
        span.set_status(trace.StatusCode.ERROR, "nothing was compiled")
        span.end()


def _recompiled(event: events.Recompiled) -> None:
    _thread.reasons = event.reasons  # the compilation begins next


def _captured(event: events.GraphCaptured) -> None:
    for span in _open()[-1:]:
        span.set_attribute("pliant.operations", event.nodes)


def _broke(event: events.GraphBroke) -> None:
    for span in _open()[-1:]:
        attributes = {"pliant.code": event.code, "pliant.what": event.what}
        span.add_event("graph break", {**attributes, "code.line": str(event.position)})


def _fell_back(event: events.FellBack) -> None:
    span = trace.get_current_span()
    span.add_event("fallback", {"pliant.function": event.function, "pliant.reason": event.reason})


_HANDLERS: dict[type[Event], Any] = {
    events.CompileStarted: _started,
    events.CompileFinished: _finished,
    events.CompileAbandoned: _abandoned,
    events.Recompiled: _recompiled,
    events.GraphCaptured: _captured,
    events.GraphBroke: _broke,
    events.FellBack: _fell_back,
}
