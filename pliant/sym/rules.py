"""Simplification rules, as a table: what `//`, `%`, min, max, ... of given arguments are.

The one idea: a rule is an equation with a condition. It may use its condition only if the
condition is *known*: from the arguments themselves when an expression is built, from `Facts` when
it is simplified. The same rules serve for both; they differ in what the `KnownFacts` that they
are given can tell.

For example, `(4*s1 + s0) % 4` is built as `s0 % 4` ("whole multiples don't matter"), and under the
facts `0 <= s0` and `s0 < 4` that simplifies to s0.

Each rule states its equation as text, which the tests check for all small integers. What a rule
returns has the value of the operation wherever the operation has one, and no value is lost: a rule
that would forget a divisor asks whether that is known not to be 0.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Mapping
from typing import Any, Final

from pliant.base.python_errors import division_by_zero
from pliant.base.values import dataclass
from pliant.sym import ranges
from pliant.sym.cond import TRUE, Cond, eq0, le0, ne0
from pliant.sym.expr import (
    BUILD,
    EXPAND_POWERS_TO,
    ONE,
    STRICT,
    ZERO,
    BaseExpr,
    Expr,
    atom,
    cached,
    from_factors,
    from_terms,
    integer,
    mul,
    product_of,
    rebuild,
    scale,
    sum_of,
)
from pliant.sym.floats import FloatExpr
from pliant.sym.pieces import as_line
from pliant.sym.ranges import EXACT, Range


class KnownFacts:
    """What is known without facts: what follows from an expression alone. `Facts` knows more."""

    def range(self, e: Any) -> Any:
        """A range that holds all values of the int or float expression."""
        return ranges.structural(e)

    def nonzero(self, e: Expr) -> bool:
        return 0 not in self.range(e)

    def at_least(self, e: Expr, number: int) -> bool:
        return self.range(e).lo >= number

    def residue(self, e: Expr, k: int) -> int | None:
        """e % k, when that is known; k is not 0."""
        return e.const % k if all(c % k == 0 for _, c in e.terms) else None

    def replacement(self, symbol: Any) -> Any:
        """What the symbol is known to be equal to, in the last instance."""
        return symbol

    def value(self, e: Expr) -> int | None:
        """The number that the expression is known to be equal to."""
        return e.value

    def settled(self, e: Expr) -> bool:
        """Whether a polynomial is as simple as it can be: no symbol in it has a replacement."""
        return True

    def memo(self) -> dict[Any, Any]:
        """Where results of `simplify` are kept until more is known."""
        return {}


NO_FACTS: Final = KnownFacts()

LARGEST_NUMBER: Final = 2**31
"""A rule does not apply where it would make a larger constant from smaller ones: the code that
computes sizes has 64 bits."""

Apply = Callable[..., Expr | None]


@dataclass(frozen=True, slots=True)
class RewriteRule:
    """`left` is `right` if `when`: three Python expressions. `apply(facts, *args)` applies it, or
    returns None where the rule does not apply."""

    op: str
    left: str
    right: str
    when: str
    reason: str
    apply: Apply


REWRITE_RULES: Final[dict[str, list[RewriteRule]]] = {}
_APPLY: Final[dict[str, list[Apply]]] = {}  # the same, without the text


def rule(op: str, equation: str, reason: str, when: str = "True") -> Callable[[Apply], Apply]:
    """Register a rewrite rule for `op`. `equation` is "left = right", `when` its condition; both
    are text, for tests and documentation. The decorated function applies the rule."""
    left, _, right = equation.partition(" = ")

    def register(apply: Apply) -> Apply:
        REWRITE_RULES.setdefault(op, []).append(RewriteRule(op, left, right, when, reason, apply))
        _APPLY.setdefault(op, []).append(apply)
        return apply

    return register


def build(facts: KnownFacts, op: str, *args: BaseExpr) -> Expr:
    """`op(args)` in its simplest form: the result of the first rule that applies, or an atom. A
    rule makes one step; it calls `build` for the rest."""
    # The order of registration matters: a rule may rely on the form that the earlier ones leave.
    for apply in _APPLY[op]:
        result = apply(facts, *args)
        if result is not None:
            return result
    return atom(op, *args)


# --------------------------------------------------------------------------------------------------
# x // y


def _numbers(op: str) -> Apply:
    """The rule that computes the operation on numbers, as Python does."""
    function = STRICT[op]

    def apply(facts: KnownFacts, *args: Any) -> Expr | None:
        for arg in args:
            if arg.terms:
                return None
        return integer(function(*[arg.const for arg in args]))

    return apply


@rule("floordiv", "x // 1 = x", "dividing by one changes nothing")
def _(facts: KnownFacts, x: Expr, y: Expr) -> Expr | None:
    return x if y is ONE else None


rule("floordiv", "6 // 4 = 1", "numbers are computed")(_numbers("floordiv"))


@rule("floordiv", "x // -1 = -x", "dividing by minus one changes the sign")
def _(facts: KnownFacts, x: Expr, y: Expr) -> Expr | None:
    if y.value == 0:
        raise ZeroDivisionError(division_by_zero(operator.floordiv))
    return -x if y.value == -1 else None


@rule("floordiv", "0 // y = 0", "zero shared out is zero", when="y != 0")
def _(facts: KnownFacts, x: Expr, y: Expr) -> Expr | None:
    return ZERO if x is ZERO and facts.nonzero(y) else None


@rule("floordiv", "(k*x + r) // k = x + r // k", "whole multiples come out", when="k != 0")
def _(facts: KnownFacts, x: Expr, y: Expr) -> Expr | None:
    k = y.value
    if k is None or not x.terms:
        return None
    quotients = {product: c // k for product, c in x.terms if c % k == 0}
    if not quotients and x.const // k == 0:
        return None
    # Python's `//` and `%` round down, also for a negative k, so that both stay consistent.
    rest = from_terms({product: c for product, c in x.terms if c % k}, x.const % k)
    return from_terms(quotients, x.const // k) + build(facts, "floordiv", rest, y)


@rule("floordiv", "(g*x) // (g*y) = x // y", "a common number cancels", when="g*y != 0")
def _(facts: KnownFacts, x: Expr, y: Expr) -> Expr | None:
    g = math.gcd(x.const, y.const, *[c for _, c in (*x.terms, *y.terms)])
    # With the sign of the divisor, so that x // -y and -x // y become one expression.
    first = y.terms[0][1] if y.terms else y.const
    g = g if first > 0 else -g
    return None if g == 1 else build(facts, "floordiv", divide(x, g), divide(y, g))


@rule("floordiv", "(x*y + r) // y = x + r // y", "multiples of the divisor come out", when="y != 0")
def _(facts: KnownFacts, x: Expr, y: Expr) -> Expr | None:
    split = split_multiples(x, y)
    if split is None:
        return None
    quotient, rest = split
    if rest is ZERO and not facts.nonzero(y):
        return None
    return quotient + build(facts, "floordiv", rest, y)


@rule(
    "floordiv", "(g*x) // (g*y) = x // y", "a common factor that isn't 0 cancels", when="g*y != 0"
)
def _(facts: KnownFacts, x: Expr, y: Expr) -> Expr | None:
    g = common_factors(facts, x, y)
    return None if g is ONE else build(facts, "floordiv", quotient_by(x, g), quotient_by(y, g))


@rule(
    "floordiv",
    "(x // a + c) // b = (x + a*c) // (a*b)",
    "sharing out twice is sharing out once, among as many as there are in all",
    when="b > 0 and a != 0",
)
def _(facts: KnownFacts, x: Expr, y: Expr) -> Expr | None:
    if len(x.terms) != 1 or x.terms[0][1] != 1 or x.terms[0][0].op != "floordiv":
        return None
    inner, a = x.terms[0][0].args
    if not facts.at_least(y, 1):
        return None
    dividend, divisor = inner + a * x.const, a * y
    if max(abs(dividend.const), abs(divisor.const)) > LARGEST_NUMBER:
        return None
    return build(facts, "floordiv", dividend, divisor)


@rule("floordiv", "x // y = 0", "fewer than one each", when="0 <= x < y")
def _(facts: KnownFacts, x: Expr, y: Expr) -> Expr | None:
    if y.value is not None:
        return None  # the next rule's
    return ZERO if facts.at_least(x, 0) and facts.at_least(y - x, 1) else None


@rule(
    "floordiv",
    "x // k = a",
    "all of its range has this quotient",
    when="k > 0 and a*k <= x < a*k+k",
)
def _(facts: KnownFacts, x: Expr, y: Expr) -> Expr | None:
    k = y.value
    if k is None:
        return None
    lo, hi = facts.range(x)
    if lo == -ranges.INF or hi == ranges.INF or lo // k != hi // k:
        return None
    return integer(int(lo // k))


# --------------------------------------------------------------------------------------------------
# x % y

rule("mod", "7 % 4 = 3", "numbers are computed")(_numbers("mod"))


@rule("mod", "x % y = 0", "nothing is left over", when="y == 1 or y == -1")
def _(facts: KnownFacts, x: Expr, y: Expr) -> Expr | None:
    if y.value == 0:
        raise ZeroDivisionError(division_by_zero(operator.floordiv))
    return ZERO if y.value in (1, -1) else None


@rule("mod", "0 % y = 0", "nothing is left of nothing", when="y != 0")
def _(facts: KnownFacts, x: Expr, y: Expr) -> Expr | None:
    return ZERO if x is ZERO and facts.nonzero(y) else None


@rule("mod", "(k*x + r) % k = r % k", "whole multiples don't matter", when="k != 0")
def _(facts: KnownFacts, x: Expr, y: Expr) -> Expr | None:
    k = y.value
    if k is None:
        return None
    rest = from_terms({product: c % k for product, c in x.terms}, x.const % k)
    return None if rest is x else build(facts, "mod", rest, y)


@rule("mod", "(g*x) % (g*y) = g * (x % y)", "a common number comes out", when="g*y != 0")
def _(facts: KnownFacts, x: Expr, y: Expr) -> Expr | None:
    g = math.gcd(x.const, y.const, *[c for _, c in (*x.terms, *y.terms)])
    first = y.terms[0][1] if y.terms else y.const
    g = g if first > 0 else -g
    return None if g == 1 else scale(build(facts, "mod", divide(x, g), divide(y, g)), g)


@rule(
    "mod",
    "(x % (a*b) + r) % a = (x + r) % a",
    "the inner remainder has dropped only multiples of a*b",
    when="a*b != 0",
)
def _(facts: KnownFacts, x: Expr, y: Expr) -> Expr | None:
    k = y.value
    if k is None:
        return None
    for product, c in x.terms:
        inner = product.args[1].value if product.op == "mod" else None
        if inner is not None and inner % k == 0:
            return build(facts, "mod", x + (product.args[0] - product) * c, y)
    return None


@rule("mod", "(x*y + r) % y = r % y", "multiples of the divisor don't matter", when="y != 0")
def _(facts: KnownFacts, x: Expr, y: Expr) -> Expr | None:
    split = split_multiples(x, y)
    if split is None:
        return None
    _, rest = split
    if rest is ZERO:
        return ZERO if facts.nonzero(y) else None
    return build(facts, "mod", rest, y)


@rule("mod", "x % y = x", "less than one share is left over whole", when="0 <= x < y")
def _(facts: KnownFacts, x: Expr, y: Expr) -> Expr | None:
    return x if facts.at_least(x, 0) and facts.at_least(y - x, 1) else None


@rule("mod", "x % k = a % k", "the remainder is a known fact", when="k != 0 and (x - a) % k == 0")
def _(facts: KnownFacts, x: Expr, y: Expr) -> Expr | None:
    residue = None if y.value is None else facts.residue(x, y.value)
    return None if residue is None else integer(residue)


# --------------------------------------------------------------------------------------------------
# min, max, abs


def _extreme(op: str, other: str, sign: int) -> Apply:
    """The rule for min (sign 1) or max (sign -1): nested ones are flattened, and arguments that
    can't be the result are dropped. `min(s0, s0 + 1)` is s0, and so is `min(s0, max(s0, s1))`."""

    def apply(facts: KnownFacts, *args: Expr) -> Expr:
        flat: dict[Expr, None] = {}
        for arg in args:
            flat.update(dict.fromkeys(arg.args if arg.op == op else (arg,)))
        remaining = list(flat)
        for arg in list(flat):
            rest = [x for x in remaining if x is not arg]
            # The absorption law: min(x, max(x, y)) is x.
            absorbed = arg.op == other and any(x in rest for x in arg.args)
            if absorbed or any(facts.at_least(scale(arg - x, sign), 0) for x in rest):
                remaining = rest
        if len(remaining) == 1:
            return remaining[0]
        result = atom(op, *sorted(remaining, key=lambda x: x.order))
        # When expressions are built nothing is known of their symbols, so that it would be tried in
        # vain.
        line = None if facts is NO_FACTS else as_line(result, facts.range)
        return result if line is None else line

    return apply


