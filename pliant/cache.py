"""`pliant.cache`: the machine code that pliant keeps on disk.

It is in `PLIANT_CACHE_DIR`, by default the directory `pliant` among the user's caches, and takes
`PLIANT_CACHE_MB` megabytes at most (512). `PLIANT_CACHE=0` turns it off.
"""

from __future__ import annotations

from pliant.base.values import dataclass
from pliant.targets.kernel_cache import counts, from_environment

__all__ = ["CacheInfo", "clear", "info"]


@dataclass(frozen=True, slots=True)
class CacheInfo:
    """What the cache holds, and what this process has asked of it."""

    directory: str | None
    """Where it is; None if it is turned off."""
    entries: int
    """The number of files."""
    bytes: int
    """What they take on disk."""
    limit: int
    """What they may take."""
    hits: int
    """Kernels that this process found in it."""
    misses: int
    """Kernels that it had to compile."""
    stored: int
    """Kernels that it added."""


def info() -> CacheInfo:
    """What is in the cache now, and how this process has used it."""
    cache = from_environment()
    entries = cache.entries() if cache else []
    return CacheInfo(
        directory=str(cache.directory) if cache else None,
        entries=len(entries),
        bytes=sum(entry.size for entry in entries),
        limit=cache.limit if cache else 0,
        hits=counts["hits"],
        misses=counts["misses"],
        stored=counts["stored"],
    )


def clear() -> int:
    """Remove what is on disk. Code that was loaded stays in use.

    Returns:
        The number of files removed.
    """
    cache = from_environment()
    return cache.clear() if cache else 0
