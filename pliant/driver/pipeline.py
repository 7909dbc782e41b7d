"""The whole path from a call to machine code, one line a stage.

call -> dispatcher (native): guards of each entry -> hit: residual code -> graph -> result
                                                  -> miss: `Compiler.on_miss`, below

What our own backend does with a captured graph, up to machine code, is in `backends.compile_graph`,
one line a stage as well.
"""

from __future__ import annotations

import time
import types
from collections.abc import Mapping
from dataclasses import field
from functools import partial
from typing import TYPE_CHECKING, Any

import torch

import pliant.ops.table  # noqa: F401  where to look for what is known of operators
from pliant._native import Dispatcher, Entry, State, isolated
from pliant.backends.registry import backend_name, call_backend, is_own, keeps_graph, lookup
from pliant.base.collection import without_collection
from pliant.base.dispatch_mode import DispatchMode
from pliant.base.errors import BackendError, InternalError, PliantError
from pliant.base.external import Binder
from pliant.base.forks import COMPILATION
from pliant.base.isolation import FATAL, Cleanup, attribute, raise_hidden
from pliant.base.late import Late
from pliant.base.options import Options
from pliant.base.values import dataclass, replace
from pliant.capture.capture import NotCaptured, capture, refused
from pliant.capture.directives import disable
from pliant.capture.inputs import Dynamic, observe
from pliant.capture.interposed import capturable, is_interposed, suspended
from pliant.capture.value import ForeignTracer
from pliant.driver import failures, recovery, refusals, reporting, stance
from pliant.driver.callbacks import routed
from pliant.driver.function_cache import FunctionCache
from pliant.driver.limits import Limits, what_varied, why_none_fits
from pliant.driver.refusals import Asked, Attempt
from pliant.driver.verification import verifying
from pliant.dynamic.choose import DynamicPolicy
from pliant.dynamic.shape_log import ShapeLog
from pliant.fake.wrappers import is_wrapper, overrides_functions
from pliant.guards import index, plan
from pliant.runtime import graphs, residual
from pliant.stages import Bindings, Captured, Compiled
from pliant.sym.expr import drop_unused_nodes

if TYPE_CHECKING:
    from pliant.driver import check as checker
else:
    checker = Late("pliant.driver.check")  # which only tests use


def cleanups() -> list[Cleanup]:
    """What a compilation may change that belongs to all threads, to be put back at its end."""
    return [attribute(torch, "_check_with")]


class OutOfMemory(Exception):
    """There is not enough memory to follow the program. Python runs it this time, and the next miss
    tries again."""


# Errors that say something about the program rather than about a failure of pliant.
EXPECTED = (PliantError, NotCaptured, ForeignTracer, OutOfMemory)


