"""Expressions of many steps share their parts, and whoever walks them goes to each part once."""

import pytest

from pliant.sym.bounded import MOST_DEPTH
from pliant.sym.cond import ge
from pliant.sym.decide import decide
from pliant.sym.env import ShapeEnv
from pliant.sym.expr import evaluate, floordiv, maximum, minimum, substitute, symbol
from pliant.sym.facts import Facts
from pliant.sym.printing import to_python
from pliant.sym.program import compile_program, run
from pliant.sym.ranges import structural
from pliant.sym.rules import simplify
from tests.support.work import growth

S = symbol("s0")


def twice_used(steps, k=S):
    """Each step has the last one in it twice: 2**steps paths to the symbol."""
    for _ in range(steps):
        k = maximum(k // 5, k % 7)
    return k


def number(steps, s):
    for _ in range(steps):
        s = max(s // 5, s % 7)
    return s


WALKS = {
    "evaluate": lambda e: evaluate(e, dict.fromkeys(e.symbols, 40)),
    "range": structural,
    "known range": lambda e: Facts().range(e),
    "simplify": lambda e: simplify(e, Facts()),
    "substitute": lambda e: substitute(e, {s: s + 1 for s in e.symbols}),
    "decide": lambda e: decide(Facts(), ge(e, 3)),
    "program": compile_program,
    "guard": lambda e: compile_program(ge(e, 3)),
    "print": to_python,
}


@pytest.mark.parametrize("walk", WALKS)
def test_walks_go_to_each_part_once(walk):
    def make(steps):
        # Of a symbol of its own: what was found out about another expression is remembered.
        e = twice_used(steps, symbol(f"{walk}{steps}"))
        return lambda: WALKS[walk](e)

    assert growth(make, 8) < 4.4


@pytest.mark.parametrize("steps", [1, 3, 20, 60])
def test_programs_compute_shared_parts_once(steps):
    program = compile_program(twice_used(steps))
    assert len(program.code) < 12 * steps
    for s in (0, 1, 40, 12345):
        assert run(program, [s]) == number(steps, s) == evaluate(twice_used(steps), {S: s})


def test_long_text_ends():
    assert len(to_python(twice_used(40))) < 10_000
    assert "..." not in to_python(twice_used(3))


def test_choices_are_made_before_values_are():
    env = ShapeEnv()
    s = env.add_input("x.size(0)", 40)
    e = s
    for i in range(40):
        e = maximum(floordiv(e, 3) + i, minimum(e, s + i)) + 1
    assert e.depth > MOST_DEPTH
    found = env.bounded(e, "the test")
    assert found.depth <= MOST_DEPTH
    assert found.symbols == {s}, "the result still depends on the size"
    for n in (40, 41, 100):
        assert all(evaluate(guard.condition, {s: n}) for guard in env.guards())
        assert evaluate(found, {s: n}) == evaluate(e, {s: n})


def test_what_has_no_choices_gets_its_value():
    env = ShapeEnv()
    s = env.add_input("x.size(0)", 40)
    e = s
    for _ in range(40):
        e = e * e // 5 % 11 + e * e % 7
    assert env.bounded(e, "the test").value == evaluate(e, {s: 40})
    (guard,) = env.guards()
    for n in range(100):
        assert evaluate(guard.condition, {s: n}) == (evaluate(e, {s: n}) == evaluate(e, {s: 40}))


def test_what_is_not_deep_is_left_alone():
    env = ShapeEnv()
    s = env.add_input("x.size(0)", 40)
    e = maximum(s // 3, minimum(s, 7))
    assert env.bounded(e, "the test") is e and not env.guards()


def test_rounding_is_seen_in_proofs():
    """(s0 + 1) // 2 <= s0 for s0 = 0, too."""
    facts = Facts()
    facts.learn(ge(S, 0))
    assert decide(facts, ge(S, (S + 1) // 2)) is True
    assert decide(facts, ge(S, (S + 2) // 2)) is None
    assert decide(facts, ge(S, (S + 2) // 3)) is True
