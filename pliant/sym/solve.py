"""Solving: what a condition says about one symbol, or about simpler expressions.

The one idea: each function gives consequences that hold whenever the condition does. `solve` gives
an equal expression for a symbol, to put in its place; `consequences` gives plainer conditions,
such as `8 <= s0 <= 11` for `s0//4 == 2`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Final

from pliant.sym.cond import Cond, ge, le
from pliant.sym.expr import Expr, scale
from pliant.sym.ranges import Range

RangeOf = Callable[[Expr], Range]
Consequences = Iterator[Cond]

Prefer = Callable[[Expr, Expr], Any]
"""The rank of a symbol in an expression that is 0."""


def default_preference(symbol: Expr, within: Expr) -> Any:
    """The symbol that comes last goes first: s1 is replaced by s0."""
    return symbol.order


def solve(e: Expr, prefer: Prefer = default_preference) -> tuple[Expr, Expr] | None:
    """`(s, value)` with s == value wherever e == 0, for a symbol s that is not in value; None if
    there is none.

    A symbol qualifies if it has the coefficient 1 or -1 and occurs nowhere else in e: `s0 - 2*s1 -
    3` gives `(s0, 2*s1 + 3)`, and `2*s0 - s0//4` gives None. Of several, the one that `prefer`
    ranks highest is taken; where `prefer` returns None, the symbol is kept.
    """
    candidates: list[tuple[Any, Expr, int]] = []
    for product, c in e.terms:
        if product.op == "symbol" and c in (1, -1):
            elsewhere = any(
                product in other.symbols for other, _ in e.terms if other is not product
            )
            rank = None if elsewhere else prefer(product, e)
            if rank is not None:
                candidates.append((rank, product, c))
    if not candidates:
        return None
    # c is 1 or -1, so that multiplying by it leaves +s.
    _, symbol, c = max(candidates, key=lambda item: item[0])
    return symbol, symbol - scale(e, c)


def congruence(e: Expr) -> Iterator[tuple[Expr, int]]:
    """Pairs `(x, k)` such that k divides x wherever e == 0: from a*p + rest == 0, a divides rest.
    For `4*s0 - s1 == 0` that is `(-s1, 4)`."""
    for product, c in e.terms:
        if abs(c) > 1:
            yield e - scale(product, c), abs(c)


def consequences(t: Expr, lo: int | None, hi: int | None, range_of: RangeOf) -> Consequences:
    """What lo <= t <= hi implies for the arguments of t, an atom such as `s0//4`. None stands for a
    missing bound; `range_of` returns the range of an argument."""
    rule = _ARGUMENTS.get(t.op)
    if rule is not None:
        yield from rule(t, lo, hi, range_of)


def _floordiv(t: Expr, lo: int | None, hi: int | None, range_of: RangeOf) -> Consequences:
    """For k > 0: a <= x//k says a*k <= x, and x//k <= b says x <= b*k + k-1."""
    x, y = t.args
    k = y.value
    if k is not None and k > 0:
        if lo is not None:
            yield ge(x, lo * k)
        if hi is not None:
            yield le(x, hi * k + k - 1)


def _min(t: Expr, lo: int | None, hi: int | None, range_of: RangeOf) -> Consequences:
    """All arguments are >= lo. One is <= hi; if the ranges leave only one that can be, it is that
    one."""
    if lo is not None:
        yield from [ge(x, lo) for x in t.args]
    if hi is not None:
        low = [x for x in t.args if range_of(x).lo <= hi]
        if len(low) == 1:
            yield le(low[0], hi)


def _max(t: Expr, lo: int | None, hi: int | None, range_of: RangeOf) -> Consequences:
    """As `_min`: `max(0, s0 - 1) == 1` says s0 == 2."""
    if hi is not None:
        yield from [le(x, hi) for x in t.args]
    if lo is not None:
        high = [x for x in t.args if range_of(x).hi >= lo]
        if len(high) == 1:
            yield ge(high[0], lo)


def _abs(t: Expr, lo: int | None, hi: int | None, range_of: RangeOf) -> Consequences:
    if hi is not None:
        yield le(t.args[0], hi)
        yield ge(t.args[0], -hi)


_ARGUMENTS: Final[dict[str, Callable[[Expr, int | None, int | None, RangeOf], Consequences]]] = {
    "floordiv": _floordiv,
    "min": _min,
    "max": _max,
    "abs": _abs,
}