@dataclass(slots=True)
class Compiler:
    """How a function given to `pliant.compile` is compiled, and every resume function of it.

    One `Compiler` belongs to one call of `pliant.compile`. It has what all dispatchers of the
    function share: options, backend, limits, and the cache of resume functions with what was seen
    of their inputs.
    """

    options: Options
    backend: Any
    fullgraph: bool = False
    dynamic: bool | None = None
    backend_options: Options = field(init=False)
    policy: DynamicPolicy = field(init=False)
    limits: Limits = field(init=False)
    functions: FunctionCache = field(init=False)
    eager_if_interposed: set[Dispatcher] = field(init=False)

    def __post_init__(self) -> None:
        # `fullgraph=True` promises compiled code, so that a backend that gives up is an error too.
        self.backend_options = replace(self.options, raise_on_fallback=self.strict)
        self.policy = DynamicPolicy.of(self.dynamic, self.options)
        self.limits = Limits(self.options, self.policy, self.fullgraph)
        self.functions = FunctionCache(self.dispatcher)
        self.eager_if_interposed = set()

    def dispatcher(self, function: types.FunctionType) -> Dispatcher:
        """A compiled function; nothing is compiled before the first call."""
        return Dispatcher(function, self.on_miss, self.on_error)

    def on_miss(self, dispatcher: Dispatcher, values: tuple[Any, ...]) -> Entry | None:
        """Called by the dispatcher when no entry fits the call. Returns a new entry, or None to run
        the function as it is."""
        return failures.watched(self._isolated_on_miss, dispatcher, values)

    def _isolated_on_miss(self, dispatcher: Dispatcher, values: tuple[Any, ...]) -> Entry | None:
        # One thread compiles at a time: capture changes state that belongs to all of them.
        entry: Entry | None = isolated(COMPILATION, cleanups(), self._on_miss, dispatcher, values)
        return entry

    def _on_miss(self, dispatcher: Dispatcher, values: tuple[Any, ...]) -> Entry | None:
        """`on_miss` with the lock held: what may decide against a compilation, then the
        compilation."""
        entry = dispatcher.find(values)  # another thread may have compiled it meanwhile
        if entry is not None:
            return entry
        # Asked again under the lock: the thread that had it before may have given the function up.
        if dispatcher.mode != DispatchMode.COMPILE or not capturable(state := State.current()):
            return None

        def varied() -> str:
            return what_varied(why_none_fits(dispatcher, values))[0]

        if not stance.allows(dispatcher, self.functions.is_part(dispatcher), varied):
            observe(self.functions.called_uncompiled(dispatcher), dispatcher.fn, values)
            return None
        if is_interposed(state):
            return self._try_interposed(dispatcher, values, state)
        if not self.limits.allow(dispatcher, values):
            return None
        try:
            return self._try_to_compile(dispatcher, values)
        except NotCaptured as error:
            if self.fullgraph:
                raise refused(error.cause, []) from error
            dispatcher.mode = DispatchMode.EAGER
            reporting.not_captured(dispatcher.fn, error.cause.code, error.cause.what)
        return None

    @property
    def strict(self) -> bool:
        """Whether a failure of ours is an error, rather than a reason to run eagerly."""
        return self.fullgraph or self.options.raise_on_fallback

    def _try_to_compile(
        self,
        dispatcher: Dispatcher,
        values: tuple[Any, ...],
        answers: Mapping[str, bool] | None = None,
    ) -> Entry | None:
        """A new entry, or None if the function has to run eagerly: pliant failed, or another tracer
        is at work. Errors meant for the user are raised."""
        try:
            with reporting.whether_abandoned(dispatcher.fn):
                return self._compile(dispatcher, values, answers)
        # Order matters: `InternalError` and `BackendError` are `PliantError`s, which otherwise are
        # raised.
        except InternalError as error:  # of our own backend
            raise_hidden(error.__cause__ or error)
            # The backend's error names the graph; the one made of it names the function's line.
            self._fall_back(dispatcher, error.__cause__ or error)
        except BackendError as error:
            if self.fullgraph or not self.options.suppress_errors:
                raise
            dispatcher.mode = DispatchMode.EAGER
            reporting.fell_back(dispatcher.fn, error)
        # Meant for the user, or for `_on_miss`: not a failure of ours.
        except (PliantError, NotCaptured, *FATAL):
            raise
        except (ForeignTracer, OutOfMemory):
            return None
        except Exception as error:
            raise_hidden(error)
            self._fall_back(dispatcher, error)
        return None

    def _try_interposed(
        self, dispatcher: Dispatcher, values: tuple[Any, ...], state: State
    ) -> Entry | None:
        """An entry for calls under a transform of `torch.func` or a dispatch mode, or None if the
        function can't be one graph.

        Such a graph is run by PyTorch, so that the transform or mode sees its operators. A mode is
        often another object at each call, so one such entry is made for modes. Calls like these
        fill at most half of the limit on recompilations: without an entry the function simply runs
        eagerly.
        """
        full = 2 * len(dispatcher.entries) >= self.options.recompile_limit
        if full or dispatcher in self.eager_if_interposed:
            return None
        if not self.limits.allow(dispatcher, values):
            return None
        if state.dispatch_modes:
            self.eager_if_interposed.add(dispatcher)
        try:
            with reporting.whether_abandoned(dispatcher.fn):
                return self._compile(dispatcher, values, interposed=True)
        except FATAL:
            raise
        except Exception as error:
            self.eager_if_interposed.add(dispatcher)
            of_program = isinstance(error, EXPECTED) and not isinstance(error, InternalError)
            if self.options.raise_on_fallback and not of_program:
                raise
        return None

    def _compile(
        self,
        dispatcher: Dispatcher,
        values: tuple[Any, ...],
        answers: Mapping[str, bool] | None = None,
        interposed: bool = False,
    ) -> Entry:
        """Capture, guards, backend, installation: one compilation.

        `answers` are answers to questions about data that capture can't decide. `interposed` says
        that a transform or a mode is active, so that the function must be one graph, run by
        PyTorch.
        """
        dynamic = Dynamic(self.policy, self.functions.history(dispatcher), answers or {})
        about, times = reporting.started(dispatcher.fn, len(dispatcher.entries))
        fullgraph = self.fullgraph or interposed
        backend = self._chosen_backend()
        if interposed and is_own(backend):
            backend = lookup("eager")

        def attempt(asked: Asked) -> Attempt:
            """Capture and backend, with breaks where they are asked for."""
            follow = partial(self._capture, dispatcher, values, dynamic, times, fullgraph, asked)
            captured, bindings, tree = follow()
            # Capture itself may change what it has guarded on, and then a second capture sees the
            # final state.
            if tree.check(values) is not None:  # PyTorch imported something on the way
                captured, bindings, tree = follow()
            with suspended(State.current()):
                # the graph becomes a callable
                return self._backend(captured, bindings, about, backend), bindings, tree

        compiled, bindings, tree = refusals.with_breaks(attempt)
        entry = Entry(tree, compiled.residual, compiled)
        # Otherwise every call would miss and compile again.
        if (failed := tree.check(values)) is not None:
            raise AssertionError(f"a guard fails at once: {plan.explain(*failed)}")
        dispatcher.install(entry)
        index.update(dispatcher, entry)
        self.limits.total += 1
        # Expressions are interned for the whole process, those of dropped programs too.
        drop_unused_nodes()
        times.append(time.perf_counter())
        reporting.finished(compiled, bindings.shape_log, about, times)
        return entry

    @without_collection()
    def _capture(
        self,
        dispatcher: Dispatcher,
        values: tuple[Any, ...],
        dynamic: Dynamic,
        times: list[float],
        fullgraph: bool,
        asked: Asked = None,
    ) -> tuple[Captured, Bindings, Any]:
        """Graph, residual code and guards, and the guards as a native tree."""
        try:
            # As torch.compile does: backends may count on a call for whatever is computed.
            keeps_dead_graphs = not is_own(self._chosen_backend())
            captured, bindings = capture(
                dispatcher.fn, values, self.options, fullgraph, dynamic, keeps_dead_graphs, asked
            )
        except MemoryError as error:
            # Following a program can take more memory than running it, so Python may still succeed.
            # Everywhere else a `MemoryError` is the caller's (`FATAL`).
            raise OutOfMemory from error
        if self.options.check_ir:
            checker.check(captured, bindings)
        captured_at = time.perf_counter()
        tree = plan.build(bindings.guards, bindings.slots, len(values))
        times[1:] = [captured_at, time.perf_counter()]
        return captured, bindings, tree

    def _chosen_backend(self) -> Any:
        forced = stance.current().backend
        return self.backend if forced is None else lookup(forced)

    def _backend(
        self, captured: Captured, bindings: Bindings, about: dict[str, Any], backend: Any
    ) -> Compiled:
        """Compile the graph, give the residual code what it calls, and make it a function."""
        bound = Binder(bindings.objects).visit
        namespace = {n: routed(self, bound(value)) for n, value in captured.namespace.items()}
        graph = None
        if bindings.graph is not None:
            if not keeps_graph(backend):
                captured.parts()  # now, since they tell what was captured
            graphs.name_after(bindings.graph, about["function"])
            reporting.note_reason(bindings.graph, captured.broken)
            with reporting.backend(about, backend_name(backend)):
                compile_graph = verifying if self.options.verify_correctness else call_backend
                graph = compile_graph(
                    backend,
                    bindings.graph,
                    list(bindings.examples),
                    bindings.shapes,
                    self.backend_options,
                )
            # What their classes say about functions has been followed.
            if any(is_wrapper(e) and overrides_functions(type(e)) for e in bindings.examples):
                graph = graphs.without_overrides(graph)
            namespace[captured.graph_name] = graph
        for target in captured.resumes:  # inner ones first
            point, scope = bound(target.point), bound(target.namespace)
            function = self.functions.resume_functions.at(point, scope)
            if target.eager:
                namespace[target.name] = disable(function)
                continue
            inner = tuple(namespace[name] for name in target.inner)
            resume = self.functions.resume(function, inner) if target.compiled else function
            namespace[target.name] = resume
        code = residual.load(captured.name, captured.residual, namespace, captured.lines)
        # Without the examples: the user's tensors must not live as long as the code.
        lasting = replace(bindings, examples=(), shape_log=ShapeLog())
        return Compiled(captured, lasting, code, graph, about["index"])

    def _fall_back(self, dispatcher: Dispatcher, error: BaseException) -> None:
        """pliant failed: the function runs eagerly from now on, or this raises InternalError if it
        is strict."""
        if self.strict:
            raise InternalError(
                f"compiling {dispatcher.fn.__qualname__} failed inside pliant: {error!r}",
                why="This is a mistake of pliant's, not of the program.",
                remedy="Please report it. Without fullgraph=True and config.raise_on_fallback the "
                "function runs eagerly instead.",
                position=reporting.described(dispatcher.fn)["position"],
            ) from error
        # For good: compiling once more would most likely fail the same way.
        dispatcher.mode = DispatchMode.EAGER
        reporting.fell_back(dispatcher.fn, error)

    def on_error(
        self, dispatcher: Dispatcher, entry: Entry, values: tuple[Any, ...], error: BaseException
    ) -> Any:
        """Called by the dispatcher when residual code raised. Returns the call's result or raises
        what the program is to see: its own exception, as eager PyTorch would raise it."""

        def compile_case(answers: dict[str, bool]) -> Entry | None:
            allowed = self.limits.allow_case(dispatcher, answers)
            return self._try_to_compile(dispatcher, values, answers) if allowed else None

        def other_case(answers: dict[str, bool]) -> Entry | None:
            entry: Entry | None = isolated(COMPILATION, cleanups(), compile_case, answers)
            return entry

        return recovery.handle(dispatcher, entry, values, error, other_case)
