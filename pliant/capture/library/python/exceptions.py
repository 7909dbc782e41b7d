"""Exception objects: their construction, attributes, chaining and text.

An exception of the program is an `ExceptionValue` with its arguments. The C classes of exceptions
differ only in a few attributes that are computed from the arguments; those are in a table here.
"""

from __future__ import annotations

import builtins
import sys
import traceback
import types
from typing import TYPE_CHECKING, Any

from pliant.base.python_errors import type_name
from pliant.capture.interpreter import current_exception
from pliant.capture.library.python.classes import class_of
from pliant.capture.library.python.objects import REPR, shown, str_of
from pliant.capture.library.python.sequences import is_a, items_of
from pliant.capture.model import (
    SET,
    drain,
    generic_set_attribute,
    get_attribute,
    set_by_override,
)
from pliant.capture.native import METHODS, function, method
from pliant.capture.value import NONE, Break, Const, NotConstant, Raised, Unread, Value, boolean
from pliant.capture.values.containers import Sequence, instance_dict, plain_list, plain_tuple
from pliant.capture.values.conversion import known_object
from pliant.capture.values.objects import ExceptionValue
from pliant.capture.values.tracebacks import Traceback
from pliant.guards.source import Attr

if TYPE_CHECKING:
    from pliant.capture.trace import Trace

CLASSES = [
    value
    for value in vars(builtins).values()
    if isinstance(value, type) and issubclass(value, BaseException)
]
KEYWORDS: dict[type, tuple[str, ...]] = {
    AttributeError: ("name", "obj"),
    ImportError: ("name", "path"),
    NameError: ("name",),
}
_UNICODE = ("encoding", "object", "start", "end", "reason")
_FIVE = [(place, 5) for place in range(5)]
_FOUR = [(place, 4) for place in range(4)]
# Attributes that are the argument at a position, where the number of arguments is right.
POSITIONAL: dict[type, dict[str, tuple[int, int]]] = {
    StopIteration: {"value": (0, 1)},
    ImportError: {"msg": (0, 1)},
    OSError: {"errno": (0, 2), "strerror": (1, 2)},
    BaseExceptionGroup: {"message": (0, 2)},
    UnicodeDecodeError: dict(zip(_UNICODE, _FIVE, strict=True)),
    UnicodeEncodeError: dict(zip(_UNICODE, _FIVE, strict=True)),
    UnicodeTranslateError: dict(zip(_UNICODE[1:], _FOUR, strict=True)),
}


# ---- catching


def is_caught(exception: Value, classes: list[type]) -> bool:
    """Whether `except classes` catches `exception`. A metaclass isn't asked: only base classes
    count, and no class registered with an abstract one."""
    mro = exception.python_type().__mro__
    return any(cls in mro for cls in classes)


def catch_classes(trace: Trace, expected: Value) -> list[type]:
    """The classes in `except expected`: one, or a tuple of them, which holds no further tuples."""
    classes = exception_classes(trace, expected)
    if classes is None:
        text = "catching classes that do not inherit from BaseException is not allowed"
        trace.throw(TypeError(text))
    return classes


def exception_classes(trace: Trace, value: Value) -> list[type] | None:
    """An exception class, or each of a tuple of them; None if it is anything else."""
    value = trace.read(value)
    listed = items_of(value) if is_a(value, tuple) else [value]
    items = [trace.read(item) for item in listed]
    classes = [item.constant() for item in items if is_a(item, type)]
    right = len(classes) == len(items) and all(issubclass(c, BaseException) for c in classes)
    return classes if right else None


# ---- construction


def exception_new(trace: Trace, cls: Value, /, *args: Value, **kwargs: Value) -> Value:
    real = class_of(trace, cls)
    items = list(args)
    if real is OSError and len(items) >= 2:
        return _os_error(trace, items)
    if issubclass(real, BaseExceptionGroup):
        return _group(trace, real, items)
    if real in UNICODE:
        try:
            real(*[known_object(item, trace) for item in items])  # they insist on their types
        except TypeError as error:
            trace.throw(error)
    return ExceptionValue(real, items)


UNICODE = (UnicodeDecodeError, UnicodeEncodeError, UnicodeTranslateError)


