"""Keeping the garbage collector out of work that makes many small values and no garbage."""

from __future__ import annotations

import contextlib
import gc
from typing import Final

IMMORTAL: Final = 1_000
"""Python 3.12 keeps a few hundred immortal objects of its own among the frozen ones. A program that
freezes what it has leaves thousands there."""


class without_collection(contextlib.ContextDecorator):
    """The modules, graphs and guards made inside would set off the collector again and again, for
    nothing: a single pass over the objects that `import torch` leaves takes a tenth of a second.

    What is made inside is looked at when the block has ended, unless it is `lasting`, as modules
    are: then the collector takes it for old.

    (No generator, which would run the end of its block whenever an interrupted one is freed.)
    """

    def __init__(self, lasting: bool = False) -> None:
        self._lasting = lasting

    def _recreate_cm(self) -> without_collection:
        return without_collection(self._lasting)

    def __enter__(self) -> None:
        self._collecting = gc.isenabled()
        gc.disable()

    def __exit__(self, *error: object) -> None:
        # What the program froze stays frozen.
        if self._lasting and gc.get_freeze_count() < IMMORTAL:
            gc.freeze()
            gc.unfreeze()  # everything is in the oldest generation now
        if self._collecting:
            gc.enable()
