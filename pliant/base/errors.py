"""Every error a user of pliant can meet: one class per cause, under `PliantError`.

The one idea: an error says what happened, why, what to do about it, and where in the user's source,
always in this order and in one form (`explain`). The docstring of a class is its help page.
"""

from __future__ import annotations

import difflib
import warnings
from collections.abc import Iterable, Sequence

from pliant.base.position import Position, format_position

__all__ = [
    "BackendError",
    "BackendNameTakenError",
    "DataDependentError",
    "GraphBreakError",
    "InternalError",
    "InvalidMarkError",
    "InvalidOptionError",
    "NotCallableError",
    "PliantError",
    "PliantWarning",
    "Position",
    "RecompileError",
    "RecompileLimitError",
    "ScriptedModelError",
    "ShapeConstraintError",
    "UnknownBackendError",
    "UnknownLogError",
    "UnknownOptionError",
    "UserError",
    "closest",
    "explain",
    "format_position",
]


def explain(
    what: str,
    *,
    why: str = "",
    remedy: str = "",
    position: Position | None = None,
    code: str = "",
    stack: Sequence[Position] = (),
) -> str:
    """The one form of everything pliant tells a user.

    `stack` is the chain of calls that led to `position`, outermost first, without `position`.
    """
    parts = [f"{what} [{code}]" if code else what]
    if position is not None:
        parts.append(format_position(position))
    parts.extend(format_position(caller, prefix="called from ") for caller in reversed(stack))
    parts.extend(_labelled(label, text) for label, text in (("why", why), ("what to do", remedy)))
    return "\n".join(part for part in parts if part)


def _labelled(label: str, text: str) -> str:
    """`text` after its label; further lines of it (a piece of code, say) keep their own shape."""
    if not text:
        return ""
    return f"  {label}: " + text.strip().replace("\n", "\n      ")


def closest(name: str, names: Iterable[str]) -> str:
    """`"did you mean 'x'?"` for the most similar of `names`, or "" when none is similar."""
    matches = difflib.get_close_matches(name, list(names), n=1, cutoff=0.6)
    return f"did you mean {matches[0]!r}?" if matches else ""