def _os_error(trace: Trace, args: list[Value]) -> Value:
    """`OSError(errno, text)` is of the subclass for that number."""
    example = OSError(*[trace.read(arg).constant() for arg in args])
    exception = ExceptionValue(type(example), args[:2])
    for name, value in zip(("filename", None, "filename2"), args[2:], strict=False):
        if name is not None:
            exception.slots[name] = value
    return exception


def _group(trace: Trace, real: type, args: list[Value]) -> Value:
    if len(args) != 2:
        message = f"BaseExceptionGroup.__new__() takes exactly 2 arguments ({len(args)} given)"
        trace.throw(TypeError(message))
    members = drain(trace, args[1])
    classes = [trace.read(member).python_type() for member in members]
    if not classes:
        trace.throw(ValueError("second argument (exceptions) must be a non-empty sequence"))
    # As CPython: a group of ordinary exceptions is an ExceptionGroup.
    if real is BaseExceptionGroup and all(issubclass(cls, Exception) for cls in classes):
        real = ExceptionGroup
    return ExceptionValue(real, args)


def exception_init(trace: Trace, obj: ExceptionValue, /, *args: Value, **kwargs: Value) -> Value:
    accepted = {name for cls in obj.cls.__mro__ for name in KEYWORDS.get(cls, ())}
    unknown = kwargs.keys() - accepted
    if unknown:
        trace.throw(TypeError(_keyword_error(obj.cls, accepted, unknown)))
    if not (issubclass(obj.cls, OSError) and len(args) >= 2):
        obj.set_args(trace, list(args))
    for name, value in kwargs.items():
        obj.store_slot(trace, name, value)
    return NONE


def _keyword_error(cls: type, accepted: set[str], unknown: set[str]) -> str:
    if not accepted:
        return f"{cls.__name__}() takes no keyword arguments"
    return f"'{min(unknown)}' is an invalid keyword argument for {cls.__name__}()"


for _cls in CLASSES:
    if "__new__" in vars(_cls):
        METHODS[_cls, "__new__"] = exception_new
    if "__init__" in vars(_cls):
        METHODS[_cls, "__init__"] = exception_init


# ---- attributes


@method(BaseException, "args")
def exception_args(trace: Trace, obj: ExceptionValue) -> Value:
    return plain_tuple(list(obj.args))


def _link(name: str) -> Any:
    return lambda trace, obj: obj.link(trace, name)


for _name in ("__cause__", "__context__", "__suppress_context__"):
    method(BaseException, _name)(_link(_name))


@method(BaseException, "__traceback__")
def exception_traceback(trace: Trace, obj: ExceptionValue) -> Value:
    if obj.trail is not None:
        return obj.trail
    if obj.real is None or obj.source is None:
        return NONE
    return Unread(obj.real.__traceback__, Attr(obj.source, "__traceback__"))


@method(BaseException, "with_traceback")
def exception_with_traceback(trace: Trace, obj: ExceptionValue, traceback: Value) -> Value:
    _set_traceback(trace, obj, trace.read(traceback))
    return obj


@method(BaseException, "add_note")
def exception_add_note(trace: Trace, obj: ExceptionValue, note: Value) -> Value:
    note = trace.read(note)
    if not issubclass(note.python_type(), str):
        kind = type_name(note.python_type())
        trace.throw(TypeError(f"note must be a str, not '{kind}'"))
    notes = instance_dict(trace, obj).get(trace, "__notes__")
    if notes is None:
        instance_dict(trace, obj).store(trace, "__notes__", plain_list([note]))
    else:
        METHODS[list, "append"](trace, trace.read(notes), note)
    return NONE


def _positional(cls: type, name: str, index: int, needed: int) -> Any:
    def attribute(trace: Trace, obj: ExceptionValue) -> Value:
        if name in obj.slots or obj.real is not None:
            return obj.slot(trace, name) or NONE
        return obj.args[index] if len(obj.args) >= needed else NONE

    return attribute


def _keyword(name: str) -> Any:
    def attribute(trace: Trace, obj: ExceptionValue) -> Value:
        return obj.slot(trace, name) or NONE

    return attribute


