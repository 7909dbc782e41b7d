"""Interval arithmetic: between which two numbers an expression lies, given the ranges of its
symbols.

The one idea: for each operation, one function from the ranges of its arguments to a range that
holds every value the operation can have (and maybe more). An argument for which the operation has
no value, such as a divisor 0, needs no room in the result. With s0 in [2, 10], `s0//4 - s0` is in
[0, 2] + [-10, -2] = [-10, 0]; that both terms have the same s0 is not used.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, Final, NamedTuple

from pliant.sym.expr import BaseExpr, Expr
from pliant.sym.floats import FloatExpr

Bound = int | float  # an integer or +-inf
INF: Final = math.inf
MOST_EXPONENT: Final = 64  # larger powers are not computed for the sake of a bound


class Range(NamedTuple):
    """The integers from lo to hi, both included. Empty when lo > hi."""

    lo: Bound
    hi: Bound

    @property
    def empty(self) -> bool:
        return self.lo > self.hi

    @property
    def value(self) -> int | None:
        """The only number in it, if there is only one."""
        return int(self.lo) if self.lo == self.hi else None

    def __contains__(self, number: object) -> bool:
        return self.lo <= number <= self.hi  # type: ignore[operator]

    def __and__(self, other: Range) -> Range:
        return Range(max(self.lo, other.lo), min(self.hi, other.hi))

    def __str__(self) -> str:
        return f"[{self.lo}, {self.hi}]"


ALL: Final = Range(-INF, INF)
NATURAL: Final = Range(0, INF)


def exactly(number: int) -> Range:
    return Range(number, number)


def hull(*ranges: Range) -> Range:
    """The smallest range that holds all of them."""
    return Range(min([r.lo for r in ranges]), max([r.hi for r in ranges]))


def times(a: Bound, b: Bound) -> Bound:
    """The product of two bounds. 0 * inf is 0, because inf stands for numbers without limit, not
    for a number."""
    return (
        0 if a == 0 or b == 0 else a * b if abs(a) != INF and abs(b) != INF else _signed_inf(a, b)
    )


def _signed_inf(a: Bound, b: Bound) -> Bound:
    return INF if (a > 0) == (b > 0) else -INF


def plus(a: Bound, b: Bound) -> Bound:
    """The sum of two bounds. By cases, because an integer beyond the floats can't be added to
    inf."""
    if abs(a) == INF:
        return a
    return b if abs(b) == INF else a + b


def add(a: Range, b: Range) -> Range:
    return Range(plus(a.lo, b.lo), plus(a.hi, b.hi))


def scaled(a: Range, k: int) -> Range:
    lo, hi = times(a.lo, k), times(a.hi, k)
    return Range(lo, hi) if k >= 0 else Range(hi, lo)


def mul(a: Range, b: Range) -> Range:
    # The product is linear in each argument, so its extremes are at the corners.
    corners = (times(a.lo, b.lo), times(a.lo, b.hi), times(a.hi, b.lo), times(a.hi, b.hi))
    return Range(min(corners), max(corners))


def power_of(a: Range, exponent: int) -> Range:
    """a ** exponent, exponent >= 0."""
    if exponent == 0:
        return exactly(1)
    if exponent > MOST_EXPONENT:
        # Only the sign is worth knowing of a number that large.
        return NATURAL if exponent % 2 == 0 or a.lo >= 0 else ALL
    ends = (_bound_power(a.lo, exponent), _bound_power(a.hi, exponent))
    if exponent % 2:
        return Range(*ends)
    # An even power falls towards 0 and rises from there: 0 is its minimum if the range contains 0.
    return Range(0 if 0 in a else min(ends), max(ends))


def _bound_power(a: Bound, exponent: int) -> Bound:
    if abs(a) == INF:
        return INF if a > 0 or exponent % 2 == 0 else -INF
    return a**exponent


def floordiv(a: Range, b: Range) -> Range:
    """The range of x // y, y not 0. The quotient is monotone in each argument on either side of the
    divisor 0, so its extremes are at the corners of the two parts."""
    parts = [p for p in (Range(max(b.lo, 1), b.hi), Range(b.lo, min(b.hi, -1))) if not p.empty]
    corners = [_quotient(x, y) for part in parts for x in a for y in part]
    return Range(min(corners), max(corners)) if corners else ALL


def _quotient(x: Bound, y: Bound) -> Bound:
    """x // y at the ends. inf // inf: anything from 0 on, so 0 (the other ends give the rest)."""
    if abs(x) == INF:
        return 0 if abs(y) == INF else _signed_inf(x, y)
    if abs(y) == INF:
        return 0 if x == 0 or (x > 0) == (y > 0) else -1
    return x // y


