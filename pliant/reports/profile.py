"""`pliant.profile()`: what compiled functions spent their time on, as a table and as a trace.

The one idea: while nobody measures, a call pays nothing but a look at a flag. Native code notes
when calls, guards and steps begin and end; everything else is worked out afterwards, from that.
"""

from __future__ import annotations

import html
import json
import os
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from pliant.base.errors import counted
from pliant.base.events import CompileFinished, Event, subscribe
from pliant.base.records import record_of
from pliant.launch.launch_info import MEMORY_STEP
from pliant.reports.measure import Describe, FunctionTimes, SpanRecorder, functions_of

UNLIMITED: Final = 2**62
COLUMNS: Final = (
    "function", "calls", "hits", "total", "misses", "guards", "kernels", "PyTorch", "Python",
    "kernel bytes",
)  # fmt: skip


class Profile:
    """What `pliant.profile()` returns, to be used as a context manager. It prints as a table."""

    def __init__(self, describe: Describe) -> None:
        self._describe = describe
        self._recorder = SpanRecorder(UNLIMITED)
        self._compilations: list[dict[str, Any]] = []
        self._unsubscribe: Any = None
        self._functions: list[FunctionTimes] | None = None

    def __enter__(self) -> Profile:
        self._unsubscribe = subscribe(self._note)
        self._recorder.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._recorder.stop()
        self._unsubscribe()
        self._functions = functions_of(self._recorder, self._describe)

    def _note(self, event: Event) -> None:
        if isinstance(event, CompileFinished):
            self._compilations.append(record_of(event) | {"thread": threading.get_native_id()})

    @property
    def functions(self) -> list[FunctionTimes]:
        """What was measured of each compiled function, the rest of one after a graph break, and
        each backward: those first that took longest."""
        if self._functions is None:
            raise RuntimeError("the profile is complete after its `with` block")
        return self._functions

    def rows(self) -> list[tuple[str, ...]]:
        """The table, without its head."""
        return [_row(function) for function in self.functions]

    def __str__(self) -> str:
        if self._functions is None:
            return "a profile that is not complete yet"
        rows = [COLUMNS, *self.rows()]
        widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
        lines = []
        for row in rows:
            cells = [cell.rjust(width) for cell, width in zip(row[1:], widths[1:], strict=True)]
            lines.append("  ".join([row[0].ljust(widths[0]), *cells]).rstrip())
        seconds = sum(compilation["seconds"] for compilation in self._compilations)
        if seconds:
            lines.append(f"{counted(len(self._compilations), 'compilation')} took {_time(seconds)}")
        return "\n".join(lines)

    __repr__ = __str__

    def _repr_html_(self) -> str:
        """For notebooks."""
        head = "".join(f"<th>{html.escape(name)}</th>" for name in COLUMNS)
        body = ""
        for row in self.rows():
            cells = "".join(f"<td>{html.escape(cell)}</td>" for cell in row)
            body += f"<tr>{cells}</tr>"
        return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"

    def export_chrome_trace(self, path: str | os.PathLike[str], torch_profile: Any = None) -> None:
        """Write calls, guards, kernels and compilations as a trace for Perfetto or
        chrome://tracing.

        Args:
            path: the file, of JSON.
            torch_profile: a `torch.profiler.profile` that ran meanwhile. Its events stand in the
                trace too, at the same times and in the same threads.
        """
        trace: dict[str, Any] = {"traceEvents": []}
        if torch_profile is not None:
            trace = _trace_of(torch_profile)
        base = trace.get("baseTimeNanoseconds", 0)
        trace["traceEvents"] += self._trace_events(base)
        Path(path).write_text(json.dumps(trace), encoding="utf-8")

    def _trace_events(self, base: int) -> Iterator[dict[str, Any]]:
        """`base`: the time, in nanoseconds since 1970, that counts as 0."""
        shift = self._recorder.epoch - base
        about = {"ph": "X", "pid": self._recorder.process}
        for compilation in self._compilations:
            start = compilation["time"] - compilation["seconds"] - base / 1e9
            yield {
                **about, "cat": "pliant compilation", "name": f"compile {compilation['function']}",
                "tid": compilation["thread"], "ts": start * 1e6,
                "dur": compilation["seconds"] * 1e6,
                "args": compilation["phases"],
            }  # fmt: skip
        for function in self.functions:
            for name, kind, start, stop, thread, more in _spans(function):
                yield {
                    **about, "cat": f"pliant {kind}", "name": name, "tid": thread,
                    "ts": (start + shift) / 1e3, "dur": (stop - start) / 1e3, "args": more,
                }  # fmt: skip


def _spans(function: FunctionTimes) -> Iterator[tuple[str, str, int, int, int, dict[str, Any]]]:
    for call in function.spans:
        hit = call.guards is not None
        yield function.name, "call", call.start, call.stop, call.thread, {"hit": hit}
        if call.guards is not None:
            yield "guards", "guards", call.start, call.start + call.guards, call.thread, {}
    for step in function.steps.values():
        if step.what.kind is MEMORY_STEP:
            continue
        more = {"function": function.name, "bytes": step.bytes // max(step.measured, 1)}
        for start, stop, thread in step.spans:
            yield step.what.name, step.what.kind, start, stop, thread, more


def _trace_of(torch_profile: Any) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "trace.json"
        torch_profile.export_chrome_trace(str(file))
        trace: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
    return trace


def _row(function: FunctionTimes) -> tuple[str, ...]:
    measured = (
        *(function.miss_seconds, function.guard_seconds),
        *(function.kernel_seconds, function.torch_seconds),
    )
    rest = max(function.seconds - sum(measured), 0.0)
    times = [_time(seconds) for seconds in (function.seconds, *measured, rest)]
    return function.name, str(function.calls), str(function.hits), *times, _bytes(function.bytes)


def _time(seconds: float) -> str:
    for unit, factor in (("s", 1.0), ("ms", 1e3)):
        if seconds * factor >= 1:
            return f"{seconds * factor:.2f} {unit}"
    return f"{seconds * 1e6:.1f} µs"


def _bytes(number: float) -> str:
    units = ["TB", "GB", "MB", "kB", "B"]
    while number >= 1000 and len(units) > 1:
        number /= 1000
        units.pop()
    return f"{number:.0f} B" if units[-1] == "B" else f"{number:.1f} {units[-1]}"
