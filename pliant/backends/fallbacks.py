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
    """Errors of compiled code, by thread, until the captured graph has run in its place."""

    report: Callable[[Exception], None]
    errors: dict[int, Exception] = field(default_factory=dict)

    def failed(self, error: Exception) -> None:
        """Called by the launcher, before the fallback. Sizes that the code was not made for are no
        mistake."""
        if not isinstance(error, SuppositionFailed):
            self.errors[threading.get_ident()] = error

    def run(self, graph: Callable[..., Any], *args: Any) -> Any:
        """Run the captured graph. If it succeeds where the code failed, report the code's error; if
        it fails, too, its own error is what the program sees."""
        # Taken out first: the graph may call compiled code again.
        error = self.errors.pop(threading.get_ident(), None)
        result = graph(*args)
        if error is not None:
            self.report(error)
        return result


@dataclass(slots=True, eq=False)
class GraphFallback:
    """The fallback of a program: runs the captured graph."""

    graph: Callable[..., Any]
    failures: Failures

    def failed(self, error: Exception) -> None:
        self.failures.failed(error)

    def __call__(self, *args: Any) -> Any:
        return self.failures.run(self.graph, *args)


@dataclass(slots=True, eq=False)
class Refusal:
    """The fallback of a forward: refuses. Autograd has to record the captured graph, so the caller
    of the forward (`AutogradStep`) runs it."""

    failures: Failures

    def failed(self, error: Exception) -> None:
        self.failures.failed(error)

    def __call__(self, *args: Any) -> Any:
        refuse()
