"""Powers: the exponents that eager PyTorch computes in a way of their own, and all others.

The one idea: a known exponent picks an entry of a table; integers to a known power are products,
which wrap around as eager's do.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import torch

from pliant.base.operators import register
from pliant.fake import shapes
from pliant.fake.layout import broadcast, contiguous_strides, like_strides
from pliant.fake.raising import is_float_argument
from pliant.fake.rule import new
from pliant.fake.tensor import Fake, make
from pliant.loop.define import LoopBody
from pliant.loop.ir import LoopValue, Op
from pliant.loop.types import HALF, Type
from pliant.ops.elementwise import (
    FLOATS,
    INTS,
    NUMBERS,
    Promotion,
    check_fits,
    elementwise,
    like,
    op,
    unchanged,
    working_type,
)
from pliant.ops.indexed_tensor import IndexedTensor
from pliant.ops.lowering import Lowering, NotLowered, Number, lowers
from pliant.sym.cond import Cond
from pliant.sym.expr import Expr
from pliant.sym.floats import FloatExpr

aten = torch.ops.aten


def _cube(b: LoopBody, x: LoopValue) -> LoopValue:
    return b(Op.MUL, b(Op.MUL, x, x), x)


def _inverse_square(b: LoopBody, x: LoopValue) -> LoopValue:
    return b(Op.DIV, like(b, 1, x), b(Op.MUL, x, x))


SPECIAL: Final[dict[float, Callable[[LoopBody, LoopValue], LoopValue]]] = {
    0.0: lambda b, x: like(b, 1, x),
    1.0: unchanged,
    2.0: lambda b, x: b(Op.MUL, x, x),
    3.0: _cube,
    0.5: op(Op.SQRT),
    -0.5: op(Op.RSQRT),
    -1.0: lambda b, x: b(Op.DIV, like(b, 1, x), x),
    -2.0: _inverse_square,
}

_GENERAL: Final = frozenset({(Type.F16, 0.5), (Type.F16, -0.5)})
"""Types and exponents for which eager PyTorch calls `pow` on the CPU, which differs from the square
root for -inf."""


def known(x: Number) -> int | float | bool | None:
    """A number of the program, if it is the same in each call; else None."""
    value = x.value if isinstance(x, Expr | FloatExpr | Cond) else x
    return value if isinstance(value, int | float) else None


@lowers("aten.pow.Tensor_Scalar", shape=shapes.pointwise(2, shapes.promote, numbers_aside=True))
def pow_scalar(low: Lowering, self: IndexedTensor, exponent: Number) -> IndexedTensor:
    common = working_type(low, [self, exponent], Promotion.COMMON)
    value = known(exponent)
    if common in INTS:
        return _integer_power(low, self, exponent, value)
    general = low.device == "cpu" and (common, value) in _GENERAL
    if value is not None and float(value) in SPECIAL and not general:
        # Eager rounds bfloat16 after each of the products.
        special, steps = SPECIAL[float(value)], frozenset({Type.BF16})
        x = low.cast(self, common)
        return elementwise(low, special, [x], on=FLOATS, cost=4, steps=steps)
    if common in HALF:
        check_fits(exponent, common)  # unlike most operands, it is converted to the type
    return elementwise(low, op(Op.POW), [self, exponent], on=FLOATS, cost=40)


def _is_expensive(x: Any, exponent: Any) -> bool:
    value = known(exponent)
    return value is None or float(value) not in SPECIAL


register("aten.pow.Tensor_Scalar", expensive=_is_expensive)


def _integer_power(
    low: Lowering, x: IndexedTensor, exponent: Number, value: int | float | None
) -> IndexedTensor:
    if not isinstance(value, int) or not 0 <= value < 1 << 16:
        raise NotLowered("an integer to this power")
    common = working_type(low, [x, exponent], Promotion.COMMON)
    check_fits(value, common)

    def compute(b: LoopBody, base: LoopValue) -> LoopValue:
        result, left = like(b, 1, base), value
        # By squaring, in as many steps as the exponent has bits.
        while left:
            result = b(Op.MUL, result, base) if left & 1 else result
            left >>= 1
            base = b(Op.MUL, base, base) if left else base
        return result

    return elementwise(low, compute, [low.cast(x, common)], on=INTS, cost=2 * value.bit_length())


@lowers("aten.pow.Tensor_Tensor", shape=shapes.pointwise(2, shapes.promote))
def pow_tensor(low: Lowering, self: IndexedTensor, exponent: IndexedTensor) -> IndexedTensor:
    return elementwise(low, op(Op.POW), [self, exponent], on=FLOATS, cost=40)


@lowers("aten.pow.Scalar", shape=shapes.contiguous(shapes.promote, 1, everywhere=True))
def pow_of_number(low: Lowering, self: Number, exponent: IndexedTensor) -> IndexedTensor:
    value = known(self)
    args = [self, exponent]
    if value == 1:
        return elementwise(low, lambda b, one, y: like(b, 1, y), args, on=NUMBERS)
    if value == 2 and working_type(low, args, Promotion.COMMON) in INTS:
        # Shifted by too many bits, or by less than none, it is 0, as is the power.
        return elementwise(low, lambda b, two, y: b(Op.SHL, like(b, 1, y), y), args, on=INTS)
    return elementwise(low, op(Op.POW), args, on=FLOATS, cost=40)


def _may_refuse_exponent(args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
    """Whether a power may raise: an integer to a symbolic power, which may be negative, or a half
    to one that is out of its range. (Constants are refused in the capture.)"""
    base, exponent = (*args, None)[:2]
    in_data = not hasattr(exponent, "dtype") and not isinstance(exponent, int | float | complex)
    half = getattr(base, "dtype", None) in (torch.float16, torch.bfloat16)
    return in_data and (half or not is_float_argument(base))


def _is_exact(x: torch.Tensor, other: torch.Tensor) -> bool:
    """Whether PyTorch has a kernel for it: exact even where the power alone is too large."""
    return x.is_floating_point() and not other.is_floating_point()


def _ldexp(x: torch.Tensor, other: torch.Tensor) -> Any:
    if _is_exact(x, other):
        return NotImplemented
    # The power lies as the exponent if 2 is a tensor, as it is in eager PyTorch.
    two = 2.0 if _by_number(x) else torch.full((), 2.0, dtype=x.dtype, device=x.device)
    return x * torch.pow(two, other)


def _by_number(x: torch.Tensor) -> bool:
    return x.dtype is torch.float32 or not x.is_floating_point()


_product_shape = shapes.pointwise(2, shapes.promote)


def _ldexp_shape(op: Any, args: Any, kwargs: Any, device: torch.device) -> Any:
    """Eager PyTorch multiplies by a power of 2, which is contiguous however the exponent lies, but
    for floats of other dtypes than float32."""
    x, other = args
    if type(x) is not Fake or type(other) is not Fake:
        return None
    if _is_exact(x, other):
        return _exact_shape(x, other, device)
    dtype = other.dtype if other.is_floating_point() else torch.get_default_dtype()
    sizes = other.size()
    strides = contiguous_strides(sizes) if _by_number(x) else like_strides(other)
    if strides is None:
        return None
    power = make(other._world, sizes, strides, 0, dtype, device)
    return _product_shape(op, (x, power), kwargs, device)


def _exact_shape(x: Fake, other: Fake, device: torch.device) -> Any:
    """The kernel is given a tensor like the first for the result, if that is large enough."""
    sizes = broadcast([x.size(), other.size()])
    strides = like_strides(x) if sizes is not None and shapes.same(sizes, x.size()) else None
    return None if strides is None else new(x.size(), strides, x.dtype, device)


register("aten.pow", raises=_may_refuse_exponent)
register("aten.pow_.Scalar", functional=aten.pow.Tensor_Scalar)
register("aten.pow_.Tensor", functional=aten.pow.Tensor_Tensor)
register("aten.ldexp.Tensor", decomposition=_ldexp, shape=_ldexp_shape)
register("aten.ldexp_.default", functional=aten.ldexp.Tensor)