rule("min", "min(x, y) = x", "known order", when="x <= y")(_extreme("min", "max", 1))
rule("max", "max(x, y) = y", "known order", when="x <= y")(_extreme("max", "min", -1))


@rule("abs", "abs(x) = x", "it has no sign to lose", when="x >= 0")
def _(facts: KnownFacts, x: Expr) -> Expr | None:
    return x if facts.at_least(x, 0) else None


@rule("abs", "abs(x) = -x", "the sign is known", when="x <= 0")
def _(facts: KnownFacts, x: Expr) -> Expr | None:
    return -x if facts.range(x).hi <= 0 else None


@rule("abs", "abs(g*x) = abs(g) * abs(x)", "the sign and a common number come out")
def _(facts: KnownFacts, x: Expr) -> Expr | None:
    g = math.gcd(x.const, *[c for _, c in x.terms])
    g = -g if x.terms[0][1] < 0 else g
    return None if g == 1 else scale(build(facts, "abs", divide(x, g)), abs(g))


# --------------------------------------------------------------------------------------------------
# x ** y, bits, choices

rule("pow", "3 ** 2 = 9", "numbers are computed")(_numbers("pow"))


@rule("pow", "(x + y) ** 2 = x*x + 2*x*y + y*y", "products are multiplied out")
def _(facts: KnownFacts, x: Expr, y: Expr) -> Expr | None:
    k = y.value
    if k is None:
        return None
    if k < 0:
        raise ValueError(f"({x}) ** {k} is not an integer")
    if len(x.terms) == 1 and not x.const:
        product, c = x.terms[0]
        return scale(from_factors({f: e * k for f, e in product.factors}), c**k) if k else ONE
    return product_of([x] * k) if k <= EXPAND_POWERS_TO else None


