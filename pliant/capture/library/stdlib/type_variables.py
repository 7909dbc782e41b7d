"""Objects of `typing`: type variables, generic aliases, new types."""

from __future__ import annotations

import _typing  # type: ignore[import-not-found]
import types
import typing
from typing import TYPE_CHECKING, Any

from pliant.capture.library.folding import same_from_outside
from pliant.capture.native import function, pure
from pliant.capture.value import Const, Value
from pliant.capture.values.conversion import known_object
from pliant.capture.values.program_classes import ProgramObject
from pliant.capture.wrap import BUILDERS

if TYPE_CHECKING:
    from pliant.capture.trace import Trace


pure(types.GenericAlias)
for _variable in (typing.TypeVar, typing.ParamSpec, typing.TypeVarTuple):
    BUILDERS[_variable] = same_from_outside


@function(typing.TypeVar)
def make_type_variable(trace: Trace, /, *args: Value, **kwargs: Value) -> Value:
    real_args = [known_object(arg, trace) for arg in args]
    make: Any = typing.TypeVar
    real = make(*real_args, **{k: known_object(v, trace) for k, v in kwargs.items()})
    real.__module__ = trace.frames[-1].globals.get("__name__", "")
    trace.temporaries[id(real)] = ProgramObject(real, Const(typing.TypeVar), list(args), kwargs)
    return Const(real)


@function(_typing._idfunc)
def same_again(trace: Trace, value: Value) -> Value:
    """What calling a `typing.NewType` does."""
    return value
