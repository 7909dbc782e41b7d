"""Symbolic numbers through PyTorch's own classes: they compute what plain numbers compute, and what
they were asked is guarded, no more."""

import copy
import itertools
import math
import pickle

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.fx.experimental import symbolic_shapes as theirs

from pliant.base.errors import DataDependentError
from pliant.sym.cond import TRUE, eq, ge, lt
from pliant.sym.env import ShapeEnv
from pliant.sym.expr import evaluate, integer
from pliant.sym.floats import real
from pliant.sym.node import SymNode, bridge_of, from_torch, to_torch


def env_with(*hints, **options):
    env = ShapeEnv(duck=False, **options)
    return env, *[to_torch(env.add_input(f"x{i}", hint), env) for i, hint in enumerate(hints)]


def unbacked(**options):
    env = ShapeEnv(**options)
    return env, to_torch(env.add_unbacked("n", size_like=True), env)


def guards(env):
    return [str(guard.condition) for guard in env.guards()]


# --------------------------------------------------------------------------------------------------
# To PyTorch and back


def test_the_same_expression_is_the_same_object():
    env, a = env_with(5)
    assert isinstance(a, torch.SymInt) and isinstance(a.node, theirs.SymNode)
    assert to_torch(from_torch(a), env) is a
    assert (a + 1 - 1).node is a.node
    assert from_torch(a * 2) is from_torch(a) * 2
    assert isinstance(to_torch(eq(from_torch(a), 3), env), torch.SymBool)
    assert isinstance(to_torch(env.add_float("f", 0.5), env), torch.SymFloat)


def test_constants_are_plain_numbers():
    env, a = env_with(5)
    for value in (3, 0.5, True):
        assert to_torch(value, env) is value
    assert to_torch(integer(3), env) == 3 and type(to_torch(integer(3), env)) is int
    assert to_torch(TRUE, env) is True and to_torch(real(0.5), env) == 0.5
    assert type(a - a) is int and (a == a) is True and type(a * 0 + 1.5) is float
    assert from_torch(3) is integer(3) and from_torch(True) is TRUE and from_torch(0.5) is real(0.5)


def test_a_specialised_symbol_is_a_plain_number_until_that_is_taken_back():
    env, a = env_with(5)
    twice, before = a * 2, env.snapshot()
    assert [*range(a)] == [0, 1, 2, 3, 4]
    assert guards(env) == ["s0 == 5"]
    assert to_torch(from_torch(a), env) == 5 and type(to_torch(from_torch(twice), env)) is int
    assert twice.node.maybe_as_int() == 10 and str(twice) == "10" and type(a + 1) is int
    env.restore(before)
    assert guards(env) == [] and twice.node.maybe_as_int() is None and str(twice) == "2*s0"
    assert to_torch(from_torch(a), env) is a
    assert bool(a != 5) is False and guards(env) == ["s0 == 5"]


def test_other_things_are_no_numbers():
    with pytest.raises(TypeError, match="not a number"):
        from_torch("3")
    stranger = torch.SymInt(torch._C._get_nested_int(1, 1).node)
    with pytest.raises(TypeError, match="does not come from pliant"):
        from_torch(stranger)


def test_copies_are_the_same_and_pickles_are_refused():
    env, a = env_with(5)
    assert copy.deepcopy(a).node is a.node and copy.copy(a.node) is a.node
    with pytest.raises(TypeError, match="pickled"):
        pickle.dumps(a.node)


# --------------------------------------------------------------------------------------------------
# Arithmetic: the same as with plain numbers

