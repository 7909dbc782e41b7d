"""What a compilation changes for a while, and puts back however it ends.

The one idea: a signal, or a lack of memory, can raise an exception between any two steps of Python
code, also in a `finally` or an `__exit__`. So what belongs to everybody is put back by native code
(`isolated`), which calls C functions only: the partials made here. State of the thread needs none,
since `isolated` knows it.
"""

from __future__ import annotations

import functools
import warnings
from collections.abc import Callable
from typing import Any

from pliant._native import isolated
from pliant.base.errors import PliantWarning

Cleanup = Callable[[], Any]

FATAL = (MemoryError, PliantWarning)
"""Those of class `Exception` that are for the caller: nothing of ours may take them for an answer.
A warning is one if the user has made it an error. (Interrupts and exits are not of that class.)"""


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
