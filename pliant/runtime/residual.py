"""Residual source becomes a function that a debugger can step through.

Each piece of source gets a file name of its own, known to `linecache`, so that tracebacks,
debuggers and `inspect.getsource` show it.
"""

from __future__ import annotations

import itertools
import linecache
import types
from functools import partial
from typing import Any

from pliant.base import tracebacks
from pliant.base.isolation import without_warnings
from pliant.base.position import Position

_numbers = itertools.count()


def load(
    name: str, source: str, namespace: dict[str, Any], lines: dict[int, tuple[Position, ...]]
) -> types.FunctionType:
    """Compile the source of one function and return the function.

    `lines` says which stack of the user stands behind a line, for tracebacks.
    """
    file = f"<pliant {name} {next(_numbers)}>"
    scope = dict(namespace)
    scope["__name__"] = "pliant.residual"
    # Warnings would be about what the user wrote: `x is 1`.
    code = without_warnings(SyntaxWarning, compile, source, file, "exec")
    exec(code, scope)
    # By its file: names in the source are made unique, and the namespace may have functions too.
    function = next(
        value
        for value in scope.values()
        if isinstance(value, types.FunctionType) and value.__code__.co_filename == file
    )
    forget_source = partial(linecache.cache.pop, file, None)
    tracebacks.register(function.__code__, lambda line: lines.get(line, ()), forget_source)
    linecache.cache[file] = (len(source), None, source.splitlines(keepends=True), file)
    return function