for _cls, _names in POSITIONAL.items():
    for _name, (_index, _needed) in _names.items():
        method(_cls, _name)(_positional(_cls, _name, _index, _needed))
for _cls, _keywords in KEYWORDS.items():
    for _name in _keywords:
        method(_cls, _name)(_keyword(_name))
for _name in ("filename", "filename2"):
    method(OSError, _name)(_keyword(_name))


SYNTAX = ("filename", "lineno", "offset", "text", "end_lineno", "end_offset")


def _of_syntax_error(name: str) -> Any:
    """An attribute of SyntaxError: its second argument says where the error is."""

    def attribute(trace: Trace, obj: ExceptionValue) -> Value:
        if name in obj.slots or obj.real is not None:
            return obj.slot(trace, name) or NONE
        if name == "msg":
            return obj.args[0] if obj.args else NONE
        details = trace.read(obj.args[1]) if len(obj.args) > 1 else NONE
        items = details.items if isinstance(details, Sequence) else []
        place = SYNTAX.index(name)
        return items[place] if place < len(items) else NONE

    return attribute


for _name in ("msg", *SYNTAX):
    method(SyntaxError, _name)(_of_syntax_error(_name))


@method(BaseExceptionGroup, "exceptions")
def group_members(trace: Trace, obj: ExceptionValue) -> Value:
    return plain_tuple(drain(trace, obj.args[1]))


@method(SystemExit, "code")
def exit_code(trace: Trace, obj: ExceptionValue) -> Value:
    if len(obj.args) > 1:
        return plain_tuple(list(obj.args))
    return obj.args[0] if obj.args else NONE


def set_exception_attribute(
    trace: Trace, obj: ExceptionValue, name: str, value: Value | None
) -> None:
    writer = WRITERS.get(name)
    if set_by_override(trace, obj, obj.cls, name, value):
        return
    if writer is None:
        generic_set_attribute(trace, obj, name, value)
    elif value is None:
        trace.throw(TypeError(f"{name} may not be deleted"))
    else:
        writer(trace, obj, trace.read(value))


def _set_args(trace: Trace, obj: ExceptionValue, value: Value) -> None:
    obj.set_args(trace, drain(trace, value))


def _exception_or_none(trace: Trace, name: str, value: Value) -> Value:
    if isinstance(value, Const) and value.value is None:
        return NONE
    if not issubclass(value.python_type(), BaseException):
        word = name.strip("_")
        trace.throw(TypeError(f"exception {word} must be None or derive from BaseException"))
    return value


def _set_cause(trace: Trace, obj: ExceptionValue, value: Value) -> None:
    obj.set_link(trace, "__cause__", _exception_or_none(trace, "__cause__", value))


def _set_context(trace: Trace, obj: ExceptionValue, value: Value) -> None:
    obj.set_link(trace, "__context__", _exception_or_none(trace, "__context__", value))


def _set_suppress(trace: Trace, obj: ExceptionValue, value: Value) -> None:
    obj.set_link(trace, "__suppress_context__", boolean(bool(value.constant())))


def _set_traceback(trace: Trace, obj: ExceptionValue, value: Value) -> None:
    """Set `__traceback__`. Only tracebacks made during capture are known."""
    if isinstance(value, Traceback):
        obj.trail = value
    elif isinstance(value, Const) and value.value is None and obj.real is None:
        obj.trail = None
    else:
        raise Break("attribute-write", "a traceback from outside")


WRITERS = {
    "args": _set_args,
    "__cause__": _set_cause,
    "__context__": _set_context,
    "__suppress_context__": _set_suppress,
    "__traceback__": _set_traceback,
}
SET[ExceptionValue] = set_exception_attribute


@function(sys.exc_info)
def exc_info(trace: Trace) -> Value:
    """`sys.exc_info()`: the exception being handled, in this frame or one that called it."""
    handled = current_exception(trace)
    if handled is None:
        trace.nothing_handled()
        return plain_tuple([NONE, NONE, NONE])
    exception = trace.read(handled)
    traceback = get_attribute(trace, exception, "__traceback__")
    return plain_tuple([Const(exception.python_type()), exception, traceback])


# ---- text