def mod(a: Range, b: Range) -> Range:
    """The range of x % y: between 0 and the divisor, without the divisor. If the dividend is known
    to be less than the divisor, its own range."""
    # The dividend is below every divisor, so that it is the remainder.
    if a.lo >= 0 and a.hi < b.lo:
        return a
    hi: Bound = max(0, b.hi - 1)
    lo: Bound = min(0, b.lo + 1)
    # x % y <= x for x >= 0 and y > 0.
    if a.lo >= 0 and b.lo >= 0:
        hi = min(hi, a.hi)
    return Range(lo, hi)


def minimum(*ranges: Range) -> Range:
    return Range(min([r.lo for r in ranges]), min([r.hi for r in ranges]))


def maximum(*ranges: Range) -> Range:
    return Range(max([r.lo for r in ranges]), max([r.hi for r in ranges]))


def absolute(a: Range) -> Range:
    ends = (abs(a.lo), abs(a.hi))
    return Range(0 if 0 in a else min(ends), max(ends))


def power(a: Range, b: Range) -> Range:
    """The range of a ** b. Exponents below 0 have no value. For a >= 1 it grows with both."""
    b = Range(max(b.lo, 0), b.hi)
    if a.lo < 1 or b.empty:
        return NATURAL if a.lo >= 0 else ALL
    lo: Bound = a.lo ** int(b.lo) if b.lo <= MOST_EXPONENT else a.lo
    hi: Bound = INF if b.hi > MOST_EXPONENT or a.hi == INF else a.hi ** int(b.hi)
    return Range(lo, hi if a.hi > 1 else 1)


def bit_and(a: Range, b: Range) -> Range:
    """A bit is in the result only if it is in both, so a nonnegative side is a limit."""
    # Python's integers are two's complement without limit: a negative one has infinitely many ones.
    limits = [r.hi for r in (a, b) if r.lo >= 0]
    return Range(0, min(limits)) if limits else ALL


def bit_or(a: Range, b: Range) -> Range:
    """For nonnegative numbers: at least each, at most the sum (which counts common bits twice)."""
    if a.lo >= 0 and b.lo >= 0:
        return Range(max(a.lo, b.lo), plus(a.hi, b.hi))
    return ALL


def bit_xor(a: Range, b: Range) -> Range:
    return Range(0, plus(a.hi, b.hi)) if a.lo >= 0 and b.lo >= 0 else ALL


# --------------------------------------------------------------------------------------------------
# Floats


class FloatRange(NamedTuple):
    """The floats from lo to hi, both included, and maybe nan."""

    lo: float
    hi: float
    nan: bool


FLOATS: Final = FloatRange(-INF, INF, True)
EXACT: Final = 2**53  # integers up to here are floats
LIMIT: Final = 10**300  # a range with larger numbers is taken for unlimited: float() may raise


def float_range(lo: float, hi: float, nan: bool) -> FloatRange:
    return FLOATS if math.isnan(lo) or math.isnan(hi) else FloatRange(lo, hi, nan)


def as_floats(a: Range | FloatRange) -> FloatRange:
    """The range as one of floats. Where float() rounds, the ends are one step further out, so that
    they bound the exact numbers too."""
    if isinstance(a, FloatRange):
        return a
    # float() raises OverflowError for integers beyond the floats.
    lo = float(a.lo) if abs(a.lo) < LIMIT else -INF
    hi = float(a.hi) if abs(a.hi) < LIMIT else INF
    if lo < -EXACT or lo > EXACT:
        lo = math.nextafter(lo, -INF)
    if hi < -EXACT or hi > EXACT:
        hi = math.nextafter(hi, INF)
    return FloatRange(lo, hi, False)


def _fadd(a: FloatRange, b: FloatRange) -> FloatRange:
    """Rounding keeps order, so the rounded sum of the ends bounds all rounded sums."""
    opposite = (a.hi == INF and b.lo == -INF) or (a.lo == -INF and b.hi == INF)
    return float_range(a.lo + b.lo, a.hi + b.hi, a.nan or b.nan or opposite)


def _fneg(a: FloatRange) -> FloatRange:
    return FloatRange(-a.hi, -a.lo, a.nan)


def _fsub(a: FloatRange, b: FloatRange) -> FloatRange:
    return _fadd(a, _fneg(b))


def _fmul(a: FloatRange, b: FloatRange) -> FloatRange:
    corners = [x * y for x in a[:2] for y in b[:2]]
    # 0 * inf at a corner says nothing of the products next to it.
    if any(map(math.isnan, corners)):
        return FLOATS
    nan = any(INF in (abs(x.lo), abs(x.hi)) and y.lo <= 0 <= y.hi for x, y in ((a, b), (b, a)))
    return FloatRange(min(corners), max(corners), nan or a.nan or b.nan)


