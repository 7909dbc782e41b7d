"""Functions of floats as vectorisable code.

The one idea: reduce the argument to a short interval, evaluate a polynomial there, and undo the
reduction with bits; special values fall out of the arithmetic or are selected at the end, so that
there are no branches. Errors are below 2 units in the last place of a float32.

The polynomials were fitted (Remez, relative error) for the intervals given with them; highest power
first. What there is no such code for calls Sleef, or the C library lane by lane. For instance

    exp(x) = 2**n * exp(r)    with n = round(x / ln 2) and r = x - n * ln 2, |r| <= ln(2)/2
    log(x) = n * ln 2 + log(1 + f)    with x = (1 + f) * 2**n

where `ln 2` is a sum of two numbers: the first has few bits, so that `n` times it is exact (Cody
and Waite), and the second is what it lacks.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Final

from pliant.base.values import dataclass
from pliant.targets.cpu.llvm_text import Code, Reg, rounded, vector
from pliant.targets.cpu.sleef import vector_function

INF: Final = math.inf
NAN: Final = math.nan
LN2: Final = math.log(2)
LOG2_E: Final = math.log2(math.e)


@dataclass(frozen=True, slots=True)
class Format:
    """A float format, and what exp, expm1 and log need to know of it."""

    integer: str  # of the same width
    mantissa: int  # bits
    bias: int
    magic: float  # adding it leaves an integer in the lowest bits
    exp_range: tuple[float, float]  # outside: 0 and infinity
    expm1_low: float  # below: -1
    ln2: tuple[float, float]  # ln 2 as a sum, the first with few bits
    exp: tuple[float, ...]  # (exp(r) - 1 - r) / r**2, |r| <= ln(2)/2
    expm1: tuple[float, ...]
    exp2: tuple[float, ...]  # (2**r - 1) / r, |r| <= 1/2
    root_half: int  # the bits of sqrt(1/2)


FORMATS: Final = {
    "float": Format(
        "i32",
        23,
        127,
        1.5 * 2**23,
        (-104.0, 89.0),
        -20.0,
        (0.693359375, LN2 - 0.693359375),
        (0.0013814614, 0.0083687166, 0.041668389, 0.16666521, 0.49999994),
        (0.000199142014, 0.00139410072, 0.00833327323, 0.0416663550, 0.16666667, 0.5),
        (
            1.53149758e-05,
            0.000154671361,
            0.0013333431,
            0.00961803645,
            0.0555041097,
            0.240226507,
            0.693147182,
        ),
        0x3F3504F3,
    ),
    "double": Format(
        "i64",
        52,
        1023,
        1.5 * 2**52,
        (-746.0, 710.0),
        -40.0,
        (0.693145751953125, 1.4286068203094173e-06),
        (
            2.5117910889662052e-08,
            2.7631278253447583e-07,
            2.755721612357781e-06,
            2.4801489948710897e-05,
            0.00019841269917605066,
            0.0013888888947008893,
            0.008333333333307092,
            0.04166666666651545,
            0.166666666666667,
            0.5000000000000012,
        ),
        (
            2.0924488510003118e-09,
            2.5109044618695143e-08,
            2.755724258742789e-07,
            2.7557244182770382e-06,
            2.4801587360795128e-05,
            0.00019841269886157625,
            0.0013888888888866694,
            0.008333333333321617,
            0.0416666666666667,
            0.16666666666666677,
            0.5,
        ),
        (
            1.3722587288539057e-12,
            2.5737082502731773e-11,
            4.4455258919774646e-10,
            7.054891796415736e-09,
            1.0178086034397914e-07,
            1.3215486823102194e-06,
            1.5252733804032441e-05,
            0.0001540353039335391,
            0.0013333558146428458,
            0.009618129107628487,
            0.05550410866482158,
            0.24022650695910072,
            0.6931471805599453,
        ),
        0x3FE6A09E667F3BCD,
    ),
}

LOG_FLOAT: Final = (  # (log(1 + f) - f + f**2/2) / f**3, sqrt(1/2) <= 1 + f < sqrt(2)
    0.0691551566,
    -0.117899753,
    0.118729994,
    -0.123843245,
    0.142186522,
    -0.166692525,
    0.200022265,
    -0.249999866,
    0.333333105,
)
LOG_DOUBLE: Final = (  # (log((1 + s)/(1 - s))/s - 2) / s**2, of s**2, for the same interval
    0.13252818191410437,
    0.132499550764139,
    0.15387097958654977,
    0.1818177550147801,
    0.22222222648839088,
    0.28571428569072366,
    0.4000000000000629,
    0.6666666666666666,
)
LOG_SHORT: Final = (  # the same, to 43 bits
    0.19585585796963317,
    0.2217609543604038,
    0.28572111227130287,
    0.3999999560397836,
    0.6666666667584809,
)
EXP2_SHORT: Final = (  # (2**r - 1) / r in double, to 45 bits
    1.0210957780113081e-07,
    1.3258554723698547e-06,
    1.525264507667102e-05,
    0.00015403439849932525,
    0.0013333558251334796,
    0.009618129182629484,
    0.055504108664321476,
    0.2402265069571698,
    0.6931471805599515,
)
SIN: Final = (2.7183039e-06, -0.000198393347, 0.00833332911, -0.16666667)  # (sin(r)/r - 1) / r**2
COS: Final = (-2.72101687e-07, 2.47995195e-05, -0.00138888834, 0.0416666679)  # |r| <= pi/4
ERF_SMALL: Final = (  # erf(x)/x - 1 of x**2, |x| <= 1
    7.88911493e-05,
    -0.000802084047,
    0.00518953521,
    -0.0268544443,
    0.112836003,
    -0.37612626,
    0.128379166,
)
ERF_LARGE: Final = (  # log(1 - erf(x))/x, 1 <= x <= 4
    -1.39620606e-05,
    0.000350587914,
    -0.00375745911,
    0.0240100287,
    -0.106530815,
    -0.634969532,
    -1.1286943,
)
TANH: Final = (  # (tanh(x)/x - 1) / x**2 of x**2, |x| <= 0.625
    -0.00571704144,
    0.0206505843,
    -0.0537434965,
    0.133314908,
    -0.333332837,
)


def polynomial(code: Code, x: Reg, coefficients: Sequence[float]) -> Reg:
    """The polynomial at x, by Horner's scheme."""
    result: Reg | float = coefficients[0]
    for coefficient in coefficients[1:]:
        result = code.fma(x, result, coefficient)
    assert isinstance(result, Reg)
    return result


