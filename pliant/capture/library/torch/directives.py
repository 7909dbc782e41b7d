"""Marks for the compiler that the program puts on functions while it is followed.

`torch.compiler.disable(f)(x)`: what `disable` gives is not followed. The other marks say that a
function may be taken as a whole; one that was made or marked during the capture is followed
instead, which gives the same result.
"""

from __future__ import annotations

import types
from typing import TYPE_CHECKING, Any

import torch

from pliant.capture import directives
from pliant.capture.model import CALL, GET, get_attribute
from pliant.capture.native import function
from pliant.capture.trace import Trace
from pliant.capture.value import Break, Value
from pliant.capture.values.functions import FunctionValue

if TYPE_CHECKING:
    from pliant.capture.residual import Emitter


class Disabled(Value):
    """What `disable(fn)` gives. Python makes it anew and calls it."""

    __slots__ = ("function", "keywords", "maker")

    def __init__(self, maker: Any, function: Value, keywords: dict[str, Value]) -> None:
        super().__init__()
        self.maker = maker
        self.function = function
        self.keywords = keywords

    def python_type(self) -> type:
        return types.FunctionType

    def children(self) -> list[Value]:
        return [self.function, *self.keywords.values()]

    def rebuild(self, emit: Emitter) -> str:
        parts = [emit.expression(self.function)]
        parts += [f"{name}={emit.expression(value)}" for name, value in self.keywords.items()]
        return f"{emit.constant(self.maker)}({', '.join(parts)})"


def call_disabled(
    trace: Trace, target: Disabled, args: list[Value], kwargs: dict[str, Value], direct: bool
) -> Value:
    raise Break("disabled", _name(target.function))


def _name(value: Value) -> str:
    return value.qualname if isinstance(value, FunctionValue) else value.python_type().__name__


CALL[Disabled] = call_disabled
GET[Disabled] = lambda trace, obj, name: get_attribute(trace, obj.function, name)


def _disabler(maker: Any) -> Any:
    def handle(
        trace: Trace, fn: Value | None = None, recursive: Value | None = None, **rest: Value
    ) -> Value:
        if fn is None:
            raise Break("not-followed", "disable as a decorator with arguments")
        function_value = trace.read(fn)
        if isinstance(function_value, Disabled):
            return function_value
        keywords = {**rest, **({} if recursive is None else {"recursive": recursive})}
        return Disabled(maker, function_value, keywords)

    return handle


for _maker in (directives.disable, torch.compiler.disable):
    function(_maker)(_disabler(_maker))


def _marker(mark: Any) -> Any:
    def handle(
        trace: Trace, fn: Value | None = None, *, traceable_fn: Value | None = None
    ) -> Value:
        """The mark stays on the function, as it does when Python makes it."""
        function_value = fn if fn is not None else traceable_fn
        if function_value is None:
            raise Break("bad-arguments", mark.__name__)
        real = getattr(trace.read(function_value), "real", None)
        if real is not None:
            mark(real)
        return function_value

    return handle


for _mark in (
    directives.allow_in_graph,
    directives.nonstrict_trace,
    directives.assume_constant_result,
):
    function(_mark)(_marker(_mark))
function(torch.compiler.allow_in_graph)(_marker(directives.allow_in_graph))
function(torch.compiler.assume_constant_result)(_marker(directives.assume_constant_result))
