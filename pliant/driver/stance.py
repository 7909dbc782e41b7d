"""`pliant.set_stance`: what compiled functions do for now, all of them.

The one idea: a stance takes effect where a function would be compiled (`allows`), except
"force_eager", which keeps calls from getting that far.
"""

from __future__ import annotations

import functools
import weakref
from collections.abc import Callable
from typing import Any

from pliant._native import Dispatcher, set_bypass
from pliant.base.errors import InvalidOptionError, RecompileError, choices
from pliant.base.values import dataclass

STANCES = (
    "default", "force_eager", "eager_on_recompile", "fail_on_recompile", "eager_then_compile",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Stance:
    """What `set_stance` chose. `backend` compiles instead of the one given to `compile`; with
    `trusts_entries`, a call that fits no entry is an error."""

    name: str = "default"
    backend: str | Callable[..., Any] | None = None
    trusts_entries: bool = False


_now = Stance()
_seen: weakref.WeakSet[Dispatcher] = weakref.WeakSet()  # called once under "eager_then_compile"


def current() -> Stance:
    return _now


def forget() -> None:
    _seen.clear()


def _take(stance: Stance) -> Stance:
    """Make `stance` the current one; returns the one before it."""
    global _now
    before, _now = _now, stance
    set_bypass(stance.name == "force_eager")
    return before


def allows(dispatcher: Dispatcher, resumed: bool, varied: Callable[[], str]) -> bool:
    """Whether a function may be compiled for a call that no compiled code fits, under the current
    stance. May raise RecompileError.

    `resumed` says that the dispatcher is a resume function of another one. `varied` returns in
    words why no entry fits; it is called for the error only.
    """
    if _now.trusts_entries and len(dispatcher.entries):
        raise RecompileError(
            "Recompilation triggered with skip_guard_eval_unsafe stance: "
            f"{dispatcher.fn.__qualname__} would have to be compiled again",
            why="The stance says that compiled code fits every call, and none fits this one.",
            remedy="Call it with all kinds of arguments before taking the stance.",
        )
    if _now.name == "default":
        return True
    if _now.name == "fail_on_recompile":
        reason = f": {varied()}" if len(dispatcher.entries) else ""
        raise RecompileError(
            f"{dispatcher.fn.__qualname__} would be compiled",
            why=f"The stance is 'fail_on_recompile', and no compiled code fits this call{reason}.",
            remedy="Call it with arguments that fit, or leave the stance first.",
        )
    # The rest of a function whose first part is compiled counts as called before.
    if _now.name == "eager_then_compile":
        if resumed or dispatcher in _seen:
            return True
        _seen.add(dispatcher)
    return False


class set_stance:
    """Set what all compiled functions do, as `torch.compiler.set_stance` does.

    It is a function, a context manager and a decorator::

        pliant.set_stance("fail_on_recompile")
        with pliant.set_stance("force_eager"): ...

    The stances:

    - `"default"`: compile where needed.
    - `"force_eager"`: run everything uncompiled.
    - `"eager_on_recompile"`: use compiled code that fits, otherwise run uncompiled.
    - `"fail_on_recompile"`: use compiled code that fits, otherwise raise `RecompileError`.
    - `"eager_then_compile"`: run the first call of each function uncompiled.

    Args:
        stance: one of these.
        skip_guard_eval_unsafe: a promise that compiled code fits every call: one that needs a
            recompilation is a `RecompileError`. Guards are still tested; they cost next to nothing.
        force_backend: the backend that compiles from now on, under the stance `"default"`.
    """

    def __init__(
        self,
        stance: str = "default",
        *,
        skip_guard_eval_unsafe: bool = False,
        force_backend: str | Callable[..., Any] | None = None,
    ) -> None:
        if stance not in STANCES:
            raise InvalidOptionError(
                f"there is no stance {stance!r}", remedy=choices(stance, STANCES)
            )
        if force_backend is not None and stance != "default":
            raise InvalidOptionError("force_backend goes with the stance 'default' only")
        self._stance = Stance(stance, force_backend, skip_guard_eval_unsafe)
        # At once, because a plain call `set_stance(...)` must do something.
        self._before = _take(self._stance)

    def __enter__(self) -> None:
        _take(self._stance)

    def __exit__(self, *error: object) -> None:
        _take(self._before)

    def __call__(self, fn: Callable[..., Any]) -> Callable[..., Any]:
        # As a decorator it holds during calls only: take back what the constructor did.
        _take(self._before)

        @functools.wraps(fn)
        def under_stance(*args: Any, **kwargs: Any) -> Any:
            before = _take(self._stance)
            try:
                return fn(*args, **kwargs)
            finally:
                _take(before)

        return under_stance


def run(fn: Callable[..., Any] | None = None) -> Any:
    """A function that uses what is compiled of `fn` and compiles nothing more, as
    `torch._dynamo.run`.

    Args:
        fn: a function, compiled or not. Without it, the result is a decorator.
    """
    if fn is None:
        return run

    @functools.wraps(fn)
    def use_compiled(*args: Any, **kwargs: Any) -> Any:
        before = _take(Stance("eager_on_recompile"))
        try:
            return fn(*args, **kwargs)
        finally:
            _take(before)

    vars(use_compiled)["_torchdynamo_orig_callable"] = fn  # what capture follows in its place
    return use_compiled
