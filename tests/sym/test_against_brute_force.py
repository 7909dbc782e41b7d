"""Random expressions against Python's own numbers: no wrong value, no wrong answer."""

from hypothesis import assume
from hypothesis import strategies as st

from pliant.sym.cond import ge, le
from pliant.sym.decide import CASES, decide, inequalities
from pliant.sym.expr import evaluate, substitute, symbol
from pliant.sym.facts import Contradiction, Facts
from pliant.sym.rules import simplify
from tests.sym import strategies as random
from tests.sym.strategies import build, examples

LOW, HIGH = -2, 4
MODELS = random.box(LOW, HIGH)


def same(a, b):
    return repr(a) == repr(b)  # tells 0.0 from -0.0 and 1 from True, and nan is nan


def compare(recipe):
    built = build(recipe)
    for values in random.SAMPLE:
        expected = random.value_of(recipe, values)
        if expected is not None:
            got = evaluate(built, random.with_symbols(values))
            assert same(got, expected), (recipe, built, values, got, expected)


@examples(200, random.ints)
def test_an_expression_has_the_value_python_gives(recipe):
    compare(recipe)


@examples(120, random.conditions)
def test_a_condition_has_the_value_python_gives(recipe):
    compare(recipe)


@examples(120, st.one_of(random.floats_, random.from_floats, random.float_comparisons))
def test_floats_have_the_value_python_gives(recipe):
    compare(recipe)


@examples(60, random.ints, st.tuples(random.ints, random.ints))
def test_substitution_is_evaluation_in_two_steps(recipe, inner):
    outer, first, second = build(recipe), build(inner[0]), build(inner[1])
    try:
        replaced = substitute(outer, {symbol("a"): first, symbol("b"): second})
    except random.NO_VALUE:
        assume(False)
    for values in random.SAMPLE[::3]:
        numbers = [random.value_of(part, values) for part in inner]
        if None not in numbers:
            both = {**values, "a": numbers[0], "b": numbers[1]}
            expected = random.value_of(recipe, both)
            if expected is not None:
                assert evaluate(replaced, random.with_symbols(values)) == expected


def learn(recipes):
    """Facts from the box and the conditions, with the models of them: the points of the box at
    which all conditions have a value, and hold."""
    facts = Facts()
    conds = [build(recipe) for recipe in recipes]
    models = [v for v in MODELS if all(random.value_of(r, v) for r in recipes)]
    try:
        for s in random.SYMBOLS:
            facts.learn(ge(s, LOW))
            facts.learn(le(s, HIGH))
        for cond in conds:
            facts.learn(cond)
    except Contradiction:
        assert not models, (recipes, models[0])
        assume(False)
    except random.NO_VALUE:  # a fact replaced a divisor by 0
        assume(False)
    return facts, models


def check_decision(recipes, question):
    facts, models = learn(recipes)
    try:
        cond = build(question)
        answer = decide(facts, cond)
    except random.NO_VALUE:
        assume(False)
    truths = {value for v in models if (value := random.value_of(question, v)) is not None}
    if answer is not None:
        assert truths <= {answer}, (recipes, cond, answer)


@examples(200, st.lists(random.comparisons, max_size=3), random.conditions)
def test_no_decision_is_wrong(recipes, question):
    check_decision(recipes, question)


LINEAR = st.recursive(
    st.sampled_from([("name", name) for name in random.NAMES]),
    lambda inner: st.one_of(
        st.tuples(st.sampled_from(["+", "-"]), inner, inner),
        st.tuples(st.just("*"), st.integers(-3, 3).map(lambda n: ("number", n)), inner),
        st.tuples(
            st.sampled_from(["//", "%"]), inner, st.integers(2, 3).map(lambda n: ("number", n))
        ),
    ),
    max_leaves=4,
)
LINEAR_CONDITIONS = st.tuples(
    st.sampled_from(list(random.COMPARISONS)),
    LINEAR,
    st.one_of(LINEAR, st.integers(-3, 6).map(lambda n: ("number", n))),
)


@examples(250, st.lists(LINEAR_CONDITIONS, min_size=1, max_size=5), LINEAR_CONDITIONS)
def test_no_decision_about_sums_is_wrong(recipes, question):
    """Most random conditions are undecided; these share forms, so facts and questions meet."""
    check_decision(recipes, question)


@examples(50, st.lists(random.comparisons, max_size=2), random.float_comparisons)
def test_no_decision_about_floats_is_wrong(recipes, question):
    check_decision(recipes, question)


@examples(200, st.lists(st.one_of(random.comparisons, LINEAR_CONDITIONS), max_size=3), random.ints)
def test_simplifying_under_facts_keeps_the_value_and_the_range_holds_it(recipes, recipe):
    facts, models = learn(recipes)
    built = build(recipe)
    try:
        simple = simplify(built, facts)
        found = facts.range(simple)
    except random.NO_VALUE:
        assume(False)
    for values in models:
        expected = random.value_of(recipe, values)
        if expected is not None:
            assert evaluate(simple, random.with_symbols(values)) == expected, (
                recipes,
                built,
                simple,
            )
            assert expected in found and expected in facts.range(built)


SIZES = [ge(s, 0) for s in random.SYMBOLS]
SIZE_MODELS = random.box(0, 5) + [dict(zip(random.NAMES, p)) for p in ((40, 7, 13), (9, 50, 51))]
SMALL = st.integers(-3, 6).map(lambda n: ("number", n))
SIZE_EXPRS = st.recursive(
    st.sampled_from([("name", name) for name in random.NAMES]),
    lambda inner: st.one_of(
        st.tuples(st.sampled_from(["+", "-", "*", "min", "max"]), inner, inner),
        st.tuples(st.sampled_from(["+", "*"]), inner, SMALL),
        st.tuples(st.sampled_from(["//", "%", "ceildiv"]), inner, st.one_of(SMALL, inner)),
        st.tuples(st.just("abs"), st.tuples(st.just("-"), inner, SMALL)),
    ),
    max_leaves=4,
)
SIZE_CONDITIONS = st.tuples(
    st.sampled_from(list(random.COMPARISONS)), SIZE_EXPRS, st.one_of(SIZE_EXPRS, SMALL)
)


