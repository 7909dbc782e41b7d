"""Numbers that are not known while the program is followed: sizes, inputs, what tensors hold.

The one idea: such a number is an expression over symbols. Arithmetic makes further expressions; a
branch asks the environment, which answers and remembers why; and code that needs the number itself
asks for the constant, which makes it one for good. So everything works, and what does not know
about symbols costs generality, never correctness.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import torch

from pliant.capture.value import Value
from pliant.capture.values.containers import Sequence
from pliant.capture.values.listed import Item
from pliant.guards.guard import Load
from pliant.sym.cond import Cond
from pliant.sym.expr import Expr
from pliant.sym.floats import FloatExpr

if TYPE_CHECKING:
    from pliant.capture.residual import Emitter
    from pliant.capture.sizes import Sizes

_TYPES: dict[type, type] = {Expr: int, FloatExpr: float, Cond: bool}


class Number(Value):
    """An int, float or bool, as an expression."""

    __slots__ = ("expr", "sizes")

    def __init__(self, sizes: Sizes, expr: Expr | FloatExpr | Cond) -> None:
        super().__init__(None)
        self.sizes = sizes
        self.expr = expr

    def python_type(self) -> type:
        return _TYPES[type(self.expr)]

    def constant(self) -> Any:
        return self.sizes.specialise(self.expr)

    def rebuild(self, emit: Emitter) -> str:
        info = self.sizes.env.symbols.get(self.expr)
        if info is not None and isinstance(info.source, Load) and info.source.what == "value":
            return emit.slot(info.source.source)  # an input, as it came
        node = self.sizes.nodes.node(self.expr)
        if isinstance(node, bool | int | float):
            return emit.constant(node)
        return emit.result(node)

    def __repr__(self) -> str:
        return f"<Number {self.expr}>"


def has_number(value: Value) -> bool:
    """Whether there is a symbolic number in a tuple, at any depth."""
    if not isinstance(value, Sequence):
        return False
    return any(isinstance(item, Number | Item) or has_number(item) for item in value.items)


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
        "addcdiv_", "addmm", "baddbmm", "leaky_relu", "elu", "softplus", "threshold", "_threshold",
        "float_power", "copysign", "xlogy", "hardtanh", "celu", "softshrink", "hardshrink",
        "nan_to_num", "bitwise_and", "bitwise_or", "bitwise_xor", "and_", "or_", "xor",
        "tensor", "as_tensor", "scalar_tensor",
    ]
)  # fmt: skip


def takes_any_number(operation: str) -> bool:
    return operation.rpartition(".")[2] in TAKE_ANY_NUMBER


# They convert a number, too, though others of their numbers are sizes.
_FILLED_WITH_NUMBER = frozenset(("full", "new_full"))
_NEVER_REFUSING = frozenset((torch.bool, torch.float64, torch.complex64, torch.complex128))


def may_refuse_number(operation: str, values: Iterable[Value], result: Any) -> bool:
    """Whether eager PyTorch may refuse a symbolic number among the arguments in another call: it is
    out of the range of the result's dtype, or integers are divided by it. (The fakes have a result
    all the same.)"""
    if not isinstance(result, torch.Tensor) or result.dtype in _NEVER_REFUSING:
        return False
    if not takes_any_number(operation) and operation.rpartition(".")[2] not in _FILLED_WITH_NUMBER:
        return False
    return any(isinstance(value, Number) for value in values)
