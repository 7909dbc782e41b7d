"""The options of pliant: `Options`, one frozen value, and `config`, the process-wide defaults.

The one idea: a compilation works with a single frozen `Options`, taken when it begins and passed on
as a parameter; `config` is only the place where users say what the next one should be. An option
that means what one of `torch._dynamo.config` means has its name.
"""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import field, fields
from types import TracebackType
from typing import Any, ParamSpec, TypeVar

from pliant._native import locked
from pliant.base.errors import InvalidOptionError, UnknownOptionError, choices
from pliant.base.values import dataclass, replace

P = ParamSpec("P")
R = TypeVar("R")

MODES = ("default", "reduce-overhead", "max-autotune", "max-autotune-no-cudagraphs")


@dataclass(frozen=True, slots=True)
class OptionType:
    """What values an option takes: in words for the error message, and as a test."""

    words: str
    accepts: Callable[[Any], bool]


# Exact types: `config.recompile_limit = True` and `config.check_ir = 1` are mistakes.
FLAG = OptionType("True or False", lambda value: type(value) is bool)
COUNT = OptionType("an integer, 0 or more", lambda value: type(value) is int and value >= 0)
TEXT = OptionType("a string", lambda value: type(value) is str)
FRACTION = OptionType(
    "a number from 0 to 1", lambda value: type(value) in (int, float) and 0 <= value <= 1
)
FUNCTIONS = OptionType(
    "a set of functions",
    lambda value: isinstance(value, set | frozenset) and all(map(callable, value)),
)
FUNCTION = OptionType("a function, or None", lambda value: value is None or callable(value))


def one_of(*values: str) -> OptionType:
    return OptionType(
        "one of " + ", ".join(map(repr, values)), lambda v: type(v) is str and v in values
    )


def option(default: Any, kind: OptionType, doc: str) -> Any:
    """A field of `Options`: its default, what it accepts, what it does."""
    return field(default=default, metadata={"kind": kind, "doc": doc})


@dataclass(frozen=True, slots=True)
class Options:
    """All options of a compilation. At most 30."""

    # When a compiled function meets something new
    recompile_limit: int = option(
        8, COUNT, "how often one function is compiled; then calls that fit nothing run eagerly"
    )
    accumulated_recompile_limit: int = option(
        256, COUNT, "the same, for a function together with its resume functions"
    )
    fail_on_recompile_limit_hit: bool = option(
        False, FLAG, "raise RecompileLimitError at either limit instead of running eagerly"
    )
    error_on_recompile: bool = option(
        False, FLAG, "raise RecompileError where a function would be compiled once more"
    )
    guard_filter_fn: Callable[[Any], Any] | None = option(
        None, FUNCTION, "a function that gets the guards of a compilation and chooses among them"
    )

    suppress_errors: bool = option(
        False, FLAG, "where a backend fails, run the function eagerly; else BackendError is raised"
    )

    # What becomes part of a graph, and how general
    automatic_dynamic_shapes: bool = option(
        True, FLAG, "a size that was seen to change is symbolic in the next compilation"
    )
    assume_static_by_default: bool = option(
        True, FLAG, "a size that was not seen to change, and is not marked, is a constant"
    )
    dynamic_sources: str = option(
        "", TEXT, "inputs that are symbolic from the start: names or patterns, separated by commas"
    )
    unbacked_sources: str = option(
        "", TEXT, "the same, for inputs that are unbacked symbols: their values are not looked at"
    )
    capture_scalar_outputs: bool = option(
        True, FLAG, "tensor.item() and .tolist() are part of the graph; else they break it"
    )
    reorder_prints: bool = option(
        True, FLAG, "print() runs after the graph, in order; else it breaks the graph"
    )
    ignore_logging_functions: AbstractSet[Callable[..., Any]] = option(
        frozenset(),
        FUNCTIONS,
        "functions and methods that compiled code skips; their result is None",
    )
    specialize_int: bool = option(
        False, FLAG, "an int argument that changes is compiled for each value, never symbolic"
    )
    specialize_float: bool = option(
        False, FLAG, "a float argument that changes is compiled for each value, never symbolic"
    )
    oblivious: str = option(
        "recompile",
        one_of("recompile", "error", "torch"),
        "when an assumption about an unknown size turns out wrong: compile for that case, raise an "
        "error, or go on as torch.compile does",
    )
    activation_memory_budget: float = option(
        1.0,
        FRACTION,
        "what to keep between forward and backward: at 1 what makes both fastest; the less, the "
        "more is computed again; at 0 as little as possible is kept",
    )
    lazy_backward: bool = option(
        True,
        FLAG,
        "a backward is compiled when it first runs, for the gradients that are wanted then; else "
        "with its forward, for all of them",
    )
    mode: str = option(
        "default",
        one_of(*MODES),
        "what generated code is tuned for: `reduce-overhead` and `max-autotune` record what a call "
        "launches on a GPU; the latter two also try which code is fastest there",
    )

    # For those who work on pliant
    raise_on_fallback: bool = option(
        False,
        FLAG,
        "a failure inside pliant is raised as InternalError; else the function runs eagerly",
    )
    check_ir: bool = option(False, FLAG, "check what each stage hands to the next one")
    verify_correctness: bool = option(
        False,
        FLAG,
        "run each new graph also without the backend; raise BackendError if the results differ",
    )


