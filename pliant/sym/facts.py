"""Facts: what is known about symbols and expressions, and how learning a condition refines it.

The one idea: every fact about integers is a fact about a *form*: an expression without constant
whose coefficients have no common divisor (`expr.content`). `2*s0 - 2*s1 <= 7` is the bound 3 on
the form s0 - s1. Of each form there are

    a range        lo <= form <= hi
    holes          numbers it is not equal to
    a congruence   form % k == r

and symbols for which an equality was solved are replaced by their value everywhere. What has no
such shape (alternatives, floats) is remembered as it stands.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Final

from pliant.sym import ranges
from pliant.sym.cond import Cond, eq0, ge, le, ne, not_
from pliant.sym.expr import ZERO, Expr, content, mod, substitute
from pliant.sym.ranges import ALL, FLOATS, INF, Bound, Range
from pliant.sym.rules import KnownFacts, simplify
from pliant.sym.solve import Prefer, congruence, consequences, default_preference, solve

DEEPEST: Final = 12  # a consequence of a consequence of ...: further ones are not followed


class Contradiction(Exception):
    """What is being learnt can't hold together with what is known."""


class Facts(KnownFacts):
    """Everything known at one point of a capture. `learn` adds a condition; `copy` gives facts to
    try something out on.

    `prefer` ranks the symbols that an equality can be solved for (see `solve`).
    """

    def __init__(self, prefer: Prefer = default_preference) -> None:
        # By form. No replaced symbol is in a form, nor in a replacement.
        self.bounds: dict[Expr, Range] = {}
        self.holes: dict[Expr, set[int]] = {}
        self.congruences: dict[Expr, tuple[int, int]] = {}  # (k, r): form % k == r
        self.replacements: dict[Expr, Expr] = {}  # a symbol and what it equals
        self.truths: dict[Cond, None] = {}  # an ordered set
        self.prefer = prefer
        self.uses: dict[Expr, list[Expr]] = {}  # product -> forms with bounds that it is a term of
        self._memo: dict[Any, Any] = {}
        self._ranges: dict[Any, Any] = {}
        self.decided: dict[Cond, bool | None] = {}  # answers of `decide`, until more is known

    def copy(self) -> Facts:
        new = Facts(self.prefer)
        # Without the memos, which belong to the facts as they are.
        new.bounds, new.holes = dict(self.bounds), {t: set(v) for t, v in self.holes.items()}
        new.congruences, new.replacements = dict(self.congruences), dict(self.replacements)
        new.truths, new.uses = dict(self.truths), {p: list(v) for p, v in self.uses.items()}
        return new

    # What is known

    def memo(self) -> dict[Any, Any]:
        return self._memo

    def replacement(self, symbol: Any) -> Any:
        replacement = self.replacements.get(symbol)
        return symbol if replacement is None else replacement

    def value(self, e: Expr) -> int | None:
        return self._known_range(e).value

    def settled(self, e: Expr) -> bool:
        return e.symbols.isdisjoint(self.replacements)

    def connected(self, e: Expr) -> bool:
        """Whether anything relates the terms of e to each other or to their parts. If not, no proof
        can find more than the range of e says."""
        for product, _ in e.terms:
            if product.op != "symbol":
                return True  # its parts may be known
            for form in self.uses.get(product, ()):
                if len(form.terms) > 1:
                    return True
        return False

    def range(self, e: Any) -> Any:
        """The range of e: what follows from its structure and the ranges of its parts, intersected
        with what is known of its form."""
        if e.op == "symbol":
            return self.bounds.get(e, ALL)
        result = self._ranges.get(e)
        if result is None:
            if isinstance(e, Expr):
                result = ranges.range_of(e, self.range) & self._known_range(e)
            elif e.op == "fsymbol":
                result = FLOATS
            else:
                result = ranges.float_range_of(e, self.range)
            self._ranges[e] = result
        return result

    def _known_range(self, e: Expr) -> Range:
        """The range of e from the bounds of its form alone: e is g*form + c."""
        form, g, c = content(e)
        bounds = self.bounds.get(form)
        if bounds is None:
            return ALL
        scaled = ranges.scaled(bounds, g)
        return scaled if c == 0 else ranges.add(scaled, ranges.exactly(c))

    def nonzero(self, e: Expr) -> bool:
        """Whether e is known not to be 0: by a hole, by its range, or as a product of factors that
        are not."""
        # e is g*form + c: 0 where the form is -c/g, if that is an integer, and not a hole.
        form, g, c = content(e)
        if -c % g == 0 and -c // g in self.holes.get(form, ()):
            return True
        return 0 not in self.range(e) or self._nonzero_product(e)

    def _nonzero_product(self, e: Expr) -> bool:
        """A product of what is not 0 is not 0."""
        return len(e.factors) > 0 and e.op == "mul" and all(self.nonzero(f) for f, _ in e.factors)

    def residue(self, e: Expr, k: int) -> int | None:
        """e % k if that is known: from a congruence of the whole form, otherwise term by term."""
        total = e.const
        residue = self._form_residue(e, k)
        if residue is not None:
            return residue
        for product, c in e.terms:
            if c % k:
                # c*product modulo k needs no more of the product than its residue modulo k/gcd.
                part = self._form_residue(product, abs(k) // math.gcd(c, k))
                if part is None:
                    part = self._product_residue(product, abs(k) // math.gcd(c, k))
                if part is None:
                    return None
                total += c * part
        return total % k

    def _form_residue(self, e: Expr, k: int) -> int | None:
        """e % k from a congruence of the form of e. With form % m == r, g*form + c is known modulo
        g*m, so k has to divide that."""
        form, g, c = content(e)
        modulus, r = self.congruences.get(form, (1, 0))
        return (g * r + c) % k if (g * modulus) % k == 0 else None

    def _product_residue(self, product: Expr, k: int) -> int | None:
        """0 if the known divisors of the factors multiply to a multiple of k: `s0*s1` is divisible
        by 6, if s0 is even and s1 is divisible by 3. Otherwise None."""
        if product.op != "mul":
            return None
        divisor = 1
        for factor, exponent in product.factors:
            modulus, r = self.congruences.get(factor, (1, 0))
            divisor *= math.gcd(modulus, r) ** exponent
        return 0 if divisor % k == 0 else None

    # Learning

    def learn(self, cond: Cond) -> None:
        """Make `cond` a fact, with what follows from it. Raises `Contradiction` if it is found to
        be false; then these facts are of no more use (`copy` them before, where that may happen).
        """
        self._learn(cond, DEEPEST)
        for case in _sole_cases(self, cond):
            self._learn(case, DEEPEST)

    def _learn(self, cond: Cond, depth: int) -> None:
        # In terms of what is known: replaced symbols must not come back into the tables.
        cond = simplify(cond, self)
        if cond.value is not None:
            if not cond.value:
                raise Contradiction(str(cond))
            return
        _LEARN.get(cond.op, Facts._remember)(self, cond, depth)

    def _remember(self, cond: Cond, depth: int) -> None:
        if not_(cond) in self.truths:
            raise Contradiction(str(cond))
        self.truths[cond] = None
        self._changed()

    def _learn_all(self, cond: Cond, depth: int) -> None:
        for part in cond.args:
            self._learn(part, depth)

    def _learn_le0(self, cond: Cond, depth: int) -> None:
        form, g, c = content(cond.args[0])  # g is 1 or -1: a condition has no common divisor
        self._narrow(form, Range(-INF, -c) if g > 0 else Range(c, INF), depth)

    def _learn_eq0(self, cond: Cond, depth: int) -> None:
        (e,) = cond.args
        # An equality that can be solved removes a symbol, which is worth more than a bound.
        solved = solve(e, self.prefer)
        if solved is not None:
            self._replace(*solved, depth)  # which says all that the equality does
            return
        form, g, c = content(e)
        self._narrow(form, ranges.exactly(-c // g), depth)
        # Not solvable for a symbol, as 4*s0 == s1*s2: at least s1*s2 is divisible by 4.
        for x, k in congruence(e):
            self._learn_congruence(x, k, 0, depth)

    def _learn_ne0(self, cond: Cond, depth: int) -> None:
        form, g, c = content(cond.args[0])
        self.holes.setdefault(form, set()).add(-c // g)
        self._changed()
        # The hole may be at an end of the range: `s0 >= 0` and `s0 != 0` is `s0 >= 1`.
        self._narrow(form, self.range(form), depth)
        if c == 0 and len(form.factors) > 1:  # then none of the factors is 0
            for factor, _ in form.factors:
                self._learn(ne(factor, 0), depth)

    def _narrow(self, form: Expr, to: Range, depth: int) -> None:
        """Note that `form` is in the range `to`, tighten that by residue and holes, and propagate
        it to the parts of the form. This is bounds propagation as in constraint solvers; `depth`
        bounds its length."""
        before = self.range(form)
        new = self._without_holes(form, self._to_residue(form, before & to))
        if new.empty:
            raise Contradiction(f"{form} in {new}")
        # Nothing new, so nothing to follow: forms that bound each other would go round in circles.
        if new == self.bounds.get(form) or (new == before and form not in self.bounds):
            return
        if form not in self.bounds:
            _index(self.uses, form)
        self.bounds[form] = new
        self._changed()
        # Consequences of consequences may go on for ever, each narrowing a range by a little.
        if depth > 0:
            self._follow(form, new, depth - 1)

    def _without_holes(self, form: Expr, new: Range) -> Range:
        """The range without holes at its ends. It moves in steps of the modulus, since the ends
        have the known remainder."""
        lo, hi = new
        step, _ = self.congruences.get(form, (1, 0))
        holes = self.holes.get(form, ())
        while lo in holes and lo <= hi:
            lo += step
        while hi in holes and lo <= hi:
            hi -= step
        return Range(lo, hi)

    def _to_residue(self, form: Expr, new: Range) -> Range:
        """The range with its ends moved in to the nearest numbers that have the known remainder."""
        k, r = self.congruences.get(form, (1, 0))
        lo: Bound = new.lo + (r - new.lo) % k if abs(new.lo) != INF else new.lo
        hi: Bound = new.hi - (new.hi - r) % k if abs(new.hi) != INF else new.hi
        return Range(lo, hi)

    def _follow(self, form: Expr, new: Range, depth: int) -> None:
        """Propagate a new range of a form to its parts: a value may solve for a symbol, an
        operation bounds its arguments, and each term of a sum is the sum less the others."""
        value = new.value
        if value is not None:
            # x % 4 == 2 is a congruence of x.
            if form.op == "mod" and form.args[1].value is not None:
                self._learn_congruence(form.args[0], form.args[1].value, value, depth)
            solved = solve(form - value, self.prefer)
            if solved is not None:
                self._replace(*solved, depth)
                return
        lo = None if new.lo == -INF else int(new.lo)
        hi = None if new.hi == INF else int(new.hi)
        for cond in consequences(form, lo, hi, self.range):
            self._learn(cond, depth)
        if len(form.terms) > 1:  # a term is what the sum is, less the others
            for product, c in form.terms:
                of_others = self.range(form - c * product)
                self._narrow_term(
                    product,
                    c,
                    Range(_minus(new.lo, of_others.hi), _minus(new.hi, of_others.lo)),
                    depth,
                )

    def _narrow_term(self, product: Expr, c: int, of_term: Range, depth: int) -> None:
        """Note that c*product is in `of_term`."""
        lo, hi = of_term if c > 0 else Range(-of_term.hi, -of_term.lo)
        to = Range(  # rounded inwards: the product is an integer
            lo if abs(lo) == INF else -(-lo // abs(c)), hi if abs(hi) == INF else hi // abs(c)
        )
        if to != ALL and product not in self.replacements:
            self._narrow(product, to, depth)

    def _learn_congruence(self, e: Expr, k: int, r: int, depth: int) -> None:
        """Note that e % k == r. It is combined with an older congruence of the same form if one
        modulus divides the other, or if they are coprime and the product is small. Otherwise the
        one with the larger modulus is kept."""
        form, g, c = content(e)
        k = abs(k)
        # g*form == r - c modulo k has solutions only if gcd(g, k) divides r - c. Divided by that, g
        # has an inverse.
        shared = math.gcd(g, k)
        if form is ZERO or (r - c) % shared:
            if (r - c) % shared:
                raise Contradiction(f"{e} % {k} == {r}")
            return
        k //= shared
        r = (r - c) // shared * pow(g // shared, -1, k) % k if k > 1 else 0
        old_k, old_r = self.congruences.get(form, (1, 0))
        shared_modulus = math.gcd(k, old_k)
        if (r - old_r) % shared_modulus:
            raise Contradiction(f"{form} % {shared_modulus}")
        if old_k % k == 0:
            return
        # Coprime moduli: one congruence says both (Chinese remainders), as long as it stays small.
        # Garner's formula: r + k*t, with t chosen so that the old congruence holds too.
        if k % old_k and shared_modulus == 1 and k * old_k < 2**31:
            r, k = (r + k * ((old_r - r) * pow(k, -1, old_k) % old_k)) % (k * old_k), k * old_k
        # A form has one congruence, so of two that can't be combined the stronger one is kept.
        if k > old_k:
            self.congruences[form] = (k, r)
            self._changed()
            if form in self.bounds:
                self._narrow(form, self.bounds[form], depth)

    def _replace(self, symbol: Expr, value: Expr, depth: int) -> None:
        """symbol == value, from a solved equality: the symbol disappears from all facts. Those
        about it are learnt again, about its value."""
        replacement = {symbol: value}
        # Values never contain a replaced symbol, so one substitution is always enough.
        self.replacements = {s: substitute(e, replacement) for s, e in self.replacements.items()}
        self.replacements[symbol] = value
        affected = [cond for cond in self.conditions() if symbol in cond.symbols]  # before they go
        # Facts about the symbol are taken out of all tables and learnt again, about its value.
        tables: tuple[dict[Any, Any], ...] = (
            self.bounds,
            self.holes,
            self.congruences,
            self.truths,
        )
        for table in tables:
            for key in [key for key in table if symbol in key.symbols]:
                del table[key]
        self.uses = {}
        for form in self.bounds:
            _index(self.uses, form)
        self._changed()
        for cond in affected:
            self._learn(substitute(cond, replacement), depth)

    def conditions(self, forms: Iterable[Expr] | None = None) -> list[Cond]:
        """The facts as conditions, without the replacements."""
        conditions: list[Cond] = []
        for form, (lo, hi) in self.bounds.items():
            conditions.extend([ge(form, int(lo))] if lo != -INF else [])
            conditions.extend([le(form, int(hi))] if hi != INF else [])
        conditions.extend(
            ne(form, n) for form, numbers in self.holes.items() for n in sorted(numbers)
        )
        for form, (k, r) in self.congruences.items():
            conditions.append(eq0(mod(form, k) - r))
        return [*conditions, *self.truths]

    def _changed(self) -> None:
        # All of these answers may be better now. They are never wrong, only out of date.
        self._memo.clear()
        self._ranges.clear()
        self.decided.clear()


def _sole_cases(facts: Facts, learnt: Cond) -> Iterator[Cond]:
    """Alternatives that have become certain: of an `or` that shares a symbol with what was learnt,
    all parts but one are false. Raises `Contradiction` if all are."""
    alternatives = [truth for truth in facts.truths if truth.op == "or"]
    for truth in alternatives:
        if learnt.symbols.isdisjoint(truth.symbols):
            continue
        left = [case for case in truth.args if simplify(case, facts).value is not False]
        if not left:
            raise Contradiction(str(truth))
        if len(left) == 1:
            yield left[0]


def _index(uses: dict[Expr, list[Expr]], form: Expr) -> None:
    """Note for each product of a form that the form has it as a term."""
    for product, _ in form.terms:
        uses.setdefault(product, []).append(form)


def _minus(a: Bound, b: Bound) -> Bound:
    """a - b for bounds; infinite if one of them is."""
    return a if abs(a) == INF else -b if abs(b) == INF else a - b


_LEARN: Final[dict[str, Callable[[Facts, Cond, int], None]]] = {
    "and": Facts._learn_all,
    "le0": Facts._learn_le0,
    "eq0": Facts._learn_eq0,
    "ne0": Facts._learn_ne0,
}
