"""A limit on the memory of a program: one that needs all there is would end the machine's other
processes, and looks like a crash."""

from __future__ import annotations

import contextlib
import resource
from collections.abc import Iterator
from pathlib import Path
from typing import Final

# Tensors of the fuzzer have a few thousand elements. What needs more has a size from the data.
MOST: Final = 2 << 30
FAILURES: Final = ("can't allocate memory", "not enough memory")  # of PyTorch's allocator


@contextlib.contextmanager
def limited(most: int = MOST) -> Iterator[None]:
    """So many bytes more than now, for this process."""
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    before = resource.getrlimit(resource.RLIMIT_AS)
    limit = pages * resource.getpagesize() + most
    if before[0] != resource.RLIM_INFINITY:
        limit = min(limit, before[0])
    resource.setrlimit(resource.RLIMIT_AS, (limit, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, before)


def is_exhausted(error: BaseException | None) -> bool:
    """Whether it says that there is no memory left."""
    text = str(error)
    return isinstance(error, MemoryError) or any(failure in text for failure in FAILURES)
