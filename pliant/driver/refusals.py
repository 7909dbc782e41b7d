"""Graph breaks where the back end can't compile an operation.

The one idea: the break is one like any other, so guards, dynamic shapes, errors and what follows
are its business. It is asked for when the back end has refused the graph as a whole.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from pliant.base import events
from pliant.base.refusals import ASKED, REFUSED, RefusedOperation
from pliant.capture.capture import NotCaptured
from pliant.capture.value import Break
from pliant.runtime import graphs
from pliant.stages import Bindings, Compiled

Asked = Mapping[int, Break] | None
Attempt = tuple[Compiled, Bindings, Any]

MOST: Final = 8
"""A graph is cut shorter so many times, at most."""


def with_breaks(attempt: Callable[[Asked], Attempt]) -> Attempt:
    """What `attempt` gives, with a break in front of an operation that can't be compiled. Without
    one, where capture can't break there, or would have to break too often."""
    result, left = attempt(None), MOST
    while (asked := _asked(result)) is not None and left:
        left -= 1
        try:
            result = attempt(asked)
        except NotCaptured:
            break
    _settle(result)
    return result


def _asked(result: Attempt) -> Asked:
    """The breaks to ask for next time; None if the graph is compiled."""
    graph = result[1].graph
    refusal: RefusedOperation | None = None if graph is None else graph.meta.get(REFUSED)
    if graph is None or refusal is None:
        return None
    what = f"{refusal.operation}: {refusal.reason}"
    return {**graph.meta[ASKED], refusal.step: Break("not-generated", what)}


def _settle(result: Attempt) -> None:
    """Nothing more is asked for: if a graph isn't compiled, PyTorch runs it."""
    graph = result[1].graph
    if graph is None:
        return
    graph.meta.pop(ASKED, None)
    refusal: RefusedOperation | None = graph.meta.pop(REFUSED, None)
    if refusal is not None:
        name = graphs.function_of(graph)
        events.emit(events.NotGenerated(function=name, reason=refusal.reason))
