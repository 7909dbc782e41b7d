"""The values in which the stages of the pipeline meet. Nothing else is shared between stages."""

from __future__ import annotations

import types
from collections.abc import Callable
from dataclasses import field
from typing import Any

import torch
from torch import fx

from pliant._native import State
from pliant.base.position import Position
from pliant.base.values import dataclass
from pliant.bytecode.resume import ResumePoint
from pliant.dynamic.shape_log import ShapeLog
from pliant.guards.guard import Guard
from pliant.guards.source import Source
from pliant.sym.frozen import Shapes
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


ROUTED = _Routed()


@dataclass(frozen=True, slots=True)
class ResumeTarget:
    """A function that continues another in its middle; the residual code calls it as `name`.

    `compiled` says that it is entered through pliant: it is captured when it is first called. One
    that another resume function calls is followed as part of that one.
    """

    name: str
    point: ResumePoint
    namespace: dict[str, Any]
    compiled: bool
    inner: tuple[str, ...] = ()  # the resume functions that it calls, outermost first


@dataclass(frozen=True, slots=True)
class Captured:
    """A function, or the part of it up to a graph break, as a graph, guards and residual code."""

    name: str
    graph: fx.GraphModule | None
    shapes: Shapes | None  # what is known of the graph's inputs
    graph_name: str  # how the residual code calls the graph
    examples: tuple[torch.Tensor | float, ...]  # the graph's inputs as seen during capture
    guards: tuple[Guard, ...]
    slots: tuple[Source, ...]  # what the residual code's parameters are
    residual: str
    namespace: dict[str, Any]  # the globals of the residual code
    lines: dict[int, tuple[Position, ...]]  # residual line to the user's stack
    graph_line: int  # the residual line that calls the graph, if there is one
    state: State  # PyTorch's global state when the function was called
    undo: tuple[Callable[[], Any], ...] = ()  # put PyTorch's state back, from the last change on
    resumes: tuple[ResumeTarget, ...] = ()
    broken: BreakInfo | None = None
    shape_log: ShapeLog = field(default_factory=ShapeLog)  # what happened to sizes, for the log
    symbols: tuple[Provenance, ...] = ()  # why each symbolic number is what it is
    assumptions: tuple[tuple[str, bool], ...] = ()  # answers taken for want of better ones
    speculations: tuple[
        tuple[str, bool], ...
    ] = ()  # branches on data, and whether they were speculated
    rerunnable: bool = True  # if the graph fails at run time, running the function anew is the same
    only_writes: bool = True  # so it is if no node has written to memory from outside


@dataclass(frozen=True, slots=True)
class Compiled:
    """A captured function with its graph compiled: what an entry of the dispatcher runs."""

    captured: Captured
    residual: types.FunctionType
    graph: Callable[..., Any] | None
    index: int  # which compilation of the function this is, counted from 0
