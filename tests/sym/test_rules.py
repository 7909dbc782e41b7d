"""Each rule as it is stated, for all small integers; and what rules do when facts are known."""

import itertools
import math
import re

import pytest

from pliant.sym.cond import eq, ge, gt, le, lt, ne
from pliant.sym.expr import absolute, integer, maximum, minimum
from pliant.sym.facts import Facts
from pliant.sym.floats import ceil, floor, true_div, trunc
from pliant.sym.rules import REWRITE_RULES, simplify
from tests.sym.strategies import SYMBOLS

a, b, c = SYMBOLS
ALL_RULES = [rule for rules in REWRITE_RULES.values() for rule in rules]
FUNCTIONS = {"abs": abs, "min": min, "max": max, "int": int, "float": float}
FUNCTIONS |= {"floor": math.floor, "ceil": math.ceil}


@pytest.mark.parametrize("rule", ALL_RULES, ids=lambda rule: f"{rule.left} = {rule.right}")
def test_the_equation_holds_wherever_its_condition_does(rule):
    names = sorted(set(re.findall(r"\b[a-z]\b", f"{rule.left} {rule.right} {rule.when}")))
    held = 0
    for numbers in itertools.product(range(-4, 6), repeat=len(names)):
        values = FUNCTIONS | dict(zip(names, numbers))
        if eval(rule.when, values):
            held += 1
            assert eval(rule.left, values) == eval(rule.right, values), (rule.left, numbers)
    assert held and rule.reason


@pytest.mark.parametrize(
    "facts, before, after",
    [
        ([ne(b, 0)], a * b // b, a),
        ([ge(b, 1)], (a * b + b) // b, a + 1),
        ([ge(a, 0)], (a * b + b) // (a + 1), b),
        ([ne(b, 0)], a * b * c // (b * c * c), a * c // (c * c)),
        ([ge(a, 0), lt(a, b)], a // b, integer(0)),
        ([ge(a, 0), lt(a, b)], a % b, a),
        ([ge(a, 8), le(a, 11)], a // 4, integer(2)),
        ([eq(a % 8, 0)], a % 4, integer(0)),
        ([eq(a % 8, 3)], (a + 2 * b * 4) % 8, integer(3)),
        ([eq(a % 8, 0)], 8 * (a // 8) + 1, a + 1),
        ([eq(a % 4, 0), eq(b % 2, 0)], a * b % 8, integer(0)),
        ([le(a, b)], minimum(a, b), a),
        ([le(a, b)], maximum(a, b + 1), b + 1),
        ([ge(a, 0)], absolute(a), a),
        ([le(a, -1)], absolute(a), -a),
        ([eq(a, 2 * b + 1)], a - 2 * b, integer(1)),
        ([ge(a, 0), le(a, 1000), ge(b, 1), le(b, 9)], floor(true_div(a, b)), a // b),
        ([ge(a, 0), le(a, 1000), ge(b, 1), le(b, 9)], trunc(true_div(a, b)), a // b),
        ([ge(a, 0), le(a, 1000)], ceil(true_div(a, 2)), -(-a // 2)),
    ],
    ids=str,
)
def test_facts_allow_more(facts, before, after):
    known = Facts()
    for fact in facts:
        known.learn(fact)
    assert before is not after
    assert simplify(before, known) is after


@pytest.mark.parametrize(
    "fact, before, after",
    [
        (gt(a, 0), le(a * b, a * c), le(b, c)),
        (ne(a, 0), eq(a * b, a * c), eq(b, c)),
        (gt(a, 0), ne(a * b, 0), ne(b, 0)),
    ],
    ids=str,
)
def test_common_factors_leave_comparisons(fact, before, after):
    known = Facts()
    known.learn(fact)
    assert simplify(before, known) is after


def test_a_large_quotient_is_not_taken_for_an_integer_division():
    known = Facts()
    known.learn(ge(a, 0))  # without an upper bound: 2**53 * 2 + 1 is no float
    assert simplify(floor(true_div(a, 2)), known).op == "floor"
