"""The whole path from a call to machine code, one line a stage.

    call -> dispatcher (native): guards of each entry -> hit: residual code -> graph -> result
                                                      -> miss: `Compiler.on_miss`, below
"""

from __future__ import annotations

import dis
import io
import threading
import time
import types
from dataclasses import dataclass, field
from typing import Any

from pliant._native import Dispatcher, Entry, State
from pliant.backends.registry import backend_name, call_backend
from pliant.base import events
from pliant.base.errors import InternalError, PliantError, RecompileLimitError
from pliant.base.options import Options
from pliant.base.position import Position
from pliant.capture.breaks import BREAKS
from pliant.capture.capture import NotCaptured, capture
from pliant.guards import plan
from pliant.runtime import recovery, residual, tracebacks
from pliant.runtime.resume import resume_function
from pliant.stages import BreakInfo, Captured, Compiled

_lock = threading.RLock()  # one compilation at a time


@dataclass(slots=True)
class Compiler:
    """How one function given to `pliant.compile`, and every resume function made of it, is compiled."""

    options: Options
    backend: Any
    fullgraph: bool = False
    dynamic: bool | None = None
    total: int = 0  # compilations of the function and its resume functions
    resumes: dict[types.FunctionType, Dispatcher] = field(default_factory=dict)

    def dispatcher(self, function: types.FunctionType) -> Dispatcher:
        """A compiled function; nothing is compiled before the first call."""
        return Dispatcher(function, self.on_miss, self.on_error)

    def on_miss(self, dispatcher: Dispatcher, values: tuple[Any, ...]) -> Entry | None:
        """No entry fits the call: compile one, or None to run the function as it is."""
        with _lock:
            for entry in dispatcher.entries:  # another thread may have compiled it meanwhile
                if entry.tree.check(values) is None:
                    return entry
            if not capturable(State.current()) or not self._may_compile(dispatcher, values):
                return None
            try:
                return self._compile(dispatcher, values)
            except NotCaptured as error:
                _tell_break(dispatcher.fn, BreakInfo(error.cause.code, error.cause.what, None, ()))
                dispatcher.mode = 2
                return None
            except PliantError:
                raise
            except Exception as error:
                return self._fall_back(dispatcher, error)

    def _compile(self, dispatcher: Dispatcher, values: tuple[Any, ...]) -> Entry:
        function, index = dispatcher.fn, len(dispatcher.entries)
        about: dict[str, Any] = {"function": function.__qualname__, "index": index}
        about["position"] = Position.of_code(function.__code__)
        events.emit(events.CompileStarted(**about))
        events.emit(events.BytecodeRead(listing=lambda: _listing(function), **about))
        started = time.perf_counter()
        captured = capture(function, values, self.options, self.fullgraph)  # follow the bytecode
        traced = time.perf_counter()
        compiled = self._backend(captured)  # the graph becomes a callable
        made = time.perf_counter()
        tree = plan.build(captured.guards, captured.slots, len(values))  # assumptions, natively
        entry = Entry(tree, compiled.residual, compiled)
        failed = tree.check(values)
        if failed is not None:
            raise AssertionError(f"a guard fails at once: {plan.explain(*failed)}")
        dispatcher.install(entry)
        self.total += 1
        ended = time.perf_counter()
        _tell(captured, about)
        phases = {"capture": traced - started, "backend": made - traced, "guards": ended - made}
        events.emit(events.CompileFinished(seconds=ended - started, phases=phases, **about))
        return entry

    def _backend(self, captured: Captured) -> Compiled:
        """Compile the graph, give the residual code what it calls, and make it a function."""
        namespace = dict(captured.namespace)
        graph = None
        if captured.graph is not None:
            started = time.perf_counter()
            graph = call_backend(self.backend, captured.graph, list(captured.examples))
            namespace[captured.graph_name] = graph
            seconds = time.perf_counter() - started
            name = backend_name(self.backend)
            events.emit(events.BackendCalled(function=captured.name, backend=name, seconds=seconds))
        for target in captured.resumes:
            function = resume_function(target.point, target.namespace)
            namespace[target.name] = self.resume(function) if target.compiled else function
        code = residual.load(captured.name, captured.residual, namespace)
        tracebacks.register(code.__code__, lambda line: captured.lines.get(line, ()))
        return Compiled(captured, code, graph)

    def resume(self, function: types.FunctionType) -> Dispatcher:
        """The compiled resume function; the same one each time."""
        if function not in self.resumes:
            self.resumes[function] = self.dispatcher(function)
        return self.resumes[function]

    def forget(self) -> None:
        """Drop what was compiled of resume functions."""
        self.total = 0
        for dispatcher in self.resumes.values():
            dispatcher.clear()
            dispatcher.mode = 0

    def _may_compile(self, dispatcher: Dispatcher, values: tuple[Any, ...]) -> bool:
        """Whether the limits allow one more entry. Tells why the present ones do not fit."""
        entries = dispatcher.entries
        if not entries:
            return True
        failed = [(n, entry.tree.check(values)) for n, entry in enumerate(entries)]
        reasons = tuple(
            events.FailedGuard(entry=n, guard=plan.explain(*pair), position=pair[0].position)
            for n, pair in failed
            if pair is not None
        )
        name, position = dispatcher.fn.__qualname__, Position.of_code(dispatcher.fn.__code__)
        for option, count in (
            ("recompile_limit", len(entries)),
            ("accumulated_recompile_limit", self.total),
        ):
            limit = getattr(self.options, option)
            if count >= limit:
                varied = reasons[0].guard if reasons else ""
                if self.options.fail_on_recompile_limit_hit:
                    raise RecompileLimitError(f"{name} was compiled {limit} times", why=varied)
                dispatcher.mode = 1
                events.emit(
                    events.LimitReached(
                        function=name, position=position, limit=limit, option=option, varied=varied
                    )
                )
                return False
        events.emit(events.Recompiled(function=name, position=position, reasons=reasons))
        return True

    def _fall_back(self, dispatcher: Dispatcher, error: Exception) -> None:
        """A mistake of ours: the user's function still runs, eagerly."""
        name = dispatcher.fn.__qualname__
        if self.options.raise_on_fallback:
            raise InternalError(f"capturing {name} failed: {error!r}") from error
        dispatcher.mode = 2
        position = Position.of_code(dispatcher.fn.__code__)
        events.emit(
            events.FellBack(function=name, position=position, reason=repr(error), error=error)
        )

    def on_error(
        self, dispatcher: Dispatcher, entry: Entry, values: tuple[Any, ...], error: BaseException
    ) -> Any:
        """Residual code raised: the user sees the exception as his own code would raise it."""
        captured: Captured = entry.info.captured
        if tracebacks.raised_at(error, entry.residual.__code__, captured.graph_line):
            recovery.restore(captured.state)
            if captured.graph is not None and captured.rerunnable:
                # The program may handle it, and nothing has been changed yet: let Python run it.
                return recovery.call(dispatcher.fn, values)
        raise tracebacks.rewrite(error)


