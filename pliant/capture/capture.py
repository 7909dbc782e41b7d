"""Capture of one call: symbolic execution of a function's bytecode, from its start to a `Captured`.

A capture is a loop of attempts. Each attempt follows the function from its first instruction, on
values instead of objects, and ends in one of three ways:

- It returns, raises or breaks the graph: `Finisher` writes the residual code and makes the result.
- It raises `Restart(step, cause)`: a break is needed at an earlier instruction. The next attempt
  breaks there.
- It raises `NotCaptured`: there is no place for a break, and the function runs as it is.

(A fourth is rare: `StartOver`, when an input has changed its kind on the way.)

Starting over is safe because an attempt leaves the user's objects alone, and it leads to the same
place because symbolic execution is deterministic: instruction number 731 is the same one each time.
"""

from __future__ import annotations

import sys
import types
from collections.abc import Mapping
from itertools import pairwise
from typing import Any, NoReturn

import torch

import pliant.capture.attributes
import pliant.capture.calls
import pliant.capture.opcodes  # noqa: F401  fills the tables of handlers
from pliant._native import State, isolated
from pliant.base import events
from pliant.base.errors import GraphBreakError
from pliant.base.options import Options
from pliant.base.refusals import ASKED, names_gradients
from pliant.capture import library  # noqa: F401  fills the tables of handlers
from pliant.capture.aliasing import is_kept
from pliant.capture.breaks import BREAKS
from pliant.capture.failures import written_inputs
from pliant.capture.finish import Finisher, Result
from pliant.capture.frame import Frame
from pliant.capture.inputs import Dynamic, parameter_names
from pliant.capture.interposed import assumptions, suspended
from pliant.capture.interpreter import run_frame
from pliant.capture.library.torch.torch_function import begin_overrides
from pliant.capture.native import fill_late
from pliant.capture.state_numbers import StateNumbers
from pliant.capture.trace import INLINE, Restart, StartOver, Trace
from pliant.capture.value import Break, Raised, Unread
from pliant.capture.values.objects import Cell
from pliant.capture.wrap import wrap
from pliant.fake.trial import specialise
from pliant.guards.source import Fixed, Local
from pliant.stages import Bindings, Captured

RESTARTS = 100  # each restart breaks one instruction earlier, so this many means a bug in pliant
FRAMES_PER_CALL = 12
# Causes that are not obstacles: the operation is run in Python because it will raise there.
HARMLESS = frozenset({"operation-raises", "bad-arguments"})


class NotCaptured(Exception):
    """The function can't be captured at all and runs as it is."""

    def __init__(self, cause: Break) -> None:
        super().__init__(cause.code, cause.what)
        self.cause = cause


class Ended(Exception):
    """A graph break ended the capture. `result` is what was captured up to it."""

    def __init__(self, result: Result) -> None:
        super().__init__()
        self.result = result


def capture(
    function: types.FunctionType,
    values: tuple[Any, ...],
    options: Options,
    fullgraph: bool = False,
    dynamic: Dynamic | None = None,
    keeps_dead_graphs: bool = False,
    asked: Mapping[int, Break] | None = None,
) -> tuple[Captured, Bindings]:
    """Capture `function`, called with `values` (one for each parameter, in order of its signature).

    `dynamic` says which inputs become symbols. With `keeps_dead_graphs`, a graph is called even if
    nothing needs its results. `asked` are breaks that are asked for from the start, by instruction.
    Raises `NotCaptured` if the function has to run as it is, and
    `GraphBreakError` for a graph break under `fullgraph`.
    """
    dynamic = dynamic or Dynamic()
    fill_late()
    # By the number of the instruction: the breaks that earlier attempts have asked for.
    break_at: dict[int, Break] = dict(asked or {})
    # Attempts share `break_at`, and the dynamic history; everything else is made anew.
    for _ in range(RESTARTS):
        attempt = Attempt(function, values, options, fullgraph, break_at, dynamic)
        attempt.trace.graph.keeps_dead_graphs = keeps_dead_graphs
        nodes = attempt.trace.graph.graph.nodes
        events.emit(
            events.WorkBegan(
                function=function.__qualname__, work="capturing", unit="operation",
                done=nodes.__len__,
            )
        )  # fmt: skip
        try:
            result: Result = isolated(None, attempt.trace.cleanups, follow, attempt)
            # Other backends, which get dead code too, may count on whole graphs.
            if not (fullgraph or keeps_dead_graphs):
                may_break(function, *result, break_at)
            return result
        except Restart as restart:
            break_at[restart.step] = restart.cause
        except StartOver:
            # The object is another one now, so instructions are counted differently.
            break_at.clear()
        except RecursionError as error:
            raise NotCaptured(Break("too-deep", function.__qualname__)) from error
    raise NotCaptured(Break("unsupported", "a function that breaks the graph without end"))


