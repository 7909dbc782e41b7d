"""Functions made of expressions give what `evaluate` gives, and raise what it raises."""

import math

import pytest

from pliant.sym.cond import le
from pliant.sym.expr import evaluate, if_else, minimum, symbol
from pliant.sym.floats import FloatExpr, float_power, float_symbol, math_call, true_div
from pliant.sym.functions import python_function
from tests.sym import strategies as random
from tests.sym.strategies import build, examples

x, y, n = float_symbol("x"), float_symbol("y"), symbol("n")
VALUES = (0.0, -0.0, 1.5, -2.0, 1e308, math.inf, math.nan)


def outcome(function, *args):
    try:
        return repr(function(*args))
    except (ArithmeticError, ValueError, TypeError) as error:
        return repr(error)


def same(node, symbols, *values):
    expected = outcome(evaluate, node, dict(zip(symbols, values, strict=True)))
    assert outcome(python_function(node, symbols), *values) == expected, (node, values)


@pytest.mark.parametrize(
    "node",
    [
        x + y, x - y, x * y, x / y, x**y, 2 * x - 0.5, x // y, x % y, -x, abs(x),
        1 - float_power(0.9, x), math_call("sqrt", x), math_call("atan2", x, y), x + math.inf,
        x - math.nan, x * -0.0,
    ],
    ids=str,
)  # fmt: skip
def test_floats(node):
    for a in VALUES:
        for b in VALUES:
            same(node, (x, y), a, b)


@pytest.mark.parametrize(
    "node", [n * 3 - 2, n**3 * 2 + n, true_div(n, 3), true_div(n, n - 2), minimum(n, 5) % 3, n // 2]
)
def test_integers(node):
    for value in (-3, 0, 2, 7, 2**70):
        same(node, (n,), value)


@examples(60, random.ints)
def test_random_integers(recipe):
    check(build(recipe))


@examples(60, random.float_comparisons)
def test_random_floats(recipe):
    for part in build(recipe).args:
        if isinstance(part, FloatExpr):
            check(part)


def check(node):
    try:
        python_function(node, random.SYMBOLS)
    except NotImplementedError:
        return
    for values in random.SAMPLE[::4]:
        same(node, random.SYMBOLS, *values.values())


def test_choices_compute_one_side_only_and_are_left_to_others():
    with pytest.raises(NotImplementedError):
        python_function(if_else(le(n, 0), 1, 5 // n), (n,))


def test_very_deep_expressions():
    node = x
    for i in range(5000):
        node = node * 0.5 + i
    total = 1.0
    for i in range(5000):
        total = total * 0.5 + i
    assert python_function(node, (x,))(1.0) == total


def test_shared_parts_are_computed_once():
    node = x
    for _ in range(100):
        node = node * node
    assert python_function(node, (x,))(1.0) == 1.0


def test_expressions_that_differ_in_names_are_one_function():
    assert python_function(1 - float_power(0.9, x), (x,)) is python_function(
        1 - float_power(0.9, y), (y,)
    )
