"""What is being compiled, on a terminal, while it takes long."""

from __future__ import annotations

import sys
import threading
import time
from typing import Any

from pliant.base import events
from pliant.base.errors import counted
from pliant.base.events import Event

PATIENCE = 0.5  # seconds before anything is shown
TICK = 0.1
ENDS = (events.CompileFinished, events.CompileAbandoned)


class Progress:
    """A listener, and a thread that shows the compilation under way if it takes long. Nothing is
    shown where stderr is no terminal."""

    def __init__(self) -> None:
        self._current: tuple[str, float] | None = None  # the function, since when
        self._alone = False  # code of a backward, outside of the compilation of its function
        self._work: events.WorkBegan | None = None
        self._ended = threading.Event()
        self._thread: threading.Thread | None = None

    def __call__(self, event: Event) -> None:
        if isinstance(event, events.WorkBegan):
            self._work = event
        elif isinstance(event, ENDS) or (self._alone and isinstance(event, events.CodeGenerated)):
            self._current = None
        starts = isinstance(event, events.CompileStarted)
        if starts or (self._current is None and isinstance(event, events.WorkBegan)):
            self._current, self._alone = (event.function, time.monotonic()), not starts

    def __enter__(self) -> Progress:
        if sys.stderr.isatty():
            self._thread = threading.Thread(target=self._show, daemon=True, name="pliant progress")
            self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self.stop()

    def stop(self) -> None:
        """End the display."""
        self._ended.set()
        if self._thread is not None:
            self._thread.join()
            self._thread = None

    def _show(self) -> None:
        display: Any = None
        while not self._ended.wait(TICK):
            text = self.text()
            if text is not None:
                if display is None:
                    display = _line()
                    display.start()
                display.renderable.update(text=text)
            elif display is not None:
                display.stop()
                display = None
        if display is not None:
            display.stop()

    def text(self) -> str | None:
        """What to show now, if anything."""
        current, work = self._current, self._work
        if current is None or work is None:
            return None
        function, since = current
        seconds = time.monotonic() - since
        if seconds < PATIENCE:
            return None
        return f"pliant: {function}: {work.work}{_how_far(work)}, {seconds:.0f} s"


def _line() -> Any:
    """A line with a spinner, which disappears. The program's own streams are left alone: what it
    prints meanwhile goes where it would have gone."""
    # A tenth of a second, rarely needed.
    from rich.console import Console  # noqa: PLC0415
    from rich.live import Live  # noqa: PLC0415
    from rich.spinner import Spinner  # noqa: PLC0415

    return Live(
        Spinner("dots"), console=Console(stderr=True), refresh_per_second=10, transient=True,
        redirect_stdout=False, redirect_stderr=False,
    )  # fmt: skip


def _how_far(work: events.WorkBegan) -> str:
    if work.done is None:
        return ""
    if work.total is None:
        return f", {counted(work.done(), work.unit)} so far"
    return f", {work.done()} of {counted(work.total, work.unit)}"
