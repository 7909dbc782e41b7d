"""PyTorch's Python decompositions, taken before those in C++.

Some of them call each other without end (`_to_copy` from one device to another). Capture raises the
limit of recursion for deep programs of the user, and with that limit such a chain would overflow
the stack of C. So while they run, the limit is near.
"""

from __future__ import annotations

import contextlib
import sys
import types
from collections.abc import Iterator
from typing import Final

import torch

DEEPEST: Final = 2000
"""How many frames decompositions may take."""


@contextlib.contextmanager
def python_first() -> Iterator[None]:
    """Take PyTorch's Python decompositions before those in C++."""
    limit = sys.getrecursionlimit()
    with contextlib.suppress(RecursionError):  # near the limit already
        sys.setrecursionlimit(min(limit, _depth() + DEEPEST))
    try:
        with torch._C._EnablePythonDispatcher():
            yield
    finally:
        sys.setrecursionlimit(limit)


def _depth() -> int:
    """How many frames there are."""
    count = 0
    frame: types.FrameType | None = sys._getframe()
    while frame is not None:
        count, frame = count + 1, frame.f_back
    return count
