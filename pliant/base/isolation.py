"""What a compilation changes for a while, and puts back however it ends.

The one idea: a signal, or a lack of memory, can raise an exception between any two steps of Python
code, also in a `finally` or an `__exit__`. So what belongs to everybody is put back by native code
(`isolated`), which calls C functions only: the partials made here. State of the thread needs none,
since `isolated` knows it.
"""

from __future__ import annotations

import functools
import re
import warnings
from collections.abc import Callable
from typing import Any

from pliant._native import isolated
from pliant.base.errors import PliantWarning

Cleanup = Callable[[], Any]

FATAL = (MemoryError, PliantWarning)
"""Those of class `Exception` that are for the caller: nothing of ours may take them for an answer.
A warning is one if the user has made it an error. (Interrupts and exits are not of that class.)"""


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
    """Give an attribute the value that it has now."""
    return functools.partial(setattr, owner, name, getattr(owner, name))


def without_warnings(category: type[Warning], function: Callable[..., Any], *args: Any) -> Any:
    """Call the function with warnings of a category ignored (as `warnings.catch_warnings`)."""
    changed: Any = warnings._filters_mutated  # type: ignore[attr-defined]

    def quietly() -> Any:
        warnings.filters = [("ignore", None, category, None, 0), *warnings.filters]
        changed()
        return function(*args)

    return isolated(None, [changed, attribute(warnings, "filters")], quietly)
