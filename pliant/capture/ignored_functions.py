"""Functions that the option `ignore_logging_functions` names: compiled code does not call them."""

from __future__ import annotations

import types
from collections.abc import Hashable
from typing import TYPE_CHECKING, Any

from pliant.capture.value import Const, Value
from pliant.capture.values.functions import BoundMethod

if TYPE_CHECKING:
    from pliant.capture.trace import Trace


def is_ignored(trace: Trace, target: Value, args: list[Value]) -> bool:
    """Whether the user has said that compiled code is not to call it."""
    if isinstance(target, BoundMethod):
        args, target = [target.obj], trace.read(target.function)
    ignored, real = trace.options.ignore_logging_functions, _real(target)
    methods = [method for method in ignored if isinstance(method, types.MethodType)]
    if any(method.__func__ is real for method in methods) and args:
        owner = _real(trace.read(args[0]))
        return any(method.__func__ is real and method.__self__ is owner for method in methods)
    return callable(real) and isinstance(real, Hashable) and real in ignored


def _real(value: Value) -> Any:
    return value.value if isinstance(value, Const) else getattr(value, "real", None)