def clamp(code: Code, x: Reg, low: float, high: float) -> Reg:
    """`x` between the two bounds; nan stays nan, since comparisons with it are false."""
    below = code.select(x.compare("gt", high), high, x)
    return code.select(below.compare("lt", low), low, below)


def power_of_two(code: Code, n: Reg, f: Format) -> Reg:
    """2**n for an integer in the range of exponents."""
    type = "float" if f.integer == "i32" else "double"
    return code.convert("bitcast", (n + f.bias) << f.mantissa, type)


def times_power_of_two(code: Code, x: Reg, n: Reg, f: Format) -> Reg:
    """x * 2**n, in two steps so that the result may be subnormal or infinite."""
    first = n >> 1
    return x * power_of_two(code, first, f) * power_of_two(code, n - first, f)


def nearest(code: Code, x: Reg, scale: float, f: Format) -> tuple[Reg, Reg]:
    """The integer next to x * scale, as a float and as an integer; for small ones only. A nan gives
    some integer: unlike the conversion instruction, this has a value for everything."""
    shifted = code.fma(x, scale, f.magic)
    offset = code.bits(x.like(f.magic))
    return shifted - f.magic, code.bits(shifted) - offset


def exp_reduced(code: Code, x: Reg) -> tuple[Reg, Reg]:
    """(p, n) with exp(x) = p * 2**n, for x not far out of range."""
    f = FORMATS[x.type]
    n, as_int = nearest(code, x, LOG2_E, f)
    # The first part of ln 2 has few bits, so that its product with n is exact.
    r = code.fma(n, -f.ln2[1], code.fma(n, -f.ln2[0], x))
    return code.fma(r * r, polynomial(code, r, f.exp), r) + 1.0, as_int


