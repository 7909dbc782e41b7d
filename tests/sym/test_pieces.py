"""Functions of one symbol made of straight lines, against their values."""

import random

import pytest

from pliant.sym.cond import ge, le
from pliant.sym.expr import absolute, evaluate, integer, maximum, minimum, symbol
from pliant.sym.facts import Facts
from pliant.sym.pieces import _Reader, as_line
from pliant.sym.ranges import INF, Range
from pliant.sym.rules import simplify

S = symbol("s0")


def natural():
    facts = Facts()
    facts.learn(ge(S, 0))
    return facts


def roll(size, rows):
    """The size of `cat([x, x[:rows]])[rows:]`."""
    return maximum(size + minimum(size, rows) - rows, 0)


@pytest.mark.parametrize(
    ("e", "line"),
    [
        (roll(S, 1), S),
        (maximum(S, -S), S),
        (minimum(2 * S, maximum(S, 0)), S),
        (maximum(2 * S - 3, roll(S, 1)) + minimum(S, 0), None),
        (minimum(absolute(S - 3) + 2 * S + 3, absolute(3 * S)), None),
        (absolute(S - 3) + minimum(2 * S, 6), None),
        (roll(S, 2), None),
        (minimum(S, 1), None),
    ],
)
def test_what_lies_on_one_line_is_that_line(e, line):
    simple = simplify(e, natural())
    assert simple is line if line is not None else simple is not S
    for n in range(12):
        assert evaluate(simple, {S: n}) == evaluate(e, {S: n})


def test_the_domain_decides():
    e = minimum(maximum(S, 3), 9)
    facts = natural()
    assert as_line(e, facts.range) is None
    facts.learn(ge(S, 3))
    facts.learn(le(S, 9))
    assert as_line(e, facts.range) is S


def random_expression(rng, depth):
    if depth == 0:
        return rng.choice([S, integer(rng.randint(-4, 4))])
    parts = [random_expression(rng, depth - 1) for _ in range(2)]
    combine = rng.choice([minimum, maximum, lambda a, b: a + b, lambda a, b: a - 2 * b])
    return rng.choice([absolute, lambda e: e])(combine(*parts))


@pytest.mark.parametrize("domain", [Range(-INF, INF), Range(0, INF), Range(-3, 5), Range(2, 2)])
def test_pieces_have_the_values_of_the_expression(domain):
    rng = random.Random(0)
    read = 0
    for _ in range(400):
        e = random_expression(rng, 3)
        pieces = _Reader(domain).read(e)
        if pieces is None:
            continue
        read += 1
        assert (pieces[0].lo, pieces[-1].hi) == tuple(domain)
        assert all(a.hi + 1 == b.lo for a, b in zip(pieces, pieces[1:], strict=False))
        for n in range(-30, 31):
            if n in domain:
                (piece,) = [p for p in pieces if p.lo <= n <= p.hi]
                assert piece.at(n) == evaluate(e, {S: n})
    assert read > 300
