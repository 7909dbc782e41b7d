"""Conditions: comparisons of expressions and their combinations.

The one idea: a comparison of integers is `e <= 0`, `e == 0` or `e != 0`, where e has no common
divisor (`2*s0 <= 5` is `s0 - 2 <= 0`), so that each condition on integers has one form, and the
opposite of each is in the same form: not (e <= 0) is 1 - e <= 0. Comparisons of floats stay as
they are, since with nan neither `a < b` nor `a >= b` holds.

The parts of `and` and `or` are sorted: a combination has a value where all of its parts have one.

    operations: true false, le0 eq0 ne0, and or, flt fle feq fne (floats), not (of flt and fle)
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Iterable
from typing import Any, Final

from pliant.sym.expr import (
    BUILD,
    STRICT,
    VALUE,
    ZERO,
    BaseExpr,
    Expr,
    SymbolValues,
    cached,
    content,
    evaluate,
    from_terms,
    intern_node,
)
from pliant.sym.floats import FloatExpr, NumberLike, as_node


class Cond(BaseExpr):
    """A condition. Equal ones are the same object."""

    __slots__ = ()

    @property
    def value(self) -> bool | None:
        """Whether it is true, when that needs no facts."""
        return {"true": True, "false": False}.get(self.op)

    def __and__(self, other: Cond) -> Cond:
        return and_(self, other)

    def __or__(self, other: Cond) -> Cond:
        return or_(self, other)

    def __invert__(self) -> Cond:
        return not_(self)


TRUE: Final[Cond] = intern_node(Cond, "true", ())
FALSE: Final[Cond] = intern_node(Cond, "false", ())


def truth(value: bool) -> Cond:
    return TRUE if value else FALSE


# --------------------------------------------------------------------------------------------------
# Comparisons


@cached(16384)
def le0(e: Expr) -> Cond:
    """`e <= 0`"""
    if not e.terms:
        return truth(e.const <= 0)
    g = math.gcd(*[c for _, c in e.terms])
    if g > 1:  # g*t + c <= 0 says t <= -c/g, and t is an integer
        # t <= floor(-c/g) is t + ceil(c/g) <= 0.
        e = from_terms({product: c // g for product, c in e.terms}, -(-e.const // g))
    return intern_node(Cond, "le0", (e,))


@cached(16384)
def eq0(e: Expr) -> Cond:
    """`e == 0`"""
    t, g, c = content(e)
    if t is ZERO or c % g:  # g*t is a multiple of g, -c is not
        return truth(t is ZERO and c == 0)
    return intern_node(Cond, "eq0", (t + c // g,))


@cached(16384)
def ne0(e: Expr) -> Cond:
    """`e != 0`"""
    equality = eq0(e)
    return intern_node(Cond, "ne0", equality.args) if equality.op == "eq0" else not_(equality)


def le(a: NumberLike, b: NumberLike) -> Cond:
    x, y = _as_integers(as_node(a), as_node(b))
    if type(x) is Expr and type(y) is Expr:
        return le0(x - y)
    return _compare("fle", x, y)


def lt(a: NumberLike, b: NumberLike) -> Cond:
    x, y = _as_integers(as_node(a), as_node(b))
    if type(x) is Expr and type(y) is Expr:
        return le0(x - y + 1)
    return _compare("flt", x, y)


def ge(a: NumberLike, b: NumberLike) -> Cond:
    return le(b, a)


def gt(a: NumberLike, b: NumberLike) -> Cond:
    return lt(b, a)


def eq(a: NumberLike, b: NumberLike) -> Cond:
    x, y = _as_integers(as_node(a), as_node(b))
    if type(x) is Expr and type(y) is Expr:
        return eq0(x - y)
    return _compare("feq", x, y)


def ne(a: NumberLike, b: NumberLike) -> Cond:
    return not_(eq(a, b))


def _as_integers(
    a: Expr | FloatExpr, b: Expr | FloatExpr
) -> tuple[Expr | FloatExpr, Expr | FloatExpr]:
    """The same comparison on integers, if it only asks for the sign of a float that is a fraction
    of one: `0 < n / 4` is `0 < n`."""
    if type(a) is FloatExpr and _is_zero(b):
        return _sign(a), ZERO
    if type(b) is FloatExpr and _is_zero(a):
        return ZERO, _sign(b)
    return a, b


def _sign(e: FloatExpr) -> Expr | FloatExpr:
    """An integer expression with the sign of `e`, if `e` is one divided by a positive constant;
    otherwise `e`."""
    if e.op not in ("truediv", "to_float") or not all(type(arg) is Expr for arg in e.args):
        return e
    whole, *divisor = e.args
    # No quotient of two such numbers is so small that it is rounded to 0.
    return whole if all(not d.terms and 0 < d.const < 2**63 for d in divisor) else e


def _is_zero(e: Expr | FloatExpr) -> bool:
    return e is ZERO or (type(e) is FloatExpr and e.value == 0)


def _compare(op: str, a: Expr | FloatExpr, b: Expr | FloatExpr) -> Cond:
    if not a.symbols and not b.symbols:
        return truth(STRICT[op](evaluate(a, {}), evaluate(b, {})))
    if op in ("feq", "fne") and b.order < a.order:
        a, b = b, a  # equality is symmetric: one form for both orders
    return intern_node(Cond, op, (a, b))


# --------------------------------------------------------------------------------------------------
# Combinations


def and_(*conds: Cond) -> Cond:
    return _combine("and", FALSE, TRUE, conds)


def or_(*conds: Cond) -> Cond:
    return _combine("or", TRUE, FALSE, conds)


def _combine(op: str, decides: Cond, neutral: Cond, conds: Iterable[Cond]) -> Cond:
    """A conjunction or disjunction in normal form: flat, sorted, each part once. `decides` is the
    part that settles it, `neutral` one that says nothing."""
    parts: dict[Cond, None] = {}
    for cond in conds:
        if cond is decides:
            return decides
        for part in cond.args if cond.op == op else (cond,):
            if part is not neutral:
                parts[part] = None
    # `x and not x` is false, `x or not x` is true.
    if any(not_(part) in parts for part in parts):
        return decides
    if len(parts) <= 1:
        return next(iter(parts), neutral)
    return intern_node(Cond, op, tuple(sorted(parts, key=lambda part: part.order)))


_OPPOSITE: Final[dict[str, Callable[..., Cond]]] = {
    "true": lambda: FALSE,
    "false": lambda: TRUE,
    "le0": lambda e: le0(1 - e),  # e > 0 is e >= 1, for integers
    "eq0": lambda e: intern_node(Cond, "ne0", (e,)),
    "ne0": lambda e: intern_node(Cond, "eq0", (e,)),
    "and": lambda *parts: or_(*map(not_, parts)),
    "or": lambda *parts: and_(*map(not_, parts)),
    "feq": lambda a, b: _compare("fne", a, b),
    "fne": lambda a, b: _compare("feq", a, b),
    "not": lambda cond: cond,
}


def not_(cond: Cond) -> Cond:
    opposite = _OPPOSITE.get(cond.op)
    return opposite(*cond.args) if opposite else intern_node(Cond, "not", (cond,))


# --------------------------------------------------------------------------------------------------
# Values

STRICT.update(
    {
        "le0": lambda e: e <= 0,
        "eq0": lambda e: e == 0,
        "ne0": lambda e: e != 0,
        "fle": operator.le,
        "flt": operator.lt,
        "feq": operator.eq,
        "fne": operator.ne,
        "not": operator.not_,
    }
)


def _all(node: Cond, values: SymbolValues) -> bool:
    return all(evaluate(part, values) for part in node.args)


def _any(node: Cond, values: SymbolValues) -> bool:
    return any(evaluate(part, values) for part in node.args)


VALUE.update(
    {
        "true": lambda node, values: True,
        "false": lambda node, values: False,
        "and": _all,
        "or": _any,
    }
)


def _comparer(op: str) -> Callable[..., Cond]:
    return lambda a, b: _compare(op, a, b)


_BUILDERS: dict[str, Callable[..., Any]] = {
    "true": lambda: TRUE,
    "false": lambda: FALSE,
    "le0": le0,
    "eq0": eq0,
    "ne0": ne0,
    "and": and_,
    "or": or_,
    "not": not_,
    **{op: _comparer(op) for op in ("fle", "flt", "feq", "fne")},
}
BUILD.update(_BUILDERS)
