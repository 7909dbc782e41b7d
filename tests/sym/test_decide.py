"""What facts are learnt, and what can be decided from them. (That nothing is decided wrongly is
shown in test_against_brute_force.)"""

import pytest

from pliant.sym.cond import FALSE, TRUE, and_, eq, ge, gt, le, lt, ne, not_, or_
from pliant.sym.decide import decide
from pliant.sym.expr import ceildiv, integer, maximum, minimum, symbol
from pliant.sym.facts import Contradiction, Facts
from pliant.sym.floats import float_symbol, math_call, real, to_float, true_div
from pliant.sym.ranges import INF, Range
from pliant.sym.rules import simplify
from pliant.sym.solve import solve
from tests.sym.strategies import SYMBOLS

a, b, c = SYMBOLS
d = symbol("d")
SIZES = [ge(s, 0) for s in (a, b, c, d)]


def facts(*conds):
    known = Facts()
    for cond in conds:
        known.learn(cond)
    return known


@pytest.mark.parametrize(
    "known, question, answer",
    [
        ([], le(a, a + 1), True),
        ([], le(a, b), None),
        ([], eq(2 * a, 2 * b + 1), False),
        ([], eq(4 * a + 6 * b, 3), False),
        ([ge(a, 3)], gt(a, 2), True),
        ([ge(a, 3)], gt(a, 3), None),
        ([ge(a, 3), ne(a, 3)], gt(a, 3), True),
        ([ge(a, 0), ne(a, 0), ne(a, 1)], ge(a, 2), True),
        ([le(a, b), le(b, c)], le(a, c), True),
        ([le(a, b), lt(b, c), le(c, d)], lt(a, d), True),
        ([le(a, b), lt(b, c)], le(c, a), False),
        ([le(a + b, 10), ge(b, 3)], le(a, 7), True),
        ([eq(a, b), eq(b, c)], eq(a, c), True),
        ([eq(a, 2 * b), eq(b, 3)], eq(a, 6), True),
        ([eq(a + b, c + d)], eq(a - c, d - b), True),
        ([eq(3 * a, 2 * b)], eq(b % 3, 0), True),
        ([eq(a % 4, 2)], eq(a, 8), False),
        ([eq(a % 4, 2)], eq(2 * a + 8 * b, 6), False),
        ([eq(a % 6, 0)], eq(a % 3, 0), True),
        ([eq(a % 2, 0), eq(a % 3, 1)], eq(a % 6, 4), True),
        ([eq(a // 4, 2)], and_(ge(a, 8), le(a, 11)), True),
        ([eq(a % 8, 0), ge(a, 1)], ge(a, 8), True),
        ([*SIZES, le(a, b)], le(a * c, b * c), True),
        ([*SIZES, ge(b, 1)], le(a, a * b), True),
        ([*SIZES, gt(a, 0), gt(b, 0)], gt(a * b, 0), True),
        ([*SIZES, ge(a, 2), ge(b, 3)], ge(a * b, 6), True),
        ([*SIZES, ge(a, 2), ge(b, 3)], ge(a * b, a + b + 1), True),
        (SIZES, le(a // 2, a), True),
        (SIZES, le(2 * (a // 2), a), True),
        (SIZES, le(a % 3, a), True),
        (SIZES, le(ceildiv(a, 4), a), True),
        (SIZES, ge(ceildiv(a, 4) * 4, a), True),
        (SIZES, lt(ceildiv(a, 4) * 4, a + 4), True),
        ([*SIZES, ge(b, 1)], le(a // b * b, a), True),
        ([*SIZES, ge(b, 1)], lt(a % b, b), True),
        ([], le(minimum(a, b), a), True),
        ([le(a, c), le(b, c)], le(maximum(a, b), c), True),
        ([le(c, a), le(c, b)], le(c, minimum(a, b)), True),
        ([], ge(abs(a), a), True),
        ([or_(eq(a, 0), eq(b, 0)), ne(a, 0)], eq(b, 0), True),
        ([or_(eq(a, 1), eq(a, b))], or_(eq(a, 1), eq(a, b)), True),
        ([eq(a * b, c * d)], le(a * b, c * d), True),
        ([eq(a * b, c * d)], eq(a * b + 1, c * d), False),
        ([ne(a, b)], eq(2 * a, 2 * b), False),
        ([lt(a, b)], and_(lt(a, b), le(a, c)), None),
        ([lt(a, b)], or_(lt(a, b), le(a, c)), True),
        ([lt(a, b)], and_(ge(a, b), le(a, c)), False),
    ],
    ids=str,
)
def test_decisions(known, question, answer):
    known = facts(*known)
    assert decide(known, question) is answer
    assert decide(known, not_(question)) is (None if answer is None else not answer)


def test_expecting_an_answer_only_leaves_out_the_other():
    known = facts(le(a, b), le(b, c))
    assert decide(known, le(a, c), True) is True
    assert decide(known, le(a, c), False) is True or decide(known, le(a, c)) is True
    fresh = facts(le(a, b), le(b, c))
    assert decide(fresh, lt(c, a), True) is None  # False is not looked for
    assert decide(fresh, lt(c, a)) is False  # and the first answer is not remembered


@pytest.mark.parametrize(
    "conds",
    [
        [ge(a, 3), le(a, 2)],
        [eq(a, 3), eq(a, 4)],
        [eq(a, b), ne(a, b)],
        [eq(a % 2, 0), eq(a % 4, 3)],
        [eq(a % 2, 0), eq(a, 7)],
        [ge(a, 1), le(a, 2), ne(a, 1), ne(a, 2)],
        [eq(a, b + 1), eq(b, 2), eq(a, 4)],
        [FALSE],
    ],
    ids=str,
)
def test_contradictions_are_found(conds):
    with pytest.raises(Contradiction):
        facts(*conds)


def test_equalities_replace_symbols_everywhere():
    known = facts(ge(a, 2), le(b, 10), eq(b, 2 * a), eq(c, a + b))
    assert known.replacements == {b: 2 * a, c: 3 * a}
    assert known.range(a) == Range(2, 5)
    known.learn(eq(a, 4))
    assert known.replacements == {a: integer(4), b: integer(8), c: integer(12)}


@pytest.mark.parametrize(
    "condition, expr, value",
    [
        (eq(maximum(0, a - 1), 1), a, 2),
        (eq(minimum(5, a + b), 4), a + b, 4),
        (eq(maximum(a - b, b - 2 * a), 3), maximum(a - b, b - 2 * a), 3),
        (eq(a % (b + 1), 1), 2 * (a % (b + 1)) + 1, 3),
        (eq(a // (b + 1), 1), a // (b + 1), 1),
    ],
)
def test_what_has_one_value_is_replaced_by_it(condition, expr, value):
    assert simplify(expr, facts(*SIZES, condition)) is integer(value)


def test_learning_narrows_ranges():
    known = facts(ge(a, 0), le(a, 20), eq(a % 8, 3))
    assert known.range(a) == Range(3, 19)
    known.learn(ne(a, 3))
    assert known.range(a) == Range(11, 19)
    known.learn(le(minimum(b, c), 5))
    known.learn(ge(minimum(b, c), 1))
    assert known.range(b) == known.range(c) == Range(1, INF)


def test_a_copy_is_independent():
    known = facts(ge(a, 0))
    other = known.copy()
    other.learn(eq(a, 1))
    other.learn(ne(b, 2))
    assert known.range(a) == Range(0, INF) and not known.replacements and not known.holes


def test_solving():
    assert solve(a - 2 * b + 3) == (a, 2 * b - 3)
    assert solve(2 * a + b - a // 2) == (b, -2 * a + a // 2)
    assert solve(a + b) == (b, -a)  # the last one goes
    assert solve(a + b, prefer=lambda s, e: None if s is b else 0) == (a, -b)
    assert solve(2 * a - 3 * b) is None
    assert solve(a - a // 2 - 5) is None  # a is on both sides


def test_conditions_have_one_form():
    assert le(2 * a, 5) is le(a, 2)
    assert lt(a, b) is not_(le(b, a)) is gt(b, a)
    assert eq(2 * a, 4 * b) is eq(2 * b, a)
    assert ne(3 * a, 6) is not_(eq(a, 2))
    assert and_(le(a, 1), TRUE, and_(le(b, 1), le(a, 1))) is and_(le(b, 1), le(a, 1))
    assert or_(le(a, 1), gt(a, 1)) is TRUE and and_(eq(a, b), ne(a, b)) is FALSE
    assert not_(or_(le(a, 1), eq(b, 0))) is and_(gt(a, 1), ne(b, 0))


def test_floats_are_decided_by_range_and_nan_is_minded():
    x = float_symbol("f_any")
    known = facts(ge(a, 1), le(a, 100))
    assert decide(known, le(true_div(a, 2), 50)) is True
    assert decide(known, lt(math_call("sqrt", a), real(0.5))) is False
    assert decide(known, gt(to_float(a) * real(2.0), 1.5)) is True
    assert decide(known, le(x, x)) is None  # it may be nan
    assert not_(lt(x, 1.0)) is not ge(x, 1.0)
    known.learn(lt(x, 1.0))
    assert decide(known, lt(x, 1.0)) is True
    assert eq(real(0.0), real(-0.0)) is TRUE and real(0.0) is not real(-0.0)


def test_the_sign_of_a_fraction_is_that_of_an_integer():
    n = symbol("n")
    assert eq(true_div(n, 4), 0) is eq(n, 0)
    assert ne(0, to_float(n)) is ne(n, 0)
    assert lt(0.0, true_div(n - 3, 2)) is lt(3, n)
    assert le(true_div(n, 4), 0) is le(n, 0)
    assert lt(true_div(n, -4), 0) is not lt(n, 0)
    assert eq(true_div(n, 4), 1) is not eq(n, 4)  # a large one may be rounded to it


def test_possibilities_are_ruled_out_by_what_is_learnt_later() -> None:
    either = or_(eq(a * a, 0), eq(a, 1))
    with pytest.raises(Contradiction):
        facts(ge(a, 0), either, ge(a, 2))
    assert simplify(eq(a, 1), facts(ge(a, 0), either, ge(a, 1))) is TRUE
    known = facts(or_(eq(a, 3), eq(b, 4)), ge(c, 5))  # which says nothing of a and b
    assert simplify(eq(a, 3), known).value is None and simplify(eq(b, 4), known).value is None