def _bits(op: str, zero: Callable[[Expr], Expr], same: Callable[[Expr], Expr]) -> Apply:
    def apply(facts: KnownFacts, x: Expr, y: Expr) -> Expr | None:
        if x is y:
            return same(x)
        if y.order < x.order:
            x, y = y, x
        return zero(y) if x is ZERO else atom(op, x, y)

    return apply


@rule("bitand", "x & (2**abs(k) - 1) = x % 2**abs(k)", "the low bits are the remainder")
def _(facts: KnownFacts, x: Expr, y: Expr) -> Expr | None:
    for mask, other in ((x.value, y), (y.value, x)):
        if mask is not None and mask >= 0 and mask & (mask + 1) == 0:
            return build(facts, "mod", other, integer(mask + 1))
    return None


rule("bitand", "5 & 4 = 4", "numbers are computed")(_numbers("bitand"))
rule("bitor", "5 | 2 = 7", "numbers are computed")(_numbers("bitor"))
rule("bitxor", "5 ^ 1 = 4", "numbers are computed")(_numbers("bitxor"))
rule("bitand", "x & x = x", "same bits")(_bits("bitand", lambda y: ZERO, lambda x: x))
rule("bitor", "x | 0 = x", "no more bits")(_bits("bitor", lambda y: y, lambda x: x))
rule("bitxor", "x ^ x = 0", "no different bits")(_bits("bitxor", lambda y: y, lambda x: ZERO))


