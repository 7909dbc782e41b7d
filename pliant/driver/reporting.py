"""Reporting: the results of a compilation as events (`pliant.base.events`)."""

from __future__ import annotations

import dis
import inspect
import io
import itertools
import time
import types
from collections.abc import Iterator
from contextlib import contextmanager
from traceback import FrameSummary
from typing import TYPE_CHECKING, Any

from pliant.base import events
from pliant.base.late import Late
from pliant.base.position import Position, lines_of
from pliant.base.values import dataclass, replace
from pliant.capture.breaks import BREAKS
from pliant.dynamic.shape_log import ShapeLog
from pliant.stages import Bindings, BreakInfo, Captured, Compiled

if TYPE_CHECKING:
    from pliant.reports import drawing
else:
    drawing = Late("pliant.reports.drawing")


def started(function: types.FunctionType, index: int) -> tuple[dict[str, Any], list[float]]:
    """Report that compilation number `index` of `function` begins. Returns what later events repeat
    (`about`), and a list of times, which each phase extends by its end."""
    about = {"index": index, **described(function)}
    events.emit(events.CompileStarted(**about))
    if events.heard():
        events.emit(events.BytecodeRead(listing=lambda: _listing(function), **about))
    return about, [time.perf_counter()]


def finished(
    compiled: Compiled, shape_log: ShapeLog, about: dict[str, Any], times: list[float]
) -> None:
    """Report a compilation that succeeded. `times` are its beginning and the ends of its phases."""
    _report_capture(compiled.captured, compiled.bindings, shape_log, about)
    seconds = [end - begin for begin, end in itertools.pairwise(times)]
    phases = dict(zip(("capture", "guards", "backend"), seconds, strict=True))
    events.emit(events.CompileFinished(seconds=times[-1] - times[0], phases=phases, **about))


@contextmanager
def whether_abandoned(function: types.FunctionType) -> Iterator[None]:
    """Inside the `with` block `function` is compiled. If that raises, report it, so that displays
    of progress stop waiting for it."""
    try:
        yield
    except BaseException:
        events.emit(events.CompileAbandoned(**described(function)))
        raise


@contextmanager
def backend(about: dict[str, Any], name: str) -> Iterator[None]:
    """Inside the `with` block a backend compiles a graph; `about` says for which compilation."""
    events.emit(events.WorkBegan(work="generating code", **about))
    started = time.perf_counter()
    yield
    seconds = time.perf_counter() - started
    events.emit(events.BackendCalled(backend=name, seconds=seconds, **about))


def not_captured(function: types.FunctionType, code: str, reason: str) -> None:
    """Report that nothing of the function can be captured."""
    _broke(BreakInfo(code, reason, None, ()), {"index": 0, **described(function)})


def fell_back(function: types.FunctionType, error: BaseException) -> None:
    """Report a failure of pliant: the function runs eagerly."""
    events.emit(events.FellBack(reason=repr(error), error=error, **described(function)))


def described(function: types.FunctionType) -> dict[str, Any]:
    """The user's name for a function, and its position. A resume function is called after the
    function and line that it continues."""
    written = inspect.unwrap(function)
    position = Position.of_code(getattr(written, "__code__", function.__code__))
    name, line = function.__qualname__, getattr(function, "resumed_line", None)
    if line is not None:
        return {
            "function": f"{name} from line {line}",
            "position": replace(position, line=line, function=name),
        }
    return {"function": name, "position": position}


def _report_capture(
    captured: Captured, bindings: Bindings, shape_log: ShapeLog, about: dict[str, Any]
) -> None:
    if events.heard():
        events.emit(events.StageFinished(stage="captured", text=captured.__str__, **about))
    graph = bindings.graph
    if graph is not None:
        nodes = sum(node.op.startswith("call_") for node in graph.graph.nodes)
        # Texts are made when they are read: printing a graph takes longer than much else
        # here.
        text = lambda: graph.print_readable(print_output=False)  # noqa: E731
        drawn = lambda: drawing.draw(graph, captured)  # noqa: E731
        events.emit(events.GraphCaptured(graph=text, nodes=nodes, drawing=drawn, **about))
    if events.heard():
        shape_log.emit(**about)
        lines = lambda: {line: lines_of(stack) for line, stack in captured.lines.items()}  # noqa: E731
        events.emit(events.ResidualMade(source=captured.residual, lines=lines, **about))
        guards = lambda routine: [g for g in bindings.guards if g.routine is routine]  # noqa: E731
        events.emit(
            events.GuardsBuilt(
                guards=lambda: list(map(str, guards(False))),
                lines=lambda: [guard.position for guard in guards(False)],
                routine=lambda: list(map(str, guards(True))),
                **about,
            )
        )
    if captured.broken is not None and not captured.broken.follows:
        _broke(captured.broken, about)


def _broke(broken: BreakInfo, about: dict[str, Any]) -> None:
    cause = BREAKS[broken.code]
    events.emit(
        events.GraphBroke(
            function=about["function"],
            position=broken.position,
            index=about["index"],
            code=broken.code,
            what=broken.what,
            why=cause.why,
            remedy=cause.remedy,
            stack=broken.stack[:-1],
        )
    )


def _listing(function: types.FunctionType) -> str:
    text = io.StringIO()
    dis.dis(function, file=text)
    return text.getvalue()


@dataclass(frozen=True, slots=True)
class CompileReason:
    """Why a graph ends where it does, in the form in which backends written for torch.compile ask
    for it: as `gm.compile_subgraph_reason`."""

    reason: str
    user_stack: list[FrameSummary]
    graph_break: bool


def note_reason(graph: Any, broken: BreakInfo | None) -> None:
    stack = () if broken is None else broken.stack
    frames = [FrameSummary(p.file, p.line, p.function, lookup_line=False) for p in stack]
    reason = "return_value" if broken is None else f"{broken.what} [{broken.code}]"
    # Past the assignment of modules, which looks for parameters and submodules.
    vars(graph)["compile_subgraph_reason"] = CompileReason(reason, frames, broken is not None)
