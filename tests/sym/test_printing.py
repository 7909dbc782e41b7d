"""What is printed can be run, and gives the same value."""

import ctypes
import math
import shutil
import subprocess

import pytest
from hypothesis import given, settings

from pliant.sym.cond import and_, eq, ge, le, ne, not_, or_
from pliant.sym.expr import evaluate, if_else, minimum, power, symbol
from pliant.sym.floats import floor, math_call, true_div
from pliant.sym.printing import C_HELPERS, to_c, to_python
from pliant.sym.program import OPERATIONS, compile_program, run
from tests.sym import strategies as random
from tests.sym.strategies import build, examples

a, b, c = random.SYMBOLS
s0, s1 = symbol("s0"), symbol("s1")


@pytest.mark.parametrize(
    "node, text",
    [
        (s0 * (s1 + 1) // 2, "(s0*s1 + s0)//2"),
        (s0 * (s1 // 2) + 1, "s0*(s1//2) + 1"),
        (2 * (s0 // 4) - 1, "2*(s0//4) - 1"),
        (1 - s0, "1 - s0"),
        (-s0 - 1, "-s0 - 1"),
        (s0**2 * s1 - 3 * s0, "s0**2*s1 - 3*s0"),
        (s0 // (s1 // 2), "s0//(s1//2)"),
        (s0 // s1 % 3, "s0//s1%3"),
        (minimum(s0, 4 * s1), "min(s0, 4*s1)"),
        (power(2, s0 + 1), "2**(s0 + 1)"),
        (if_else(le(s0, 3), s1, 0), "s1 if s0 <= 3 else 0"),
        (if_else(le(s0, 3), s1, 0) + 1, "(s1 if s0 <= 3 else 0) + 1"),
        (ge(s0, 3), "s0 >= 3"),
        (le(s0, 3), "s0 <= 3"),
        (ge(s0 + s1, 3), "s0 + s1 >= 3"),
        (le(s0, s1 - 1), "s0 < s1"),
        (le(s0, s1 - 2), "s0 <= s1 - 2"),
        (eq(s0 % 8, 0), "s0%8 == 0"),
        (ne(s0, 2 * s1), "s0 != 2*s1"),
        (and_(le(s0, 3), or_(le(s1, 3), eq(s0, s1))), "s0 <= 3 and (s0 == s1 or s1 <= 3)"),
        (floor(true_div(s0, 2) * 3), "math.floor(s0/2*3)"),
        (math_call("sqrt", s0), "math.sqrt(s0)"),
        (not_(le(true_div(s0, 2), 0.5)), "not s0/2 <= 0.5"),
    ],
    ids=str,
)
def test_python_text(node, text):
    assert to_python(node) == text == str(node)


def test_names_can_be_given():
    assert to_python(s0 + s1, {s0: "n", s1: "x.size(0)"}) == "n + x.size(0)"
    assert to_c(s0 // 2, {s0: "sizes[0]"}) == "sym_floordiv(sizes[0], 2LL)"


def check_python(recipe):
    built = build(recipe)
    code = compile(to_python(built), "text", "eval")
    for values in random.SAMPLE[::2]:
        if random.value_of(recipe, values) is not None:
            expected = evaluate(built, random.with_symbols(values))
            assert repr(eval(code, {"math": math}, values)) == repr(expected), (built, values)


@examples(100, random.ints)
def test_python_text_of_integers_runs(recipe):
    check_python(recipe)


@examples(60, random.float_comparisons)
def test_python_text_of_floats_runs(recipe):
    check_python(recipe)


@examples(80, random.conditions)
def test_programs_run(recipe):
    built = build(recipe)
    program = compile_program(built, random.SYMBOLS)
    for values in random.SAMPLE[::3]:
        if random.value_of(recipe, values) is not None:
            numbers, expected = list(values.values()), evaluate(built, random.with_symbols(values))
            assert run(program, numbers, largest=10**300) == expected, (built, values)
            assert run(program, numbers) in (expected, None)


def test_a_program_is_data():
    program = compile_program(and_(le(a, 3), eq(b % a, 0)), [a, b])
    assert program.symbols == (a, b) and program.depth <= 3
    assert all(isinstance(number, int) for number in program.numbers())
    assert program.numbers()[0] == OPERATIONS.index(program.code[0][0])
    assert [run(program, [2, n]) for n in (3, 4)] == [0, 1]
    assert run(program, [0, 4]) is None  # 4 % 0
    careful = compile_program(if_else(eq(a, 0), 1, b // a), [a, b])
    assert run(careful, [0, 4]) == 1  # b // a is not selected
    assert run(compile_program(a * a), [2**40]) is None  # beyond 64 bits
    with pytest.raises(NotImplementedError):
        compile_program(floor(true_div(a, 2)))


@pytest.mark.skipif(shutil.which("cc") is None, reason="no C compiler")
def test_c_text_runs(tmp_path):
    recipes = []
    collect = settings(max_examples=60, deadline=None, derandomize=True, database=None)
    collect(given(random.conditions)(lambda recipe: recipes.append(recipe)))()
    nodes, used = [], []
    for recipe in recipes:
        try:
            nodes.append(random.on_exprs(recipe))
            used.append(recipe)
        except random.NO_VALUE:
            pass
    functions = [
        f"int64_t f{i}(int64_t a, int64_t b, int64_t c) {{ return {to_c(node)}; }}"
        for i, node in enumerate(nodes)
    ]
    (tmp_path / "f.c").write_text(C_HELPERS + "\n".join(functions))
    command = ["cc", "-shared", "-fPIC", "-o", "f.so", "f.c", "-lm"]
    subprocess.run(command, cwd=tmp_path, check=True)
    library = ctypes.CDLL(str(tmp_path / "f.so"))
    compared = 0
    for i, (recipe, node) in enumerate(zip(used, nodes)):
        function = library[f"f{i}"]
        function.restype, function.argtypes = ctypes.c_int64, [ctypes.c_int64] * 3
        program = compile_program(node, random.SYMBOLS)
        for values in random.SAMPLE[::2]:
            expected = run(program, list(values.values()))
            if random.value_of(recipe, values) is not None and expected is not None:
                compared += 1
                assert function(*values.values()) == expected, (node, values)
    assert compared > 500
