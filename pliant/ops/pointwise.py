"""Operators that compute each element from the elements at the same place: tables.

The one idea: an entry is what is computed from values of one type (`elementwise` has the rest), so
that most operators are a line. Here are arithmetic, comparisons, bits and functions of floats;
`activations`, `powers` and `copies` have the others.
"""

from __future__ import annotations

import math
from typing import Any, Final

import torch

from pliant.base.operators import RECORDS, aten_names, register
from pliant.base.values import replace
from pliant.fake import meta, shapes
from pliant.fake.layout import (
    contiguous_strides,
    pointwise_strides,
)
from pliant.fake.pointwise import like_first
from pliant.fake.raising import is_float_argument, never
from pliant.fake.tensor import Fake
from pliant.loop.define import LoopBody
from pliant.loop.ir import LoopValue, Op
from pliant.loop.types import INTEGER, SIGNED, Type
from pliant.ops import activations, copies, powers
from pliant.ops.elementwise import (
    BITS,
    COMPUTABLE,
    FLOATS,
    INTS,
    NUMBERS,
    Pointwise,
    Promotion,
    check_fits,
    common_dtype,
    elementwise,
    is_float,
    is_number,
    like,
    op,
    unchanged,
    working_type,
)
from pliant.ops.indexed_tensor import IndexedTensor
from pliant.ops.lowering import Combine, Lowering, NotLowered, Number, lowers
from pliant.sym.cond import Cond
from pliant.sym.expr import Expr
from pliant.sym.floats import FloatExpr
from pliant.sym.program import LARGEST

BINARY: Final = ("self", "other")

# --------------------------------------------------------------------------------------------------
# Arithmetic


def _add(b: LoopBody, x: LoopValue, y: LoopValue) -> LoopValue:
    # True + True is True: bools are added as they are, not as numbers.
    return b(Op.OR, x, y) if x.type is Type.BOOL else b(Op.ADD, x, y)


def _mul(b: LoopBody, x: LoopValue, y: LoopValue) -> LoopValue:
    return b(Op.AND, x, y) if x.type is Type.BOOL else b(Op.MUL, x, y)


def _add_scaled(b: LoopBody, x: LoopValue, y: LoopValue, alpha: LoopValue) -> LoopValue:
    """x + alpha * y, which eager PyTorch rounds once."""
    if is_float(x):
        return b(Op.FMA, y, alpha, x)
    return b(Op.ADD, x, b(Op.MUL, y, alpha))


def _sub_scaled(b: LoopBody, x: LoopValue, y: LoopValue, alpha: LoopValue) -> LoopValue:
    return _add_scaled(b, x, y, b(Op.NEG, alpha))


def _summed(low: Lowering, x: Any, y: Any, alpha: Number, minus: bool) -> IndexedTensor:
    """x + alpha * y, or x - alpha * y if `minus`. PyTorch refuses to subtract bools."""
    if minus and any(_is_bool(arg) for arg in (x, y)):
        raise NotLowered("of bool")
    if is_one(alpha):
        plain = op(Op.SUB) if minus else _add
        return elementwise(low, plain, [x, y], on=NUMBERS if minus else COMPUTABLE)
    # Eager PyTorch refuses such factors of integers, with an error of its own.
    common = working_type(low, [x, y], Promotion.COMMON)
    exact = common in INTS
    if isinstance(alpha, bool | Cond) or (exact and isinstance(alpha, float | FloatExpr)):
        raise NotLowered(f"a factor that is a {type(alpha).__name__}")
    if minus and isinstance(alpha, int):  # eager adds times -alpha
        if alpha > LARGEST:
            raise NotLowered("a factor without a sign, which can't be negative")
        if exact:
            check_fits(-alpha, common)
    scaled = _sub_scaled if minus else _add_scaled
    return elementwise(low, scaled, [x, y], [alpha], rounded=True)


def _is_bool(x: IndexedTensor | Number) -> bool:
    return x.type is Type.BOOL if isinstance(x, IndexedTensor) else isinstance(x, bool | Cond)


def is_one(x: Number) -> bool:
    """Whether a factor is the integer 1. (True isn't: it is left to the tests of factors.)"""
    value = x.value if isinstance(x, Expr | FloatExpr) else x
    return type(value) is int and value == 1


