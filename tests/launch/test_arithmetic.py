"""Operations on floats in the launcher: Python says what each gives, or raises."""

import itertools
import math
import struct

import pytest
import torch

import pliant
from pliant._native import Launcher
from pliant.base.checks import check
from pliant.launch.arithmetic import NATIVE, OF_FLOATS, arithmetic_parts
from pliant.launch.steps import StepWriter
from pliant.sym.cond import and_, eq, le, lt, not_
from pliant.sym.expr import STRICT, symbol
from pliant.sym.floats import (
    float_max,
    float_min,
    float_power,
    float_symbol,
    math_call,
    round_to,
    to_float,
    true_div,
)

COMPARISONS = {"fle", "flt", "feq", "fne", "not"}
ONE = {"to_float", "fneg", "fabs", "not"} | {op for op in NATIVE if op.startswith("math.")}
FLOATS = [0.0, -0.0, 1.0, -1.0, 0.9, 0.999, 2.5, -3.0, 1e-310, 1e300, -1e300, 710.0]
FLOATS += [math.inf, -math.inf, math.nan]
INTS = [0, 1, -7, 2**53 - 1, 2**53 + 1, 2**62 + 1]


def calculator(op, kinds):
    """`op` of one or two arguments, which are ints or floats."""
    symbols = [(at, kind, 0) for at, kind in enumerate(kinds)]
    args = [("float" if kind == "float" else "value", at) for at, kind in enumerate(kinds)]
    result = ("bool" if op in COMPARISONS else "float", len(kinds))
    steps = [("calculate", op, 0, args, [result])]
    return Launcher(len(kinds), symbols, steps, [result], (), None, [STRICT[op]])


def outcome(function, *args):
    """The bits of a number, or an exception."""
    try:
        result = function(*args)
    except (ArithmeticError, ValueError) as error:
        return type(error), str(error)
    if isinstance(result, float):
        return "nan" if math.isnan(result) else struct.pack("d", result)
    return result


@pytest.mark.parametrize("op", sorted(NATIVE))
def test_numbers_and_errors_are_pythons(op: str) -> None:
    kinds = {"int": INTS, "float": FLOATS}
    for chosen in itertools.product(kinds, repeat=1 if op in ONE else 2):
        if op in OF_FLOATS and "float" not in chosen:
            continue  # never asked of the launcher
        launcher = calculator(op, chosen)
        for args in itertools.product(*[kinds[kind] for kind in chosen]):
            mine = outcome(lambda *args: launcher(*args)[0], *args)
            assert mine == outcome(STRICT[op], *args), (op, args)


def test_python_is_called_only_where_it_has_to_be() -> None:
    called = []

    def divide(a, b):
        called.append((a, b))
        return a / b

    args = [("float", 0), ("const", 2.0)]
    steps = [("calculate", "truediv", 0, args, [("float", 1)])]
    launcher = Launcher(1, [(0, "float", 0)], steps, [("float", 1)], (), None, [divide])
    assert launcher(3.0) == (1.5,) and not called
    steps = [("calculate", "truediv", 0, [("const", 1.0), ("float", 0)], [("float", 1)])]
    launcher = Launcher(1, [(0, "float", 0)], steps, [("float", 1)], (), None, [divide])
    with pytest.raises(ZeroDivisionError):
        launcher(0.0)
    assert called == [(1.0, 0.0)]


@pytest.mark.parametrize(
    "step",
    [
        ("calculate", "fmod", 0, [("float", 0)], [("float", 1)]),
        ("calculate", "fadd", 0, [], [("float", 1)]),
        ("calculate", "fadd", 0, [("float", 0)] * 3, [("float", 1)]),
        ("calculate", "fadd", 0, [("float", 0), ("float", 5)], [("float", 1)]),
        ("calculate", "fneg", 0, [("float", 0)], [("slot", 1)]),
        ("calculate", "fneg", 0, [("float", 0)], []),
        ("require", 3, 0, [], [("drop",)]),
        ("item", 0, []),
        ("item", 4, [("float", 1)]),
    ],
)
def test_steps_that_make_no_sense(step) -> None:
    with pytest.raises(ValueError):
        Launcher(1, [(0, "float", 0)], [step], [], (), None, [abs])


@pytest.mark.parametrize("argument", [("slot", 0), ("const", "text"), ("none",)])
def test_operands_are_numbers(argument) -> None:
    step = ("calculate", "fneg", 0, [argument], [("float", 1)])
    with pytest.raises(TypeError):
        Launcher(1, [(0, "float", 0)], [step], [], (), None, [abs])


