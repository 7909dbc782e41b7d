"""What runs in place of compiled code that can't: the graph as it was captured.

The one idea: where the code failed and the graph then does not, the mistake was the code's, and is
reported. Where the graph fails too, its error is the program's own.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import field
from typing import Any

from pliant.base.checks import SuppositionFailed
from pliant.base.values import dataclass
from pliant.runtime.differentiable import refuse


@dataclass(slots=True, eq=False)
class Failures:
    """Errors of compiled code in calls that are still to be run by the graph, by thread."""

    report: Callable[[Exception], None]
    errors: dict[int, Exception] = field(default_factory=dict)

    def failed(self, error: Exception) -> None:
        """Called by the launcher, before the fallback. Sizes that the code was not made for are no
        mistake."""
        if not isinstance(error, SuppositionFailed):
            self.errors[threading.get_ident()] = error

    def run(self, graph: Callable[..., Any], *args: Any) -> Any:
        error = self.errors.pop(threading.get_ident(), None)
        result = graph(*args)
        if error is not None:
            self.report(error)
        return result


@dataclass(slots=True, eq=False)
class GraphFallback:
    """Runs the graph."""

    graph: Callable[..., Any]
    failures: Failures

    def failed(self, error: Exception) -> None:
        self.failures.failed(error)

    def __call__(self, *args: Any) -> Any:
        return self.failures.run(self.graph, *args)


@dataclass(slots=True, eq=False)
class Refusal:
    """Refuses: the graph, which autograd must record, is run by who called the code."""

    failures: Failures

    def failed(self, error: Exception) -> None:
        self.failures.failed(error)

    def __call__(self, *args: Any) -> Any:
        refuse()