@lowers("aten.add.Tensor", "aten.add.Scalar", shape=shapes.pointwise(2, shapes.promote))
def add(
    low: Lowering, self: IndexedTensor, other: IndexedTensor | Number, alpha: Number = 1
) -> IndexedTensor:
    return _summed(low, self, other, alpha, minus=False)


_DIFFERENCE: Final = shapes.without_bools(shapes.pointwise(2, shapes.promote))


@lowers("aten.sub.Tensor", "aten.sub.Scalar", shape=_DIFFERENCE)
def sub(
    low: Lowering, self: IndexedTensor, other: IndexedTensor | Number, alpha: Number = 1
) -> IndexedTensor:
    return _summed(low, self, other, alpha, minus=True)


@lowers("aten.rsub.Tensor", "aten.rsub.Scalar")
def rsub(
    low: Lowering, self: IndexedTensor, other: IndexedTensor | Number, alpha: Number = 1
) -> IndexedTensor:
    return _summed(low, other, self, alpha, minus=True)


def _addcmul(b: LoopBody, x: LoopValue, y: LoopValue, z: LoopValue, value: LoopValue) -> LoopValue:
    if is_float(x):
        return b(Op.FMA, b(Op.MUL, value, y), z, x)
    return b(Op.ADD, x, b(Op.MUL, b(Op.MUL, value, y), z))


def _addcdiv(b: LoopBody, x: LoopValue, y: LoopValue, z: LoopValue, value: LoopValue) -> LoopValue:
    return b(Op.ADD, x, b(Op.DIV, b(Op.MUL, value, y), z))


@lowers("aten.addcdiv.default", shape=shapes.pointwise(3, shapes.floats_only))
def addcdiv(
    low: Lowering,
    self: IndexedTensor,
    tensor1: IndexedTensor,
    tensor2: IndexedTensor,
    *,
    value: Number = 1,
) -> IndexedTensor:
    if not {tensor1.type, tensor2.type} & FLOATS:
        raise NotLowered("division of integers")
    return elementwise(low, _addcdiv, [self, tensor1, tensor2], [value], on=FLOATS, cost=5)


def _lerp(b: LoopBody, start: LoopValue, end: LoopValue, weight: LoopValue) -> LoopValue:
    """start + weight * (end - start), computed from the nearer end, so that both ends are exact."""
    distance = b(Op.SUB, end, start)
    one = like(b, 1, start)
    near_start = b(Op.LT, b(Op.ABS, weight), like(b, 0.5, start))
    forwards = b(Op.FMA, weight, distance, start)
    backwards = b(Op.FMA, distance, b(Op.SUB, weight, one), end)
    return b(Op.SELECT, near_start, forwards, backwards)


# --------------------------------------------------------------------------------------------------
# Division. Integers divided by 0 are an error on the CPU; on a GPU the result is any number.


def _checked(division: Op) -> Combine:
    def compute(b: LoopBody, x: LoopValue, y: LoopValue) -> LoopValue:
        # A constant divisor other than 0 needs no test in the loop.
        if y.type in INTEGER and not (y.op is Op.CONSTANT and y.constant):
            b.fault(b(Op.EQ, y, like(b, 0, y)))
        return b(division, x, y)

    return compute


def _trunc_div_in_steps(b: LoopBody, x: LoopValue, y: LoopValue) -> LoopValue:
    return b(Op.TRUNC, b(Op.DIV, x, y))


def _floor_div_in_steps(b: LoopBody, x: LoopValue, y: LoopValue) -> LoopValue:
    """FLOOR_DIV of floats, spelled out so that each step can be rounded to a half type."""
    zero, one = like(b, 0, x), like(b, 1, x)
    rest = b(Op.FMOD, x, y)
    quotient = b(Op.DIV, b(Op.SUB, x, rest), y)
    signs_differ = b(Op.XOR, b(Op.LT, y, zero), b(Op.LT, rest, zero))
    too_large = b(Op.AND, b(Op.NE, rest, zero), signs_differ)
    quotient = b(Op.SELECT, too_large, b(Op.SUB, quotient, one), quotient)
    below = b(Op.FLOOR, quotient)
    nearer = b(Op.GT, b(Op.SUB, quotient, below), like(b, 0.5, x))
    result = b(Op.SELECT, nearer, b(Op.ADD, below, one), below)
    plain = b(Op.DIV, x, y)
    result = b(Op.SELECT, b(Op.EQ, quotient, zero), b(Op.COPYSIGN, zero, plain), result)
    return b(Op.SELECT, b(Op.EQ, y, zero), plain, result)


