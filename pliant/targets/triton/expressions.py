"""The operations of the loop IR on values, as Triton source: one table.

The one idea: an operation is a function from texts to a text. Arithmetic is Triton's own;
functions of floats are those of libdevice, the ones that eager PyTorch calls on CUDA. Names that
are neither (`floor_div`, `sign`) are in `library`.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import Final

from pliant.loop.float8 import float8
from pliant.loop.ir import LoopValue, Op
from pliant.loop.types import FLOAT, FLOAT8, HALF, INTEGER, NUMBER, SIGNED, UNSIGNED, Type

DTYPES: Final[dict[Type, str]] = {
    Type.BOOL: "tl.int1",
    Type.F16: "tl.float16",
    Type.BF16: "tl.bfloat16",
    Type.F32: "tl.float32",
    Type.F64: "tl.float64",
    **{t: f"tl.int{t.bits}" for t in SIGNED},
    **{t: f"tl.uint{t.bits}" for t in UNSIGNED | FLOAT8},  # see `library.to_float8`
}
POINTERS: Final[dict[Type, str]] = {
    Type.BOOL: "*i1",
    Type.F16: "*fp16",
    Type.BF16: "*bf16",
    Type.F32: "*fp32",
    Type.F64: "*fp64",
    **{t: f"*i{t.bits}" for t in SIGNED},
    **{t: f"*u{t.bits}" for t in UNSIGNED | FLOAT8},
}

Print = Callable[..., str]  # (type of the arguments, *their texts)


def is_negative_zero(number: float | bool) -> bool:
    """Whether it is -0.0, which Triton makes 0.0 of in its constants."""
    return number == 0 and math.copysign(1.0, number) < 0


def literal(number: float | bool) -> str:
    """A constant other than -0.0, as source."""
    if isinstance(number, float) and not math.isfinite(number):
        return f'float("{number}")'
    return repr(number)


def _widened(t: Type, x: str) -> str:
    """A float of 16 bits as one of 32."""
    return f"{x}.to(tl.float32)"


def _rounded(t: Type, x: str) -> str:
    return f"{x}.to({DTYPES[t]})"


def _from_float8(t: Type, x: str) -> str:
    fmt = float8(t)
    return f"from_float8({x}, {fmt.mantissa}, {fmt.bias}, {fmt.special})"


def _to_float8(t: Type, x: str) -> str:
    fmt = float8(t)
    return f"to_float8({x}, {fmt.mantissa}, {fmt.bias}, {fmt.nan}, {fmt.overflow})"


WIDE: Final[dict[Type, Callable[[str], str]]] = {
    **{t: partial(_widened, t) for t in HALF},
    **{t: partial(_from_float8, t) for t in FLOAT8},
}
NARROW: Final[dict[Type, Callable[[str], str]]] = {
    **{t: partial(_rounded, t) for t in HALF},
    **{t: partial(_to_float8, t) for t in FLOAT8},
}
"""Floats that are only moved and cast, from and to `F32`."""


def typed(number: float | bool, t: Type) -> str:
    """A constant with its type, for places where no other operand tells it."""
    if t in NARROW:
        return NARROW[t](typed(number, Type.F32))
    if is_negative_zero(number):
        return f"({typed(0.0, t)} * -1.0)"
    return f"tl.full([], {literal(number)}, {DTYPES[t]})"


def cast(source: Type, target: Type, x: str) -> str:
    """What `Tensor.to` does."""
    if source is target:
        return x
    if source in NARROW:
        return cast(Type.F32, target, WIDE[source](x))
    if target in NARROW:
        return NARROW[target](cast(source, Type.F32, x))
    if target is Type.BOOL:
        return f"({x} != 0)"
    if source in FLOAT and target in INTEGER and target not in (Type.I32, Type.I64, Type.U64):
        x = f"{x}.to({'tl.int64' if target is Type.U32 else 'tl.int32'})"
    return f"{x}.to({DTYPES[target]})"


def _infix(sign: str) -> Print:
    return lambda t, a, b: f"{a} {sign} {b}"


def _ordered(sign: str) -> Print:
    def compare(t: Type, a: str, b: str) -> str:
        if t is Type.BOOL:  # a bool of one bit is -1, if it is a number with a sign
            a, b = f"({a}).to(tl.int8)", f"({b}).to(tl.int8)"
        return f"{a} {sign} {b}"

    return compare


def _function(name: str) -> Print:
    return lambda t, *args: f"{name}({', '.join(args)})"


def _by_class(on_floats: str, on_ints: str) -> Print:
    return lambda t, *args: f"{on_floats if t in FLOAT else on_ints}({', '.join(args)})"


def _best(name: str) -> Print:
    def emit(t: Type, a: str, b: str) -> str:
        nan = ", propagate_nan=tl.PropagateNan.ALL" if t in FLOAT else ""
        return f"{name}({a}, {b}{nan})"

    return emit


def _divided(t: Type, a: str, b: str) -> str:
    return f"tl.div_rn({a}, {b})" if t is Type.F32 else f"{a} / {b}"


def _ones(t: Type) -> int:
    """All bits: what Triton writes for `~`, -1, is no number of the unsigned types."""
    return (1 << t.bits) - 1 if t in UNSIGNED else -1


def _shift(name: str) -> Print:
    return lambda t, a, b: f"{name}({a}, {b}, {t.bits})"


def _libdevice(names: str) -> dict[Op, Print]:
    return {Op[name.upper()]: _function(f"libdevice.{name}") for name in names.split()}


OPS: Final[dict[Op, Print]] = {
    Op.ADD: _infix("+"),
    Op.SUB: _infix("-"),
    Op.MUL: _infix("*"),
    Op.DIV: _divided,
    Op.FLOOR_DIV: _by_class("floor_div_floats", "floor_div"),
    Op.TRUNC_DIV: lambda t, a, b: (
        f"libdevice.trunc({_divided(t, a, b)})" if t in FLOAT else f"{a} // {b}"
    ),
    Op.REMAINDER: _by_class("remainder_floats", "floor_mod"),
    Op.FMOD: lambda t, a, b: f"libdevice.fmod({a}, {b})" if t in FLOAT else f"{a} % {b}",
    # For Triton -x is 0 - x: of the floats, 0.0 would stay 0.0.
    Op.NEG: lambda t, a: f"{a} * -1.0" if t in FLOAT else f"-{a}",
    Op.ABS: lambda t, a: a if t in UNSIGNED else f"tl.abs({a})",
    Op.SIGN: _function("sign"),
    Op.MINIMUM: _best("tl.minimum"),
    Op.MAXIMUM: _best("tl.maximum"),
    Op.FMIN: _by_class("fmin", "tl.minimum"),
    Op.FMAX: _by_class("fmax", "tl.maximum"),
    Op.FMA: _function("tl.fma"),
    Op.AND: _infix("&"),
    Op.OR: _infix("|"),
    Op.XOR: _infix("^"),
    Op.NOT: lambda t, a: f"{a} == 0" if t is Type.BOOL else f"{a} ^ {_ones(t)}",
    Op.SHL: _shift("shift_left"),
    Op.SHR: lambda t, a, b: _shift(f"shift_right{'_unsigned' * (t in UNSIGNED)}")(t, a, b),
    Op.EQ: _infix("=="),
    Op.NE: _infix("!="),
    Op.LT: _ordered("<"),
    Op.LE: _ordered("<="),
    Op.GT: _ordered(">"),
    Op.GE: _ordered(">="),
    Op.ISNAN: lambda t, a: f"{a} != {a}",
    Op.ISINF: lambda t, a: f'tl.abs({a}) == float("inf")',
    Op.SQRT: lambda t, a: f"tl.sqrt_rn({a})" if t is Type.F32 else f"tl.sqrt({a})",
    Op.RSQRT: _function("libdevice.rsqrt"),
    Op.ROUND: _function("libdevice.nearbyint"),
    Op.SIGMOID: _function("sigmoid"),
    Op.SILU: _function("silu"),
    **_libdevice("floor ceil trunc copysign exp exp2 expm1 log log2 log10 log1p sin cos tan tanh"),
    **_libdevice("erf erfc pow sinh cosh asin acos atan atan2 asinh acosh atanh lgamma"),
    **_libdevice("hypot nextafter"),
}
"""Operations whose result depends on their arguments alone; the rest are in `printer`."""

_ADAPTS: Final = frozenset((Op.ADD, Op.SUB, Op.MUL, Op.AND, Op.OR, Op.XOR, Op.SELECT))
"""Operations in which a number takes the type of the argument beside it."""
_PROMOTES: Final = frozenset((Op.MINIMUM, Op.MAXIMUM, Op.EQ, Op.NE, Op.LT, Op.LE, Op.GT, Op.GE))
"""Operations in which a number is a tensor of 32 bits (or an integer of 64), and both arguments are
promoted: 0.1 beside a float64 is a float32, and what is beside 0 is no int8 any more."""
_UNCHANGED: Final = frozenset((Type.F32, Type.I32, Type.I64))
"""Types that such a number doesn't change, and that it can be converted to."""


def takes_literals(value: LoopValue) -> bool:
    """Whether the constants among the arguments can be plain numbers."""
    operands = value.args[1:] if value.op is Op.SELECT else value.args
    beside = any(arg.op is not Op.CONSTANT for arg in operands)
    type = operands[0].type
    fits = value.op in _ADAPTS or (value.op in _PROMOTES and type in _UNCHANGED)
    return fits and beside and type in NUMBER
