"""What capture knows of built-in code: tables from C functions and methods to handlers.

Python code is followed; C code can't be, so each C function or method that programs use has a
handler here, registered by the module that owns the type. A handler takes the trace and values and
returns a value. What is in no table and is not a pure function of constants is a graph break.
"""

from __future__ import annotations

import sys
import types
from collections import defaultdict
from collections.abc import Callable
from typing import Any

from pliant.capture.value import Value

Handler = Callable[..., Value]

METHODS: dict[tuple[type, str], Handler] = {}
FUNCTIONS: dict[Any, Handler] = {}
# Python functions with a shorter way: `(trace, args, kwargs, direct)` gives the result, or None
# where the function has to be followed after all.
SHORTCUTS: dict[Any, Callable[..., Value | None]] = {}
# The same for functions defined inside others, which have no name to be found by:
# `(trace, function, args, kwargs, direct)`.
BY_CODE: dict[types.CodeType, Callable[..., Value | None]] = {}
# What fills the tables for a module that takes long to import, once the program has imported it.
LATE: defaultdict[str, list[Callable[[], None]]] = defaultdict(list)
PURE: set[Any] = set()  # C functions that may be run during capture if all arguments are constants


def fill_late() -> None:
    """Fill the tables for modules that the program has imported since. If one of them fails, the
    tables are left as they were."""
    for name in [name for name in LATE if name in sys.modules]:
        tables: list[dict[Any, Any]] = [METHODS, FUNCTIONS]
        before = [table.copy() for table in tables]
        try:
            for fill in LATE[name]:
                fill()
            del LATE[name]
        except BaseException:
            for table, content in zip(tables, before, strict=True):
                table.clear()
                table.update(content)
            raise


def method(cls: type, *names: str) -> Callable[[Handler], Handler]:
    """Register a handler `(trace, self, *args, **kwargs)` for methods of a built-in class."""

    def register(handler: Handler) -> Handler:
        for name in names:
            if (cls, name) in METHODS:
                raise ValueError(f"{cls.__name__}.{name} has a handler already")
            if name not in cls.__dict__:
                raise ValueError(f"{cls.__name__} does not define {name}")
            METHODS[cls, name] = handler
        return handler

    return register


def function(*targets: Any) -> Callable[[Handler], Handler]:
    """Register a handler `(trace, *args, **kwargs)` for functions or classes, by identity."""

    def register(handler: Handler) -> Handler:
        for target in targets:
            if target in FUNCTIONS:
                raise ValueError(f"{target!r} has a handler already")
            FUNCTIONS[target] = handler
        return handler

    return register


def pure(*targets: Any) -> None:
    """Declare C functions whose result depends on nothing but their arguments."""
    PURE.update(targets)
