"""A report as one HTML file that needs nothing else: no network, no other file.

The one idea: the page is files of this folder (what it is made of, how it looks, what it does)
with the data of the run between them, as JSON.
"""

from __future__ import annotations

import atexit
import json
import os
import platform
import sys
import time
from collections.abc import Callable, Iterable
from pathlib import Path

import torch

from pliant.base.events import Event, subscribe
from pliant.base.records import JsonLog, Record, record_of
from pliant.reports.advice import advice
from pliant.reports.history import history
from pliant.reports.measure import Describe, SpanRecorder
from pliant.reports.measured import SPANS, measured_events

FOLDER = Path(__file__).parent
PROGRAM = ("page.charts.js", "page.graph.js", "page.js")


def page(records: Iterable[Record], title: str) -> str:
    """The report of a run, as HTML."""
    data = history(records)
    data["advice"] = advice(data)
    data["title"] = title
    data["about"] = {
        "made": time.strftime("%Y-%m-%d %H:%M:%S"),
        "Python": platform.python_version(),
        "torch": torch.__version__,
        "machine": platform.machine(),
    }
    # In a script element "</" would end it, whatever it is part of.
    text = json.dumps(data).replace("<", "\\u003c")
    parts = {
        "/*STYLE*/": (FOLDER / "page.css").read_text(),
        "/*DATA*/": text,
        "/*PROGRAM*/": "".join((FOLDER / name).read_text() for name in PROGRAM),
    }
    html = (FOLDER / "page.html").read_text()
    for place, content in parts.items():
        before, after = html.split(place)
        html = f"{before}{content}{after}"
    return html


def write(path: str | Path, records: Iterable[Record], title: str) -> None:
    """Write the report to a file: completely, or not at all."""
    unfinished = f"{path}.{os.getpid()}.tmp"
    Path(unfinished).write_text(page(records, title), encoding="utf-8")
    os.replace(unfinished, path)


class Recording:
    """What happens from now on, for a report. As a context manager it writes the page at the end of
    the block, also when that is an exception. `at_end`: what is known only then. `describe`: the
    user's name of a function."""

    def __init__(
        self,
        path: str | os.PathLike[str],
        describe: Describe,
        at_end: Callable[[], Iterable[Event]] = tuple,
    ) -> None:
        self._path = Path(path)
        if not self._path.parent.is_dir():
            raise FileNotFoundError(f"there is no folder {str(self._path.parent)!r} for a report")
        self._at_end = at_end
        self.records: list[Record] = []
        self._describe = describe
        self._spans = SpanRecorder(SPANS)
        self._spans.start()
        self._stop = subscribe(self._add)

    def _add(self, event: Event) -> None:
        self.records.append(record_of(event))

    def write(self) -> Path:
        """Write the page with everything until now. Returns where it is."""
        self._spans.collect()
        measured = measured_events(self._spans, self._describe)
        used = [record_of(event) for event in (*self._at_end(), *measured)]
        write(self._path, [*self.records, *used], Path(sys.argv[0]).name or "pliant")
        return self._path

    def __enter__(self) -> Recording:
        return self

    def __exit__(self, *error: object) -> None:
        self._stop()
        self._spans.stop()
        self.write()


def measure_until_exit(
    path: str, describe: Describe, at_end: Callable[[], Iterable[Event]]
) -> None:
    """Measure this process, and append to a log of events what is known only in the end."""
    spans = SpanRecorder(SPANS)
    spans.start()

    def append() -> None:
        if spans.process != os.getpid():  # a fork, whose parent writes it
            return
        spans.stop()
        log = JsonLog(path)
        for event in (*at_end(), *measured_events(spans, describe)):
            log(event)

    atexit.register(append)
