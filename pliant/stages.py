"""The values in which the stages of the pipeline meet. Nothing else is shared between stages."""

from __future__ import annotations

import types
from collections.abc import Callable, Sequence
from dataclasses import field
from typing import Any

import torch
from torch import fx

from pliant.base.deferred import Deferred
from pliant.base.external import PLAIN, External
from pliant.base.position import Position
from pliant.base.values import dataclass
from pliant.bytecode.resume import ResumePoint
from pliant.dynamic.shape_log import ShapeLog
from pliant.guards.guard import Guard
from pliant.guards.source import Source
from pliant.sym.expr import Expr
from pliant.sym.floats import FloatExpr
from pliant.sym.frozen import InputLayout, Shapes
from pliant.sym.records import Provenance


@dataclass(frozen=True, slots=True)
class BreakInfo:
    """Why a graph ended early: a code of `capture.breaks.BREAKS`, what was met, and where."""

    code: str
    what: str
    position: Position | None
    stack: tuple[Position, ...]
    follows: bool = False  # from an earlier break that was reported


class _Routed:
    """Stands, in the globals of residual code, for the function that compiles a callback: a Python
    function that C code (`sorted`, `map`) is about to call."""

    def __reduce__(self) -> str:
        return "ROUTED"

    def __repr__(self) -> str:
        return "ROUTED"


ROUTED = _Routed()
PLAIN.add(_Routed)


@dataclass(frozen=True, slots=True)
class NodeRef:
    """Stands for the result of a node among the arguments of a later one."""

    name: str

    def __repr__(self) -> str:
        return self.name


@dataclass(frozen=True, slots=True)
class GraphNode:
    """A node of a captured graph: as of `torch.fx`, without the objects. Its arguments are values,
    `NodeRef`s and externals."""

    name: str
    op: str
    target: str | External
    args: Any
    kwargs: Any
    stack: tuple[Position, ...] = ()
    symbols: tuple[Expr | FloatExpr, ...] = ()  # made for numbers of its result that are in data
    marks: tuple[tuple[str, Any], ...] = ()  # what is known of its writes and errors

    def __str__(self) -> str:
        values = [*map(repr, self.args), *(f"{name}={v!r}" for name, v in self.kwargs.items())]
        if self.op in ("placeholder", "get_attr"):
            return f"{self.name} = {self.op}[{self.target}]"
        if self.op == "output":
            return f"return {values[0]}"
        method = self.op == "call_method"
        callee = f"{values.pop(0)}.{self.target}" if method else str(self.target)
        return f"{self.name} = {callee}({', '.join(values)})"


@dataclass(frozen=True, slots=True)
class CapturedGraph:
    """The graph of a capture. `attributes` are what `get_attr` nodes read."""

    nodes: tuple[GraphNode, ...]
    attributes: dict[str, Any]
    inputs: tuple[Source, ...]  # where each placeholder's value comes from
    layouts: tuple[InputLayout | Expr | FloatExpr | None, ...]  # sizes and strides, or the number

    @property
    def placeholders(self) -> tuple[GraphNode, ...]:
        return tuple(node for node in self.nodes if node.op == "placeholder")

    def __str__(self) -> str:
        return "\n".join(map(str, self.nodes))


@dataclass(frozen=True, slots=True)
class ResumeTarget:
    """A function that continues another in its middle; the residual code calls it as `name`.

    `compiled` says that it is entered through pliant: it is captured when it is first called. One
    that another resume function calls is followed as part of that one. `eager`: it is not captured
    at all.
    """

    name: str
    point: ResumePoint  # its code is an external
    namespace: External  # the globals
    compiled: bool
    inner: tuple[str, ...] = ()  # the resume functions that it calls, outermost first
    eager: bool = False


@dataclass(frozen=True, slots=True)
class CapturedParts:
    """The parts of a capture that are read when it is shown, checked or written to disk. Running it
    takes the objects themselves, which are in `Bindings`."""

    graph: CapturedGraph | None
    guards: tuple[Guard, ...]
    slots: tuple[Source, ...]  # what the residual code's parameters are
    symbols: tuple[Provenance, ...] = ()  # why each symbolic number is what it is