def learn_sizes(recipes):
    """Facts about sizes without upper limit, and some of their models."""
    facts = Facts()
    models = [v for v in SIZE_MODELS if all(random.value_of(r, v) for r in recipes)]
    try:
        for cond in SIZES + [build(recipe) for recipe in recipes]:
            facts.learn(cond)
    except Contradiction:
        assert not models, (recipes, models[0])
        assume(False)
    except random.NO_VALUE:
        assume(False)
    return facts, models


@examples(200, st.lists(SIZE_CONDITIONS, max_size=3), SIZE_CONDITIONS)
def test_no_decision_about_unlimited_sizes_is_wrong(recipes, question):
    """Without limits, ranges decide little: most answers are found by adding inequalities."""
    facts, models = learn_sizes(recipes)
    try:
        answer = decide(facts, build(question))
    except random.NO_VALUE:
        assume(False)
    truths = {value for v in models if (value := random.value_of(question, v)) is not None}
    if answer is not None:
        assert truths <= {answer}, (recipes, question, answer)


A, B, C = [("name", name) for name in random.NAMES]
PRODUCTS = [A, B, C, ("*", A, B), ("*", B, C), ("*", A, A), ("*", ("*", A, B), C)]
WHOLE_MODELS = random.box(-3, 4) + [dict(zip(random.NAMES, p)) for p in ((20, -7, 5), (6, 9, 8))]


def total(terms):
    result = ("number", 0)
    for c, product in terms:
        result = ("+", result, ("*", ("number", c), product))
    return result


POLYNOMIALS = st.lists(
    st.tuples(st.sampled_from([-2, -1, -1, 1, 1, 2]), st.sampled_from(PRODUCTS)),
    min_size=1,
    max_size=3,
).map(total)
BOUNDS = st.tuples(
    st.sampled_from(["<=", ">="]),
    st.sampled_from([A, B, C]),
    st.integers(-2, 3).map(lambda n: ("number", n)),
)
POLYNOMIAL_CONDITIONS = st.tuples(
    st.sampled_from(["<=", ">=", "<", "==", "!="]), POLYNOMIALS, st.one_of(POLYNOMIALS, SMALL)
)
MODULI = st.sampled_from([2, 3, 4, 6, 8]).map(lambda n: ("number", n))
REMAINDERS = st.tuples(
    st.just("=="),
    st.tuples(st.just("%"), st.one_of(st.sampled_from([A, B, C]), POLYNOMIALS), MODULI),
    st.integers(0, 2).map(lambda n: ("number", n)),
)


def check_whole(recipes, question):
    facts = Facts()
    models = [v for v in WHOLE_MODELS if all(random.value_of(r, v) for r in recipes)]
    try:
        for recipe in recipes:
            facts.learn(build(recipe))
    except Contradiction:
        assert not models, (recipes, models[0])
        return
    answer = decide(facts, build(question))
    truths = {random.value_of(question, v) for v in models}
    assert answer is None or truths <= {answer}, (recipes, question, answer)


@examples(
    400,
    st.lists(BOUNDS, min_size=2, max_size=5),
    st.lists(POLYNOMIAL_CONDITIONS, max_size=2),
    POLYNOMIAL_CONDITIONS,
)
def test_no_decision_about_products_is_wrong(bounds, recipes, question):
    """Factors of either sign, with and without limits."""
    check_whole(bounds + recipes, question)


@examples(
    300, st.lists(REMAINDERS, min_size=1, max_size=3), st.one_of(REMAINDERS, POLYNOMIAL_CONDITIONS)
)
def test_no_decision_about_remainders_is_wrong(recipes, question):
    check_whole(recipes, question)


def value_at(node, values):
    try:
        return evaluate(node, random.with_symbols(values))
    except random.NO_VALUE:
        return None


@examples(200, st.lists(SIZE_CONDITIONS, max_size=2), SIZE_EXPRS)
def test_every_inequality_that_a_proof_may_add_holds(recipes, recipe):
    facts, models = learn_sizes(recipes)
    try:
        built = simplify(build(recipe), facts)
    except random.NO_VALUE:
        assume(False)
    for product, _ in built.terms:
        for positive in (True, False):
            for f in inequalities(facts, product, positive):
                values = [value_at(f, v) for v in models if random.value_of(recipe, v) is not None]
                assert all(value is None or value <= 0 for value in values), (recipes, product, f)
            if (product.op, positive) in CASES:
                for v in models:
                    cases = [value_at(case, v) for case in CASES[product.op, positive](product)]
                    value = value_at(product, v)
                    assert value is None or value in cases, (product, v)


@examples(
    200, st.lists(BOUNDS, max_size=5), st.lists(POLYNOMIAL_CONDITIONS, max_size=2), POLYNOMIALS
)
def test_every_inequality_about_products_holds(bounds, recipes, recipe):
    facts = Facts()
    models = [v for v in WHOLE_MODELS if all(random.value_of(r, v) for r in bounds + recipes)]
    try:
        for each in bounds + recipes:
            facts.learn(build(each))
    except Contradiction:
        assume(False)
    for product, _ in simplify(build(recipe), facts).terms:
        for f in [*inequalities(facts, product, True), *inequalities(facts, product, False)]:
            assert all(value_at(f, v) <= 0 for v in models), (bounds, recipes, product, f)
