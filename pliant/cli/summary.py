"""What happened during a program, in a few lines."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from pliant.base import events
from pliant.base.errors import counted
from pliant.base.events import Event
from pliant.base.records import Record

SHOWN = 3  # of each kind of trouble, the most frequent
NOTHING = "pliant: nothing was compiled, because no compiled function was called"
NOT_SEEN = " in this process (--report shows those that it starts, too)"


class Summary:
    """A listener that counts, and prints as the summary."""

    def __init__(self) -> None:
        self._counts: Counter[type[Event]] = Counter()
        self._seconds = 0.0
        self._functions: set[tuple[str, ...]] = set()
        self._troubles: Counter[str] = Counter()

    def __call__(self, event: Event) -> None:
        self._counts[type(event)] += 1
        if isinstance(event, events.CompileFinished):
            self._seconds += event.seconds
            self._functions.add(_written(event))
        trouble = _trouble(event)
        if trouble is not None:
            self._troubles[trouble] += 1

    def text(self, others: Sequence[Record] | None) -> str:
        """With what other processes have recorded; None: nobody has."""
        compiled = self._counts[events.CompileFinished]
        if compiled or not others:
            lines = [str(self) if compiled else NOTHING + NOT_SEEN * (others is None)]
        else:
            lines = []
        finished = [each for each in others or () if each["event"] == "CompileFinished"]
        if finished:
            processes = {each["process"] for each in finished}
            seconds = sum(each["seconds"] for each in finished)
            lines.append(
                f"pliant: {counted(len(finished), 'compilation')} in {seconds:.1f} s in "
                f"{len(processes)} other process{'es' * (len(processes) > 1)}: see the report"
            )
        return "\n".join(lines)

    def __str__(self) -> str:
        counts = self._counts
        parts = [
            f"{counted(len(self._functions), 'function')} compiled in {self._seconds:.1f} s",
            counted(counts[events.GraphCaptured], "graph"),
            counted(counts[events.GraphBroke], "graph break"),
            counted(counts[events.Recompiled], "recompilation"),
        ]
        if counts[events.FellBack]:
            parts.append(counted(counts[events.FellBack], "fallback"))
        lines = ["pliant: " + ", ".join(parts)]
        for text, times in self._troubles.most_common(SHOWN):
            lines.append(f"  {text}" + (f" ({times} times)" if times > 1 else ""))
        left = len(self._troubles) - SHOWN
        if left > 0:
            lines.append(f"  and {left} more: --logs graph_breaks,recompiles,fallbacks")
        return "\n".join(lines)


def _written(event: Event) -> tuple[str, ...]:
    """The function that the user wrote. What goes on after a break is part of it."""
    position = event.position
    return (event.function,) if position is None else (position.file, position.function)


def _trouble(event: Event) -> str | None:
    """What a user may want to change, as a line."""
    if isinstance(event, events.GraphBroke):
        return f"graph break at {event.position}: {event.what}"
    if isinstance(event, events.LimitReached):
        return f"{event.function} reached config.{event.option}: {event.varied}"
    if isinstance(event, events.FellBack):
        return f"{event.function} runs eagerly, because pliant failed on it: {event.reason}"
    return None
