"""What happened during a program, in a few lines."""

from __future__ import annotations

from collections import Counter

from pliant.base import events
from pliant.base.errors import counted
from pliant.base.events import Event

SHOWN = 3  # of each kind of trouble, the most frequent


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

    def __str__(self) -> str:
        counts = self._counts
        compilations = counts[events.CompileFinished]
        if not compilations:
            return "pliant: nothing was compiled: the program never called something compiled"
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
