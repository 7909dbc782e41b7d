"""Tracebacks that the captured program made: entries, the outermost first, as in Python."""

from __future__ import annotations

import types
from typing import TYPE_CHECKING

from pliant.base.position import Position
from pliant.capture.value import NONE, Value

if TYPE_CHECKING:
    from pliant.capture.frame import Frame
    from pliant.capture.residual import Emitter


class Traceback(Value):
    """An entry of a traceback: the frame that an exception went through, where it was then, and the
    entries of the frames that it had called (`following`, None at the end)."""

    __slots__ = ("following", "frame", "outer", "position")

    def __init__(self, frame: Frame, outer: list[Frame], following: Value) -> None:
        super().__init__()
        self.frame: Frame | None = frame
        self.outer = outer  # the frames that called it, the nearest last
        self.position = frame.position()
        self.following = following

    def python_type(self) -> type:
        return types.TracebackType

    def places(self) -> tuple[Position, ...]:
        """The user's lines, the outermost first."""
        places, entry = [], self
        while isinstance(entry, Traceback):
            places.append(entry.position)
            entry = entry.following  # type: ignore[assignment]
        return tuple(places)

    def rebuild(self, emit: Emitter) -> str:
        return emit.traceback(self.places())

    def forget(self) -> None:
        """The capture ends: the variables of its frames are not kept."""
        self.frame, self.outer, self.following = None, [], NONE
