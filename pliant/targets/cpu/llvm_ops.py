"""The operations of the loop IR on values, as LLVM IR: one table.

The one idea: an operation is a function from registers to a register, and the loop type says what
the register's type doesn't: whether an integer has a sign. A bool is an i1 in registers and a byte
in memory; a bfloat16 and a float of 8 bits are their bits.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Final

from pliant.loop.float8 import float8
from pliant.loop.ir import Op
from pliant.loop.types import FLOAT, FLOAT8, SIGNED, UNSIGNED, Type, smallest
from pliant.targets.cpu import llvm_math as math
from pliant.targets.cpu.llvm_float8 import from_float8, to_float8
from pliant.targets.cpu.llvm_text import BITS, Code, Reg

REGISTER: Final[dict[Type, str]] = {
    Type.BOOL: "i1",
    Type.F16: "half",
    Type.BF16: "i16",
    Type.F32: "float",
    Type.F64: "double",
    **{t: f"i{t.bits}" for t in SIGNED | UNSIGNED | FLOAT8},
}
MEMORY: Final[dict[Type, str]] = {**REGISTER, Type.BOOL: "i8"}

Emit = Callable[..., Reg]  # (code, type of the arguments, *arguments)


# --------------------------------------------------------------------------------------------------
# Casts


def widened(code: Code, x: Reg, t: Type) -> Reg:
    """A float of 8 or 16 bits as a float."""
    if t in FLOAT8:
        return from_float8(code, x, float8(t))
    if t is Type.F16:
        return code.convert("fpext", x, "float")
    shifted = code.convert("zext", x, "i32") << 16
    return code.convert("bitcast", shifted, "float")


def to_bfloat16(code: Code, x: Reg, plain_nan: bool = False) -> Reg:
    """To the nearest, halves to even; the instruction for it would make subnormals 0. With
    `plain_nan`, the lower half of a nan is 0."""
    bits = code.bits(x)
    lowest = code.binary("lshr", bits, 16) & 1
    # Half a unit less one bit, and one more if the last bit that stays is 1: halves go to even.
    nearest = code.binary("lshr", bits + lowest + 0x7FFF, 16)
    if plain_nan:
        return code.convert("trunc", nearest, "i16")
    return code.convert("trunc", code.select(x.is_nan(), 0x7FC0, nearest), "i16")


def _to_float8(t: Type, code: Code, x: Reg) -> Reg:
    return to_float8(code, x, float8(t))


NARROW: Final[dict[Type, Emit]] = {
    Type.BF16: to_bfloat16,
    Type.F16: lambda code, x: code.convert("fptrunc", x, "half"),
    **{t: partial(_to_float8, t) for t in FLOAT8},
}


def cast(code: Code, source: Type, target: Type, x: Reg) -> Reg:
    """The cast that `Tensor.to` makes on this machine, also where C++ leaves the result open."""
    if source is target:
        return x
    if source in NARROW:
        return cast(code, Type.F32, target, widened(code, x, source))
    if target in NARROW:
        return NARROW[target](code, cast(code, source, Type.F32, x))
    if target is Type.BOOL:
        return x.compare("ne", 0)
    return _CASTS[source.kind == "float", target.kind == "float"](code, source, target, x)


def _int_to_int(code: Code, source: Type, target: Type, x: Reg) -> Reg:
    type = REGISTER[target]
    if BITS[type] < BITS[x.type]:
        return code.convert("trunc", x, type)
    return code.convert("sext" if source in SIGNED else "zext", x, type)


def _int_to_float(code: Code, source: Type, target: Type, x: Reg) -> Reg:
    return code.convert("sitofp" if source in SIGNED else "uitofp", x, REGISTER[target])


def _float_to_float(code: Code, source: Type, target: Type, x: Reg) -> Reg:
    return code.convert("fpext" if target is Type.F64 else "fptrunc", x, REGISTER[target])


def _float_to_int(code: Code, source: Type, target: Type, x: Reg) -> Reg:
    """Convert to an integer of 32 or 64 bits, the one that eager PyTorch takes, and keep its lowest
    bits. Out of range the result is its smallest number, as that of the instruction is. This has to
    be written: to LLVM the result is poison there, and a cast of a constant such as inf would be
    optimized away."""
    if target is Type.U64:
        return code.unary("freeze", code.convert("fptoui", x, "i64"))
    narrow = target.bits <= 32 and target is not Type.U32
    if target is Type.U8 and source is Type.F64:
        narrow = False
    wide = Type.I32 if narrow else Type.I64
    inside = math.fabs(code, x).compare("lt", -float(smallest(wide)))
    converted = code.select(inside, code.convert("fptosi", x, REGISTER[wide]), smallest(wide))
    return code.convert("trunc", converted, REGISTER[target])


_CASTS: Final[dict[tuple[bool, bool], Emit]] = {
    (False, False): _int_to_int,
    (False, True): _int_to_float,
    (True, True): _float_to_float,
    (True, False): _float_to_int,
}


def bitcast(code: Code, target: Type, x: Reg) -> Reg:
    return code.convert("bitcast", x, REGISTER[target])


# --------------------------------------------------------------------------------------------------
# Arithmetic


def instruction(on_ints: str, on_floats: str = "") -> Emit:
    """One instruction, by the class of the type."""
    return lambda code, t, a, b: code.binary(on_floats if t in FLOAT else on_ints, a, b)


def intrinsic(name: str) -> Emit:
    return lambda code, t, *args: code.intrinsic(name, *args)


def compared(op: str) -> Emit:
    signed = {"lt": "icmp ult", "le": "icmp ule", "gt": "icmp ugt", "ge": "icmp uge"}

    def emit(code: Code, t: Type, a: Reg, b: Reg) -> Reg:
        without_sign = t in UNSIGNED or t is Type.BOOL
        return code.compare(signed[op], a, b) if without_sign and op in signed else a.compare(op, b)

    return emit


def _quotient(code: Code, t: Type, a: Reg, b: Reg) -> tuple[Reg, Reg, Reg]:
    """The quotient rounded to 0, the remainder, and the divisor that was used: 1 instead of 0 and
    of -1, with which the instruction could fault (the smallest integer by -1 overflows)."""
    a, b = code.together(a, b)
    unsafe = b.compare("eq", 0)
    if t in SIGNED:
        unsafe = unsafe | b.compare("eq", -1)
    safe = code.select(unsafe, 1, b)
    sign = "s" if t in SIGNED else "u"
    if a.lanes > 1 and t.bits <= 32:  # exact in double, and there are vector instructions for it
        x, y = (
            code.convert(f"{sign}itofp", a, "double"),
            code.convert(f"{sign}itofp", safe, "double"),
        )
        q = code.convert(f"fpto{sign}i", x / y, a.type)
    else:
        q = code.binary(f"{sign}div", a, safe)
    return q, a - q * safe, safe


def _minus_one(code: Code, t: Type, a: Reg, b: Reg, quotient: Reg) -> Reg:
    return code.select(b.compare("eq", -1), -a, quotient) if t in SIGNED else quotient


def _signs_differ(code: Code, t: Type, rest: Reg, b: Reg) -> Reg:
    """Whether a remainder isn't 0 and has another sign than the divisor: where rounding down and
    rounding to 0 differ."""
    differ = rest.compare("ne", 0)
    if t in FLOAT:
        return differ & (rest.compare("lt", 0.0) ^ b.compare("lt", 0.0))
    return differ & (rest ^ b).compare("lt", 0)


def trunc_div(code: Code, t: Type, a: Reg, b: Reg) -> Reg:
    if t in FLOAT:
        return code.intrinsic("trunc", a / b)
    quotient, _, _ = _quotient(code, t, a, b)
    return _minus_one(code, t, a, b, quotient)


def floor_div(code: Code, t: Type, a: Reg, b: Reg) -> Reg:
    if t in FLOAT:
        return _float_floor_div(code, t, a, b)
    quotient, rest, safe = _quotient(code, t, a, b)
    if t in SIGNED:
        inexact = _signs_differ(code, t, rest, safe)
        quotient = code.select(inexact, quotient - 1, quotient)
    return _minus_one(code, t, a, b, quotient)


def _float_floor_div(code: Code, t: Type, a: Reg, b: Reg) -> Reg:
    """The quotient from the exact remainder, as PyTorch does: `a / b` may round up to the next
    integer."""
    a, b = code.together(a, b)
    rest = code.binary("frem", a, b)
    quotient = (a - rest) / b
    quotient = code.select(_signs_differ(code, t, rest, b), quotient - 1.0, quotient)
    below = code.intrinsic("floor", quotient)
    result = code.select((quotient - below).compare("gt", 0.5), below + 1.0, below)
    plain = a / b
    result = code.select(
        quotient.compare("eq", 0.0), code.intrinsic("copysign", a.like(0.0), plain), result
    )
    return code.select(b.compare("eq", 0.0), plain, result)


def fmod(code: Code, t: Type, a: Reg, b: Reg) -> Reg:
    return code.binary("frem", a, b) if t in FLOAT else _quotient(code, t, a, b)[1]


def remainder(code: Code, t: Type, a: Reg, b: Reg) -> Reg:
    if t in FLOAT:
        a, b = code.together(a, b)
        rest, divisor = code.binary("frem", a, b), b
    else:
        _, rest, divisor = _quotient(code, t, a, b)
    if t in UNSIGNED:
        return rest
    return code.select(_signs_differ(code, t, rest, divisor), rest + divisor, rest)


def best(sign: int, skip_nan: bool = False) -> Emit:
    """The larger (sign 1) or smaller: on floats one instruction, which gives its second argument
    if either is nan or both are 0, and a correction. That argument is `b`, or `a` if a nan is to be
    skipped, as in eager PyTorch."""

    def emit(code: Code, t: Type, a: Reg, b: Reg) -> Reg:
        if t not in FLOAT:
            return code.intrinsic(
                f"{'s' if t in SIGNED else 'u'}{'max' if sign > 0 else 'min'}", a, b
            )
        a, b = code.together(a, b)
        better = "gt" if sign > 0 else "lt"
        if skip_nan:
            return code.select(a.is_nan(), b, code.select(b.compare(better, a), b, a))
        chosen = code.select(a.compare(better, b), a, b)
        # Not `a`, which is nan too: LLVM would join the two choices and lose the instruction.
        return code.select(a.is_nan(), math.NAN, chosen)

    return emit


def absolute(code: Code, t: Type, a: Reg) -> Reg:
    if t in FLOAT:
        return code.intrinsic("fabs", a)
    return code.select(a.compare("lt", 0), -a, a) if t in SIGNED else a


def sign_of(code: Code, t: Type, a: Reg) -> Reg:
    if t in UNSIGNED:
        return code.convert("zext", a.compare("ne", 0), a.type)
    return code.select(
        a.compare("gt", 0), a.like(1), code.select(a.compare("lt", 0), a.like(-1), a.like(0))
    )


def shift_left(code: Code, t: Type, a: Reg, b: Reg) -> Reg:
    # Unsigned, so that a negative count is too large as well. LLVM leaves such shifts undefined.
    possible = code.compare("icmp ult", b, t.bits)
    return code.select(possible, a << code.select(possible, b, 0), 0)


def shift_right(code: Code, t: Type, a: Reg, b: Reg) -> Reg:
    possible = code.compare("icmp ult", b, t.bits)
    if t in SIGNED:
        return a >> code.select(possible, b, t.bits - 1)
    return code.select(possible, code.binary("lshr", a, code.select(possible, b, 0)), 0)


def function(own: Callable[..., Reg] | None, name: str, double_too: bool = False) -> Emit:
    """Our code for float (and double), or the C library's function of this name."""

    def emit(code: Code, t: Type, *args: Reg) -> Reg:
        if own is not None and (double_too or t is Type.F32):
            return own(code, *args)
        return math.library(code, f"{name}f" if t is Type.F32 else name, *args)

    return emit