def exp(code: Code, x: Reg) -> Reg:
    f = FORMATS[x.type]
    p, n = exp_reduced(code, clamp(code, x, *f.exp_range))
    return times_power_of_two(code, p, n, f)


def exp_normal(code: Code, x: Reg) -> Reg:
    """exp(x) where neither x is out of range nor the result subnormal: some steps less. Near the
    upper end of the range it may be infinite already."""
    p, n = exp_reduced(code, x)
    return p * power_of_two(code, n, FORMATS[x.type])


def exp2(code: Code, x: Reg) -> Reg:
    f = FORMATS[x.type]
    x = clamp(code, x, -f.bias - f.mantissa - 2.0, f.bias + 2.0)
    n, as_int = nearest(code, x, 1.0, f)
    r = x - n
    return times_power_of_two(code, code.fma(r, polynomial(code, r, f.exp2), 1.0), as_int, f)


def expm1(code: Code, x: Reg) -> Reg:
    """exp(x) - 1 as 2**n * (exp(r) - 1) + (2**n - 1). It is computed with half of 2**n, which
    doesn't overflow. Half of the smallest numbers is 0, so those are returned as they are."""
    f = FORMATS[x.type]
    clamped = clamp(code, x, f.expm1_low, f.exp_range[1])
    n, as_int = nearest(code, clamped, LOG2_E, f)
    r = code.fma(n, -f.ln2[1], code.fma(n, -f.ln2[0], clamped))
    p = code.fma(r * r, polynomial(code, r, f.expm1), r)
    s = power_of_two(code, as_int - 1, f)
    result = code.fma(s, p, s - 0.5) * 2.0
    return code.select(fabs(code, x).compare("lt", 2.0 ** (2 - f.bias)), x, result)


def copysign(code: Code, x: Reg, sign: Reg) -> Reg:
    return code.intrinsic("copysign", x, sign)


def fabs(code: Code, x: Reg) -> Reg:
    return code.intrinsic("fabs", x)


def split(code: Code, x: Reg) -> tuple[Reg, Reg]:
    """(f, n) with x = (1 + f) * 2**n and sqrt(1/2) <= 1 + f < sqrt(2), for x > 0."""
    fmt = FORMATS[x.type]
    # A subnormal has no exponent of its own: it is scaled first, and the scale taken off at the
    # end.
    tiny = x.compare("lt", 2.0 ** (1 - fmt.bias))
    bits = code.bits(code.select(tiny, x * 2.0**fmt.mantissa, x))
    # Rounds to the nearest power of two in the sense of ratios: 1 + f is between the roots.
    exponent = (bits - fmt.root_half) >> fmt.mantissa
    m = code.convert("bitcast", bits - (exponent << fmt.mantissa), x.type)
    exponent = exponent - code.select(tiny, exponent.like(fmt.mantissa), exponent.like(0))
    return m - 1.0, code.convert("sitofp", exponent, x.type)


def log_special(code: Code, x: Reg, result: Reg) -> Reg:
    """The logarithm where it isn't the result: at 0, infinity, nan and below 0."""
    result = code.select(x.compare("lt", INF), result, x)
    result = code.select(x.compare("lt", 0.0), math.nan, result)
    return code.select(x.compare("eq", 0.0), -INF, result)


