"""When a campaign is over."""

from __future__ import annotations

import math
import time


class TimeUp(Exception):
    """The campaign is over."""


class Deadline:
    """When a campaign ends; it may be moved to now."""

    def __init__(self, seconds: float | None = None) -> None:
        self.end = math.inf if seconds is None else time.monotonic() + seconds

    def left(self) -> float:
        return max(0.0, self.end - time.monotonic())

    def end_now(self) -> None:
        self.end = -math.inf