BINARY = [
    *["{} + {}", "{} - {}", "{} * {}", "{} // {}", "{} % {}", "{} / {}", "{} & {}", "{} | {}"],
    *["{} ^ {}", "{} == {}", "{} != {}", "{} < {}", "{} <= {}", "{} > {}", "{} >= {}"],
    *["sym_max({}, {})", "sym_min({}, {})", "{} << {} % 3", "{} >> {}", "{} ** ({} % 4)"],
    *["sym_ite({0} < {1}, {0}, {1})", "sym_sum([{0}, {1}, 1, {0}])"],
]
UNARY = [
    *["-{}", "+{}", "abs({})", "sym_float({})", "sym_int({})", "_sym_sqrt({})", "floor({})"],
    *["ceil({})", "trunc({})", "round({})", "{} ** -1", "{} / 2", "7 // {}", "3 - {}", "2.5 * {}"],
    *["floor({} / 3)", "ceil({} * 1.5)", "round({} / 4)", "sym_not({} < 3)"],
    "sym_ite({} == 3, 1, 0)",
]
NAMES = {
    **{name: getattr(torch, name) for name in dir(torch) if "sym_" in name},
    **{name: getattr(math, name) for name in ("floor", "ceil", "trunc")},
}


@st.composite
def programs(draw, depth=3):
    """The text of a few operations on two integers."""
    if depth == 0 or draw(st.integers(0, 3)) == 0:
        return draw(st.sampled_from(["a", "b", "a", "b", "2", "-3", "0"]))
    parts = [draw(programs(depth - 1)) for _ in range(draw(st.integers(1, 2)))]
    return "(" + draw(st.sampled_from(BINARY if len(parts) == 2 else UNARY)).format(*parts) + ")"


REFUSED = (TypeError, AssertionError, RuntimeError)


def plain(program, a, b):
    """Its value, or the class of what it raises. PyTorch's classes don't take all of Python's
    operations: what they refuse is left out."""
    try:
        return eval(program, {**NAMES, "a": a, "b": b})
    except (ArithmeticError, ValueError, TypeError, AssertionError, RuntimeError) as error:
        return type(error)


def holds(cond, values):
    """A guard without a value is one that doesn't hold: `7 // s0 < 3` is kept where `s0 != 0` is
    dropped, because it implies that."""
    try:
        return evaluate(cond, values)
    except ArithmeticError:
        return False


def value_of(result, values):
    return result if isinstance(result, type) else evaluate(from_torch(result), values)


@given(programs(), st.integers(0, 6), st.integers(-6, 6))
def test_values_are_those_of_plain_numbers_wherever_the_guards_hold(program, first, second):
    env = ShapeEnv(duck=False)
    symbols = env.add_input("a", first), env.add_input("b", second, size_like=False)
    result = plain(program, *[to_torch(s, env) for s in symbols])
    if result in REFUSED:
        return
    conditions = [guard.condition for guard in env.guards()]
    assert all(evaluate(cond, env.hints) for cond in conditions)
    for values in {(first, second), *itertools.product((0, 1, 2, 5), (-3, -1, 0, 1, 4))}:
        sizes = dict(zip(symbols, values))
        if not all(holds(cond, sizes) for cond in conditions):
            continue
        expected = plain(program, *values)
        if isinstance(expected, complex) or expected in REFUSED:
            continue
        try:
            found = value_of(result, sizes)
        except (ArithmeticError, ValueError) as error:
            found = type(error)
        assert found == expected, f"{values}: {conditions}"
        assert isinstance(found, float) == isinstance(expected, float)