def log_near_one(code: Code, f: Reg) -> tuple[Reg, Reg]:
    """log(1 + f) as a sum of two: f itself, and the rest. The caller adds the rest to small terms
    first, so that nothing of it is lost to rounding."""
    square = f * f
    if f.type == "float":
        cubic = code.fma(f, polynomial(code, f, LOG_FLOAT), -0.5)
        return f, square * cubic
    s = f / (f + 2.0)
    z = s * s
    half = square * 0.5
    r = z * polynomial(code, z, LOG_DOUBLE)
    return f, code.fma(s, half + r, -half)


def log(code: Code, x: Reg) -> Reg:
    f, n = split(code, x)
    large, small = log_near_one(code, f)
    high, low = FORMATS[x.type].ln2
    result = code.fma(n, high, large + code.fma(n, low, small))
    return log_special(code, x, result)


def log_to_base(code: Code, x: Reg, base: int) -> Reg:
    """log2, log10: n * log(2) + log(1 + f) * log(e), each factor as a sum of two."""
    single = x.type == "float"
    f, n = split(code, x)
    large, small = log_near_one(code, f)
    e_high, e_low = _BASES[base][0][single]
    two_high, two_low = _BASES[base][1][single]
    rest = code.fma(small, e_high, (large + small) * e_low)
    rest = code.fma(n, two_low, rest)
    return log_special(code, x, code.fma(n, two_high, code.fma(large, e_high, rest)))


def _in_two(value: float, low: float) -> tuple[tuple[float, float], tuple[float, float]]:
    """A number as a sum of two doubles (`low` is the second), and as one of two float32."""
    high = rounded(value)
    return (value, low), (high, value - high)


# For each base: log(e) and log(2) to it.
_BASES: Final = {
    2: (_in_two(LOG2_E, 2.0355273740931033e-17), _in_two(1.0, 0.0)),
    10: (
        _in_two(0.4342944819032518, 1.098319650216765e-17),
        _in_two(0.30102999566398120, -2.8037281277851704e-18),
    ),
}


def log2(code: Code, x: Reg) -> Reg:
    return log_to_base(code, x, 2)


def log10(code: Code, x: Reg) -> Reg:
    return log_to_base(code, x, 10)


def log1p(code: Code, x: Reg) -> Reg:
    """log(1 + x) as log(u) + lost/u, where u is 1 + x rounded and `lost` what the rounding lost:
    the first two terms of the Taylor series at u."""
    u = x + 1.0
    # Exactly what `x + 1.0` lost: which of the two is exact depends on which summand is larger.
    small, large = x - (u - 1.0), 1.0 - (u - x)
    lost = code.select(x.compare("lt", 1.0), small, large) / u
    # Otherwise the correction is nan, and the logarithm says all.
    defined = u.compare("gt", 0.0) & u.compare("lt", INF)
    result = log(code, u) + code.select(defined, lost, 0.0)
    return code.select(x.compare("eq", 0.0), x, result)


def _one_plus_exp(code: Code, x: Reg) -> Reg:
    """1 + exp(x). It is half of exp(x) that is scaled, because the largest results need a power of
    two that is not a finite number."""
    low, high = FORMATS[x.type].exp_range
    p, n = exp_reduced(code, clamp(code, x, 0.8 * low, high))
    return code.fma(p * power_of_two(code, n - 1, FORMATS[x.type]), 2.0, 1.0)


def sigmoid(code: Code, x: Reg) -> Reg:
    """1 / (1 + exp(-x)): subnormal as far as exp(-x) is finite, then 0, as in eager PyTorch."""
    return 1.0 / _one_plus_exp(code, -x)


def silu(code: Code, x: Reg) -> Reg:
    """x / (1 + exp(-x)). Not x * sigmoid(x), of which the factor may be subnormal by itself."""
    return x / _one_plus_exp(code, -x)


