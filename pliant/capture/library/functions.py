"""Functions made from their parts: `types.FunctionType(code, globals, name, defaults, closure)`."""

from __future__ import annotations

import types

from pliant.capture.native import function
from pliant.capture.trace import Trace
from pliant.capture.value import NONE, Break, Value
from pliant.capture.values.containers import Mapping, Sequence
from pliant.capture.values.functions import Function
from pliant.capture.values.objects import Cell


@function(types.FunctionType)
def make_function(
    trace: Trace,
    code: Value,
    namespace: Value,
    name: Value = NONE,
    argdefs: Value = NONE,
    closure: Value = NONE,
) -> Value:
    """Resume functions of frames with cells are entered through such a call."""
    table = trace.read(namespace)
    if not isinstance(table, Mapping) or not isinstance(table.real, dict):
        raise Break("unsupported-function", "types.FunctionType")
    made = Function(trace.read(code).constant(), table.real)
    made.defaults = _items(trace, argdefs)
    made.kwdefaults = {}
    cells = [trace.read(cell) for cell in _items(trace, closure)]
    made.cells = [cell for cell in cells if isinstance(cell, Cell)]
    wanted = trace.read(name).constant()
    if wanted is not None:
        made.name = wanted
    return made


def _items(trace: Trace, value: Value) -> list[Value]:
    known = trace.read(value)
    return list(known.items) if isinstance(known, Sequence) else []


@function(types.CellType)
def make_cell(trace: Trace, contents: Value | None = None) -> Value:
    return Cell(contents)
