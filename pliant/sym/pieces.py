"""Functions of one symbol that are made of straight lines: `max(s0 + min(s0, 1) - 1, 0)`.

The one idea: sums, min, max and abs of such functions are such functions, so an expression of one
symbol is a list of pieces `slope*symbol + start`, each on integers from lo to hi. Where the pieces
turn out to lie on one line, the expression is that line: the one above is s0 for s0 >= 0.

Buffers that drop as many rows as they take in have sizes like that; without this, the size of
each is an expression twice as large as the last.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from typing import Any, Final, NamedTuple

from pliant.sym.expr import Expr, from_terms
from pliant.sym.ranges import Bound, Range

MOST_PIECES: Final = 12
DEEPEST: Final = 10  # parts are simplified before the whole: what still is deep has no such form


class Piece(NamedTuple):
    lo: Bound
    hi: Bound
    slope: int
    start: int

    def at(self, place: Bound) -> int:
        return self.slope * int(place) + self.start


Pieces = list[Piece] | None


def as_line(e: Expr, domain: Callable[[Expr], Range]) -> Expr | None:
    """The linear expression that `e` equals for all values of its only symbol in its domain."""
    if len(e.symbols) != 1 or e.depth > DEEPEST:
        return None
    (symbol,) = e.symbols
    if not isinstance(symbol, Expr):
        return None
    lo, hi = domain(symbol)
    pieces = None if lo > hi else _Reader(Range(lo, hi)).read(e)
    if pieces is None or len(pieces) != 1:
        return None
    return from_terms({symbol: pieces[0].slope}, pieces[0].start)


class _Reader:
    """The pieces of the parts of one expression, each worked out once."""

    def __init__(self, domain: Range) -> None:
        self.domain = domain
        self.memo: dict[Expr, Pieces] = {}

    def read(self, e: Expr) -> Pieces:
        if e not in self.memo:
            read = _READ.get(e.op)
            self.memo[e] = None if read is None else read(self, e)
        return self.memo[e]

    def line(self, slope: int, start: int) -> Pieces:
        return [Piece(*self.domain, slope, start)]

    def sum(self, e: Expr) -> Pieces:
        total = self.line(0, e.const)
        for product, c in e.terms:
            part = self.read(product)
            if part is None or total is None:
                return None
            total = _joined(
                total, [Piece(p.lo, p.hi, c * p.slope, c * p.start) for p in part], _add
            )
        return total

    def extreme(self, e: Expr) -> Pieces:
        combine = _least if e.op == "min" else _most
        result = self.read(e.args[0])
        for arg in e.args[1:]:
            part = self.read(arg)
            if part is None or result is None:
                return None
            result = _joined(result, part, combine)
        return result

    def absolute(self, e: Expr) -> Pieces:
        part = self.read(e.args[0])
        if part is None:
            return None
        return _joined(part, [Piece(p.lo, p.hi, -p.slope, -p.start) for p in part], _most)


_READ: Final[dict[str, Callable[[_Reader, Any], Pieces]]] = {
    "int": lambda reader, e: reader.line(0, e.const),
    "symbol": lambda reader, e: reader.line(1, 0),
    "add": _Reader.sum,
    "min": _Reader.extreme,
    "max": _Reader.extreme,
    "abs": _Reader.absolute,
}

CombinePieces = Callable[[Piece, Piece], list[Piece]]  # of two pieces with the same ends


def _joined(a: list[Piece], b: list[Piece], combine: CombinePieces) -> Pieces:
    """The pieces of `combine(a, b)`: the two lists are cut at each other's ends, and neighbours on
    one line are merged. None for more than `MOST_PIECES`."""
    result: list[Piece] = []
    # Quadratic, but there are at most `MOST_PIECES` in each.
    for p in a:
        for q in b:
            lo, hi = max(p.lo, q.lo), min(p.hi, q.hi)
            if lo <= hi:
                for piece in combine(p._replace(lo=lo, hi=hi), q._replace(lo=lo, hi=hi)):
                    _append(result, piece)
    return result if len(result) <= MOST_PIECES else None


def _append(pieces: list[Piece], new: Piece) -> None:
    """Append a piece, merged with the last ones as long as both lie on one line."""
    while pieces:
        line = _common_line(pieces[-1], new)
        if line is None:
            break
        new = line._replace(lo=pieces.pop().lo, hi=new.hi)
    pieces.append(new)


def _common_line(a: Piece, b: Piece) -> Piece | None:
    """The one of two neighbouring pieces on whose line the other lies, or None. A piece of a single
    place fits any line through that place."""
    if a[2:] == b[2:] or (a.lo == a.hi and b.at(a.lo) == a.at(a.lo)):
        return b
    return a if b.lo == b.hi and a.at(b.lo) == b.at(b.lo) else None


def _add(p: Piece, q: Piece) -> list[Piece]:
    return [Piece(p.lo, p.hi, p.slope + q.slope, p.start + q.start)]


def _least(p: Piece, q: Piece) -> list[Piece]:
    """The minimum of two pieces with the same ends: the lower line on either side of the place
    where they cross."""
    if p.slope == q.slope:
        return [p if p.start <= q.start else q]
    # Left of the crossing the steeper line is below, from there on the flatter one.
    steep, flat = (p, q) if p.slope > q.slope else (q, p)
    # The first integer from which on the steeper line is not below: the exact crossing, rounded up.
    crossing = -((steep.start - flat.start) // (steep.slope - flat.slope))
    ends = [p.lo - 1, min(max(crossing - 1, p.lo - 1), p.hi), p.hi]
    halves = zip(pairwise(ends), (steep, flat), strict=True)
    return [line._replace(lo=lo + 1, hi=hi) for (lo, hi), line in halves if lo < hi]


def _most(p: Piece, q: Piece) -> list[Piece]:
    # max(p, q) is -min(-p, -q).
    negated = _least(*[Piece(x.lo, x.hi, -x.slope, -x.start) for x in (p, q)])
    return [Piece(x.lo, x.hi, -x.slope, -x.start) for x in negated]
