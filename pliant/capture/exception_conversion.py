"""Real exceptions, raised by code that ran during the capture, as exceptions of the program.

The one idea: what the program can see of such an exception goes along: its arguments, its own
attributes, what C classes keep in slots, and the exceptions behind it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pliant.capture.value import TRUE, Value
from pliant.capture.values.containers import instance_dict
from pliant.capture.values.conversion import from_real
from pliant.capture.values.objects import ExceptionValue

if TYPE_CHECKING:
    from pliant.capture.trace import Trace

# What is not computed from the arguments.
SLOTS: dict[type, tuple[str, ...]] = {
    AttributeError: ("name", "obj"),
    ImportError: ("name", "path"),
    NameError: ("name",),
}
CONTAINERS = (list, dict, tuple, set)
OURS = "pliant."


def exception_value(trace: Trace, error: BaseException) -> ExceptionValue:
    """The value of an exception that nothing else refers to."""
    exception = ExceptionValue(type(error), [trace.wrap_pinned(arg) for arg in error.args])
    for cls, names in SLOTS.items():
        for name in names if isinstance(error, cls) else ():
            if getattr(error, name) is not None:
                exception.slots[name] = _part(trace, getattr(error, name))
    for name, part in vars(error).items():
        instance_dict(trace, exception).store(trace, name, _part(trace, part))
    _add_chain(trace, exception, error)
    return exception


def _part(trace: Trace, real: Any) -> Value:
    return from_real(trace, real) if type(real) in CONTAINERS else trace.wrap_pinned(real)


def _add_chain(trace: Trace, exception: ExceptionValue, error: BaseException) -> None:
    for name in ("__cause__", "__context__"):
        behind = getattr(error, name)
        # An error that capture itself was handling is none of the program's.
        if behind is not None and behind is not error and not _is_ours(behind):
            exception.chain[name] = exception_value(trace, behind)
    if error.__suppress_context__:
        exception.chain["__suppress_context__"] = TRUE


def _is_ours(error: BaseException) -> bool:
    """Whether code of pliant was handling it, rather than what was called."""
    caught_in = error.__traceback__
    module = "" if caught_in is None else caught_in.tb_frame.f_globals.get("__name__", "")
    return caught_in is None or module.startswith(OURS)