def _truediv(a: FloatRange, b: FloatRange) -> FloatRange:
    nan = a.nan or b.nan or (INF in (abs(a.lo), abs(a.hi)) and INF in (abs(b.lo), abs(b.hi)))
    # There is a pole at 0, and inf / inf is nan: at most the sign is known.
    if b.lo <= 0 <= b.hi or INF in (abs(a.lo), abs(a.hi)):
        return FloatRange(0.0 if b.lo > 0 and a.lo >= 0 else -INF, INF, nan)
    corners = [x / y for x in a[:2] for y in b[:2]]
    return FloatRange(min(corners), max(corners), nan)


def _fabs(a: FloatRange) -> FloatRange:
    ends = (abs(a.lo), abs(a.hi))
    return FloatRange(0.0 if a.lo <= 0 <= a.hi else min(ends), max(ends), a.nan)


def _sqrt(a: FloatRange) -> FloatRange:
    return FloatRange(math.sqrt(max(a.lo, 0.0)), math.sqrt(max(a.hi, 0.0)), a.nan)


_FLOAT_RANGE: Final[dict[str, Callable[..., FloatRange]]] = {
    "to_float": lambda a: a,
    "fadd": _fadd,
    "fsub": _fsub,
    "fmul": _fmul,
    "truediv": _truediv,
    "fneg": _fneg,
    "fabs": _fabs,
    "math.fabs": _fabs,
    "math.sqrt": _sqrt,
}


# --------------------------------------------------------------------------------------------------
# Whole expressions

Lookup = Callable[[Any], Any]


def _rounded_range(rounding: Callable[[float], int]) -> Callable[[FloatRange], Range]:
    """The range of `rounding`, which keeps order. Of nan and the infinities it has no value."""
    return lambda a: Range(
        rounding(a.lo) if abs(a.lo) != INF else a.lo, rounding(a.hi) if abs(a.hi) != INF else a.hi
    )


_RANGE: Final[dict[str, Callable[..., Range]]] = {
    "floordiv": floordiv,
    "mod": mod,
    "min": minimum,
    "max": maximum,
    "abs": absolute,
    "pow": power,
    "bitand": bit_and,
    "bitor": bit_or,
    "bitxor": bit_xor,
    "floor": _rounded_range(math.floor),
    "ceil": _rounded_range(math.ceil),
    "trunc": _rounded_range(math.trunc),
    "round": _rounded_range(round),
}


def range_of(e: Expr, lookup: Lookup) -> Range:
    """The range of an expression from the ranges of its parts.

    `lookup` gives the range of a part. It may know more than the structure of the part says, and
    calls `range_of` for what it doesn't know.
    """
    kind = _SHAPES.get(e.op)
    if kind is not None:
        return kind(e, lookup)
    return _RANGE[e.op](*[lookup(arg) for arg in e.args])


def _sum_range(e: Expr, lookup: Lookup) -> Range:
    lo: Bound = e.const
    hi: Bound = e.const
    for product, k in e.terms:
        part = lookup(product)
        if k > 0:
            lo, hi = plus(lo, times(part.lo, k)), plus(hi, times(part.hi, k))
        else:
            lo, hi = plus(lo, times(part.hi, k)), plus(hi, times(part.lo, k))
    return Range(lo, hi)


def _product_range(e: Expr, lookup: Lookup) -> Range:
    result = exactly(1)
    for factor, exponent in e.factors:
        result = mul(result, power_of(lookup(factor), exponent))
    return result


def _if_range(e: Expr, lookup: Lookup) -> Range:
    return hull(lookup(e.args[1]), lookup(e.args[2]))


_SHAPES: Final[dict[str, Callable[[Expr, Lookup], Range]]] = {
    "int": lambda e, lookup: exactly(e.const),
    "symbol": lambda e, lookup: ALL,
    "add": _sum_range,
    "mul": _product_range,
    "if": _if_range,
}


def float_range_of(e: BaseExpr, lookup: Lookup) -> FloatRange:
    """The same for float expressions. `lookup` answers for integer and float parts."""
    if isinstance(e, Expr):
        return as_floats(lookup(e))
    if isinstance(e, FloatExpr) and e.value is not None:
        nan = math.isnan(e.value)
        return FLOATS if nan else FloatRange(e.value, e.value, False)
    function = _FLOAT_RANGE.get(e.op)
    return function(*[as_floats(lookup(arg)) for arg in e.args]) if function else FLOATS


def structural(e: BaseExpr) -> Any:
    """The range that follows from the structure alone: `s0 % 4` is in [0, 3]."""
    # Kept on the node: the same for all compilations, since it uses no facts.
    try:
        return e.span
    except AttributeError:  # not asked before
        pass
    e.span = range_of(e, structural) if isinstance(e, Expr) else float_range_of(e, structural)
    return e.span