@dataclass(frozen=True, slots=True)
class Captured:
    """A function, or the part of it up to a graph break, as a graph, guards and residual code.

    It is data: no objects of this process, no closures, no addresses. Where a guard expects an
    object, or the residual code uses one, there is an `External`, a number in `Bindings.objects`.
    """

    name: str
    parameters: tuple[str, ...]  # of the function
    parts: Deferred[CapturedParts]
    graph_name: str  # how the residual code calls the graph
    graph_line: int  # the residual line that calls the graph, if there is one
    # Residual lines in front of it, from one to another, after whose errors the function runs anew.
    early_lines: tuple[int, int]
    residual: str
    namespace: dict[str, Any]  # the globals of the residual code
    lines: dict[int, tuple[Position, ...]]  # residual line to the user's stack
    resumes: tuple[ResumeTarget, ...] = ()
    broken: BreakInfo | None = None
    assumptions: tuple[tuple[str, bool], ...] = ()  # answers taken for want of better ones
    speculations: tuple[
        tuple[str, bool], ...
    ] = ()  # branches on data, and whether they were speculated
    saved: str | None = None  # the residual variable that has what a graph may have to put back
    rerunnable: bool = True  # if the graph fails at run time, running the function anew is the same
    undoable: bool = False  # so it is if no node that is final has run
    only_writes: bool = True  # so it is if no node has written to memory from outside

    @property
    def graph(self) -> CapturedGraph | None:
        return self.parts().graph

    @property
    def guards(self) -> tuple[Guard, ...]:
        return self.parts().guards

    @property
    def slots(self) -> tuple[Source, ...]:
        return self.parts().slots

    @property
    def symbols(self) -> tuple[Provenance, ...]:
        return self.parts().symbols

    def __str__(self) -> str:
        parts = {
            "slots": map(str, self.slots),
            "graph": [] if self.graph is None else map(str, self.graph.nodes),
            "residual": self.residual.splitlines(),
            "names": [f"{name} = {value!r}" for name, value in self.namespace.items()],
            "resumes": [f"{target.name} = {target.point.code!r}" for target in self.resumes],
            "guards": map(str, self.guards),
            "symbols": map(str, self.symbols),
            "breaks": [] if self.broken is None else [f"{self.broken.what} [{self.broken.code}]"],
        }
        lines = [f"captured {self.name}({', '.join(self.parameters)})"]
        for title, texts in parts.items():
            listed = [f"  {text}" for text in texts]
            lines += [f"{title}:", *listed] if listed else []
        return "\n".join(lines)


@dataclass(frozen=True, slots=True)
class Bindings:
    """What ties a capture to this process: the objects in it, and what was made of them."""

    objects: Sequence[Any]  # what the externals stand for: more, once `Captured.parts` is made
    graph: fx.GraphModule | None
    shapes: Shapes | None  # what is known of the graph's inputs, for backends of our own
    examples: tuple[torch.Tensor | float, ...]  # the graph's inputs as seen during capture
    guards: tuple[Guard, ...]  # those of the capture, bound
    slots: tuple[Source, ...]
    undo: tuple[Callable[[], Any], ...] = ()  # put PyTorch's state back, from the last change on
    mode_changes: tuple[Any, ...] = ()  # by the program, as `(function, args, kwargs)`
    shape_log: ShapeLog = field(default_factory=ShapeLog)  # what happened to sizes


@dataclass(frozen=True, slots=True)
class Compiled:
    """A captured function with its graph compiled: what an entry of the dispatcher runs."""

    captured: Captured
    bindings: Bindings
    residual: types.FunctionType
    graph: Callable[..., Any] | None
    index: int  # which compilation of the function this is, counted from 0

    def __str__(self) -> str:
        return f"compilation {self.index}: {self.captured}"
