"""`id()` of objects that the program makes: a number that is not known yet, but the same
for the same object. It can be compared, be a key, and be returned."""

from __future__ import annotations

import operator
from typing import TYPE_CHECKING, Any

from pliant.capture.model import OPERATE
from pliant.capture.native import FUNCTIONS
from pliant.capture.value import Break, Const, Value, boolean
from pliant.capture.values.containers import Container
from pliant.capture.values.functions import FunctionValue
from pliant.capture.values.objects import Instance
from pliant.capture.values.tensors import TensorValue

if TYPE_CHECKING:
    from pliant.capture.residual import Emitter
    from pliant.capture.trace import Trace

KNOWN = FUNCTIONS[id]  # of objects from outside
WITH_IDENTITY = (Container, Instance, FunctionValue, TensorValue)


class Identity(int):
    """Told apart as the objects are, since the number itself is not known."""

    __hash__ = object.__hash__


class IdentityNumber(Value):
    """`id(target)`."""

    __slots__ = ("target",)

    def __init__(self, target: Value) -> None:
        super().__init__()
        self.target = target

    def python_type(self) -> type:
        return Identity

    def children(self) -> list[Value]:
        return [self.target]

    def rebuild(self, emit: Emitter) -> str:
        return f"id({emit.expression(self.target)})"


def number_of(trace: Trace, obj: Value) -> Value:
    obj = trace.read(obj)
    outside = getattr(obj, "real", None) is not None and obj.source is not None
    if outside or not isinstance(obj, WITH_IDENTITY):
        return KNOWN(trace, obj)
    number = IdentityNumber(obj)
    for key in trace.keys:
        if isinstance(key, IdentityNumber) and key.target is obj:
            number = key
    trace.keys.append(number)
    return number


def operate(trace: Trace, function: Any, *operands: Value) -> Value | None:
    """Only equality can be told. Numbers of objects from outside are others."""
    if function not in (operator.eq, operator.ne) or len(operands) != 2:
        raise Break("identity-number", f"{getattr(function, '__name__', function)} of an id()")
    left, right = (trace.read(operand) for operand in operands)
    if not all(isinstance(value, IdentityNumber | Const) for value in (left, right)):
        return None
    return boolean((left is right) is (function is operator.eq))


OPERATE[IdentityNumber] = operate
FUNCTIONS[id] = number_of
