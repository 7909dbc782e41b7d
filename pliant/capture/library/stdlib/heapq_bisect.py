"""`heapq` and `bisect`: Python versions of what CPython has in C, which are followed.

The standard library has both; its modules take the C versions where these can be imported. Here
they are loaded once more, without them.
"""

from __future__ import annotations

import bisect
import heapq
import importlib.util
import sys
import types
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from pliant.base.python_errors import type_name
from pliant.capture.library.python.equivalents import as_value
from pliant.capture.model import call
from pliant.capture.native import FUNCTIONS
from pliant.capture.value import Const, Value
from pliant.capture.values.containers import Sequence

if TYPE_CHECKING:
    from pliant.capture.trace import Trace


def in_python(module: types.ModuleType, native: str) -> types.ModuleType:
    """A second copy of a module of the standard library, without its part in C."""
    spec = importlib.util.find_spec(module.__name__)
    assert spec is not None and spec.loader is not None
    copy = importlib.util.module_from_spec(spec)
    hidden = sys.modules.get(native)
    sys.modules[native] = None  # type: ignore[assignment]
    try:
        spec.loader.exec_module(copy)
    finally:
        if hidden is None:
            del sys.modules[native]
        else:
            sys.modules[native] = hidden
    return copy


def _followed(function: types.FunctionType) -> Callable[..., Value]:
    """A handler that follows a Python function in place of the one in C."""
    defaults = [Const(item) for item in function.__defaults__ or ()]
    keywords = {name: Const(item) for name, item in (function.__kwdefaults__ or {}).items()}

    def handler(trace: Trace, /, *args: Value, **kwargs: Value) -> Value:
        target = as_value(function)
        target.defaults, target.kwdefaults = list(defaults), dict(keywords)
        return call(trace, target, list(args), kwargs)

    return handler


def _register(module: types.ModuleType, native: str) -> None:
    copy = in_python(module, native)
    for name, function in vars(copy).items():
        real: Any = getattr(module, name, None)
        if isinstance(function, types.FunctionType) and isinstance(real, types.BuiltinFunctionType):
            FUNCTIONS[real] = _followed(function)


_register(heapq, "_heapq")
_register(bisect, "_bisect")


def _refusing_empty(follow: Callable[..., Value]) -> Callable[..., Value]:
    """The C versions say something else of an empty heap."""

    def handler(trace: Trace, heap: Value, *args: Value) -> Value:
        heap_value = trace.read(heap)
        if isinstance(heap_value, Sequence) and not heap_value.items:
            trace.throw(IndexError("index out of range"))
        return follow(trace, heap, *args)

    return handler


def _of_list(follow: Callable[..., Value], text: str) -> Callable[..., Value]:
    """The C versions take lists only."""

    def handler(trace: Trace, heap: Value, *args: Value) -> Value:
        kind = trace.read(heap).python_type()
        if not issubclass(kind, list):
            trace.throw(TypeError(f"{text} must be list, not {type_name(kind)}"))
        return follow(trace, heap, *args)

    return handler


for _real in (heapq.heappop, heapq.heapreplace):
    FUNCTIONS[_real] = _refusing_empty(FUNCTIONS[_real])
for _name in ("heapify", "heappop", "heappush", "heapreplace", "heappushpop"):
    _real = getattr(heapq, _name)
    _which = "argument" if _name in ("heapify", "heappop") else "argument 1"
    FUNCTIONS[_real] = _of_list(FUNCTIONS[_real], f"{_name}() {_which}")