def test_floor_division_of_floats_is_pythons():
    env, a = env_with(1)
    f = to_torch(env.add_float("f", 0.1), env)
    for found, expected in [(a // 0.1, 9.0), (a // f, 9.0), (1.0 // f, 9.0), (f // 0.1, 1.0)]:
        assert evaluate(from_torch(found), env.hints) == expected


def test_text_is_that_of_the_expression():
    env, a, b = env_with(5, 7)
    assert f"{a + 1}" == "s0 + 1" and repr(a * b // 2) == "s0*s1//2"
    assert str(a < b) == "s0 < s1" and str(a / 2) == "s0/2"
    assert str(torch.empty_strided((a, b), (b, 1), device="meta").shape) == "torch.Size([s0, s1])"
    assert guards(env) == []


@pytest.mark.parametrize(
    ("divide", "error"),
    [
        (lambda a: 7 // a, ZeroDivisionError),
        (lambda a: 7 % a, ZeroDivisionError),
        (lambda a: 7 / a, ZeroDivisionError),
        (lambda a: 7.0 / a, ZeroDivisionError),
        (lambda a: a // 0, ZeroDivisionError),
        (lambda a: 1 << (a - 1), ValueError),
        (lambda a: torch.sym_sqrt(a - 1), ValueError),
        (lambda a: a**-1, ZeroDivisionError),
    ],
)
def test_what_has_no_value_raises_as_python_does(divide, error):
    env, a = env_with(0)
    with pytest.raises(error):
        divide(a)


def test_dividing_asks_whether_the_divisor_is_zero():
    env, a = env_with(5)
    assert evaluate(from_torch(7 // a), env.hints) == 1
    assert guards(env) == ["s0 != 0"]
    env, n = unbacked()
    assert str(7 // n) == "7//u0"
    assert [str(a.condition) for a in env.runtime_asserts] == ["u0 != 0"]


def test_symbolic_integers_have_no_hash_but_floats_and_bools_specialise():
    env, a = env_with(5)
    with pytest.raises(TypeError, match="unhashable"):
        hash(a)
    assert hash(a < 7) == hash(True) and guards(env) == ["s0 <= 6"]


@pytest.mark.parametrize("hint", [0.5, 0.0, -0.0, math.inf, math.nan])
def test_a_float_that_is_needed_as_a_number_is_guarded_to_the_last_bit(hint):
    env = ShapeEnv()
    s = env.add_float("f", hint)
    found = float(to_torch(s, env))
    assert str(found) == str(hint)
    conditions = [guard.condition for guard in env.guards()]
    for other in (0.5, 0.0, -0.0, 1.5, math.inf, -math.inf, math.nan):
        same = all(evaluate(cond, {s: other}) for cond in conditions)
        assert same == (str(other) == str(hint)), f"{other}: {conditions}"


def test_is_integer():
    env = ShapeEnv()
    for hint in (0.5, 2.0, -3.0, math.inf, math.nan):
        assert bool(to_torch(env.add_float("f", hint), env).is_integer()) == hint.is_integer()


# --------------------------------------------------------------------------------------------------
# Questions


def test_a_question_takes_the_side_of_the_hint_and_leaves_one_guard():
    env, a, b = env_with(5, 7)
    assert bool(a < b) and bool(a < b + 1) and bool(a == 5) is True
    assert guards(env) == ["s0 == 5", "s0 < s1"]


def test_what_is_the_same_is_not_asked():
    env, a, b = env_with(5, 7)
    assert a * b == b * a and (a + 1 > a) is True and bool(a >= 0)
    assert [q for q in env.questions if q.effect is not None] == []


def test_combinations_of_conditions_are_conditions():
    env, a, b = env_with(5, 7)
    either = torch.sym_not((a < 3) | (b < 3)) & (a != b)
    assert isinstance(either, torch.SymBool) and guards(env) == []
    assert bool(either) and guards(env) == ["s0 >= 3 and s1 >= 3 and s0 != s1"]


def test_pytorchs_functions_for_undecided_questions():
    env, n = unbacked()
    assert theirs.guard_or_false(n == 1) is False and theirs.guard_or_true(n != 0) is True
    assert [str(a.condition) for a in env.assumptions] == ["u0 != 1", "u0 != 0"]
    assert theirs.statically_known_true(n >= 0) is True
    assert theirs.statically_known_true(n >= 9) is False
    assert theirs.statically_known_false(n < 0) is True
    env, n = unbacked()
    with pytest.warns(FutureWarning):
        assert theirs.guard_size_oblivious(n == 1) is False
    assert [str(a.condition) for a in env.assumptions] == ["u0 != 1"]


def test_pytorchs_functions_on_backed_numbers():
    env, a, b = env_with(5, 7)
    assert theirs.guard_or_false(a == 1) is False and theirs.guard_or_true(a == 1) is False
    assert guards(env) == ["s0 != 1"]
    assert theirs.statically_known_true(a == 5) is False and not theirs.is_nested_int(a)
    if hasattr(theirs, "has_guarding_hint"):  # since torch 2.12
        assert theirs.has_guarding_hint(a) and theirs.guarding_hint_or_throw(a * b) == 35
        assert theirs.optimization_hint(a + b) == 12
    assert isinstance(theirs.sym_eq((a, b), (b, a)), torch.SymBool)
    assert not theirs.free_unbacked_symbols(a) and theirs.has_free_symbols(a)
    assert theirs.guard_int(b) == 7 and theirs.expect_true(a < 9) is True
    assert guards(env) == ["s0 != 1", "s1 == 7", "s0 <= 8"]


def test_a_check_of_data_is_an_assertion_and_of_sizes_a_guard():
    env, a = env_with(5)
    n = to_torch(env.add_unbacked("n"), env)
    torch._check(n >= 2)
    torch._check(n <= a)
    torch._check(a <= 9)
    assert [str(c.condition) for c in env.runtime_asserts] == ["u0 >= 2", "u0 <= s0"]
    assert guards(env) == ["s0 <= 9"]
    assert env.known(ge(from_torch(n), 1)) is True
    with pytest.raises(RuntimeError):
        torch._check(n < 2)
    with pytest.raises(RuntimeError):
        torch._check(a < 2)


def test_an_undecidable_question_is_our_error_even_out_of_cpp():
    env, n = unbacked()
    x = torch.empty_strided((n, 3), (3, 1), device="meta")
    y = torch.empty_strided((3, 4), (4, 1), device="meta")
    asks = [
        lambda: bool(n > 5),
        lambda: int(n),
        lambda: [*range(n)],
        lambda: [1, 2, 3][n],
        lambda: y.sum(n),
        lambda: x.chunk(2),
    ]
    for ask in asks:
        with pytest.raises(DataDependentError, match="depends on the contents of a tensor"):
            ask()


def test_who_asks():
    env, a = env_with(5)
    bridge_of(env).asker = lambda: "aten.squeeze"
    bool(a == 1)
    bridge_of(env).asker = lambda: ""
    bool(a == 2)
    torch.empty_strided((a, 3), (3, 1), device="meta").select(0, 2)
    askers = [guard.asker for guard in env.recorded]
    assert askers[0] == "aten.squeeze" and askers[1].startswith("test_who_asks (test_node.py:")
    assert askers[2].startswith("PyTorch (") and len(askers) == 3


def test_a_question_is_remembered_until_facts_are_taken_back():
    env, a = env_with(5)
    before = env.snapshot()
    assert bool(a < 9) and bool(a < 9)
    asked = len(env.questions)
    assert bool(a < 9) and len(env.questions) == asked
    env.restore(before)
    assert bool(a < 9) and guards(env) == ["s0 <= 8"]


def test_a_range_may_be_constrained():
    env, n = unbacked()
    n.node.shape_env._constrain_range_for_size(n.node.expr, 2, 9)
    assert env.known(lt(n.node.expr, 10)) is True and env.symbols[n.node.expr].size_like


def test_bools_count_as_numbers():
    env, a = env_with(5)
    assert evaluate((a < 7).node.add((a < 3).node).expr, env.hints) == 1
    assert evaluate((a < 7).node.eq((a > 2).node).expr, env.hints) is True
    assert evaluate((a < 7).node.ne((a > 2).node).expr, env.hints) is False
    assert evaluate((a < 7).node.sym_float().expr, env.hints) == 1.0
    assert guards(env) == []


def test_the_node_has_all_methods_that_pytorch_calls():
    ours, public = set(dir(SymNode)), {n for n in dir(theirs.SymNode) if not n.startswith("_")}
    only_on_itself = {"evaluate", "with_shape_env"}
    assert public - ours == only_on_itself
