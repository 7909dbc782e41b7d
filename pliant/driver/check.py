"""What makes a capture well formed, as a program that says what is wrong with one.

The one idea: whatever a `Captured` names has to be defined in it, since nothing else is written to
disk. Run after each capture in tests; off in production.
"""

from __future__ import annotations

import builtins
import dis
import types
from collections.abc import Iterator
from typing import Any

from pliant.base.external import External
from pliant.base.isolation import without_warnings
from pliant.capture.host_randomness import DrawnNumber
from pliant.guards.guard import GuardKind, Load, ShapeCondition
from pliant.guards.source import Fixed, Local, Source
from pliant.stages import Bindings, Captured, CapturedGraph, NodeRef
from pliant.sym.expr import BaseExpr
from pliant.sym.frozen import InputLayout


class MalformedCaptureError(ValueError):
    """The capture breaks a rule; the message says which, and shows it."""


def check(captured: Captured, bindings: Bindings) -> Captured:
    """The capture itself, or an error that lists what is wrong with it."""
    problems = list(_Checker(captured, bindings).problems())
    if problems:
        raise MalformedCaptureError("\n".join([*problems, "in", str(captured)]))
    return captured


class _Checker:
    def __init__(self, captured: Captured, bindings: Bindings) -> None:
        self.captured = captured
        self.bindings = bindings

    def problems(self) -> Iterator[str]:
        captured = self.captured
        for guard in captured.guards:
            yield from self._sources(guard.source, f"guard {guard}")
            yield from self._sources(guard.expected, f"guard {guard}")
            if guard.kind is GuardKind.SHAPE:
                yield from _shape_condition(guard.expected)
        for slot in captured.slots:
            yield from self._sources(slot, "a slot")
        yield from self._bound()
        yield from self._residual()
        yield from self._resumes()
        if captured.graph is not None:
            yield from self._inputs(captured.graph)
            yield from _nodes(captured.graph)
            yield from self._symbols(captured.graph)

    def _sources(self, value: Any, role: str) -> Iterator[str]:
        """Every path begins at a parameter, or at an object of the table."""
        for source in _sources_in(value):
            root = source.root
            if isinstance(root, Local):
                if self.captured.parameters[root.index : root.index + 1] != (root.name,):
                    yield f"{role}: {source} is not reachable, there is no such parameter"
            elif not isinstance(root, DrawnNumber) and not (
                isinstance(root, Fixed) and self._is_object(root.value)
            ):
                yield f"{role}: {source} is not reachable, its root is no object of the table"

    def _is_object(self, value: Any) -> bool:
        return isinstance(value, External) and 0 <= value.index < len(self.bindings.objects)

    def _bound(self) -> Iterator[str]:
        """The bindings are those of this capture."""
        if len(self.bindings.guards) != len(self.captured.guards):
            yield "not as many guards are bound as there are"
        if len(self.bindings.slots) != len(self.captured.slots):
            yield "not as many slots are bound as there are"
        if (self.bindings.graph is None) != (self.captured.graph is None):
            yield "there is a graph in one of data and bindings"

    def _residual(self) -> Iterator[str]:
        """Every name in the residual code is bound, and its parameters are the slots."""
        captured = self.captured
        # Warnings would be about what the user wrote: `x is 1`.
        module = without_warnings(SyntaxWarning, compile, captured.residual, "<residual>", "exec")
        function = next(c for c in module.co_consts if isinstance(c, types.CodeType))
        if function.co_argcount != len(captured.slots):
            yield f"{len(captured.slots)} slots for {function.co_argcount} parameters"
        defined = {*captured.namespace, *(target.name for target in captured.resumes)}
        if captured.graph is not None:
            defined.add(captured.graph_name)
            call = captured.residual.splitlines()[captured.graph_line - 1]
            if captured.graph_name not in call:
                yield f"line {captured.graph_line} does not call the graph: {call.strip()}"
        for name in sorted(_globals_of(function) - defined - set(dir(builtins))):
            yield f"{name} in the residual code is not bound"
        for name, value in captured.namespace.items():
            if isinstance(value, External) and not self._is_object(value):
                yield f"{name} stands for no object of the table"
        for line in captured.lines:
            if not 0 < line <= captured.residual.count("\n"):
                yield f"the residual code has no line {line}"

    def _resumes(self) -> Iterator[str]:
        names: set[str] = set()
        for target in self.captured.resumes:  # inner ones first
            for name in target.inner:
                if name not in names:
                    yield f"{target.name} calls {name}, which is not made before it"
            for value in (target.point.code, target.namespace):
                if not self._is_object(value):
                    yield f"{target.name}: {value!r} is no object of the table"
            names.add(target.name)

    def _inputs(self, graph: CapturedGraph) -> Iterator[str]:
        """Every placeholder has a source that the residual code passes."""
        placeholders = graph.placeholders
        for placeholder in placeholders[len(graph.inputs) :]:
            yield f"placeholder {placeholder.name} has no source"
        for source in graph.inputs:
            yield from self._sources(source, "an input")
            # Objects are in the namespace, and random numbers are drawn by the residual code.
            if not isinstance(source, Fixed | DrawnNumber) and source not in self.captured.slots:
                yield f"the input {source} is no slot of the residual code"
        if len(graph.layouts) != len(placeholders):
            yield f"{len(graph.layouts)} layouts for {len(placeholders)} placeholders"

    def _symbols(self, graph: CapturedGraph) -> Iterator[str]:
        """Every symbol is a size, stride or number of an input, or comes from a node's result."""
        numbers = [number for layout in graph.layouts for number in _numbers_of(layout)]
        defined = {s for why in self.captured.symbols for s in _symbols_of(why.expr)}
        defined |= {s for node in graph.nodes for s in node.symbols}
        defined |= {number for number in numbers if _symbols_of(number) == {number}}
        for symbol in {s for number in numbers for s in _symbols_of(number)} - defined:
            yield f"symbol {symbol} is not defined"