def tanh(code: Code, x: Reg) -> Reg:
    size = fabs(code, x)
    if x.type == "double":
        # tanh(x) = (e - 1) / (e + 1) for e = exp(2x), and 1 in double from 22 on.
        t = expm1(code, clamp(code, size, 0.0, 22.0) * 2.0)
        return copysign(code, t / (t + 2.0), x)
    z = x * x
    # Near 0, one minus a fraction would cancel: an odd polynomial.
    near = code.fma(size * z, polynomial(code, z, TANH), size)
    bounded = code.select(size.compare("gt", 10.0), 10.0, size)
    far = 1.0 - 2.0 / (exp_normal(code, bounded * 2.0) + 1.0)
    return copysign(code, code.select(size.compare("lt", 0.625), near, far), x)


_SLEEF_HYPERBOLIC: Final = {"float": 88.0, "double": 709.0}
"""Beyond this, Sleef's sinh and cosh are infinite, somewhat before the functions are."""


def _hyperbolic(code: Code, name: str, x: Reg) -> Reg:
    """sinh or cosh. Where exp(-x) doesn't count, both are exp(|x|) / 2; this is rarely needed."""
    result = library(code, f"{name}f" if x.type == "float" else name, x)
    size, limit = fabs(code, x), _SLEEF_HYPERBOLIC[x.type]
    beyond = size.compare("gt", limit) & size.compare("lt", INF)

    def with_exp() -> Reg:
        p, n = exp_reduced(code, clamp(code, size, 0.0, limit + 3.0))
        half = times_power_of_two(code, p, n - 1, FORMATS[x.type])
        half = copysign(code, half, x) if name == "sinh" else half
        return code.select(beyond, half, result)

    return code.either(code.any_lane(beyond), with_exp, result)


def sinh(code: Code, x: Reg) -> Reg:
    return _hyperbolic(code, "sinh", x)


def cosh(code: Code, x: Reg) -> Reg:
    return _hyperbolic(code, "cosh", x)


def tan(code: Code, x: Reg) -> Reg:
    """Sleef's tangent; x itself if it is small, as Sleef gives 0 for the smallest doubles."""
    result = library(code, "tanf" if x.type == "float" else "tan", x)
    return code.select(fabs(code, x).compare("lt", 2.0**-30), x, result)


def erf(code: Code, x: Reg) -> Reg:
    size = fabs(code, x)
    size = code.select(size.compare("gt", 4.0), 4.0, size)
    z = size * size
    near = code.fma(size, polynomial(code, z, ERF_SMALL), size)
    far = 1.0 - exp_normal(code, size * polynomial(code, size, ERF_LARGE))
    return copysign(code, code.select(size.compare("lt", 1.0), near, far), x)


def _quarter_turns(code: Code, x: Reg, first: int) -> Reg:
    """sin(x + first * pi/2). The argument is reduced in double, which is exact enough below 2**28;
    beyond that, which is rare, the C library does it."""
    f = FORMATS["double"]
    wide = code.convert("fpext", x, "double")
    n, turns = nearest(code, wide, 2 / math.pi, f)
    r = code.exact_fma(n, -math.pi / 2, wide)
    r = code.exact_fma(n, -6.123233995736766e-17, r)
    r = code.convert("fptrunc", r, "float")
    z = r * r
    sine = code.fma(r * z, polynomial(code, z, SIN), r)
    cosine = code.fma(z * z, polynomial(code, z, COS), code.fma(z, -0.5, 1.0))
    turns = code.convert("trunc", turns, "i32") + first
    result = code.select((turns & 1).compare("ne", 0), cosine, sine)
    sign = (turns & 2) << 30
    result = code.convert("bitcast", code.bits(result) ^ sign, "float")
    if first == 0:
        result = code.select(x.compare("eq", 0.0), x, result)  # keeps the sign of -0.0
    size = fabs(code, x)
    beyond = size.compare("ge", 2.0**28) & size.compare("lt", INF)
    name = "cosf" if first else "sinf"

    def with_library() -> Reg:
        return code.select(beyond, library(code, name, x), result)

    return code.either(code.any_lane(beyond), with_library, result)