def counted(number: int, noun: str) -> str:
    """`1 graph`, `2 graphs`."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def choices(name: str, names: Iterable[str]) -> str:
    """The remedy for a misspelt name: the closest match, then all there are."""
    ordered = sorted(names)
    guess = closest(name, ordered)
    listing = "known names: " + ", ".join(ordered)
    return f"{guess} {listing}" if guess else listing


class PliantError(Exception):
    """The base of every error that pliant raises on its own account.

    `except pliant.errors.PliantError` catches what pliant has to say, and nothing that the compiled
    function raised: the exceptions of user code reach the caller as they are.

    Every such error has these attributes: `what` happened, `why`, the `remedy` (what to do), the
    `position` in the user's source, the `stack` of calls that led there, and a stable `code` where
    there is one. `str(error)` shows them all.
    """

    def __init__(
        self,
        what: str,
        *,
        why: str = "",
        remedy: str = "",
        position: Position | None = None,
        code: str = "",
        stack: Sequence[Position] = (),
    ) -> None:
        super().__init__(what)
        self.what = what
        self.why = why
        self.remedy = remedy
        self.position = position
        self.code = code
        self.stack = tuple(stack)

    def __str__(self) -> str:
        return explain(
            self.what,
            why=self.why,
            remedy=self.remedy,
            position=self.position,
            code=self.code,
            stack=self.stack,
        )


class GraphBreakError(PliantError, RuntimeError):
    """The function can't be captured as one graph, and one graph was asked for.

    Raised under `fullgraph=True` (or `error_on_graph_break`) at the first operation that has to run
    in plain Python. Without `fullgraph`, the same place is a graph break: the graph so far is run,
    then the operation, then a second graph continues.

    What to do: follow the remedy in the message; `code` is the entry to look up in the list of
    graph breaks in the documentation. Or drop `fullgraph=True` and accept the break.
    """


class RecompileError(PliantError, RuntimeError):
    """A call needs a new compilation, and recompiling was forbidden.

    Raised under `set_stance("fail_on_recompile")` and with `config.error_on_recompile` when no
    compiled entry fits the arguments. The message says what varied from call to call.

    What to do: make the calls alike, call the function with all kinds of arguments before setting
    the stance, or mark what varies as dynamic.
    """


class RecompileLimitError(PliantError, RuntimeError):
    """A function was recompiled as often as `config.recompile_limit` (or
    `accumulated_recompile_limit`) allows, and it was compiled with `fullgraph=True`, or
    `config.fail_on_recompile_limit_hit` is on.

    What to do: the message says what varied from call to call. Make it constant, pass it as a
    tensor, mark it dynamic, or raise the limit.
    """


class BackendError(PliantError, RuntimeError):
    """A backend failed: it raised, it could not be loaded, or what it returned can't be called.

    A backend is `backend(gm, example_inputs) -> callable`. When it raised, the original exception
    is the `__cause__` of this one.

    What to do: `backend="eager"` runs the same graph without it, which tells whether the backend or
    the capture is at fault.
    """


class InternalError(PliantError):
    """Something failed inside pliant itself; the original exception is the `__cause__`.

    Normally nobody sees this: the function runs eagerly instead, with one warning, and
    `counters["fallbacks"]` counts it. Under `fullgraph=True` or `config.raise_on_fallback` it is
    raised.

    What to do: this is a bug in pliant; please report it with the message and a small program.
    Until it is fixed, `pliant.disable` leaves the function uncompiled.
    """


class UserError(PliantError):
    """A mistake in how pliant is used: the base of most of the classes below."""


class DataDependentError(UserError):
    """The program asks a question whose answer depends on the contents of a tensor.

    For example `if x.item() > 3:` or a branch on the size of `x.nonzero()`: while the function is
    captured, the value isn't known.

    What to do: state what you know with `pliant.check(...)` (or `torch._check`), as the message
    suggests, or write the branch with `torch.where` or `torch.cond`.
    """


class ShapeConstraintError(PliantError):
    """A size that was marked dynamic had to be a constant, or isn't in the range that was promised.

    Raised when a dimension given to `mark_dynamic` can't stay general, because the program compares
    it, indexes by it, or mixes it with a constant size; and when the size of a call is not between
    the `min` and `max` of the mark. The message says where.

    What to do: change that line, use `maybe_mark_dynamic` to allow the constant, correct the range,
    or drop the mark.
    """


class NotCallableError(UserError, TypeError):
    """Something that should be called can't be: the argument of `compile`, or a backend.

    What to do: pass a function, a method, an `nn.Module` or another callable.
    """


class ScriptedModelError(UserError, RuntimeError):
    """`compile` was given the result of `torch.jit.script` or `torch.jit.freeze`: not Python code.

    What to do: compile the Python function or module that was scripted. Inside a compiled function,
    a scripted one may be called.
    """


class UnknownBackendError(UserError, ValueError):
    """No backend has this name.

    What to do: `pliant.list_backends()` has all names; `pliant.register_backend` adds one; a
    function `backend(gm, example_inputs) -> callable` can be passed itself.
    """


class BackendNameTakenError(UserError, ValueError):
    """Another backend is already registered under this name.

    What to do: `register_backend(name=...)` with another name, or pass the function as `backend=`.
    """


class UnknownOptionError(UserError, AttributeError):
    """No option has this name, in `pliant.config` or in `compile(options=...)`.

    What to do: `print(pliant.config)` shows all options and their values.
    """


class InvalidOptionError(UserError, ValueError, RuntimeError):
    """A value that an option, a log, a stance or the `mode` of `compile` can't take.

    What to do: the message says what is accepted.
    """


class InvalidMarkError(UserError, ValueError):
    """A mark that makes no sense: on something that is not a tensor, on a dimension that it doesn't
    have, with a range that no size is in, or in conflict with an earlier mark.

    Raised by `mark_dynamic`, `maybe_mark_dynamic`, `mark_static` and `mark_unbacked`, which then
    have changed nothing.

    What to do: the message says what is accepted.
    """


class UnknownLogError(UserError, ValueError):
    """No log has this name, in `pliant.set_logs` or in the variable `PLIANT_LOGS`.

    What to do: `help(pliant.set_logs)` lists the names and what each shows.
    """


class PliantWarning(UserWarning):
    """Something that the user should know although the program goes on.

    Given once for each function: it has reached its limit of recompilations, it runs eagerly
    because pliant failed on it, or a kernel of it could not be compiled. Given once for each
    process: the cache on disk can't be used, or no code can be generated.

    What to do: `warnings.simplefilter("error", pliant.errors.PliantWarning)` makes it an error.
    """


def warn(message: str, position: Position | None) -> None:
    """Warn the user at `position`, the line of theirs that is concerned."""
    file, line = (position.file, position.line) if position else ("pliant", 1)
    warnings.warn_explicit(message, PliantWarning, file, line)