def _numbers_of(layout: Any) -> tuple[Any, ...]:
    return (*layout.sizes, *layout.strides) if isinstance(layout, InputLayout) else (layout,)


def _symbols_of(number: Any) -> frozenset[Any]:
    return number.symbols if isinstance(number, BaseExpr) else frozenset()


def _sources_in(value: Any) -> Iterator[Source]:
    if isinstance(value, Source):
        yield value
    elif isinstance(value, tuple):
        for item in value:
            yield from _sources_in(item)
    elif isinstance(value, ShapeCondition):
        yield from _sources_in(value.loads)
    elif isinstance(value, Load):
        yield value.source


def _shape_condition(condition: ShapeCondition) -> Iterator[str]:
    if len(condition.loads) != len(condition.program.symbols):
        yield f"{condition}: {len(condition.program.symbols)} symbols, {len(condition.loads)} loads"


def _globals_of(code: types.CodeType) -> set[str]:
    """The global names that the code and the functions in it read."""
    names = {i.argval for i in dis.get_instructions(code) if i.opname == "LOAD_GLOBAL"}
    inner = [c for c in code.co_consts if isinstance(c, types.CodeType)]
    return names.union(*map(_globals_of, inner))


def _nodes(graph: CapturedGraph) -> Iterator[str]:
    """Each node uses results of earlier ones, and attributes that are there."""
    names: set[str] = set()
    for node in graph.nodes:
        for name in _names_in((node.args, node.kwargs)):
            if name not in names:
                yield f"{node}: {name} is not defined before it"
        if node.op == "get_attr" and node.target not in graph.attributes:
            yield f"{node}: there is no such attribute"
        names.add(node.name)


def _names_in(value: Any) -> Iterator[str]:
    if isinstance(value, NodeRef):
        yield value.name
    elif isinstance(value, tuple | list):
        for item in value:
            yield from _names_in(item)
    elif isinstance(value, dict):
        yield from _names_in(tuple(value.values()))
    elif isinstance(value, slice):
        yield from _names_in((value.start, value.stop, value.step))