def sin(code: Code, x: Reg) -> Reg:
    return _quarter_turns(code, x, 0)


def cos(code: Code, x: Reg) -> Reg:
    return _quarter_turns(code, x, 1)


def power(code: Code, x: Reg, y: Reg) -> Reg:
    """2**(y * log2(x)) in double, which leaves a float32 with less than 1 unit of error."""
    x, y = code.together(x, y)
    f = FORMATS["double"]
    size = fabs(code, x)
    wide, exponent = code.convert("fpext", size, "double"), code.convert("fpext", y, "double")
    m, n = split(code, wide)
    s = m / (m + 2.0)
    z = s * s
    log_m = s * code.fma(z, polynomial(code, z, LOG_SHORT), 2.0)
    t = log_special(code, wide, code.fma(log_m, LOG2_E, n)) * exponent
    t = clamp(code, t, -200.0, 200.0)
    integral, as_int = nearest(code, t, 1.0, f)
    r = t - integral
    p = code.fma(r, polynomial(code, r, EXP2_SHORT), 1.0) * power_of_two(code, as_int, f)
    return _power_special(code, x, y, code.convert("fptrunc", p, "float"))


def _power_special(code: Code, x: Reg, y: Reg, result: Reg) -> Reg:
    """A negative base to an integer or another power; and what is 1 whatever the other is."""
    is_integer = code.intrinsic("trunc", y).compare("eq", y)
    half = y * 0.5
    odd = is_integer & code.intrinsic("trunc", half).compare("ne", half)
    result = code.select(odd, copysign(code, result, x), result)
    finite_negative = x.compare("lt", 0.0) & x.compare("gt", -INF)
    result = code.select(finite_negative & ~is_integer, math.nan, result)
    is_one = y.compare("eq", 0.0) | x.compare("eq", 1.0)
    is_one = is_one | (x.compare("eq", -1.0) & fabs(code, y).compare("eq", INF))
    return code.select(is_one, 1.0, result)


def library(code: Code, name: str, *args: Reg) -> Reg:
    """The C library's function, called for each lane in a function of its own."""
    regs = code.together(*args)
    type, lanes = regs[0].type, regs[0].lanes
    if lanes == 1:
        return code.call(name, type, 1, regs)
    wide = vector_function(name.removesuffix("f") if type == "float" else name, type, code.bytes)
    if wide is not None and lanes % wide[1] == 0:
        return _in_vectors(code, wide, regs)
    helper = f"{name}.x{lanes}"
    if helper not in code.helpers:
        code.declare(name, type, [type] * len(regs))
        code.helpers[helper] = _lane_by_lane(helper, name, type, lanes, len(regs))
    return code.call(helper, type, lanes, regs)


def _in_vectors(code: Code, wide: tuple[str, int], regs: Sequence[Reg]) -> Reg:
    """A function of vectors, called for as many as there are."""
    name, width = wide
    result: Reg | None = None
    for first in range(0, regs[0].lanes, width):
        part = [code.shuffled(reg, None, range(first, first + width)) for reg in regs]
        piece = code.call(name, regs[0].type, width, part)
        result = piece if result is None else code.picked([result, piece], range(first + width))
    assert result is not None
    return result


def _lane_by_lane(helper: str, name: str, type: str, lanes: int, count: int) -> str:
    inner = Code()
    params = [Reg(inner, f"%a{i}", type, lanes) for i in range(count)]
    result = Reg(inner, "poison", type, lanes)
    for lane in range(lanes):
        args = [inner.lane(param, lane) for param in params]
        result = inner.with_lane(result, lane, inner.call(name, type, 1, args))
    full, parameters = vector(type, lanes), ", ".join(map(str, params))
    # With the attributes of the kernel: how vectors are passed depends on them.
    head = f"define internal {full} @{helper}({parameters}) noinline #0 {{"
    return "\n".join([head, *inner.lines, f"  ret {result}", "}"])