_HALF_STEPS: Final = frozenset({Type.BF16, Type.F16})

TRUE_DIV: Final = Pointwise(op(Op.DIV), FLOATS, Promotion.FLOAT, BINARY, cost=4, wide=True)
_TRUNC_DIV: Final = Pointwise(
    _checked(Op.TRUNC_DIV), NUMBERS, args=BINARY, cost=8, wide=True, on_gpu=op(Op.TRUNC_DIV)
)
_FLOOR_DIV: Final = replace(
    _TRUNC_DIV, compute=_checked(Op.FLOOR_DIV), cost=20, on_gpu=op(Op.FLOOR_DIV)
)
_IN_STEPS: Final = {
    _TRUNC_DIV: replace(_TRUNC_DIV, compute=_trunc_div_in_steps, steps=_HALF_STEPS, on_gpu=None),
    _FLOOR_DIV: replace(_FLOOR_DIV, compute=_floor_div_in_steps, steps=_HALF_STEPS, on_gpu=None),
}
"""How halves are divided by halves; by a number they are divided in f32."""


def _divided(
    low: Lowering, rule: Pointwise, x: IndexedTensor | Number, y: IndexedTensor | Number
) -> IndexedTensor:
    halves = working_type(low, [x, y], rule.promotion) in _HALF_STEPS
    return rule(low, x, y) if not halves or is_number(y) else _IN_STEPS[rule](low, x, y)


@lowers("aten.div.Tensor_mode", "aten.div.Scalar_mode", meta=meta.like_sum)
def div_mode(
    low: Lowering, self: IndexedTensor, other: IndexedTensor | Number, rounding_mode: str | None
) -> IndexedTensor:
    if rounding_mode is None:
        return TRUE_DIV(low, self, other)
    return _divided(low, _FLOOR_DIV if rounding_mode == "floor" else _TRUNC_DIV, self, other)


@lowers("aten.floor_divide.default", "aten.floor_divide.Scalar", meta=meta.like_sum, pointwise=True)
def floor_divide(
    low: Lowering, self: IndexedTensor, other: IndexedTensor | Number
) -> IndexedTensor:
    return _divided(low, _FLOOR_DIV, self, other)


# --------------------------------------------------------------------------------------------------
# The smaller, the larger, between


def _best(number: Op, on_bool: Op) -> Combine:
    return lambda b, x, y: b(on_bool if x.type is Type.BOOL else number, x, y)


def _skipping_nan(
    low: Lowering, best: Combine, x: IndexedTensor, y: IndexedTensor
) -> IndexedTensor:
    """`fmin` or `fmax`. Of 0.0 and -0.0, which are equal, eager PyTorch takes the first; for
    bfloat16 the second."""
    if working_type(low, [x, y], Promotion.COMMON) is Type.BF16:
        x, y = y, x
    return elementwise(low, best, [x, y], on=COMPUTABLE)


@lowers("aten.fmin.default")
def fmin(low: Lowering, self: IndexedTensor, other: IndexedTensor) -> IndexedTensor:
    return _skipping_nan(low, _best(Op.FMIN, Op.AND), self, other)


@lowers("aten.fmax.default")
def fmax(low: Lowering, self: IndexedTensor, other: IndexedTensor) -> IndexedTensor:
    return _skipping_nan(low, _best(Op.FMAX, Op.OR), self, other)


@lowers("aten.clamp.default", "aten.clamp.Tensor")
def clamp(
    low: Lowering,
    self: IndexedTensor,
    min: IndexedTensor | Number | None = None,
    max: IndexedTensor | Number | None = None,
) -> IndexedTensor:
    """min(max(x, lower), upper), where a nan stays one. Of -0.0 and 0.0, which are equal, MAXIMUM
    gives its second argument: the element if bounds are numbers, else the bound."""
    tensors = isinstance(min, IndexedTensor) or isinstance(max, IndexedTensor)

    def compute(b: LoopBody, x: LoopValue, *bounds: LoopValue) -> LoopValue:
        for which, bound in zip(limits, bounds):
            x = b(which, x, bound) if tensors else b(which, bound, x)
        return x

    # The lower bound first, as PyTorch: with bounds that cross, the upper one wins.
    limits = [best for best, bound in ((Op.MAXIMUM, min), (Op.MINIMUM, max)) if bound is not None]
    bounds = [bound for bound in (min, max) if bound is not None]
    if len(bounds) == 1 and bounds[0] != bounds[0]:
        raise NotLowered("nan as a bound, which PyTorch ignores or not, by its version")
    check_bounds(low, [self, *bounds])
    return elementwise(low, compute, [self, *bounds])