def may_break(
    function: types.FunctionType, captured: Captured, bindings: Bindings, asked: Mapping[int, Break]
) -> None:
    """Note in a graph that it may break where no code can be generated."""
    follows = captured.broken is not None  # and the graph doesn't tell what
    if bindings.graph is not None and not (follows and names_gradients(function)):
        bindings.graph.meta[ASKED] = dict(asked)


def without_overrides() -> Any:
    """A context in which the program's `__torch_function__` doesn't run: capture itself asks
    tensors for their metadata, and that is no call of the program."""
    return torch._C.DisableTorchFunction()


def follow(attempt: Attempt) -> Result:
    """Run one attempt. It changes state of the thread (the recursion limit, hooks, modes), which
    the caller restores: `isolated` does so even if the attempt is interrupted."""
    # Following one call of the program takes several Python calls.
    sys.setrecursionlimit(sys.getrecursionlimit() * FRAMES_PER_CALL)
    # Fakes must not reach the program's hooks on tensors that autograd saves.
    torch._C._autograd._saved_tensors_hooks_set_tracing(True)
    with suspended(attempt.state), without_overrides():
        return attempt.run()


class Attempt:
    """Following a function once, from its start."""

    def __init__(
        self,
        function: types.FunctionType,
        values: tuple[Any, ...],
        options: Options,
        fullgraph: bool,
        break_at: dict[int, Break],
        dynamic: Dynamic,
    ) -> None:
        self.function = function
        self.values = values
        self.fullgraph = fullgraph
        # Before anything runs: the guard on PyTorch's modes is about the state at the call.
        self.state = State.current()
        self.trace = Trace(options, break_at, wrap, self.on_break, dynamic)
        self.trace.state = self.state
        # A wrong speculation breaks the graph after all, when the user no longer expects it.
        self.trace.graph_effects.speculated = None if fullgraph else {}
        # Whether `torch.func` is active around the call, so that arguments may be wrapped by it.
        self.trace.under_transforms = bool(self.state.functorch)
        self.trace.guards.extend(assumptions(self.state))
        self.trace.state_numbers = StateNumbers(self.trace)
        begin_overrides(self.trace, self.state)

    def run(self) -> Result:
        """Follow the function to its end or to a graph break, and return what was captured."""
        frame = self._root_frame()
        try:
            return self._follow(frame)
        except Ended as ended:
            return ended.result
        except Break as cause:  # while writing residual code: something can't be made anew
            if self.fullgraph:
                raise refused(cause, [frame]) from cause
            raise NotCaptured(cause) from cause
        # Whatever the end is: the traceback of an error would keep the trace, and with it the
        # tensors.
        finally:
            self.trace.forget()

    def _follow(self, frame: Frame) -> Result:
        try:
            result = run_frame(self.trace, frame)
        except Raised as raised:
            return self._finisher().raised(raised.value)
        return self._finisher().returned(result)

    def _root_frame(self) -> Frame:
        """The frame of the compiled function itself: its parameters as `Unread` values, its cells
        by identity."""
        code = self.function.__code__
        names = getattr(self.function, "argument_names", None)
        stars = code.co_argcount + code.co_kwonlyargcount  # *args and **kwargs come last
        # Unread until the program looks at them: no guards on parameters that it ignores.
        variables: dict[str, Unread] = {
            name: Unread(value, Local(index, name, names if index >= stars else None))
            for index, (name, value) in enumerate(
                zip(parameter_names(code), self.values, strict=True)
            )
        }
        self.trace.inputs.note([(v.source, v.real) for v in variables.values()])
        # The cells are parts of the function, to which the entry belongs: they are always these.
        cells: list[Cell] = [
            self.trace.cell(cell, Fixed(cell, f"closure[{name!r}]"))
            for name, cell in zip(code.co_freevars, self.function.__closure__ or (), strict=True)
        ]
        return Frame(code, self.function.__globals__, {**variables}, cells)

    def _finisher(self) -> Finisher:
        """What writes the residual code. Some breaks are known only at the end: an assertion in the
        graph that can't be undone has to be a break instead. Then the attempt is given up here."""
        breaks = self.trace.graph_effects.breaks
        if breaks:
            raise Restart(*breaks[0])
        # What is written, or is a key, might be what a cache has kept: no guard can tell before it
        # is asked.
        trace = self.trace
        if trace.kept_calls and (written_inputs(trace) or any(map(is_kept, trace.keys))):
            raise trace.kept_calls[0][1]
        name, parameters = self.function.__name__, parameter_names(self.function.__code__)
        return Finisher(trace, name, parameters, self.state)

    def on_break(self, trace: Trace, frame: Frame, cause: Break) -> NoReturn:
        """End the graph at the present instruction, or at the call that led to it."""
        frames = list(trace.frames)
        # 1. Breaks that the user has forbidden. A call that stands for plain Python code
        # (`inlinable`) is first followed as such: it may not break at all then.
        if (self.fullgraph or trace.error_on_break) and cause.code not in HARMLESS:
            for caller, inner in pairwise(frames):
                if not inner.direct and caller.step in trace.inlinable:  # which may do without
                    raise Restart(caller.step, INLINE)
            # The error that a question about data makes says more than a general one: it has the
            # remedy.
            raise cause.error or refused(cause, frames, self.fullgraph)
        # 2. Causes that concern a whole function: it is left to Python at the call in its caller.
        if cause.code == "skipped-frame":
            if len(frames) == 1:
                raise NotCaptured(cause)
            # The caller breaks instead, at the call of the function.
            raise Restart(frames[-2].step, Break("user", cause.what, trace.stack()))
        if cause.code == "too-long" and frame.step not in trace.break_at:
            leave_loop(frames, cause.at(trace.stack()))
        # 3. Residual code can resume a frame only if a call instruction led to it: not the body of
        # a generator, nor a function that C code called (the key function of `sorted`). The break
        # moves out to the call in the innermost frame that can be resumed.
        for depth, inner in enumerate(frames):
            if depth and (inner.generator or not inner.direct):
                while depth and frames[depth - 1].finished:  # it is giving up its variables
                    depth -= 1
                if not depth:
                    raise NotCaptured(cause)
                step = frames[depth - 1].step
                inline = step in trace.inlinable
                raise Restart(step, INLINE if inline else cause.at(trace.stack()))
        if frame.step in trace.break_at and cause.code == "operation-raises":
            # PyTorch refuses these sizes, and may accept others: this entry must be for these
            # alone.
            specialise([tensor.fake for tensor in trace.tensors.values() if tensor.source])
        if trace.changes != frame.changes:
            # 4. The instruction is half done: an iterator has moved, or something is written. A
            # break is a rollback to before the instruction. Values have no undo log, so the next
            # attempt stops in front of it.
            raise Restart(frame.step, cause)
        raise Ended(self._finisher().broke(frames, cause))


def leave_loop(frames: list[Frame], cause: Break) -> NoReturn:
    """Leave the function whose loop is too long to Python.

    That function is the innermost one in which more than half of all instructions were followed:
    its caller breaks at the call. A break inside the loop would give the backend a graph of that
    length, and the resume function would start in the loop and build the next one.
    """
    last = frames[-1].step
    for caller, inner in reversed(list(pairwise(frames))):
        if last - inner.first_step > last // 2:
            raise Restart(caller.step, cause)
    raise NotCaptured(cause)


def refused(cause: Break, frames: list[Frame], fullgraph: bool = True) -> GraphBreakError:
    """The error for a graph break under `fullgraph=True` or `error_on_graph_break(True)`."""
    option = "fullgraph=True" if fullgraph else "error_on_graph_break(True)"
    explanation = BREAKS[cause.code]
    positions = [frame.position() for frame in frames if not frame.internal]
    return GraphBreakError(
        f"{option}, but this can't be captured: {cause.what}",
        why=explanation.why,
        remedy=explanation.remedy,
        position=positions[-1] if positions else None,
        code=cause.code,
        stack=tuple(positions[:-1]),
    )


__all__ = ["NotCaptured", "capture", "parameter_names"]
