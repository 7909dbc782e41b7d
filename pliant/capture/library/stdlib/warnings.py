"""`warnings.warn` without a graph break: residual code makes the calls, as it does for `print`.

What a warning turns out to be depends on Python's filters. As long as they are those from outside,
it is assumed only that they make no exception of it. Where the program has changed them
(`catch_warnings`, which is followed), they are looked at here.
"""

from __future__ import annotations

import _warnings
import warnings
from collections.abc import Callable
from typing import Any

from pliant.capture.attributes import module_namespace
from pliant.capture.frame import Frame
from pliant.capture.library.python.printing import call_later
from pliant.capture.model import call
from pliant.capture.native import FUNCTIONS
from pliant.capture.residual_messages import is_error, matches, warn_at, warn_caller
from pliant.capture.trace import Trace
from pliant.capture.value import NONE, Break, Const, Raised, Unread, Value
from pliant.capture.values.containers import Sequence
from pliant.capture.values.objects import ExceptionValue
from pliant.guards.guard import GuardKind
from pliant.guards.predicates import Gives
from pliant.guards.source import Fixed

ONE = Const(1)


def warn_later(
    trace: Trace,
    message: Value,
    category: Value = NONE,
    stacklevel: Value = ONE,
    source: Value = NONE,
) -> Value:
    message_value = trace.read(message)
    level = trace.read(stacklevel).constant()
    kind = _category(trace, message_value, trace.read(category))
    frames = [frame for frame in trace.frames if not frame.internal]
    place = frames[-max(level, 1)] if max(level, 1) <= len(frames) else None
    text = _text(trace, message_value)
    if not trace.options.reorder_prints or _is_recording(trace):
        raise Break("warning", "warn()")
    own = _own_filters(trace)
    if own is not None:
        return _filtered(trace, own, message_value, kind, text, place or frames[0])
    module = "" if place is None else str(place.globals.get("__name__") or "<string>")
    line = 0 if place is None else place.position().line
    about = (text, kind, module, line)
    fails = is_error(*about)
    trace.guard(GuardKind.PREDICATE, Fixed(is_error, "is_error"), Gives(about, fails))
    if fails:
        raise Raised(_instance(trace, message_value, kind))
    if place is None:
        call_later(trace, warn_caller, [message_value, Const(kind), Const(level - len(frames))])
    else:
        space = trace.wrap_pinned(place.globals)
        location = [Const(place.code.co_filename), Const(line), space]
        call_later(trace, warn_at, [message_value, Const(kind), *location])
    return NONE


def _is_recording(trace: Trace) -> bool:
    """Whether a graph break has left the program inside a `catch_warnings` of its own: what is
    recorded there can be seen."""
    held = [value for frame in trace.frames for value in frame.stack if isinstance(value, Unread)]
    # Its `__exit__`, or (from Python 3.14 on) the function and the manager itself.
    owners = [getattr(value.real, "__self__", value.real) for value in held]
    return any(isinstance(owner, warnings.catch_warnings) for owner in owners)


def _category(trace: Trace, message: Value, category: Value) -> type[Warning]:
    if isinstance(message, ExceptionValue) and issubclass(message.cls, Warning):
        return message.cls
    if not isinstance(category, Const):
        raise Break("warning", "warn()")
    real = UserWarning if category.value is None else category.value
    if not (isinstance(real, type) and issubclass(real, Warning)):
        raise Break("warning", "warn()")  # Python makes the error
    return real


def _text(trace: Trace, message: Value) -> str:
    if isinstance(message, Const) and isinstance(message.value, str):
        return message.value
    if not isinstance(message, ExceptionValue):
        raise Break("warning", "warn()")
    return str(trace.read(FUNCTIONS[str](trace, message)).constant())


def _instance(trace: Trace, message: Value, kind: type[Warning]) -> Value:
    if isinstance(message, ExceptionValue):
        return message
    return trace.read(call(trace, Const(kind), [message]))


# ---- filters of the program


def _own_filters(trace: Trace) -> Sequence | None:
    """The filters, if the program has changed them."""
    filters = module_namespace(trace, warnings).get(trace, "filters")
    filter_list = None if filters is None else trace.read(filters)
    if not isinstance(filter_list, Sequence):
        raise Break("warning", "warn() with other filters")
    changed = filter_list.source is None or id(filter_list) in trace.effects
    return filter_list if changed else None


def _filtered(
    trace: Trace, filters: Sequence, message: Value, kind: type[Warning], text: str, place: Frame
) -> Value:
    """What the first filter that fits says."""
    module, line = str(place.globals.get("__name__") or "<string>"), place.position().line
    action = warnings.defaultaction  # type: ignore[attr-defined]
    for item in filters.items:
        parts = trace.read(item)
        assert isinstance(parts, Sequence)
        done, pattern, category, module_pattern, at = [
            trace.read(part).constant() for part in parts.items
        ]
        fits = matches(pattern, text) and matches(module_pattern, module)
        if fits and issubclass(kind, category) and at in (0, line):
            action = done
            break
    if action == "ignore":
        return NONE
    warning = _instance(trace, message, kind)
    if action == "error":
        raise Raised(warning)
    if action != "always":
        raise Break("warning", "warn() that is shown once")
    where_from: list[Any] = [Const(place.code.co_filename), Const(line)]
    shown = call(trace, Const(warnings.WarningMessage), [warning, Const(kind), *where_from])
    return call(trace, trace.wrap_pinned(warnings._showwarnmsg), [shown])  # type: ignore[attr-defined]


def filters_changed(trace: Trace) -> Value:
    call_later(trace, warnings._filters_mutated, [])  # type: ignore[attr-defined]
    return NONE


def lock_filters(trace: Trace) -> Value:
    """The lock that 3.14 holds while it changes filters: nothing is changed during the capture."""
    return NONE


FUNCTIONS[_warnings.warn] = warn_later
_CALLED: dict[str, Callable[[Trace], Value]] = {
    "_filters_mutated": filters_changed,  # up to Python 3.13
    "_filters_mutated_lock_held": filters_changed,
    "_acquire_lock": lock_filters,
    "_release_lock": lock_filters,
}
for _name, _handler in _CALLED.items():
    if hasattr(_warnings, _name):
        FUNCTIONS[getattr(_warnings, _name)] = _handler