_FIELDS = {item.name: item for item in fields(Options)}


def describe() -> str:
    """Every option with its default, what it accepts and what it does: for documentation."""
    lines = []
    for name, item in _FIELDS.items():
        lines.append(f"{name} = {item.default!r}  ({item.metadata['kind'].words})")
        lines.append(f"    {item.metadata['doc']}")
    return "\n".join(lines)


def _check(changes: Mapping[str, Any]) -> None:
    """Raise unless every name is an option and every value one it can take."""
    for name, value in changes.items():
        item = _FIELDS.get(name)
        if item is None:
            raise UnknownOptionError(
                f"there is no option {name!r}", remedy=choices(str(name), _FIELDS)
            )
        kind: OptionType = item.metadata["kind"]
        if not kind.accepts(value):
            raise InvalidOptionError(
                f"the option {name!r} can't be {value!r}",
                why=f"it says: {item.metadata['doc']}",
                remedy=f"give it {kind.words}",
            )


class Config:
    """The process-wide defaults of all options.

    ::

        pliant.config.recompile_limit = 16
        with pliant.config.patch(capture_scalar_outputs=True): ...
        @pliant.config.patch("recompile_limit", 1)

    A function takes its options when `compile` is called: a change here holds for functions that
    are compiled later. `print(pliant.config)` shows all.
    """

    _current: Options
    _lock: threading.RLock

    def __init__(self) -> None:
        object.__setattr__(self, "_current", Options())
        object.__setattr__(self, "_lock", threading.RLock())

    def snapshot(self) -> Options:
        """All options as they are now, as a value that doesn't change."""
        return self._current

    def patch(
        self, names: str | Mapping[str, Any] | None = None, value: Any = None, /, **changes: Any
    ) -> Patch:
        """Other values for a while, as a context manager or a decorator.

        `patch(name=value, ...)`, `patch("name", value)` and `patch({"name": value, ...})` mean the
        same. The earlier values return at the end, also when that is an exception.
        """
        if isinstance(names, str):
            changes = {names: value, **changes}
        elif names is not None:
            changes = {**names, **changes}
        _check(changes)
        return Patch(self, changes)

    def _replace(self, changes: Mapping[str, Any]) -> dict[str, Any]:
        """Set checked values; returns the earlier values of the same options."""
        return locked(self._lock, self._replace_locked, changes)

    def _replace_locked(self, changes: Mapping[str, Any]) -> dict[str, Any]:
        earlier = {name: getattr(self._current, name) for name in changes}
        object.__setattr__(self, "_current", replace(self._current, **changes))
        return earlier

    def __getattr__(self, name: str) -> Any:
        # Called only for what is not an ordinary attribute: the options.
        if name not in _FIELDS:
            raise UnknownOptionError(f"there is no option {name!r}", remedy=choices(name, _FIELDS))
        return getattr(self._current, name)

    def __setattr__(self, name: str, value: Any) -> None:
        _check({name: value})
        self._replace({name: value})

    def __delattr__(self, name: str) -> None:
        raise InvalidOptionError(
            f"the option {name!r} can't be deleted", remedy="assign its default instead"
        )

    def __dir__(self) -> list[str]:
        return [*super().__dir__(), *_FIELDS]

    def __repr__(self) -> str:
        values = (f"    {name}={getattr(self._current, name)!r}," for name in _FIELDS)
        return "\n".join(["pliant.config(", *values, ")"])


class Patch:
    """What `config.patch` returns. May be entered again while it is active, and used many times."""

    def __init__(self, config: Config, changes: Mapping[str, Any]) -> None:
        self._config = config
        self._changes = dict(changes)
        self._earlier: list[dict[str, Any]] = []

    def __enter__(self) -> None:
        self._earlier.append(self._config._replace(self._changes))

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._config._replace(self._earlier.pop())

    def __call__(self, function: Callable[P, R]) -> Callable[P, R]:
        @functools.wraps(function)
        def patched(*args: P.args, **kwargs: P.kwargs) -> R:
            # One Patch for each call: calls from several threads keep their own earlier values.
            with Patch(self._config, self._changes):
                return function(*args, **kwargs)

        return patched


config = Config()


def with_changes(options: Options, changes: Mapping[str, Any]) -> Options:
    """The same options but for some of them."""
    _check(changes)
    return replace(options, **changes)


def resolve(
    options: Mapping[str, Any] | None = None, mode: str | None = None, *, strict: bool = True
) -> Options:
    """The options of one `compile(options=..., mode=...)`: the defaults in `config`, with changes.

    With `strict=False`, names that are not pliant's are left to the backend, as torch.compile does.
    """
    if options is not None and mode is not None:
        raise InvalidOptionError(
            "compile() was given both mode and options",
            why="a mode is a name for a set of options",
            remedy="give one of them; options={'mode': ...} sets the mode among other options",
        )
    if options is not None and not isinstance(options, Mapping):
        raise InvalidOptionError(
            f"the options of compile() can't be {options!r}", remedy="give a dict of options"
        )
    changes = dict(options or {})
    if mode is not None:
        changes["mode"] = mode
    if not strict:
        changes = {name: value for name, value in changes.items() if name in _FIELDS}
    return with_changes(config.snapshot(), changes)
