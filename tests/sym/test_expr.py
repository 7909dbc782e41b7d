import pickle
import threading

import pytest
import sympy
from hypothesis import given, settings

from pliant.sym import cond, floats
from pliant.sym.expr import (
    Expr,
    ceildiv,
    content,
    evaluate,
    integer,
    maximum,
    minimum,
    mod,
    power,
    substitute,
    sum_of,
    symbol,
)
from tests.sym import strategies as random

a, b, c = random.SYMBOLS


def as_sympy(recipe):
    op, *args = recipe
    if op == "name":
        return sympy.Symbol(args[0], integer=True)
    if op == "number":
        return sympy.Integer(args[0])
    x, y = map(as_sympy, args)
    return {"+": x + y, "-": x - y, "*": x * y}[op]


@settings(max_examples=60, deadline=None, derandomize=True)
@given(random.polynomials, random.polynomials)
def test_polynomials_are_the_same_object_exactly_when_sympy_finds_them_equal(first, second):
    x, y = random.on_exprs(first), random.on_exprs(second)
    assert (x is y) == (sympy.expand(as_sympy(first) - as_sympy(second)) == 0)
    # and multiplied out as sympy does it
    terms = sympy.Poly(as_sympy(first), *sympy.symbols("a b c", integer=True)).terms()
    assert len(x.terms) + bool(x.const) == sum(coefficient != 0 for _, coefficient in terms)


@pytest.mark.long
@settings(max_examples=10_000, deadline=None)
@given(random.polynomials, random.polynomials)
def test_polynomials_against_sympy_at_length(first, second):
    x, y = random.on_exprs(first), random.on_exprs(second)
    assert (x is y) == (sympy.expand(as_sympy(first) - as_sympy(second)) == 0)


def test_equal_expressions_are_one_object_whatever_the_way():
    assert (a + 1) * (a - 1) is a * a - 1
    assert a + b + c is c + (b + a) is sum_of([b, c, a])
    assert 2 * (a // 2) + a % 2 is a
    assert (a + b) ** 2 is a * a + b * b + 2 * a * b
    assert a << 3 is 8 * a and a >> 1 is a // 2
    assert a - a is integer(0) and integer(True) is integer(1)


def test_the_order_of_terms_does_not_depend_on_history():
    first = symbol("later_2") + symbol("later_10")
    second = symbol("other_10") + symbol("other_2")
    assert str(first) == "later_2 + later_10"
    assert str(second) == "other_2 + other_10"


def test_one_object_in_all_threads():
    made = []

    def work():
        made.extend([symbol(f"t{i}") * 3 + symbol(f"t{i + 1}") for i in range(200)])

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(made) == 800 and len(set(map(id, made))) == 200


def test_python_errors_where_there_is_no_value():
    with pytest.raises(ZeroDivisionError):
        a // 0
    with pytest.raises(ZeroDivisionError):
        mod(a, b - b)
    with pytest.raises(ZeroDivisionError):
        evaluate(a // b, {a: 3, b: 0})
    with pytest.raises(ValueError):
        evaluate(power(2, a), {a: -1})
    with pytest.raises(ZeroDivisionError):
        substitute(a // b, {b: integer(0)})


def test_floor_division_and_remainder_of_negative_numbers_are_pythons():
    for x in range(-9, 10):
        for k in (-4, -3, 3, 4):
            assert evaluate(a // k, {a: x}) == x // k
            assert evaluate(a % k, {a: x}) == x % k
            assert evaluate(ceildiv(a, k), {a: x}) == -(-x // k)


def deep(levels: int) -> Expr:
    expr = a
    for level in range(levels):
        expr = (expr + level) // 3 + b
    return expr


@pytest.mark.parametrize(
    "node",
    [
        integer(-7), a, a + 1, 3 * a * b - 2 * a**2 + 5, (a + b) // 4, a % b, deep(3000),
        cond.le(a, b), cond.and_(cond.eq(a, 3), cond.not_(cond.lt(b, a))), cond.TRUE,
        floats.real(-0.0), floats.float_symbol("f0") * 2.5 + a, floats.floor(floats.real(0.5) * a),
    ],
    ids=lambda node: str(node)[:40],
)  # fmt: skip
def test_an_expression_is_read_back_as_itself(node):
    assert pickle.loads(pickle.dumps(node)) is node
    again = pickle.loads(pickle.dumps({"one": node, "two": [node, node]}))
    assert again["one"] is again["two"][1] is node


def test_expressions_are_interned_when_read():
    data = pickle.dumps(symbol("fresh") * 41 + symbol("other") // 3)
    one, two = pickle.loads(data), pickle.loads(data)
    assert one is two is symbol("fresh") * 41 + symbol("other") // 3
    assert {s.name for s in one.symbols} == {"fresh", "other"}


def test_an_expression_has_no_truth():
    with pytest.raises(TypeError, match="ask a ShapeEnv"):
        bool(a)
    with pytest.raises(TypeError):
        a + 1.5


def test_content():
    assert content(6 * a - 4 * b + 3) == (3 * a - 2 * b, 2, 3)
    assert content(-a + b) == (a - b, -1, 0)
    assert content(integer(7)) == (integer(0), 1, 7)


@pytest.mark.parametrize(
    "got, expected",
    [
        ((8 * a + 12) // 8, a + 1),
        ((8 * a + 4 * b + 12) // 8, a + 1 + (b + 1) // 2),
        (((a - 1) // 2 + 1) // 2, (a + 1) // 4),
        (a // 2 // 3, a // 6),
        (6 * a // (4 * b), 3 * a // (2 * b)),
        ((a * b + c) // b, a + c // b),
        ((3 * a + 10) % 3, integer(1)),
        (a % 12 % 4, a % 4),
        (6 * a % 4, 2 * (a % 2)),
        ((a * b + c) % b, c % b),
        ((a % 4) // 4, integer(0)),
        (minimum(a, a + 1, 3, 5), minimum(a, 3)),
        (maximum(a, minimum(a, b)), a),
        (minimum(minimum(a, b), c), minimum(a, minimum(c, b))),
        (abs(-2 * a - 4), 2 * abs(a + 2)),
        (abs(a % 5), a % 5),
    ],
    ids=str,
)
def test_what_needs_no_facts_is_simplified_when_built(got, expected):
    assert got is expected


def test_a_divisor_that_might_be_zero_is_kept():
    assert str(a * b // b) == "a*b//b"
    assert str(a * b % b) == "a*b%b"
