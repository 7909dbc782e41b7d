"""Random expressions and conditions, as recipes that can be carried out twice: on Python's numbers,
and on expressions."""

import itertools
import math
import operator

import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from pliant.sym import cond, expr, floats
from pliant.sym.expr import symbol

SYMBOLS = [symbol(name) for name in ("a", "b", "c")]
NAMES = [s.name for s in SYMBOLS]


def natural_power(x, y):
    if not 0 <= y <= 12 or abs(x) > 10**6:
        raise ValueError("not this one")
    return x**y


def shift(function):
    return lambda x, y: function(x, y) if y <= 12 else ValueError


# operation: on numbers, on expressions
INT_OPS = {
    "+": (operator.add, operator.add),
    "-": (operator.sub, operator.sub),
    "*": (operator.mul, operator.mul),
    "//": (operator.floordiv, expr.floordiv),
    "%": (operator.mod, expr.mod),
    "min": (min, expr.minimum),
    "max": (max, expr.maximum),
    "&": (operator.and_, expr.bit_and),
    "|": (operator.or_, expr.bit_or),
    "^": (operator.xor, expr.bit_xor),
    "ceildiv": (lambda x, y: -(-x // y), expr.ceildiv),
}
COMMON = ["+", "-", "*", "//", "%", "+", "-", "*", "//", "%", "min", "max"]
COMPARISONS = {
    "<=": (operator.le, cond.le),
    "<": (operator.lt, cond.lt),
    ">=": (operator.ge, cond.ge),
    ">": (operator.gt, cond.gt),
    "==": (operator.eq, cond.eq),
    "!=": (operator.ne, cond.ne),
}
FLOAT_OPS = {
    "/": (operator.truediv, floats.true_div),
    "f+": (lambda x, y: float(x) + y, lambda x, y: floats.to_float(x) + y),
    "f-": (lambda x, y: float(x) - y, lambda x, y: floats.to_float(x) - y),
    "f*": (lambda x, y: float(x) * y, lambda x, y: floats.to_float(x) * y),
    "f//": (lambda x, y: float(x) // y, lambda x, y: floats.to_float(x) // y),
    "f%": (lambda x, y: float(x) % y, lambda x, y: floats.to_float(x) % y),
    "fmax": (lambda x, y: max(float(x), float(y)), lambda x, y: floats.float_max(x, y)),
    "hypot": (math.hypot, lambda x, y: floats.math_call("hypot", x, y)),
}
FLOAT_UNARY = {
    "sqrt": (math.sqrt, lambda x: floats.math_call("sqrt", x)),
    "exp": (lambda x: math.exp(x), lambda x: floats.math_call("exp", x)),
    "fneg": (lambda x: -float(x), lambda x: -floats.to_float(x)),
    "float": (float, floats.to_float),
}
FROM_FLOAT = {
    "floor": (math.floor, floats.floor),
    "ceil": (math.ceil, floats.ceil),
    "int": (math.trunc, floats.trunc),
    "round": (round, floats.round_half_even),
}
UNARY = {
    "neg": (operator.neg, operator.neg),
    "abs": (abs, abs),
    **{f"**{k}": (lambda x, k=k: x**k, lambda x, k=k: expr.power(x, k)) for k in (0, 1, 2, 3)},
    "<<2": (lambda x: x << 2, lambda x: expr.shift_left(x, 2)),
    ">>1": (lambda x: x >> 1, lambda x: expr.shift_right(x, 1)),
}
LOGIC = {
    "and": (lambda x, y: x and y, cond.and_),
    "or": (lambda x, y: x or y, cond.or_),
    "not": (operator.not_, cond.not_),
}
TABLES = {**INT_OPS, **COMPARISONS, **FLOAT_OPS, **FLOAT_UNARY, **FROM_FLOAT, **UNARY, **LOGIC}


def on_numbers(recipe, values):
    """The value in Python, or an exception."""
    op, *args = recipe
    if op == "name":
        return values[args[0]]
    if op == "number":
        return args[0]
    if op == "if":
        return on_numbers(args[1 if on_numbers(args[0], values) else 2], values)
    return TABLES[op][0](*[on_numbers(arg, values) for arg in args])


def on_exprs(recipe):
    op, *args = recipe
    if op == "name":
        return symbol(args[0])
    if op == "number":
        return floats.as_node(args[0])
    if op == "if":
        return expr.if_else(*map(on_exprs, args))
    return TABLES[op][1](*map(on_exprs, args))


_numbers = st.integers(-4, 9).map(lambda n: ("number", n))
_leaves = st.one_of(st.sampled_from(NAMES).map(lambda n: ("name", n)), _numbers)
ints = st.recursive(
    _leaves,
    lambda inner: st.one_of(
        st.tuples(st.sampled_from(COMMON), inner, inner),
        st.tuples(st.sampled_from(COMMON), inner, inner),
        st.tuples(st.sampled_from(list(INT_OPS)), inner, inner),
        st.tuples(st.sampled_from(list(UNARY)), inner),
        st.tuples(st.just("//"), inner, _numbers),
        st.tuples(st.just("%"), inner, _numbers),
        st.tuples(
            st.just("if"), st.tuples(st.sampled_from(list(COMPARISONS)), inner, inner), inner, inner
        ),
    ),
    max_leaves=7,
)
comparisons = st.tuples(st.sampled_from(list(COMPARISONS)), ints, ints)
conditions = st.recursive(
    comparisons,
    lambda inner: st.one_of(
        st.tuples(st.sampled_from(["and", "or"]), inner, inner), st.tuples(st.just("not"), inner)
    ),
    max_leaves=3,
)
_polynomial_leaves = st.one_of(st.sampled_from(NAMES).map(lambda n: ("name", n)), _numbers)
polynomials = st.recursive(
    _polynomial_leaves,
    lambda inner: st.tuples(st.sampled_from(["+", "-", "*"]), inner, inner),
    max_leaves=9,
)
floats_ = st.recursive(
    st.tuples(st.sampled_from(list(FLOAT_OPS)), ints, ints),
    lambda inner: st.one_of(
        st.tuples(st.sampled_from(list(FLOAT_OPS)), inner, ints),
        st.tuples(st.sampled_from(list(FLOAT_OPS)), ints, inner),
        st.tuples(st.sampled_from(list(FLOAT_UNARY)), inner),
    ),
    max_leaves=3,
)
from_floats = st.tuples(st.sampled_from(list(FROM_FLOAT)), floats_)
float_comparisons = st.tuples(st.sampled_from(list(COMPARISONS)), floats_, st.one_of(ints, floats_))

NO_VALUE = (ZeroDivisionError, ValueError, OverflowError)


def box(low, high):
    """All values of the symbols between two numbers."""
    return [dict(zip(NAMES, point)) for point in itertools.product(range(low, high + 1), repeat=3)]


SMALL_BOX = box(-3, 4)
SAMPLE = SMALL_BOX[::7] + [dict(zip(NAMES, p)) for p in ((17, -23, 40), (-100, 7, 64), (0, 0, 0))]


def value_of(recipe, values):
    """The value in Python, or None where there is none."""
    try:
        return on_numbers(recipe, values)
    except NO_VALUE:
        return None


def with_symbols(values):
    return {symbol(name): number for name, number in values.items()}


SLOW = [HealthCheck.too_slow, HealthCheck.filter_too_much, HealthCheck.data_too_large]


def examples(few, *strategies):
    """The test on what the strategies give: few examples by default, 10,000 as a `long` test."""

    def decorate(test):
        @pytest.mark.parametrize(
            "count", [few, pytest.param(10_000, marks=pytest.mark.long)], ids=["few", "many"]
        )
        def run(count):
            quick = settings(
                max_examples=count, deadline=None, suppress_health_check=SLOW, database=None,
                derandomize=count == few,
            )  # fmt: skip
            quick(given(*strategies)(test))()

        run.__name__ = test.__name__
        return run

    return decorate


def build(recipe):
    try:
        return on_exprs(recipe)
    except NO_VALUE:
        assume(all(value_of(recipe, values) is None for values in SAMPLE))
        assume(False)
