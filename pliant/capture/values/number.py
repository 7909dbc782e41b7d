"""Numbers from outside that are inputs of the graph instead of constants.

A number is a constant until it has been seen to change too often (`pliant.recompile`). Then it is
one of these: operations whose result has the same shape and type whatever the number take it as it
is, and whoever needs to know it asks for the constant, which assumes it, as for any other constant.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from torch import fx

from pliant.capture.value import Value
from pliant.guards.guard import Kind
from pliant.guards.source import Source

if TYPE_CHECKING:
    from pliant.capture.trace import Trace


class Number(Value):
    """An int or float of which only the type is assumed. `real` is the one seen."""

    __slots__ = ("node", "real", "trace")

    def __init__(self, trace: Trace, node: fx.Node, real: float, source: Source) -> None:
        super().__init__(source)
        self.trace = trace
        self.node = node
        self.real = real

    def python_type(self) -> type:
        return type(self.real)

    def constant(self) -> Any:
        self.trace.guard(Kind.EQUALS, self.source, self.real)
        return self.real


# Operations with a tensor that say nothing about a number among their arguments before they run: it
# is only ever multiplied, added, compared. Named without their module; operators and methods alike.
TAKE_ANY_NUMBER = frozenset(
    [
        "add", "sub", "rsub", "subtract", "mul", "multiply", "div", "divide", "true_divide",
        "floor_divide", "remainder", "fmod", "pow", "truediv", "floordiv", "mod", "eq",
        "ne", "lt", "le", "gt", "ge", "add_", "sub_", "subtract_", "mul_", "multiply_",
        "div_", "divide_", "true_divide_", "floor_divide_", "remainder_", "fmod_", "pow_",
        "iadd", "isub", "imul", "itruediv", "ifloordiv", "imod", "ipow", "clamp", "clamp_",
        "clamp_min", "clamp_max", "clip", "full_like", "fill", "fill_", "masked_fill",
        "masked_fill_", "where", "lerp", "lerp_", "addcmul", "addcmul_", "addcdiv",
        "addcdiv_", "addmm", "baddbmm", "leaky_relu", "elu", "softplus", "threshold",
    ]
)  # fmt: skip


def takes_any_number(operation: str) -> bool:
    return operation.rpartition(".")[2] in TAKE_ANY_NUMBER