def test_a_requirement() -> None:
    args = [("value", 0), ("const", "must not be 0")]
    steps = [("require", 0, 0, args, [("drop",)])]
    launcher = Launcher(1, [(0, "int", 0)], steps, [("value", 0)], (), None, [check])
    assert launcher(3) == (3,)
    with pytest.raises(RuntimeError, match="must not be 0"):
        launcher(0)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.int64, torch.int32])
@pytest.mark.parametrize("value", [0, 1, -3])
def test_an_element(dtype, value) -> None:
    kind = "float" if dtype.is_floating_point else "value"
    launcher = Launcher(1, [], [("item", 0, [(kind, 0)])], [(kind, 0)], (), None)
    for tensor in (torch.tensor(value, dtype=dtype), torch.full((1, 1), value, dtype=dtype)):
        (item,) = launcher(tensor)
        assert item == tensor.item() and type(item) is type(tensor.item())
    (item,) = launcher(torch.arange(5).to(dtype)[3:4])  # at an offset
    assert item == 3


def test_an_element_of_another_dtype() -> None:
    for dtype, kind in ((torch.bool, "bool"), (torch.bfloat16, "float"), (torch.uint8, "value")):
        launcher = Launcher(1, [], [("item", 0, [(kind, 0)])], [(kind, 0)], (), None)
        assert launcher(torch.ones((), dtype=dtype)) == (1,)


# Expressions

x, y, n = float_symbol("x"), float_symbol("y"), symbol("n")


@pytest.mark.parametrize(
    "expr",
    [
        1 - float_power(0.9, x),
        true_div(0.1, 1 - float_power(0.9, x)) * -1.0,
        float_min(x, float_max(y, to_float(n + 1))),
        math_call("sqrt", x * x + y * y) / to_float(n),
        (1 + math_call("cos", math.pi * x / to_float(n))) / 2,
        abs(-x),
        lt(x, y),
        not_(le(x, n)),
        not_(eq(x, 0.0)),
    ],
    ids=str,
)
def test_expressions_become_steps_without_python(expr) -> None:
    writer = StepWriter()
    names = {x: "float", y: "float", n: "int"}
    kinds = [(at, names[s], 0) for at, s in enumerate(names)]
    for at, s in enumerate(names):
        writer.bind(s if s is n else symbol(f"bits_{s.args[0]}"), at)
    place = writer.value(expr)
    steps = [*writer.computes, *writer.steps]
    assert {step[0] for step in steps} <= {"calculate", "compute"}
    result = ("bool" if steps[-1][1] in COMPARISONS else "float", place)
    launcher = Launcher(3, kinds, steps, [result], (), None, writer.objects)
    for a, b, c in itertools.product([0.5, 2.0, 31.0], [1.5, -2.0], [1, 7]):
        assert launcher(a, b, c) == (pliant.sym.expr.evaluate(expr, {x: a, y: b, n: c}),)


def test_what_is_shared_is_computed_once() -> None:
    writer = StepWriter()
    writer.bind(symbol("bits_x"), 0)
    power = float_power(0.9, x)
    writer.value(1 - power)
    writer.value(true_div(2.0, 1 - power))
    assert [step[1] for step in writer.computes] == ["fpow", "fsub", "truediv"]


@pytest.mark.parametrize("expr", [round_to(x, 2), float_power(n, n), and_(lt(x, y), lt(y, 1.0))])
def test_what_python_has_to_compute(expr) -> None:
    assert arithmetic_parts(expr, {}) == []


def test_a_long_chain() -> None:
    total = x
    for number in range(3000):
        total = total + float(number)
    writer = StepWriter()
    writer.bind(symbol("bits_x"), 0)
    place = writer.value(total)
    launcher = Launcher(
        1, [(0, "float", 0)], writer.computes, [("float", place)], (), None, [*writer.objects]
    )
    assert launcher(1.0) == (1.0 + sum(map(float, range(3000))),)


def test_a_number_that_has_no_value() -> None:
    """The original says what is wrong."""

    def scaled(x, count):
        return x * (1 / (1 - 0.5 ** count.item()))

    compiled = pliant.compile(scaled, backend="llvm")
    x = torch.randn(3)
    for number in (1.0, 2.0, 3.0):
        count = torch.tensor(number)
        torch.testing.assert_close(compiled(x, count), scaled(x, count))
    for broken in (0.0, -2000.0):
        with pytest.raises(ArithmeticError) as theirs:
            scaled(x, torch.tensor(broken))
        with pytest.raises(type(theirs.value)):
            compiled(x, torch.tensor(broken))
