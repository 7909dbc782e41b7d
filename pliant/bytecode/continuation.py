"""Resume functions: the rest of a function after a graph break, callable.

The closure of a resume function is passed anew on each call, because the cells belong to one
activation of the original function. So a function that has cells is entered through a small wrapper
that takes them as its first arguments.
"""

from __future__ import annotations

import types
from collections.abc import Sequence
from typing import Any
from weakref import WeakValueDictionary

from pliant.bytecode.decode import decode
from pliant.bytecode.resume import (
    ResumePoint,
    closure_names,
    original_point,
    resume_code,
    unused_name,
)


class ResumeFunctions:
    """The resume functions of one compiled function."""

    def __init__(self) -> None:
        # A function has its code and its globals: no other globals get their address meanwhile.
        self._functions: WeakValueDictionary[tuple[types.CodeType, int], types.FunctionType] = (
            WeakValueDictionary()
        )

    def __len__(self) -> int:
        return len(self._functions)

    def at(self, point: ResumePoint, namespace: dict[str, Any]) -> types.FunctionType:
        """The function that continues at `point`, with these globals. The same one for equal
        points, as long as anything refers to it."""
        code = resume_code(point)
        key = (code, id(namespace))
        function = self._functions.get(key)
        if function is None:
            function = self._functions[key] = _resume_function(point, code, namespace)
        return function

    def clear(self) -> None:
        self._functions.clear()


def _resume_function(
    point: ResumePoint, code: types.CodeType, namespace: dict[str, Any]
) -> types.FunctionType:
    # A code object with free variables can't be called without a closure, which differs with each
    # activation.
    cells = closure_names(point.code)
    if cells:
        function = _with_cells(point, code, namespace, len(cells))
    else:
        function = types.FunctionType(code, namespace)
    origin = original_point(point)
    line = decode(origin.code).instructions[origin.index].line
    function.resumed_line = line  # type: ignore[attr-defined]
    return function


def _with_cells(
    point: ResumePoint, code: types.CodeType, namespace: dict[str, Any], count: int
) -> types.FunctionType:
    """A wrapper that takes the cells as its first arguments, and calls the resume code with them as
    its closure::

        def f(cell_0, …, stack_0, …, x):
            return FunctionType(code, namespace, 'f', None, (cell_0, …))(stack_0, …, x)
    """
    parameters = _identifiers(point.parameters)
    wishes = ["FunctionType", "code", "namespace", *(f"cell_{number}" for number in range(count))]
    names = {wish: unused_name(wish, parameters) for wish in wishes}
    cells = [names[wish] for wish in wishes[3:]]
    source = (
        f"def resume({', '.join([*cells, *parameters])}):\n"
        f"    return {names['FunctionType']}({names['code']}, {names['namespace']}, "
        f"{code.co_name!r}, None, ({', '.join(cells)},))({', '.join(parameters)})\n"
    )
    scope: dict[str, Any] = {
        names["FunctionType"]: types.FunctionType,
        names["code"]: code,
        names["namespace"]: namespace,
        # By which `Frame.internal` knows the wrapper: it is not shown on the user's stack.
        "__name__": "pliant.resume",
    }
    exec(compile(source, f"<pliant {code.co_name}>", "exec"), scope)
    function: types.FunctionType = scope["resume"]
    function.__name__, function.__qualname__ = code.co_name, code.co_qualname
    return function


def _identifiers(names: Sequence[str]) -> list[str]:
    """Names for parameters: those that are no identifiers are replaced. `.0` is the compiler's, and
    `@py_assert1` is made by pytest, which rewrites `assert`."""
    taken = [name for name in names if name.isidentifier()]
    return [
        name if name.isidentifier() else unused_name(f"parameter_{number}", taken)
        for number, name in enumerate(names)
    ]
