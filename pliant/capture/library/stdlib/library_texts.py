"""JSON of objects with a `default`, pickles of plain data, `string.Formatter`, the last lines of
tracebacks, signatures of functions made here: small things of the standard library.

The one idea: what Python would compute is computed now, from what is known of the values.
"""

from __future__ import annotations

import _codecs
import _string  # type: ignore[import-not-found]
import array
import gc
import inspect
import json
import logging
import pickle
import posixpath
import sys
import traceback
import types
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from pliant.capture.library.python.objects import str_of
from pliant.capture.library.python.printing import call_later
from pliant.capture.library.stdlib.known_values import on_constants
from pliant.capture.model import call, iterate
from pliant.capture.native import FUNCTIONS, METHODS, function, pure
from pliant.capture.value import NONE, Break, Const, NotConstant, Value
from pliant.capture.values.containers import Mapping, Sequence, instance_dict, plain_list
from pliant.capture.values.conversion import from_real, known_object
from pliant.capture.values.functions import Function
from pliant.capture.values.objects import ExceptionValue
from pliant.guards.source import Fixed

if TYPE_CHECKING:
    from pliant.capture.trace import Trace

PLAIN_DATA = (int, float, complex, bool, str, bytes, type(None), list, tuple, dict, set, frozenset)
pure(
    sys.getdefaultencoding, sys.getfilesystemencoding, sys.is_finalizing, _codecs.encode,
    _codecs.decode, getattr(posixpath, "_path_normpath", posixpath.normpath),
)  # fmt: skip
function(logging.getLevelName)(on_constants(logging.getLevelName))


# ---- JSON

KNOWN_JSON = FUNCTIONS[json.dumps]


def dump_json(trace: Trace, obj: Value, **options: Value) -> Value:
    default = trace.read(options.pop("default", NONE))
    if "cls" in options:
        raise Break("unsupported-function", "json.dumps() with an encoder")
    given = _json_object(trace, obj, default)
    real = {name: known_object(value, trace) for name, value in options.items()}
    try:
        return Const(json.dumps(given, **real))
    except (TypeError, ValueError) as error:
        trace.throw(error)


def _json_object(trace: Trace, value: Value, default: Value) -> Any:
    """The object to write. What JSON does not know is given to the program's function."""
    value = trace.read(value)
    if isinstance(value, Sequence) and issubclass(value.cls, list | tuple):
        return [_json_object(trace, item, default) for item in value.items]
    if isinstance(value, Mapping):
        items = value.read_all(trace).items()
        return {key: _json_object(trace, item, default) for key, item in items}
    if isinstance(value, Const) and isinstance(value.value, JSON_SCALARS):
        return value.value
    if issubclass(value.python_type(), JSON_SCALARS):
        return value.constant()
    if isinstance(default, Const) and default.value is None:
        name = value.python_type().__name__
        trace.throw(TypeError(f"Object of type {name} is not JSON serializable"))
    return _json_object(trace, call(trace, default, [value]), default)


JSON_SCALARS = (str, int, float, bool, type(None))
FUNCTIONS[json.dumps] = dump_json


# ---- pickles


def _plain(real: Any) -> bool:
    if type(real) not in PLAIN_DATA:
        return False
    parts = [*real, *real.values()] if isinstance(real, dict) else real
    return not isinstance(real, list | tuple | dict | set | frozenset) or all(map(_plain, parts))


def _on_plain_data(real: Callable[..., Any]) -> Callable[..., Value]:
    def handler(trace: Trace, /, *args: Value, **kwargs: Value) -> Value:
        given = [known_object(arg, trace) for arg in args]
        named = {name: known_object(arg, trace) for name, arg in kwargs.items()}
        if not all(map(_plain, (*given, *named.values()))):
            raise Break("unsupported-function", f"pickle.{real.__name__}()")
        try:
            result = real(*given, **named)
        except Exception as error:
            trace.throw(error)
        if not _plain(result):
            raise Break("unsupported-function", f"pickle.{real.__name__}() of an object")
        return from_real(trace, result)

    return handler


for _real in (pickle.dumps, pickle.loads):
    FUNCTIONS[_real] = _on_plain_data(_real)


# ---- string.Formatter


@function(_string.formatter_parser)
def formatter_parser(trace: Trace, text: Value) -> Value:
    parts = list(_string.formatter_parser(trace.read(text).constant()))
    return iterate(trace, from_real(trace, parts))


@function(_string.formatter_field_name_split)
def field_name_split(trace: Trace, text: Value) -> Value:
    first, rest = _string.formatter_field_name_split(trace.read(text).constant())
    return Sequence(tuple, [Const(first), iterate(trace, from_real(trace, list(rest)))])


METHODS[array.array, "typecode"] = lambda trace, obj: Const(obj.held.typecode)
METHODS[array.array, "itemsize"] = lambda trace, obj: Const(obj.held.itemsize)


# ---- exceptions as text


@function(traceback.format_exception_only)
def last_lines(trace: Trace, error: Value, *value: Value) -> Value:
    known = trace.read(value[0] if value else error)
    special = SyntaxError | BaseExceptionGroup
    if not isinstance(known, ExceptionValue) or issubclass(known.cls, special):
        raise Break("not-followed", "traceback.format_exception_only")
    text = trace.read(str_of(trace, known)).constant()
    module = known.cls.__module__
    name = known.cls.__qualname__
    if module not in ("__main__", "builtins"):
        name = f"{module}.{name}"
    lines = [f"{name}: {text}\n" if text else f"{name}\n"]
    notes = instance_dict(trace, known).get(trace, "__notes__")
    for note in known_object(notes, trace) if notes is not None else ():
        lines += [f"{line}\n" for line in note.split("\n")]
    return plain_list([Const(line) for line in lines])


# ---- signatures

KNOWN_SIGNATURE = FUNCTIONS[inspect.signature]


def signature_of(trace: Trace, target: Value, **kwargs: Value) -> Value:
    """Of a function made here, as far as its defaults are plain."""
    known = trace.read(target)
    if not isinstance(known, Function) or known.real is not None or known.attributes is not None:
        return KNOWN_SIGNATURE(trace, target, **kwargs)
    code = known.code
    cells = tuple(types.CellType() for _ in code.co_freevars)
    made = types.FunctionType(code, known.globals, known.name, None, cells)
    defaults = [known_object(value, trace) for value in known.default_values(trace)]
    named = {k: known_object(v, trace) for k, v in known.keyword_defaults(trace).items()}
    if known.annotations is not None or not all(map(_plain, (*defaults, *named.values()))):
        raise NotConstant(known)
    made.__defaults__, made.__kwdefaults__ = tuple(defaults) or None, named or None
    found = inspect.signature(made)
    return trace.wrap(found, Fixed(found, f"signature({known.name})"))


FUNCTIONS[inspect.signature] = signature_of


# ---- the garbage collector


@function(gc.collect)
def collect_later(trace: Trace, *generation: Value) -> Value:
    """How much was collected is known later; hardly anybody asks."""
    frame = trace.frames[-1]
    if frame.instructions[frame.index + 1].op != "POP_TOP":
        raise Break("unsupported-function", "gc.collect() whose result is used")
    call_later(trace, gc.collect, [trace.read(value) for value in generation])
    return NONE
