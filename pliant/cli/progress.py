"""What is being compiled, on a terminal, while it takes long."""

from __future__ import annotations

import sys
import threading
import time
from typing import Any

from pliant.base import events
from pliant.base.events import Event

PATIENCE = 0.5  # seconds before anything is shown
TICK = 0.1

# What a compilation is at, once an event of this kind has come.
NEXT: dict[type[Event], str] = {
    events.CompileStarted: "capturing",
    events.StageFinished: "generating code",
    events.CodeGenerated: "finishing",
}


class Progress:
    """A listener, and a thread that shows the compilation under way if it takes long. Nothing is
    shown where stderr is no terminal."""

    def __init__(self) -> None:
        self._current: tuple[str, float] | None = None  # the function, since when
        self._phase = ""
        self._ended = threading.Event()
        self._thread: threading.Thread | None = None

    def __call__(self, event: Event) -> None:
        if isinstance(event, events.CompileStarted):
            self._current = event.function, time.monotonic()
        elif isinstance(event, events.CompileFinished | events.CompileAbandoned):
            self._current = None
        self._phase = NEXT.get(type(event), self._phase)

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
        from rich.console import Console  # noqa: PLC0415  (a tenth of a second, rarely needed)

        console = Console(stderr=True)
        status: Any = None
        while not self._ended.wait(TICK):
            text = self.text()
            if text is None:
                if status is not None:
                    status.stop()
                    status = None
            elif status is None:
                status = console.status(text)
                status.start()
            else:
                status.update(text)
        if status is not None:
            status.stop()

    def text(self) -> str | None:
        """What to show now, if anything."""
        current = self._current
        if current is None:
            return None
        function, since = current
        seconds = time.monotonic() - since
        if seconds < PATIENCE:
            return None
        return f"pliant: {self._phase}: {function}, {seconds:.0f} s"