def _from_library(names: str) -> dict[Op, Emit]:
    return {Op[name.upper()]: function(None, name) for name in names.split()}


OPS: Final[dict[Op, Emit]] = {
    Op.ADD: instruction("add", "fadd"),
    Op.SUB: instruction("sub", "fsub"),
    Op.MUL: instruction("mul", "fmul"),
    Op.DIV: instruction("", "fdiv"),
    Op.FLOOR_DIV: floor_div,
    Op.TRUNC_DIV: trunc_div,
    Op.REMAINDER: remainder,
    Op.FMOD: fmod,
    Op.NEG: lambda code, t, a: -a,
    Op.ABS: absolute,
    Op.SIGN: sign_of,
    Op.MINIMUM: best(-1),
    Op.MAXIMUM: best(1),
    Op.FMIN: best(-1, skip_nan=True),
    Op.FMAX: best(1, skip_nan=True),
    Op.FMA: intrinsic("fma"),
    Op.AND: instruction("and"),
    Op.OR: instruction("or"),
    Op.XOR: instruction("xor"),
    Op.NOT: lambda code, t, a: ~a,
    Op.SHL: shift_left,
    Op.SHR: shift_right,
    **{op: compared(op.text) for op in (Op.EQ, Op.NE, Op.LT, Op.LE, Op.GT, Op.GE)},
    Op.ISNAN: lambda code, t, a: a.is_nan(),
    Op.ISINF: lambda code, t, a: code.intrinsic("fabs", a).compare("eq", math.INF),
    Op.SELECT: lambda code, t, condition, a, b: code.select(condition, a, b),
    Op.SQRT: intrinsic("sqrt"),
    Op.RSQRT: lambda code, t, a: 1.0 / code.intrinsic("sqrt", a),
    Op.FLOOR: intrinsic("floor"),
    Op.CEIL: intrinsic("ceil"),
    Op.TRUNC: intrinsic("trunc"),
    Op.ROUND: intrinsic("roundeven"),
    Op.COPYSIGN: intrinsic("copysign"),
    Op.EXP: function(math.exp, "exp", double_too=True),
    Op.EXP2: function(math.exp2, "exp2", double_too=True),
    Op.EXPM1: function(math.expm1, "expm1", double_too=True),
    Op.LOG: function(math.log, "log", double_too=True),
    Op.LOG2: function(math.log2, "log2", double_too=True),
    Op.LOG10: function(math.log10, "log10", double_too=True),
    Op.LOG1P: function(math.log1p, "log1p", double_too=True),
    Op.TANH: function(math.tanh, "tanh", double_too=True),
    Op.SIGMOID: function(math.sigmoid, "", double_too=True),
    Op.SILU: function(math.silu, "", double_too=True),
    Op.SIN: function(math.sin, "sin"),
    Op.COS: function(math.cos, "cos"),
    Op.ERF: function(math.erf, "erf"),
    Op.POW: function(math.power, "pow"),
    Op.TAN: function(math.tan, "tan", double_too=True),
    Op.SINH: function(math.sinh, "sinh", double_too=True),
    Op.COSH: function(math.cosh, "cosh", double_too=True),
    **_from_library("erfc asin acos atan atan2 asinh acosh atanh lgamma"),
    **_from_library("hypot nextafter"),
}
"""Operations whose result depends on their arguments alone; the rest are in `llvm`."""


def lowest(t: Type) -> float | int:
    """The least number of the type: minus infinity for floats."""
    return -math.INF if t in FLOAT else smallest(t)