@rule("if", "(x if c else x) = x", "the choice makes no difference, or is made")
def _(facts: KnownFacts, c: Cond, a: Expr, b: Expr) -> Expr | None:
    if c.value is not None:
        return a if c is TRUE else b
    return a if a is b else None


# --------------------------------------------------------------------------------------------------
# Floats to integers


def _small(facts: KnownFacts, *parts: BaseExpr) -> bool:
    """Integers that floats hold exactly."""
    exact = Range(-EXACT, EXACT)
    return all(
        isinstance(part, Expr) and facts.range(part).lo in exact and facts.range(part).hi in exact
        for part in parts
    )


def _rounding(op: str) -> Apply:
    def apply(facts: KnownFacts, a: FloatExpr) -> Expr | None:
        if a.value is not None:
            return integer(STRICT[op](a.value))
        if a.op == "to_float" and _small(facts, *a.args):
            return a.args[0]
        return None

    return apply


for _op in ("floor", "ceil", "trunc", "round"):
    rule(_op, "float(x) = x", "a float that holds an integer exactly", when="abs(x) <= 2**53")(
        _rounding(_op)
    )


@rule(
    "floor",
    "floor(x / y) = x // y",
    "the quotient is 1/y or more from the next integer, and rounding moves it by less",
    when="y != 0 and max(abs(x), abs(y)) <= 2**53",
)
def _(facts: KnownFacts, a: FloatExpr) -> Expr | None:
    if a.op != "truediv" or not _small(facts, *a.args):
        return None
    return build(facts, "floordiv", *a.args)


