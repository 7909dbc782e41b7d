"""After compiled code raised: another case of the program, or the error as eager PyTorch makes it.

The one idea: a call that failed has changed nothing, or what it changed is put back, so that the
function can be run again. Run by Python it raises, or handles, the error as it always would. And
where it only met a case in the data that it was not compiled for, it is run by the code for that
case, which is compiled when it is first needed.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from pliant._native import Dispatcher, Entry
from pliant.base import tracebacks
from pliant.base.checks import AssumptionFailed, NotAsCaptured
from pliant.base.errors import PliantError
from pliant.base.isolation import FATAL
from pliant.capture.capture import NotCaptured
from pliant.runtime import graphs, rerun
from pliant.stages import Captured, Compiled

STOP = (PliantError, *FATAL)
"""Errors after which the program isn't run again."""

CompileCase = Callable[[dict[str, bool]], Entry | None]


def handle(
    dispatcher: Dispatcher,
    entry: Entry,
    values: tuple[Any, ...],
    error: BaseException,
    compile_case: CompileCase,
) -> Any:
    """What the call returns, or the exception that it raises, instead of `error`.

    Three cases, if the graph raised (and not an operation in residual code, unless it is early):

    - A question about data was answered the wrong way for this call: run, or first compile, the
      code for the other answer.
    - The graph has changed nothing, or it can be put back: run the function again in Python, which
      raises or handles the error as eager does.
    - Otherwise `error` is raised as it is.
    """
    if isinstance(error, NotAsCaptured):
        return rerun.call(dispatcher.fn, values)
    compiled: Compiled = entry.info
    captured, bindings = compiled.captured, compiled.bindings
    graph, code = bindings.graph, entry.residual.__code__
    # What comes before the graph is early: the program may do something else first, or handle it.
    line, (first, stop) = tracebacks.line_of(error, code), captured.early_lines
    if line is not None and first <= line < stop and _may_run_again(error):
        try:
            return rerun.call(dispatcher.fn, values)
        except BaseException as again:
            return rerun.raising(again)
    # Residual code also runs operations of the program. What those raise is the program's own
    # error.
    if graph is not None and tracebacks.raised_at(error, code, captured.graph_line):
        # Inputs that the graph has overwritten get their old contents back first: whatever is run
        # next has to see the program's state before the call.
        rerun.restore(bindings.undo, graph, error)
        failed = _wrong_answer(captured, error)
        # Whether the program's state is, or is about to be, that before the call.
        unchanged = captured.rerunnable or failed is not None
        unchanged = unchanged or (captured.undoable and graphs.is_before_final(graph, error))
        if unchanged and captured.saved is not None:
            tracebacks.local_of(error, code, captured.saved).put_back()
        if failed is not None:
            return _run_other_case(dispatcher, entry, values, failed, compile_case)
        unchanged = unchanged or (captured.only_writes and graphs.wrote_nothing(graph, error))
        # A failed test is no error of the program, so hooks are called again there.
        observed = _has_observers() and not graphs.is_failed_test(graph, error)
        if unchanged and _may_run_again(error) and not observed:
            # Otherwise the original error is raised: a second run would repeat what the first one
            # did.
            try:  # the program may handle it, and nothing has been changed yet
                return rerun.call(dispatcher.fn, values)
            except BaseException as again:
                error = again
        else:
            rerun.keep_modes(bindings.mode_changes, graph, error)
    return rerun.raising(error)


def _may_run_again(error: BaseException) -> bool:
    """Whether Python may run the function again after this error. Not after an interrupt
    (KeyboardInterrupt, SystemExit): running again would drop it."""
    return isinstance(error, Exception) and not isinstance(error, STOP)


def _has_observers() -> bool:
    """Whether a hook of the program on the tensors that autograd saves is active. A second run
    would call it again. It may even be what raised: activation checkpointing ends the second run of
    a function early in that way."""
    return torch._C._autograd._top_saved_tensors_default_hooks(False) is not None


def _wrong_answer(captured: Captured, error: BaseException) -> str | None:
    """The question about data that capture answered the wrong way for this call, if that is why the
    graph failed; otherwise None. A failed speculation is known by its text: which exception the
    test of it raises depends on the backend."""
    if isinstance(error, AssumptionFailed):
        return error.condition
    text = str(error) if captured.speculations else ""
    return next(
        (about for about, answer in captured.speculations if answer and about in text), None
    )


def _run_other_case(
    dispatcher: Dispatcher,
    entry: Entry,
    values: tuple[Any, ...],
    failed: str,
    compile_case: CompileCase,
) -> Any:
    """Run the call with the code for the other answer to `failed`: an entry that has it, or a new
    one. In Python, if that case can't be compiled."""
    # Questions that come later may not even be asked once this one has another answer.
    answers = _answers_instead(entry, failed)
    try:
        other_entry = _entry_with(dispatcher, values, answers) or compile_case(answers)
    except NotCaptured:  # where the graph would have to end
        other_entry = None
    if other_entry is None:
        return rerun.call(dispatcher.fn, values)
    dispatcher.install(other_entry)  # to be tried first
    return rerun.call(dispatcher.fn, values, dispatcher)


def _answers_instead(entry: Entry, failed: str) -> dict[str, bool]:
    """The answers that the entry assumed up to the one that failed, which is inverted. Later ones
    are left out: with another answer here, those questions may not come up."""
    answers = {}
    captured: Captured = entry.info.captured
    for key, answer in (*captured.speculations, *captured.assumptions):
        answers[key] = answer if key != failed else not answer
        if key == failed:
            break
    return answers


def _entry_with(
    dispatcher: Dispatcher, values: tuple[Any, ...], answers: dict[str, bool]
) -> Entry | None:
    """An entry that fits the call and was compiled with these answers, or None."""
    for entry in dispatcher.entries:
        captured: Captured = entry.info.captured
        assumed = dict((*captured.speculations, *captured.assumptions))
        if answers.items() <= assumed.items() and entry.tree.check(values) is None:
            return entry
    return None
