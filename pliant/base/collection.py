"""Keeping the garbage collector out of work that makes many small values and no garbage."""

from __future__ import annotations

import contextlib
import gc
from collections.abc import Iterator


@contextlib.contextmanager
def without_collection() -> Iterator[None]:
    """The modules, graphs and guards made inside would set off the collector again and again, for
    nothing: a single pass over the objects that `import torch` leaves takes a tenth of a second."""
    collecting = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if collecting:
            gc.enable()