def check_bounds(low: Lowering, args: list[IndexedTensor | Number]) -> None:
    common = working_type(low, args, Promotion.COMMON)
    for bound in args[1:]:
        if not isinstance(bound, IndexedTensor):
            check_fits(bound, common)


@lowers("aten.clamp_min.default", "aten.clamp_min.Tensor")
def clamp_min(low: Lowering, self: IndexedTensor, min: IndexedTensor | Number) -> IndexedTensor:
    return clamp(low, self, min, None)


@lowers("aten.clamp_max.default", "aten.clamp_max.Tensor")
def clamp_max(low: Lowering, self: IndexedTensor, max: IndexedTensor | Number) -> IndexedTensor:
    return clamp(low, self, None, max)


# --------------------------------------------------------------------------------------------------
# Questions


def _truth(b: LoopBody, x: LoopValue) -> LoopValue:
    return b.cast(x, Type.BOOL)


def _logical(of: Op) -> Combine:
    return lambda b, x, y: b(of, _truth(b, x), _truth(b, y))


def _on_floats(ask: Combine, otherwise: bool = False) -> Combine:
    """A test of floats, such as `isnan`; for other types the answer is `otherwise`."""

    def compute(b: LoopBody, x: LoopValue) -> LoopValue:
        return ask(b, x) if is_float(x) else b.constant(otherwise, Type.BOOL)

    return compute


def _isfinite(b: LoopBody, x: LoopValue) -> LoopValue:
    return b(Op.LT, b(Op.ABS, x), like(b, math.inf, x))


def _signbit(b: LoopBody, x: LoopValue) -> LoopValue:
    if is_float(x):
        # By its bits: -0.0 has the sign too, and so may nan.
        x = b.bitcast(x, Type.I32 if x.type is Type.F32 else Type.I64)
    return b(Op.LT, x, like(b, 0, x)) if x.type in SIGNED else b.constant(False, Type.BOOL)


# --------------------------------------------------------------------------------------------------
# Signs and rounding


def _sign(b: LoopBody, x: LoopValue) -> LoopValue:
    return x if x.type is Type.BOOL else b(Op.SIGN, x)


def _rounding(of: Op) -> Combine:
    """A rounding operation, which leaves integers as they are."""
    return lambda b, x: b(of, x) if is_float(x) else x


def _frac(b: LoopBody, x: LoopValue) -> LoopValue:
    return b(Op.SUB, x, b(Op.TRUNC, x))


@lowers("aten.round.decimals")
def round_decimals(low: Lowering, self: IndexedTensor, decimals: int = 0) -> IndexedTensor:
    """Scaled by a power of ten, rounded, and scaled back."""
    if not isinstance(decimals, int):
        raise NotLowered("a number of decimals that is not known")
    scale = 10.0 ** abs(decimals)
    before, after = (Op.MUL, Op.DIV) if decimals > 0 else (Op.DIV, Op.MUL)

    def compute(b: LoopBody, x: LoopValue) -> LoopValue:
        factor = like(b, scale, x)
        return b(after, b(Op.ROUND, b(before, x, factor)), factor)

    return elementwise(low, compute if decimals else op(Op.ROUND), [self], on=FLOATS)


def _heaviside(b: LoopBody, x: LoopValue, y: LoopValue) -> LoopValue:
    zero = like(b, 0, x)
    return b(Op.SELECT, b(Op.EQ, x, zero), y, b.cast(b(Op.GT, x, zero), x.type))


@lowers("aten.nan_to_num.default", layout=like_first)
def nan_to_num(
    low: Lowering,
    self: IndexedTensor,
    nan: Number | None = None,
    posinf: Number | None = None,
    neginf: Number | None = None,
) -> IndexedTensor:
    if self.type not in FLOATS:
        return elementwise(low, unchanged, [self], on=COMPUTABLE)
    largest = torch.finfo(self.type.dtype).max
    replacements = (nan, posinf, neginf)
    numbers = [n if n is not None else d for n, d in zip(replacements, (0.0, largest, -largest))]

    def compute(
        b: LoopBody, x: LoopValue, if_nan: LoopValue, if_inf: LoopValue, if_minus_inf: LoopValue
    ) -> LoopValue:
        inf, minus_inf = like(b, math.inf, x), like(b, -math.inf, x)
        result = b(Op.SELECT, b(Op.EQ, x, minus_inf), if_minus_inf, x)
        result = b(Op.SELECT, b(Op.EQ, x, inf), if_inf, result)
        return b(Op.SELECT, b(Op.ISNAN, x), if_nan, result)

    return elementwise(low, compute, [self, *numbers], promotion=Promotion.FIRST)


