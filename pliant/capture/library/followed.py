"""Parts of the language written in Python, to be followed like the user's own code.

What C code does in several steps (`type.__call__`: make, then initialise) can't be left in its
middle; the same steps as bytecode can, so that a graph break inside `__init__` is resumed there.
"""

from __future__ import annotations

from typing import Any

from pliant.capture.values.functions import Function


def initialised(obj: Any, init: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """The second half of `type.__call__`."""
    result = init(obj, *args, **kwargs)
    if result is not None:
        raise TypeError(f"__init__() should return None, not '{type(result).__name__}'")
    return obj


def as_value(function: Any) -> Function:
    """One of these functions as a value. It is ours, so nothing has to be assumed of it."""
    value = Function(function.__code__, function.__globals__)
    value.cells, value.defaults, value.kwdefaults = [], [], {}
    return value
