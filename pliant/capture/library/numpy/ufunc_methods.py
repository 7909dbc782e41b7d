"""Methods of NumPy's universal functions: `np.add.reduce(a)`, `np.multiply.outer(a, b)`."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from pliant.capture.library.numpy.arrays import has_array, record_array
from pliant.capture.library.numpy.scalars import on_numbers
from pliant.capture.native import METHODS
from pliant.capture.value import Break, Value

try:
    import numpy
except ImportError:  # PyTorch works without it
    numpy = None  # type: ignore[assignment]

if TYPE_CHECKING:
    from pliant.capture.trace import Trace

NAMES = ("reduce", "accumulate", "outer")  # the shape of their results follows from shapes


def _method(name: str) -> Callable[..., Value]:
    def run(ufunc: Any, *args: Any, **kwargs: Any) -> Any:
        return getattr(ufunc, name)(*args, **kwargs)

    def handler(trace: Trace, ufunc: Value, /, *args: Value, **kwargs: Value) -> Value:
        if "out" in kwargs:
            raise Break("unsupported-method", f"ufunc.{name}")
        if not any(has_array(trace, value) for value in (*args, *kwargs.values())):
            return on_numbers(getattr(trace.read(ufunc).constant(), name))(trace, *args, **kwargs)
        return record_array(trace, name, run, [ufunc, *args], kwargs)

    return handler


if numpy is not None:
    for _name in NAMES:
        METHODS[numpy.ufunc, _name] = _method(_name)