# --------------------------------------------------------------------------------------------------
# Functions of floats


def _reciprocal(b: LoopBody, x: LoopValue) -> LoopValue:
    return b(Op.DIV, like(b, 1, x), x)


def _scaled(factor: float) -> Combine:
    return lambda b, x: b(Op.MUL, x, like(b, factor, x))


def _sinc(b: LoopBody, x: LoopValue) -> LoopValue:
    turned = b(Op.MUL, x, like(b, math.pi, x))
    quotient = b(Op.DIV, b(Op.SIN, turned), turned)
    return b(Op.SELECT, b(Op.EQ, x, like(b, 0, x)), like(b, 1, x), quotient)


def _entr(b: LoopBody, x: LoopValue) -> LoopValue:
    """-x * log(x); of 0 it is 0, of less it is minus infinity."""
    zero = like(b, 0, x)
    result = b(Op.MUL, b(Op.NEG, x), b(Op.LOG, x))
    below = b(Op.SELECT, b(Op.EQ, x, zero), zero, like(b, -math.inf, x))
    result = b(Op.SELECT, b(Op.GT, x, zero), result, below)
    return b(Op.SELECT, b(Op.ISNAN, x), x, result)


def _x_times(function: Op) -> Combine:
    """x * f(y), where 0 times anything but a nan is 0."""

    def compute(b: LoopBody, x: LoopValue, y: LoopValue) -> LoopValue:
        zero = like(b, 0, x)
        result = b(Op.MUL, x, b(function, y))
        result = b(Op.SELECT, b(Op.EQ, x, zero), zero, result)
        return b(Op.SELECT, b(Op.ISNAN, y), like(b, math.nan, x), result)

    return compute


def _log_add(exponential: Op, factor: float) -> Combine:
    """`logaddexp` to some base, from the larger argument: the power of the negative distance
    doesn't overflow."""

    def compute(b: LoopBody, x: LoopValue, y: LoopValue) -> LoopValue:
        distance = b(Op.ABS, b(Op.SUB, x, y))
        rest = b(Op.LOG1P, b(exponential, b(Op.NEG, distance)))
        if factor != 1:
            rest = b(Op.MUL, rest, like(b, factor, x))
        result = b(Op.ADD, b(Op.MAXIMUM, x, y), rest)
        alike = b(Op.AND, b(Op.EQ, x, y), b(Op.ISINF, x))
        return b(Op.SELECT, alike, x, result)

    return compute


def _square(b: LoopBody, x: LoopValue) -> LoopValue:
    return b(Op.MUL, x, x)


def _float(compute: Combine, cost: int = 20) -> Pointwise:
    """A function of one float; integers become floats."""
    return Pointwise(compute, FLOATS, Promotion.FLOAT, cost=cost)


def _binary(compute: Combine, on: frozenset[Type] = NUMBERS, cost: int = 1) -> Pointwise:
    return Pointwise(compute, on, args=BINARY, cost=cost)


_FUNCTIONS: Final = """
    exp exp2 expm1 log log2 log10 log1p sin cos tan tanh sigmoid erf erfc sinh cosh asin acos atan
    asinh acosh atanh lgamma
"""
"""Those that are one operation."""

_COMPARISONS: Final = "eq ne lt le gt ge"