def _show_exception(trace: Trace, obj: ExceptionValue) -> str:
    inner = ", ".join(shown(trace, arg) for arg in obj.args)
    return f"{obj.cls.__name__}({inner})"


def exception_str(trace: Trace, obj: ExceptionValue) -> Value:
    if not obj.args:
        return Const("")
    if len(obj.args) == 1:
        return str_of(trace, obj.args[0])
    return Const(shown(trace, Sequence(tuple, list(obj.args))))


def key_error_str(trace: Trace, obj: ExceptionValue) -> Value:
    return Const(shown(trace, obj.args[0])) if len(obj.args) == 1 else exception_str(trace, obj)


def _special_str(trace: Trace, obj: ExceptionValue) -> Value:
    """Classes with a text of their own: ask a real exception, where its arguments are known."""
    arguments = [trace.read(arg) for arg in obj.args]
    base = next(cls for cls in obj.cls.__mro__ if cls in CLASSES)
    names = obj.slots.keys() if obj.real is None else _members(base)
    values = {name: obj.slot(trace, name) for name in names}
    slots = {name: trace.read(value) for name, value in values.items() if value is not None}
    try:
        real_args = [known_object(value, trace) for value in arguments]
        attributes = {name: known_object(value, trace) for name, value in slots.items()}
    except NotConstant as error:
        raise Break("not-constant", f"str() of a {obj.cls.__name__}") from error
    try:
        example = base(*real_args)
    except TypeError:
        return exception_str(trace, obj)
    for name, value in attributes.items():
        setattr(example, name, value)
    return Const(str(example))


def _members(cls: type) -> list[str]:
    """What a C class of exceptions keeps besides the arguments."""
    return [name for name, value in vars(cls).items() if type(value) is types.MemberDescriptorType]


def _group_str(trace: Trace, obj: ExceptionValue) -> Value:
    count = len(drain(trace, obj.args[1]))
    text = str_of(trace, obj.args[0]).constant()
    return Const(f"{text} ({count} sub-exception{'s' if count > 1 else ''})")


TEXT: dict[type, Any] = {
    BaseException: exception_str,
    AttributeError: exception_str,
    NameError: exception_str,
    KeyError: key_error_str,
    BaseExceptionGroup: _group_str,
}
for _cls in CLASSES:
    if "__str__" in vars(_cls):
        METHODS[_cls, "__str__"] = TEXT.get(_cls, _special_str)
REPR[BaseException.__repr__] = _show_exception
REPR[BaseExceptionGroup.__repr__] = _show_exception  # one of its own from Python 3.13 on
for _cls in CLASSES:
    if "__repr__" in vars(_cls):
        METHODS[_cls, "__repr__"] = lambda trace, obj: Const(_show_exception(trace, obj))


@function(sys.exception)
def sys_exception(trace: Trace) -> Value:
    handled = current_exception(trace)
    if handled is None:
        trace.nothing_handled()
        return NONE
    return trace.read(handled)


@function(sys.exit)
def sys_exit(trace: Trace, status: Value = NONE) -> Value:
    status_value = trace.read(status)
    exit_args = (
        [] if isinstance(status_value, Const) and status_value.value is None else [status_value]
    )
    if isinstance(status_value, Sequence) and status_value.cls is tuple:
        exit_args = list(status_value.items)
    raise Raised(ExceptionValue(SystemExit, exit_args))


# ---- exceptions as text


@function(traceback.format_exception_only)
def last_lines(trace: Trace, error: Value, *value: Value) -> Value:
    exception = trace.read(value[0] if value else error)
    special = SyntaxError | BaseExceptionGroup
    if not isinstance(exception, ExceptionValue) or issubclass(exception.cls, special):
        raise Break("not-followed", "traceback.format_exception_only")
    text = trace.read(str_of(trace, exception)).constant()
    module = exception.cls.__module__
    name = exception.cls.__qualname__
    if module not in ("__main__", "builtins"):
        name = f"{module}.{name}"
    lines = [f"{name}: {text}\n" if text else f"{name}\n"]
    notes = instance_dict(trace, exception).get(trace, "__notes__")
    for note in known_object(notes, trace) if notes is not None else ():
        lines += [f"{line}\n" for line in note.split("\n")]
    return plain_list([Const(line) for line in lines])
