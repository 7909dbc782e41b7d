"""Deciding conditions from facts: True, False, or None for "don't know". Never wrong.

The one idea: `e <= 0` is proved by adding inequalities that are known to hold, until what is left
is at most 0 by its range. That is sound, whatever choices are made on the way, because every step
keeps this invariant:

    Let every symbol have a value that agrees with the facts, for which e has a value. If f <= 0
    holds there, and a product p has the coefficient c in e and a in f, with c and a of the same
    sign, then

        |a|*e  =  |c|*f + (|a|*e - |c|*f)  <=  |a|*e - |c|*f                   (|c| >= 0, f <= 0)

    so `|a|*e - |c|*f - (|a|-1) <= 0` implies `|a|*e <= |a|-1`, and so `e <= 0`, because e is an
    integer (|a| > 0); and p is not in what is left any more.

The inequalities f <= 0 are
  - the known ranges of forms: learnt, so true by assumption;
  - laws of the operations, in `_LAWS`: true for all integers, some if an argument is known to be
    positive, which its range says;
  - for a product x*y with x in [a, b], y in [c, d]: (x-a)*(y-c) >= 0 and the same for the other
    three corners (McCormick's inequalities);
  - a known inequality times a factor known to be at least 0.
A max, abs or choice that is to be bounded from above has the value of one of its alternatives: the
proof is done for each. A common factor that is at least 0 may be dropped: if f >= 0 and r <= 0,
then f*r <= 0. Coefficients with a common divisor g are divided by it and the constant is rounded
up: t is an integer, and g*t + c <= 0 says t <= floor(-c/g). Ranges are sound by `ranges`, rules by
`rules`.

e > 0 is proved as 1 - e <= 0; e == 0 is proved as e <= 0 and -e <= 0, and refuted by e < 0, e > 0,
a known hole or a remainder that isn't 0. The search is cut off after `BUDGET` steps: then the
answer is None, as it is when nothing applies.

An example: `s0//4 <= 2*s1` is asked, and s0 <= 8*s1 is known.

    s0//4 - 2*s1 <= 0         times 8, less twice the known s0 - 8*s1 <= 0, divided by 2:
    4*(s0//4) - s0 - 3 <= 0   less the law 4*(s0//4) - s0 <= 0:
    -3 <= 0                   so the answer is True
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Final

from pliant.sym.cond import Cond, eq0, le0, not_
from pliant.sym.expr import ONE, ZERO, Expr, from_factors, integer, mul, scale
from pliant.sym.facts import Facts
from pliant.sym.ranges import INF, Range
from pliant.sym.rules import divide_product, quotient_by, simplify

BUDGET: Final = 40  # steps of one search
DEPTH: Final = 5  # inequalities added in one proof


def decide(facts: Facts, cond: Cond, expect: bool | None = None) -> bool | None:
    """Whether `cond` holds for all values that agree with `facts` (True), or for none (False).

    With `expect`, only that answer is looked for; for when it is known from an example that the
    other can't be right.
    """
    # The condition as it was asked is the key. What it simplifies to changes with each new fact.
    key = cond
    answer = facts.decided.get(key)
    if answer is not None:
        return answer
    cond = simplify(cond, facts)
    if cond.value is not None:
        return cond.value
    if key in facts.decided:
        return None  # tried before, or being tried
    # Before it is decided: rules may ask the same question again while it is being answered.
    facts.decided[key] = None
    answer = _from_truths(facts, cond)
    if answer is None:
        answer = _DECIDE[cond.op](facts, cond, expect)
    if answer is None and expect is not None:
        del facts.decided[key]  # the other side was not looked at
    else:
        facts.decided[key] = answer
    return answer


def _from_truths(facts: Facts, cond: Cond) -> bool | None:
    """The answer from conditions that are kept as they stand: `cond` or its opposite is one of
    them, or is an alternative of one whose other alternatives are all refuted."""
    # Almost always empty: only alternatives and comparisons of floats are kept as truths.
    if not facts.truths:
        return None
    opposite = not_(cond)
    if cond in facts.truths or opposite in facts.truths:
        return cond in facts.truths
    # Unit resolution: (a or b), not a |- b.
    for truth in list(facts.truths):
        if truth.op == "or" and (cond in truth.args or opposite in truth.args):
            alternative = cond if cond in truth.args else opposite
            # If all other alternatives are refuted, the remaining one holds.
            if all(decide(facts, part) is False for part in truth.args if part is not alternative):
                return alternative is cond
    return None


# --------------------------------------------------------------------------------------------------
# By kind of condition


def _decide_le0(facts: Facts, cond: Cond, expect: bool | None) -> bool | None:
    """By the range of e. If it straddles 0, by a proof of e <= 0, or of 1 - e <= 0 for the
    opposite."""
    (e,) = cond.args
    lo, hi = facts.range(e)
    if hi <= 0 or lo > 0:
        return hi <= 0
    # Nothing relates the terms of e to each other, so its range was the best answer.
    if not facts.connected(e):
        return None
    if expect is not False and Search(facts).proves(e):
        return True
    if expect is not True and Search(facts).proves(1 - e):
        return False
    return None


def _decide_eq0(facts: Facts, cond: Cond, expect: bool | None) -> bool | None:
    (e,) = cond.args
    lo, hi = facts.range(e)
    if lo == hi == 0:
        return True
    if not lo <= 0 <= hi or facts.nonzero(e) or _wrong_remainder(facts, e):
        return False
    if not facts.connected(e):
        return None
    if expect is not False and Search(facts).proves(e) and Search(facts).proves(-e):
        return True
    if expect is not True and (Search(facts).proves(e + 1) or Search(facts).proves(1 - e)):
        return False
    return None


def _wrong_remainder(facts: Facts, e: Expr) -> bool:
    """Whether a known congruence says that e is not 0: `4*s0 + s1` isn't, if `s1 % 4 == 1`. The
    moduli worth a look are those of the facts and the coefficients, and their divisors in common.
    """
    if not facts.congruences:
        return False  # the coefficients have no common divisor: `cond.eq0` saw to that
    moduli = {abs(c) for _, c in e.terms} | {k for k, _ in facts.congruences.values()}
    moduli |= {math.gcd(k, c) for k in list(moduli) for _, c in e.terms}
    return any(k > 1 and facts.residue(e, k) not in (None, 0) for k in sorted(moduli))


def _decide_ne0(facts: Facts, cond: Cond, expect: bool | None) -> bool | None:
    return _opposite(decide(facts, eq0(cond.args[0]), _opposite(expect)))


def _opposite(answer: bool | None) -> bool | None:
    return None if answer is None else not answer


def _decide_not(facts: Facts, cond: Cond, expect: bool | None) -> bool | None:
    return _opposite(decide(facts, cond.args[0], _opposite(expect)))


def _decide_and(facts: Facts, cond: Cond, expect: bool | None) -> bool | None:
    answers = [decide(facts, part, expect) for part in cond.args]
    return False if False in answers else None if None in answers else True


def _decide_or(facts: Facts, cond: Cond, expect: bool | None) -> bool | None:
    answers = [decide(facts, part, expect) for part in cond.args]
    return True if True in answers else None if None in answers else False


def _decide_float(facts: Facts, cond: Cond, expect: bool | None) -> bool | None:
    """By ranges. nan compares false (and unequal) to everything, and a side may be nan only if its
    range says so."""
    # Disjoint ranges refute a comparison even if a side may be nan, which compares false. To prove
    # one, nan has to be excluded.
    a, b = [facts.range(arg) for arg in cond.args]
    apart = a.hi < b.lo or b.hi < a.lo
    maybe_nan = getattr(a, "nan", False) or getattr(b, "nan", False)
    if cond.op in ("feq", "fne"):
        return (cond.op == "fne") if apart else None
    holds = a.hi < b.lo or (cond.op == "fle" and a.hi <= b.lo)
    fails = b.hi < a.lo or (cond.op == "flt" and b.hi <= a.lo)
    return False if fails else True if holds and not maybe_nan else None


_DECIDE: Final[dict[str, Callable[[Facts, Cond, bool | None], bool | None]]] = {
    "le0": _decide_le0,
    "eq0": _decide_eq0,
    "ne0": _decide_ne0,
    "not": _decide_not,
    "and": _decide_and,
    "or": _decide_or,
    "fle": _decide_float,
    "flt": _decide_float,
    "feq": _decide_float,
    "fne": _decide_float,
}


# --------------------------------------------------------------------------------------------------
# The search


class Search:
    """One attempt to prove `e <= 0`: a depth-first search over the inequalities that can be added,
    cut off after `BUDGET` steps."""

    __slots__ = ("facts", "failed", "steps")

    def __init__(self, facts: Facts) -> None:
        self.facts = facts
        self.steps = 0
        self.failed: dict[Expr, int] = {}  # what could not be proved, with how many more additions

    def proves(self, e: Expr, depth: int = DEPTH) -> bool:
        """Whether `e <= 0` follows, by adding at most `depth` inequalities. False says only that no
        proof was found."""
        cond = le0(e)
        if cond.value is not None:
            return cond.value
        (e,) = cond.args
        if self.facts.range(e).hi <= 0:
            return True
        self.steps += 1
        if depth == 0 or self.steps > BUDGET or self.failed.get(e, -1) >= depth:
            return False
        if not self.facts.connected(e):
            return False
        self.failed[e] = depth  # already now: a proof that comes back to e proves nothing
        return self._by_factor(e, depth) or self._by_cases(e, depth) or self._by_adding(e, depth)

    def _by_factor(self, e: Expr, depth: int) -> bool:
        """Prove e/q <= 0 instead, for the product q of common factors that are at least 0: `s0*s1 -
        4*s0 <= 0` by `s1 - 4 <= 0`."""
        # A constant has no factors, and a single product is left to the other steps.
        if e.const or len(e.terms) < 2:
            return False
        common = dict(e.terms[0][0].factors)
        for product, _ in e.terms[1:]:
            exponents = dict(product.factors)
            common = {f: min(n, exponents[f]) for f, n in common.items() if f in exponents}
        # An even power is never negative, whatever the factor is.
        common = {f: n for f, n in common.items() if n % 2 == 0 or self.facts.range(f).lo >= 0}
        return bool(common) and self.proves(quotient_by(e, from_factors(common)), depth - 1)

    def _by_cases(self, e: Expr, depth: int) -> bool:
        """Replace a max, abs or choice by each of the values that it may have, and prove all of
        these cases."""
        for product, c in e.terms:
            cases = CASES.get((product.op, c > 0))
            if cases is not None:  # the first will do: the others are in what is left to prove
                remaining = e - scale(product, c)
                return all(self.proves(remaining + scale(x, c), depth - 1) for x in cases(product))
        return False

    def _by_adding(self, e: Expr, depth: int) -> bool:
        """Add a known inequality that eliminates one of the terms, and prove what is left."""
        for product, c in self._by_need(e):
            for f in inequalities(self.facts, product, c > 0):
                a = dict(f.terms).get(product, 0)
                # |a|*e - |c|*f has no such term any more, and is at least |a|*e, since f <= 0. For
                # e <= 0 it suffices that |a|*e < |a|, because e is an integer.
                remaining = scale(e, abs(a)) - scale(f, abs(c)) - (abs(a) - 1)
                if a * c > 0 and self.proves(remaining, depth - 1):
                    return True
                if self.steps > BUDGET:
                    return False
        return False

    def _by_need(self, e: Expr) -> list[tuple[Expr, int]]:
        """The terms of e in the order in which to eliminate them: first those without a bound on
        the side that counts, since no range can prove e <= 0 while they are there."""

        def bounded(term: tuple[Expr, int]) -> bool:
            lo, hi = self.facts.range(term[0])
            return hi != INF if term[1] > 0 else lo != -INF

        return sorted(e.terms, key=bounded)


CASES: Final[dict[tuple[str, bool], Callable[[Expr], tuple[Expr, ...]]]] = {
    ("max", True): lambda p: p.args,
    ("min", False): lambda p: p.args,
    ("abs", True): lambda p: (p.args[0], -p.args[0]),
    ("if", True): lambda p: p.args[1:],
    ("if", False): lambda p: p.args[1:],
}
"""An operation, whether its coefficient is positive, and the expressions it has the value of one
of."""


# --------------------------------------------------------------------------------------------------
# Known inequalities


def inequalities(facts: Facts, p: Expr, positive: bool) -> Iterator[Expr]:
    """Expressions f, with f <= 0 known, in which the product p has a coefficient of the given sign.
    Some have the other sign: `Search._by_adding` tests it."""
    law = _LAWS.get(p.op)
    if law is not None:
        yield from law(facts, p)
    yield from _learnt(facts, p)
    # For each way to split the product into a factor and the rest.
    if p.op == "mul":
        for factor, _ in p.factors:
            cofactor = divide_product(p, factor)
            if cofactor is not None:
                yield from _products(
                    factor, cofactor, facts.range(factor), facts.range(cofactor), positive
                )
                yield from _multiplied(facts, factor, cofactor)


def _learnt(facts: Facts, p: Expr) -> Iterator[Expr]:
    """From the known ranges of sums that p is in."""
    for form in facts.uses.get(p, ()):
        if len(form.terms) > 1:
            lo, hi = facts.bounds[form]
            if hi != INF:
                yield form - int(hi)
            if lo != -INF:
                yield int(lo) - form


def _products(x: Expr, y: Expr, of_x: Range, of_y: Range, positive: bool) -> Iterator[Expr]:
    """(x - a)*(y - c) >= 0 for a <= x, c <= y, and the same at the other ends."""
    p = mul(x, y)
    # A corner with an infinite bound says nothing. The other two corners bound the product from the
    # other side.
    corners = (
        ((of_x.hi, of_y.lo), (of_x.lo, of_y.hi))
        if positive
        else ((of_x.lo, of_y.lo), (of_x.hi, of_y.hi))
    )
    for a, c in corners:
        if abs(a) != INF and abs(c) != INF:
            bound = scale(y, int(a)) + scale(x, int(c)) - int(a) * int(c)
            yield p - bound if positive else bound - p


def _multiplied(facts: Facts, x: Expr, y: Expr) -> Iterator[Expr]:
    """y*f <= 0, for a known f <= 0 with x in it, if y >= 0: an inequality that has the product x*y
    as a term. And the same with x and y exchanged."""
    for factor, multiplier in ((x, y), (y, x)):
        if facts.range(multiplier).lo >= 0:
            for f in _learnt(facts, factor):
                yield mul(f, multiplier)


def _floordiv_laws(facts: Facts, p: Expr) -> Iterator[Expr]:
    """k*(x//k) <= x <= k*(x//k) + k-1 for k > 0; x//k is not farther from 0 than x is."""
    x, y = p.args
    if not facts.at_least(y, 1):
        return
    multiple = mul(y, p)
    # For a symbolic divisor y*(x//y) is a product: see `_product_laws`.
    if y.value is not None:
        yield multiple - x
        yield x - multiple - y + 1
    if facts.at_least(x, 0):
        yield p - x
    if facts.at_least(-x, 0):
        yield x - p


def _product_laws(facts: Facts, p: Expr) -> Iterator[Expr]:
    """The same where the divisor is itself a symbol: (x//y)*y <= x <= (x//y)*y + y-1 for y > 0."""
    for factor, _ in p.factors:
        if factor.op == "floordiv" and factor.args[1].value is None:
            x, y = factor.args
            if facts.at_least(y, 1):
                multiple = mul(factor, y)
                yield multiple - x
                yield x - multiple - y + 1


def _mod_laws(facts: Facts, p: Expr) -> Iterator[Expr]:
    """x%k = x - k*(x//k); below k for k > 0; at most x for x >= 0 besides."""
    x, y = p.args
    if y.value is not None:
        identity = p - x + mul(y, x // y)
        if identity is not ZERO:
            yield identity
            yield -identity
    if facts.at_least(y, 1):
        yield p - y + ONE
        if facts.at_least(x, 0):
            yield p - x


def _min_laws(facts: Facts, p: Expr) -> Iterator[Expr]:
    yield from [p - x for x in p.args]


def _max_laws(facts: Facts, p: Expr) -> Iterator[Expr]:
    yield from [x - p for x in p.args]


def _abs_laws(facts: Facts, p: Expr) -> Iterator[Expr]:
    yield p.args[0] - p
    yield integer(0) - p.args[0] - p


_LAWS: Final[dict[str, Callable[[Facts, Expr], Iterator[Expr]]]] = {
    "floordiv": _floordiv_laws,
    "mul": _product_laws,
    "mod": _mod_laws,
    "min": _min_laws,
    "max": _max_laws,
    "abs": _abs_laws,
}