UNARY: Final[dict[str, Pointwise]] = {
    "abs": Pointwise(op(Op.ABS)),
    "neg": Pointwise(op(Op.NEG)),
    "sign": Pointwise(_sign, COMPUTABLE),
    "sgn": Pointwise(_sign, COMPUTABLE),
    "floor": Pointwise(_rounding(Op.FLOOR)),
    "ceil": Pointwise(_rounding(Op.CEIL)),
    "trunc": Pointwise(_rounding(Op.TRUNC)),
    "round": Pointwise(_rounding(Op.ROUND)),
    "frac": Pointwise(_frac, FLOATS),
    "square": Pointwise(_square),
    "bitwise_not": Pointwise(op(Op.NOT), BITS),
    "logical_not": Pointwise(lambda b, x: b(Op.NOT, _truth(b, x)), COMPUTABLE),
    "signbit": Pointwise(_signbit, COMPUTABLE),
    "isnan": Pointwise(_on_floats(op(Op.ISNAN)), COMPUTABLE),
    "isinf": Pointwise(_on_floats(op(Op.ISINF)), COMPUTABLE),
    "isfinite": Pointwise(_on_floats(_isfinite, True), COMPUTABLE),
    "isposinf": Pointwise(_on_floats(lambda b, x: b(Op.EQ, x, like(b, math.inf, x))), COMPUTABLE),
    "isneginf": Pointwise(_on_floats(lambda b, x: b(Op.EQ, x, like(b, -math.inf, x))), COMPUTABLE),
    "sqrt": _float(op(Op.SQRT), 5),
    "rsqrt": _float(op(Op.RSQRT), 8),
    "reciprocal": _float(_reciprocal, 4),
    "sinc": _float(_sinc, 25),
    "special_entr": Pointwise(_entr, FLOATS, Promotion.FLOAT, cost=25, steps=_HALF_STEPS),
    "deg2rad": _float(_scaled(math.pi / 180), 1),
    "rad2deg": _float(_scaled(180 / math.pi), 1),
    **{name: _float(op(Op[name.upper()])) for name in _FUNCTIONS.split()},
}
"""`aten.name.default`."""

_REMAINDER: Final = replace(_binary(_checked(Op.REMAINDER), cost=15), on_gpu=op(Op.REMAINDER))
_FMOD: Final = replace(_binary(_checked(Op.FMOD), cost=15), on_gpu=op(Op.FMOD))
_XLOGY: Final = Pointwise(_x_times(Op.LOG), FLOATS, Promotion.FLOAT, BINARY, (), 25, _HALF_STEPS)
_XLOG1PY: Final = replace(_XLOGY, compute=_x_times(Op.LOG1P))
_COPYSIGN: Final = Pointwise(op(Op.COPYSIGN), FLOATS, Promotion.FLOAT, BINARY)
_MINIMUM: Final = _binary(_best(Op.MINIMUM, Op.AND), COMPUTABLE)
_MAXIMUM: Final = _binary(_best(Op.MAXIMUM, Op.OR), COMPUTABLE)

OTHERS: Final[dict[str, Pointwise]] = {
    "mul.Tensor": Pointwise(_mul, COMPUTABLE, args=BINARY, wide=True),
    "mul.Scalar": Pointwise(_mul, COMPUTABLE, args=BINARY, wide=True),
    "div.Tensor": TRUE_DIV,
    "div.Scalar": TRUE_DIV,
    "true_divide.Tensor": TRUE_DIV,
    "true_divide.Scalar": TRUE_DIV,
    "remainder.Tensor": _REMAINDER,
    "remainder.Scalar": _REMAINDER,
    "remainder.Scalar_Tensor": _REMAINDER,
    "fmod.Tensor": _FMOD,
    "fmod.Scalar": _FMOD,
    "minimum.default": _MINIMUM,
    "maximum.default": _MAXIMUM,
    "min.other": _MINIMUM,
    "max.other": _MAXIMUM,
    "heaviside.default": Pointwise(_heaviside, args=("self", "values"), alike=True),
    "atan2.default": Pointwise(op(Op.ATAN2), FLOATS, Promotion.FLOAT, BINARY, cost=40),
    "hypot.default": _binary(op(Op.HYPOT), FLOATS, 30),
    "nextafter.default": _binary(op(Op.NEXTAFTER), frozenset({Type.F32, Type.F64}), 20),
    "copysign.Tensor": _COPYSIGN,
    "copysign.Scalar": _COPYSIGN,
    "xlogy.Tensor": _XLOGY,
    "xlogy.Scalar_Self": _XLOGY,
    "xlogy.Scalar_Other": _XLOGY,
    "special_xlog1py.default": _XLOG1PY,
    "special_xlog1py.self_scalar": _XLOG1PY,
    "special_xlog1py.other_scalar": _XLOG1PY,
    "logaddexp.default": _binary(_log_add(Op.EXP, 1.0), FLOATS, 45),
    "logaddexp2.default": _binary(_log_add(Op.EXP2, 1 / math.log(2)), FLOATS, 45),
    "addcmul.default": Pointwise(
        _addcmul, args=("self", "tensor1", "tensor2"), options=(("value", 1),), cost=2
    ),
    "lerp.Tensor": Pointwise(_lerp, FLOATS, args=("self", "end", "weight"), cost=6),
    "lerp.Scalar": Pointwise(_lerp, FLOATS, args=("self", "end"), options=(("weight", 0),), cost=6),
    **{
        f"logical_{name}.default": _binary(_logical(of), COMPUTABLE)
        for name, of in (("and", Op.AND), ("or", Op.OR), ("xor", Op.XOR))
    },
    **{
        f"bitwise_{name}.{overload}": _binary(op(of), BITS)
        for name, of in (("and", Op.AND), ("or", Op.OR), ("xor", Op.XOR))
        for overload in ("Tensor", "Scalar", "Scalar_Tensor")
    },
    **{
        f"bitwise_{name}_shift.{overload}": _binary(op(of), INTS)
        for name, of in (("left", Op.SHL), ("right", Op.SHR))
        for overload in ("Tensor", "Tensor_Scalar", "Scalar_Tensor")
    },
    **{
        f"__{name}__.{overload}": _binary(op(of), on)
        for name, of, on in (
            ("and", Op.AND, BITS),
            ("or", Op.OR, BITS),
            ("xor", Op.XOR, BITS),
            ("lshift", Op.SHL, INTS),
            ("rshift", Op.SHR, INTS),
        )
        for overload in ("Tensor", "Scalar")
    },
    **{
        f"{name}.{overload}": _binary(op(Op[name.upper()]), COMPUTABLE)
        for name in _COMPARISONS.split()
        for overload in ("Tensor", "Scalar")
    },
}