@rule(
    "ceil",
    "ceil(x / y) = -(-x // y)",
    "as for floor",
    when="y != 0 and max(abs(x), abs(y)) <= 2**53",
)
def _(facts: KnownFacts, a: FloatExpr) -> Expr | None:
    if a.op != "truediv" or not _small(facts, *a.args):
        return None
    return -build(facts, "floordiv", -a.args[0], a.args[1])


@rule("trunc", "int(x / y) = x // y", "as for floor", when="0 <= x <= 2**53 and 0 < y <= 2**53")
def _(facts: KnownFacts, a: FloatExpr) -> Expr | None:
    if a.op != "truediv" or not _small(facts, *a.args):
        return None
    x, y = a.args
    positive = facts.at_least(x, 0) and facts.at_least(y, 1)
    return build(facts, "floordiv", x, y) if positive else None


# --------------------------------------------------------------------------------------------------
# What the rules above share


def divide(x: Expr, g: int) -> Expr:
    """x / g, where g divides every coefficient and the constant."""
    return from_terms({product: c // g for product, c in x.terms}, x.const // g)


def divide_product(p: Expr, q: Expr) -> Expr | None:
    """The product p without the factors of the product q, if they are all in it."""
    exponents = dict(p.factors)
    for factor, exponent in q.factors:
        left = exponents.get(factor, 0) - exponent
        if left < 0:
            return None
        exponents[factor] = left
    return from_factors({factor: e for factor, e in exponents.items() if e})


def quotient_by(x: Expr, q: Expr) -> Expr:
    """x / q for a product q that is in every term of x."""
    return sum_of([scale(without(p, q), c) for p, c in x.terms])


def without(p: Expr, q: Expr) -> Expr:
    """p / q for products, q being in p."""
    left = divide_product(p, q)
    assert left is not None, f"{q} is not a factor of {p}"
    return left


def _degree(p: Expr) -> tuple[int, tuple[Any, ...]]:
    """Products by degree first. Only for finding a divisor's leading term; any order would be
    sound."""
    return sum([e for _, e in p.factors]), tuple([(f.order, e) for f, e in p.factors])


@cached(4096)
def split_multiples(x: Expr, y: Expr) -> tuple[Expr, Expr] | None:
    """`(q, r)` with x = q*y + r and q not 0, or None: the division of polynomials with remainder,
    for as many steps as it goes."""
    if not y.terms or not x.terms:
        return None
    # Division by the leading term of y, as with polynomials by hand.
    lead, size = max(y.terms, key=lambda term: _degree(term[0]))
    quotient, rest = ZERO, x
    for _ in range(2 * len(x.terms) + 2):
        parts = [(p, c) for p, c in rest.terms if c % size == 0]
        quotients = [(d, c // size) for p, c in parts if (d := divide_product(p, lead)) is not None]
        if not quotients:
            break
        part, c = max(quotients, key=lambda term: _degree(term[0]))
        step = scale(part, c)
        quotient, rest = quotient + step, rest - mul(step, y)
    # For a divisor of several terms the rest may be longer than x: worth it only if it vanishes.
    if quotient is ZERO or (len(y.terms) + bool(y.const) > 1 and rest.terms):
        return None
    return quotient, rest


def common_factors(facts: KnownFacts, *exprs: Expr) -> Expr:
    """The product of all atoms that are a factor of every term of all the expressions, and are
    known not to be 0; 1 if there is none."""
    for e in exprs:
        # A constant term has no factors in common with anything.
        if e.const or not e.terms:
            return ONE
    products = [p for e in exprs for p, _ in e.terms]
    shared = dict(products[0].factors)
    for p in products[1:]:
        exponents = dict(p.factors)
        shared = {f: min(e, exponents[f]) for f, e in shared.items() if f in exponents}
    return from_factors({f: e for f, e in shared.items() if facts.nonzero(f)})


# --------------------------------------------------------------------------------------------------
# Simplifying under facts


def simplify(node: Any, facts: KnownFacts) -> Any:
    """`node` with all replacements and rules that `facts` allows, from the inside out. Results are
    kept in the facts' memo, which is emptied when they change."""
    # Keyed by node. Nodes are interned, so that a shared part is simplified once.
    memo = facts.memo()

    def visit(inner: Any) -> Any:
        if not inner.symbols:
            return inner
        result = memo.get(inner)
        if result is None:
            result = memo[inner] = _simplified(inner, facts, visit)
        return result

    return visit(node)


def _simplified(node: Any, facts: KnownFacts, visit: Callable[[Any], Any]) -> Any:
    if node.op in ("symbol", "fsymbol"):
        return facts.replacement(node)
    # A polynomial is in normal form as it was built.
    if type(node) is Expr and node.plain and facts.settled(node):
        return node
    if node.op in REWRITE_RULES:
        result = build(facts, node.op, *[visit(arg) for arg in node.args])
        # The atom as a whole may have a known value: `s0//4 == 2` was learnt.
        value = facts.value(result)
        return result if value is None else integer(value)
    result = rebuild(node, visit)
    finish = _FINISH.get(result.op)
    return finish(result, facts) if finish else result


def _join_quotients(e: Expr, facts: KnownFacts) -> Expr:
    """Replace k*(x//k) by x, where k is known to divide x."""
    for product, c in e.terms:
        for factor, exponent in product.factors:
            k = factor.args[1].value if factor.op == "floordiv" else None
            if k and c % k == 0 and exponent == 1 and facts.residue(factor.args[0], k) == 0:
                joined = scale(mul(factor.args[0], without(product, factor)), c // k)
                return _join_quotients(e - scale(product, c) + joined, facts)
    return e


def _finish_le0(cond: Cond, facts: KnownFacts) -> Cond:
    """Divide the sum by common factors that are known to be above 0: that doesn't change its
    sign."""
    (e,) = cond.args
    g = common_factors(facts, e)
    factors = {f: n for f, n in g.factors if facts.at_least(f, 1)}
    return le0(quotient_by(e, from_factors(factors))) if factors else cond


def _finish_eq0(make: Callable[[Expr], Cond]) -> Callable[[Cond, KnownFacts], Cond]:
    """Divide the sum by common factors that are known not to be 0: that doesn't change whether it
    is 0."""

    def finish(cond: Cond, facts: KnownFacts) -> Cond:
        (e,) = cond.args
        g = common_factors(facts, e)
        return cond if g is ONE else make(quotient_by(e, g))

    return finish


_FINISH: Final[Mapping[str, Callable[[Any, KnownFacts], Any]]] = {
    "add": _join_quotients,
    "mul": _join_quotients,
    "le0": _finish_le0,
    "eq0": _finish_eq0(eq0),
    "ne0": _finish_eq0(ne0),
}


# --------------------------------------------------------------------------------------------------
# The constructors of `expr`


def _constructor(op: str) -> Callable[..., Expr]:
    @cached(16384)
    def construct(*args: BaseExpr) -> Expr:
        return build(NO_FACTS, op, *args)

    return construct


BUILD.update({op: _constructor(op) for op in REWRITE_RULES})
