"""NumPy's numbers: `np.int64(3)`, `np.prod(shape)`, `np.sqrt(2)`. Immutable, so they are constants.

Arrays are not: a function of NumPy is run during capture only if numbers go in and a number comes
out.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch

from pliant.capture.library.python.classes import SCALARS
from pliant.capture.library.python.native_objects import never_changes
from pliant.capture.model import FOLDABLE, MUTABLE, fold
from pliant.capture.native import PURE, function
from pliant.capture.torch_calls import PLAIN_FORMS
from pliant.capture.value import Break, Const, NotConstant, Value
from pliant.capture.values.conversion import known_object
from pliant.capture.wrap import BUILDERS, instance
from pliant.guards.guard import GuardKind
from pliant.guards.predicates import EqualNumber
from pliant.guards.source import Fixed, Source

try:
    import numpy
except ImportError:  # PyTorch works without it
    numpy = None  # type: ignore[assignment]

if TYPE_CHECKING:
    from pliant.capture.trace import Trace

SCALAR_TYPES = (
    "bool_", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64", "float16",
    "float32", "float64", "complex64", "complex128", "longlong", "ulonglong",
)  # fmt: skip
# PyTorch takes them otherwise than Python's numbers: as no flag (`keepdim=np.True_`), as a float in
# `torch.full`, or without the imaginary part.
WITHOUT_PLAIN_FORM = ("bool_", "complex64")
REDUCTIONS = (
    "prod", "sum", "mean", "std", "var", "median", "amin", "amax", "min", "max", "argmin", "argmax",
    "all", "any", "round", "around", "clip", "real", "imag",
)  # fmt: skip
# What NumPy computes with, and nothing of what it would turn into an array of objects.
Number = (*SCALARS, type(None))


def number_from_outside(trace: Trace, real: Any, source: Source) -> Value:
    if not isinstance(source, Fixed):
        assume_number(trace, real, source)
    return Const(real, source)


def assume_number(trace: Trace, real: Any, source: Source) -> None:
    trace.guard(GuardKind.TYPE, source, type(real))
    trace.guard(GuardKind.PREDICATE, source, EqualNumber(type(real), real))


def _is_plain(value: Any) -> bool:
    if isinstance(value, list | tuple):
        return all(_is_plain(item) for item in value)
    return isinstance(value, (*Number, type, numpy.generic, numpy.dtype))


def on_numbers(real: Callable[..., Any]) -> Callable[..., Value]:
    name = f"numpy.{real.__name__}"

    def handler(trace: Trace, /, *args: Value, **kwargs: Value) -> Value:
        try:
            real_args = [known_object(arg, trace) for arg in args]
            named = {key: known_object(arg, trace) for key, arg in kwargs.items()}
        except NotConstant as error:
            raise Break("not-constant", name) from error
        if not _is_plain([*real_args, *named.values()]):
            raise Break("unsupported-function", name)
        try:
            result = real(*real_args, **named)
        except Exception as error:  # of a class of NumPy's own, with attributes: Python makes it
            raise Break("operation-raises", name) from error
        if not isinstance(result, (*Number, numpy.generic)):
            raise Break("unsupported-function", f"{name}, which gives an array")
        return Const(result)

    return handler


def _limits(cls: Any) -> Callable[..., Value]:
    """`numpy.iinfo(kind)`: of an array or a number it is that of its kind."""

    def make(trace: Trace, kind: Value) -> Value:
        return fold(trace, cls, trace.read(kind))

    return make


def _register_kinds() -> None:
    """Kinds and their limits are what they are."""
    for name in SCALAR_TYPES:
        BUILDERS[type(numpy.dtype(name))] = BUILDERS[torch.finfo]
    for cls in (numpy.iinfo, numpy.finfo):
        function(cls)(_limits(cls))
        never_changes(cls)
    # NumPy makes an `iinfo` anew for each call: of one from outside, attributes are compared.
    BUILDERS.update({numpy.iinfo: instance, numpy.finfo: BUILDERS[torch.finfo]})
    function(numpy.dtype)(_limits(numpy.dtype))


def _register() -> None:
    kinds = {getattr(numpy, name) for name in SCALAR_TYPES}
    FOLDABLE.update(kinds)
    PURE.update(kinds)
    MUTABLE.add(numpy.ndarray)
    for kind in kinds:
        BUILDERS[kind] = number_from_outside
    for kind in kinds - {getattr(numpy, name) for name in WITHOUT_PLAIN_FORM}:
        PLAIN_FORMS[kind] = kind.item
    ufuncs = {real for real in vars(numpy).values() if isinstance(real, numpy.ufunc)}
    for real in (*ufuncs, *(getattr(numpy, name) for name in REDUCTIONS)):
        function(real)(on_numbers(real))
        BUILDERS.setdefault(type(real), BUILDERS[type(NotImplemented)])


if numpy is not None:
    _register()
    _register_kinds()
