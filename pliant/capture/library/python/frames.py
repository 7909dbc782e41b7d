"""Frames and tracebacks, as far as they are followed: the code, the line, the variables and the
globals."""

from __future__ import annotations

import sys
import types
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from pliant.capture.attributes import namespace
from pliant.capture.frame import Frame
from pliant.capture.model import GET, SET, fold
from pliant.capture.native import FUNCTIONS, METHODS
from pliant.capture.value import NONE, Break, Const, Value
from pliant.capture.values.containers import Mapping
from pliant.capture.values.tracebacks import Traceback

if TYPE_CHECKING:
    from pliant.capture.trace import Trace

ZERO = Const(0)


class FrameValue(Value):
    """A frame that is being followed."""

    __slots__ = ("frame", "outer")

    def __init__(self, frame: Frame, outer: list[Frame]) -> None:
        super().__init__()
        self.frame = frame
        self.outer = outer  # the frames that called it, the nearest last

    def python_type(self) -> type:
        return types.FrameType


def get_frame(trace: Trace, depth: Value = ZERO) -> FrameValue:
    frames = [frame for frame in trace.frames if not frame.internal]
    level = trace.read(depth).constant()
    if not 0 <= level < len(frames):
        raise Break("unsupported-function", "sys._getframe() of a caller of the compiled function")
    place = len(frames) - 1 - level
    return FrameValue(frames[place], frames[:place])


def get_module_name(trace: Trace, depth: Value = ZERO) -> Value:
    return Const(get_frame(trace, depth).frame.globals.get("__name__"))


def _variables(trace: Trace, obj: FrameValue) -> Value:
    """The variables as they are now."""
    if obj.frame is trace.frames[-1]:
        return FUNCTIONS[locals](trace)
    variables = dict(obj.frame.locals)
    cells = {name: cell.contents for name, cell in obj.frame.cells.items()}
    variables.update({name: value for name, value in cells.items() if value is not None})
    return Mapping(dict, dict(variables))


def _caller(trace: Trace, obj: FrameValue) -> Value:
    if not obj.outer:
        raise Break("unsupported-attribute", "the caller of the compiled function")
    return FrameValue(obj.outer[-1], obj.outer[:-1])


def clear_frame(trace: Trace, obj: FrameValue) -> Value:
    """`frame.clear()`: what has ended gives up its variables."""
    frame = obj.frame
    if any(frame is running for running in trace.frames):
        trace.throw(RuntimeError("cannot clear an executing frame"))
    if frame.generator and not frame.finished:
        raise Break("unsupported-method", "frame.clear of a suspended generator")
    variables = [*frame.locals.values(), *(cell.contents for cell in frame.cells.values())]
    frame.locals, frame.cells, frame.stack = {}, {}, []
    for value in variables if trace.suspended else ():
        if value is not None:
            value.dropped(trace)
    return NONE


ATTRIBUTES = {
    "f_code": lambda trace, obj: Const(obj.frame.code),
    "f_lineno": lambda trace, obj: Const(obj.frame.position().line),
    "f_globals": lambda trace, obj: namespace(trace, obj.frame.globals),
    "f_builtins": lambda trace, obj: namespace(trace, obj.frame.builtins),
    "f_locals": _variables,
    "f_back": _caller,
    "f_trace": lambda trace, obj: NONE,
}


def get_frame_attribute(trace: Trace, obj: FrameValue, name: str) -> Value | None:
    getter = ATTRIBUTES.get(name)
    return None if getter is None else getter(trace, obj)


def get_traceback_attribute(trace: Trace, obj: Traceback, name: str) -> Value | None:
    if name == "tb_frame" and obj.frame is not None:
        return FrameValue(obj.frame, obj.outer)
    getter = TRACEBACK_ATTRIBUTES.get(name)
    return None if getter is None else getter(obj)


TRACEBACK_ATTRIBUTES: dict[str, Callable[[Traceback], Value]] = {
    "tb_next": lambda entry: entry.following,
    "tb_lineno": lambda entry: Const(entry.position.line),
}


def _set_next(following: Any) -> None:
    try:
        raise StopIteration
    except StopIteration as error:
        assert error.__traceback__ is not None
        error.__traceback__.tb_next = following


def set_traceback_attribute(trace: Trace, obj: Traceback, name: str, value: Value | None) -> None:
    if name != "tb_next":
        raise Break("attribute-write", f"traceback.{name}")
    if value is None:
        trace.throw(TypeError("can't delete tb_next attribute"))
    value = trace.read(value)
    if not isinstance(value, Traceback) and not (isinstance(value, Const) and value.value is None):
        if value.python_type() is types.TracebackType:
            raise Break("attribute-write", "a traceback from outside")
        fold(trace, _set_next, value)  # Python words the error
    entry = value
    while isinstance(entry, Traceback):
        if entry is obj:
            trace.throw(ValueError("traceback loop detected"))
        entry = entry.following
    trace.changes += 1
    obj.following = value


GET[FrameValue] = get_frame_attribute
SET[Traceback] = set_traceback_attribute
GET[Traceback] = get_traceback_attribute
METHODS[types.FrameType, "clear"] = clear_frame
FUNCTIONS[sys._getframe] = get_frame
if hasattr(sys, "_getframemodulename"):  # since Python 3.12
    FUNCTIONS[sys._getframemodulename] = get_module_name