ALIASES: Final = {
    "mul": "multiply",
    "sub": "subtract",
    "div": "divide",
    "gt": "greater",
    "ge": "greater_equal",
    "lt": "less",
    "le": "less_equal",
    "ne": "not_equal",
    "abs": "absolute",
    "neg": "negative",
    "trunc": "fix",
    "clamp": "clip",
    "acos": "arccos",
    "asin": "arcsin",
    "atan": "arctan",
    "acosh": "arccosh",
    "asinh": "arcsinh",
    "atanh": "arctanh",
    "atan2": "arctan2",
    "sigmoid": "special_expit",
    "logit": "special_logit",
    "erf": "special_erf",
    "erfc": "special_erfc",
    "exp2": "special_exp2",
    "expm1": "special_expm1",
    "log1p": "special_log1p",
    "sinc": "special_sinc",
}
"""Other names of the same operators, which have the same overloads."""


# --------------------------------------------------------------------------------------------------
# Shapes, for those that programs use most: the others are tried on tensors of one element


def _angle(tensors: list[Fake], sizes: tuple[Any, ...]) -> tuple[Any, ...]:
    """The strides of `angle`. For complex numbers PyTorch allocates a contiguous result first."""
    if tensors[0].is_complex():
        return contiguous_strides(sizes)
    return pointwise_strides(tensors, sizes)


def _isinf(tensors: list[Fake], sizes: tuple[Any, ...]) -> tuple[Any, ...]:
    """The strides of `isinf`. For integers PyTorch returns zeros like the tensor."""
    return (pointwise_strides if tensors[0].is_floating_point() else like_first)(tensors, sizes)


def _of_reversed(tensors: list[Fake], sizes: tuple[Any, ...]) -> tuple[Any, ...]:
    return pointwise_strides(tensors[::-1], sizes)


for _name in ("neg", "floor", "ceil", "round", "trunc", "sign", "abs"):
    register(f"aten.{_name}.default", shape=shapes.pointwise(1, shapes.promote))
    register(f"aten.{_name}_.default", shape=shapes.in_place(1, shapes.promote))
_UNARY_TO_FLOAT: Final = (
    "exp expm1 log log2 log1p sin cos tanh sigmoid sqrt rsqrt reciprocal erf atan"
)
for _name in _UNARY_TO_FLOAT.split():
    register(f"aten.{_name}.default", shape=shapes.pointwise(1, shapes.to_float))
    register(f"aten.{_name}_.default", shape=shapes.in_place(1, shapes.to_float))
