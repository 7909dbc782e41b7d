"""JSON, with a function of the program for objects it does not know; pickles of plain data."""

from __future__ import annotations

import json
import pickle
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from pliant.capture.library.folding import on_constants
from pliant.capture.model import call
from pliant.capture.native import FUNCTIONS, function
from pliant.capture.value import NONE, Break, Const, Value
from pliant.capture.values.containers import Mapping, Sequence
from pliant.capture.values.conversion import from_real, known_object

if TYPE_CHECKING:
    from pliant.capture.trace import Trace


PLAIN_DATA = (int, float, complex, bool, str, bytes, type(None), list, tuple, dict, set, frozenset)


# ---- JSON


@function(json.dumps)
def dump_json(trace: Trace, obj: Value, **options: Value) -> Value:
    default = trace.read(options.pop("default", NONE))
    if "cls" in options:
        raise Break("unsupported-function", "json.dumps() with an encoder")
    document = _json_object(trace, obj, default)
    real = {name: known_object(value, trace) for name, value in options.items()}
    try:
        return Const(json.dumps(document, **real))
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


function(json.loads)(on_constants(json.loads))


# ---- pickles


def is_plain(real: Any) -> bool:
    if type(real) not in PLAIN_DATA:
        return False
    parts = [*real, *real.values()] if isinstance(real, dict) else real
    return not isinstance(real, list | tuple | dict | set | frozenset) or all(map(is_plain, parts))


def _on_plain_data(real: Callable[..., Any]) -> Callable[..., Value]:
    def handler(trace: Trace, /, *args: Value, **kwargs: Value) -> Value:
        real_args = [known_object(arg, trace) for arg in args]
        named = {name: known_object(arg, trace) for name, arg in kwargs.items()}
        if not all(map(is_plain, (*real_args, *named.values()))):
            raise Break("unsupported-function", f"pickle.{real.__name__}()")
        try:
            result = real(*real_args, **named)
        except Exception as error:
            trace.throw(error)
        if not is_plain(result):
            raise Break("unsupported-function", f"pickle.{real.__name__}() of an object")
        return from_real(trace, result)

    return handler


for _real in (pickle.dumps, pickle.loads):
    FUNCTIONS[_real] = _on_plain_data(_real)
