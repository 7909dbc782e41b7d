"""What a compilation changes for a while, and puts back however it ends.

The one idea: a signal, or a lack of memory, can raise an exception between any two steps of Python
code, also in a `finally` or an `__exit__`. So what belongs to everybody is put back by native code
(`isolated`), which calls C functions only: the partials made here. State of the thread needs none,
since `isolated` knows it.
"""

from __future__ import annotations

import functools
import re
import types
import warnings
from collections.abc import Callable
from typing import Any

from pliant._native import isolated, locked
from pliant.base.errors import PliantWarning

Cleanup = Callable[[], Any]

FATAL = (MemoryError, PliantWarning)
"""Subclasses of `Exception` that are always raised to the caller: no `except Exception` of ours may
swallow them. A `PliantWarning` is raised if the user turns warnings into errors. (Interrupts and
exits are no subclasses of `Exception`.)"""


_INTERRUPTS = {error.__name__: error for error in (KeyboardInterrupt, SystemExit, MemoryError)}
_HIDDEN = re.compile(rf"\b({'|'.join(_INTERRUPTS)}): ")


def raise_hidden(error: BaseException) -> None:
    """Raise the interrupt that PyTorch's C++ made an ordinary error of, if this is one.

    Where C++ asks a symbolic number something and Python code raises, the argument parser raises a
    `TypeError` that has the class of the first exception in its text, and nothing else of it.
    """
    hidden = _HIDDEN.search(str(error)) if isinstance(error, TypeError | RuntimeError) else None
    if hidden is not None:
        raise _INTERRUPTS[hidden[1]] from error


def attribute(owner: Any, name: str) -> Cleanup:
    """A cleanup that gives an attribute the value it has now."""
    return functools.partial(setattr, owner, name, getattr(owner, name))


def _filters_changed() -> Cleanup:
    """A C function that tells `warnings` that the filters have changed. Since Python 3.14 that
    takes a lock, which interrupted Python code would hold for ever."""
    module: Any = warnings
    if not hasattr(module, "_acquire_lock"):
        changed: Cleanup = module._filters_mutated
        return changed
    lock = types.SimpleNamespace(acquire=module._acquire_lock, release=module._release_lock)
    return functools.partial(locked, lock, module._filters_mutated_lock_held)


_CHANGED = _filters_changed()


def without_warnings(category: type[Warning], function: Callable[..., Any], *args: Any) -> Any:
    """Call the function with warnings of a category ignored (as `warnings.catch_warnings`)."""

    def quietly() -> Any:
        warnings.filters = [("ignore", None, category, None, 0), *warnings.filters]
        _CHANGED()
        return function(*args)

    return isolated(None, [_CHANGED, attribute(warnings, "filters")], quietly)