def capturable(state: State) -> bool:
    """Modes that change what PyTorch functions do are not captured: such calls run eagerly."""
    return not (state.function_modes or state.dispatch_modes or state.functorch)


def _listing(function: types.FunctionType) -> str:
    text = io.StringIO()
    dis.dis(function, file=text)
    return text.getvalue()


def _tell(captured: Captured, about: dict[str, Any]) -> None:
    """Report what a compilation made."""
    graph = captured.graph
    if graph is not None:
        nodes = sum(node.op.startswith("call_") for node in graph.graph.nodes)
        text = lambda: graph.print_readable(print_output=False)  # noqa: E731
        events.emit(events.GraphCaptured(graph=text, nodes=nodes, **about))
    events.emit(events.ResidualMade(source=captured.residual, **about))
    events.emit(events.GuardsBuilt(guards=lambda: [str(g) for g in captured.guards], **about))
    if captured.broken is not None:
        _tell_break(about["function"], captured.broken, about["index"])


def _tell_break(function: Any, broken: BreakInfo, index: int = 0) -> None:
    cause = BREAKS[broken.code]
    name = function if isinstance(function, str) else function.__qualname__
    events.emit(
        events.GraphBroke(
            function=name,
            position=broken.position,
            index=index,
            code=broken.code,
            what=broken.what,
            why=cause.why,
            remedy=cause.remedy,
            stack=broken.stack[:-1],
        )
    )
