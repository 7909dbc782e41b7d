"""What was measured, as events for a report: calls over time, and kernels against the machine.

The one idea: a report may be of a run of hours. So spans are thinned while they are recorded
(`SPANS`), and calls that follow each other closely become one stretch (`STRETCHES`).
"""

from __future__ import annotations

import functools
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

import torch

from pliant.base import events
from pliant.launch.launch_info import MEMORY_STEP
from pliant.reports.measure import (
    CallSpan,
    Describe,
    FunctionTimes,
    SpanRecorder,
    functions_of,
)

SPANS: Final = 200_000
STRETCHES: Final = 400  # of calls of one function
_COPIED: Final = 2**24  # numbers, more than caches hold
_EDGE: Final = 512


def measured_events(recorder: SpanRecorder, describe: Describe) -> Iterator[events.Event]:
    """What the recorder has got, by function and program."""
    functions = functions_of(recorder, describe)
    for function in functions:
        about: dict[str, Any] = {"function": function.name, "position": function.position}
        if function.spans:
            spans = tuple(_stretches(function.spans, recorder.epoch))
            seconds = function.seconds
            yield events.CallsMeasured(calls=function.calls, seconds=seconds, spans=spans, **about)
        yield from _steps(function, about)


def _steps(function: FunctionTimes, about: Mapping[str, Any]) -> Iterator[events.StepsMeasured]:
    programs: dict[int, list[Mapping[str, object]]] = {}
    graphs: dict[int, Any] = {}
    for (owner, _), step in function.steps.items():
        if step.what.kind is MEMORY_STEP:
            continue
        graphs[owner] = step.graph
        programs.setdefault(owner, []).append(
            {"name": step.what.name, "kind": step.what.kind, "runs": step.runs,
             "seconds": step.total, "least": step.least / 1e9,
             "bytes": step.bytes // max(step.measured, 1), "operations": step.what.operations,
             "kernels": step.what.kernels}
        )  # fmt: skip
    for owner, steps in programs.items():
        index = function.compilation
        if index is None:
            index = function.entries.get(graphs[owner], 0)
        bandwidth, arithmetic = machine_limits()
        name = function.name.removesuffix(" backward")
        yield events.StepsMeasured(
            program=function.name, index=index, steps=tuple(steps), bandwidth=bandwidth,
            arithmetic=arithmetic, **{**about, "function": name},
        )  # fmt: skip


def _stretches(spans: Sequence[CallSpan], epoch: int) -> Iterator[tuple[float, float, int, bool]]:
    """Calls one after the other, as one where there are too many to tell apart."""
    ordered = sorted(spans, key=lambda span: span.start)
    length = ordered[-1].stop - ordered[0].start
    shortest = length // STRETCHES if len(ordered) > STRETCHES else 0
    start, stop, count, hit = ordered[0].start, ordered[0].stop, 0, True
    for span in ordered:
        fits = span.guards is not None
        if count and (not shortest or fits != hit or span.start - start > shortest):
            yield (start + epoch) / 1e9, (stop + epoch) / 1e9, count, hit
            start, stop, count = span.start, span.stop, 0
        stop, count, hit = max(stop, span.stop), count + 1, fits
    yield (start + epoch) / 1e9, (stop + epoch) / 1e9, count, hit


@functools.cache
def machine_limits() -> tuple[float, float]:
    """Bytes that can be copied and operations on floats that can be done, in a second, with the
    threads that PyTorch has."""
    source = torch.ones(_COPIED)
    target = torch.empty_like(source)
    square = torch.ones(_EDGE, _EDGE)
    with torch.no_grad():
        copying = _fastest(lambda: target.copy_(source))
        multiplying = _fastest(lambda: torch.mm(square, square))
    return 2 * source.nbytes / copying, 2 * _EDGE**3 / multiplying


def _fastest(work: Any) -> float:
    times = []
    for _ in range(4):
        start = time.perf_counter()
        work()
        times.append(time.perf_counter() - start)
    return min(times)
