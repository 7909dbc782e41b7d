"""Locks that survive `os.fork`.

The one idea: a child has the thread that forked and no other. What another one holds at that moment
would be held for ever, and what it was changing would stay half changed: so a fork waits.
"""

from __future__ import annotations

import os
import threading
from contextlib import AbstractContextManager


def lock() -> AbstractContextManager[bool]:
    """A lock for one thread at a time, several times over. Nobody holds it when a process forks."""
    # Reentrant, because compiling may call compiled code, which may compile.
    rlock = threading.RLock()
    os.register_at_fork(
        before=rlock.acquire, after_in_parent=rlock.release, after_in_child=rlock.release
    )
    return rlock


COMPILATION = lock()
"""Held by whoever compiles. What `isolated` saves belongs to all threads in part, so there is one
lock for all compilations."""