_IN_PLACE: Final = shapes.in_place(2, shapes.promote)
for _overload in ("Tensor", "Scalar"):
    for _name in ("mul", "remainder"):
        register(f"aten.{_name}.{_overload}", shape=shapes.pointwise(2, shapes.promote))
    for _name in ("add", "mul", "remainder"):
        register(f"aten.{_name}_.{_overload}", shape=_IN_PLACE)
    register(f"aten.sub_.{_overload}", shape=shapes.without_bools(_IN_PLACE))
    register(f"aten.div.{_overload}", shape=shapes.pointwise(2, shapes.to_float))
    register(f"aten.div_.{_overload}", shape=shapes.in_place(2, shapes.to_float))
    for _name in _COMPARISONS.split():
        register(f"aten.{_name}.{_overload}", shape=shapes.pointwise(2, shapes.to_bool))
register("aten.rsub.Scalar", shape=_DIFFERENCE)
register(
    *("aten.maximum.default", "aten.minimum.default"), shape=shapes.pointwise(2, shapes.promote)
)
for _name in ("logical_and", "logical_or", "logical_xor"):
    register(f"aten.{_name}.default", shape=shapes.pointwise(2, shapes.to_bool))
register("aten.logical_not.default", shape=shapes.pointwise(1, shapes.to_bool))
register("aten.addcmul.default", shape=shapes.pointwise(3, shapes.floats_only))
register("aten.rsub.Tensor", pointwise=True, layout=_of_reversed)
register("aten.complex.default", "aten.polar.default", pointwise=True)
register("aten.mvlgamma.default", pointwise=False)
register("aten.angle.default", layout=_angle)
register("aten.isinf.default", layout=_isinf)
register("aten.rad2deg.default", "aten.deg2rad.default", layout=like_first)
register("aten.copysign.Scalar", "aten.copysign.Tensor", meta=meta.like_sum)
register("aten.floor_divide_.Tensor", functional=torch.ops.aten.floor_divide.default)

# --------------------------------------------------------------------------------------------------
# Which may raise


def _divides_integers(args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
    """Whether a division is one of integers by what may be 0."""
    dividend, divisor = (*args, None)[:2]
    if divisor is None:
        return True
    if any(map(is_float_argument, (dividend, divisor))):
        return False
    return not (type(divisor) is int and divisor)


def _divides_rounding(args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
    mode = args[2] if len(args) > 2 else kwargs.get("rounding_mode")
    return mode is not None and _divides_integers(args, kwargs)


register("aten.floor_divide", "aten.remainder", "aten.fmod", raises=_divides_integers)
register("aten.div", "aten.divide", raises=_divides_rounding)


_SAFE: Final = """
complex polar view_as_complex view_as_real rsub absolute arccos arccosh arcsin arcsinh
arctan arctan2 arctanh fix greater greater_equal less less_equal multiply negative not_equal
subtract true_divide __and__ __or__ __xor__ special_erf special_erfc special_exp2
special_expit special_expm1 special_log1p special_logit special_sinc
"""
register(*aten_names(_SAFE), raises=never)


for _name, _table_rule in (
    *[(f"{name}.default", rule) for name, rule in UNARY.items()],
    *OTHERS.items(),
):
    lowers(f"aten.{_name}")(_table_rule)

for _name, _record in list(RECORDS.items()):
    if _record.lowering is not None:
        _, _base, _overload = _name.split(".")
        for _alias in ALIASES.get(_base, "").split():
            lowers(f"aten.{_alias}.{_overload}")(_record.lowering)

__all__ = ["Pointwise", "Promotion", "activations", "common_dtype", "copies", "powers"]

register(
    *aten_names(
        "exp exp2 expm1 log log2 log10 log1p sin cos tan tanh sinh cosh asin acos atan atan2 asinh "
        "acosh atanh erf erfc erfinv sigmoid silu gelu mish softplus elu log_sigmoid_forward pow "
        "lgamma digamma logit xlogy logaddexp logaddexp2 hypot fmod remainder polygamma i0 sinc"
    ),
    expensive=True,
)
register(
    *aten_names(
        "_to_copy clone full zeros ones zeros_like ones_like full_like new_zeros new_full new_ones "
        "scalar_tensor arange constant_pad_nd cat tril triu where masked_fill new_empty empty_like "
        "slice_scatter select_scatter __and__ __or__ __xor__"
    ),
    fuses=True,
)
