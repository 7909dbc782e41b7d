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
from torch import fx

from pliant.base.collection import without_collection
from pliant.base.events import Event, subscribe
from pliant.base.records import JsonLog, Record, read, record_of
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
        self._process, self._began = os.getpid(), time.time()
        self._others: JsonLog | None = None
        self._describe = describe
        _load_printer()
        self._spans = SpanRecorder(SPANS)
        self._spans.start()
        self._stop = subscribe(self._add)

    @without_collection()
    def _add(self, event: Event) -> None:
        if os.getpid() == self._process:
            self.records.append(record_of(event))
        elif self._others is not None:  # a fork
            self._others(event)

    def include(self, path: str) -> None:
        """What other processes append to this file as JSON belongs to the report, too."""
        self._others = JsonLog(path)

    def of_others(self) -> list[Record]:
        """What other processes have recorded since this one began."""
        if self._others is None or not os.path.exists(self._others.path):
            return []
        return [
            record
            for record in read(self._others.path)
            if record["process"] != self._process and record["time"] >= self._began
        ]

    def write(self) -> Path:
        """Write the page with everything until now. Returns where it is."""
        self._spans.collect()
        measured = measured_events(self._spans, self._describe)
        used = [record_of(event) for event in (*self._at_end(), *measured)]
        records = [*self.records, *used, *self.of_others()]
        write(self._path, records, Path(sys.argv[0]).name or "pliant")
        return self._path

    def __enter__(self) -> Recording:
        return self

    def __exit__(self, *error: object) -> None:
        self._stop()
        self._spans.stop()
        self.write()


def _load_printer() -> None:
    """PyTorch imports a thousand modules when it prints its first graph. During a call that is
    measured, that would look like the call's own time."""
    graph = fx.Graph()
    graph.output(graph.placeholder("x"))
    fx.GraphModule({}, graph).print_readable(print_output=False)


def measure_until_exit(
    path: str, describe: Describe, at_end: Callable[[], Iterable[Event]]
) -> None:
    """Measure this process, and append to a log of events what is known only in the end."""
    _load_printer()
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
