"""Numbers: conversions, arithmetic functions, min/max/sum, the math module."""

import cmath
import math
import operator
import random

import pytest
import torch

X = torch.arange(6.0).reshape(2, 3)
PROGRAMS = []


def program(function):
    PROGRAMS.append(pytest.param(function, id=function.__name__))
    return function


class Number:
    """An object that counts as a number through its special methods."""

    def __init__(self, value):
        self.value = value

    def __int__(self):
        return 3

    def __float__(self):
        return 2.5

    def __index__(self):
        return 4

    def __complex__(self):
        return 1j

    def __abs__(self):
        return self.value

    def __round__(self, digits=None):
        return digits

    def __ceil__(self):
        return "ceil"

    def __bool__(self):
        return False

    def __divmod__(self, other):
        return "divmod", other

    def __rdivmod__(self, other):
        return "rdivmod", other

    def __pow__(self, other, mod=None):
        return "pow", other, mod


class Liar:
    def __int__(self):
        return "3"

    def __float__(self):
        return 3

    def __index__(self):
        return 3.0


@program
def conversions(x):
    return x + int("12"), int("ff", 16), float("1.5"), complex(1, 2), bool(3), bytes(3), int(2.9)


@program
def conversions_of_objects(x):
    n = Number(x)
    return int(n), float(n), complex(n), bool(n), abs(n), round(n, 3), round(n), hex(n), range(n)


@program
def conversion_without_arguments(x):
    return int(), float(), complex(), bool(), str(), bytes(), x


@program
def bad_literal(x):
    return int("zz")


@program
def int_of_list(x):
    return int([x])


@program
def float_of_none(x):
    return float(None)


@program
def float_of_object(x):
    return float(object)


@program
def int_that_lies(x):
    return int(Liar())


@program
def float_that_lies(x):
    return float(Liar())


@program
def too_many_bool_arguments(x):
    return bool(1, 2)


@program
def bytes_of_items(x):
    return bytes([1, 2]), bytes("a", "utf8"), bytes(b"c")


@program
def ranges(x):
    return range(3), list(range(1, 7, 2)), len(range(10, 0, -3)), 4 in range(5), range(3)[1]


@program
def range_by_zero(x):
    return range(1, 2, 0)


@program
def range_of_float(x):
    return range(1.5)


@program
def arithmetic(x):
    return divmod(7, 3), pow(2, 10), pow(2, 10, 7), abs(-3), abs(x - 3), round(2.567, 1), round(7)


@program
def arithmetic_of_objects(x):
    return divmod(Number(1), 2), divmod(2, Number(1)), pow(Number(1), 5, 3), pow(Number(1), 5)


@program
def divmod_of_text(x):
    return divmod("a", 2)


@program
def division_by_zero(x):
    return divmod(1, 0)


@program
def abs_of_text(x):
    return abs("a")


@program
def round_of_text(x):
    return round("a")


@program
def bases(x):
    return hex(255), oct(8), bin(5), chr(97), ord("b"), f"{10:#x}", int.from_bytes(b"a", "big")


@program
def chr_out_of_range(x):
    return chr(-1)


@program
def ord_of_text(x):
    return ord("ab")


@program
def sums(x):
    return sum([x, x]), sum((1, 2), 10), sum([[1], [2]], []), sum(i * i for i in range(4)), sum([])


@program
def sum_of_strings(x):
    return sum(["a"], "")


@program
def sum_of_mixture(x):
    return sum([1, "a"])


@program
def extremes(x):
    return (
        max(1, 5, 3),
        min([4, 2]),
        max("ab", "c", key=len),
        max([], default=4),
        min({"b": 1, "a": 2}),
    )


@program
def extreme_keeps_the_first(x):
    return max(3.0, 3), min(1, True), max([x, "b"], key=lambda v: 0)


@program
def max_of_nothing(x):
    return max([])


@program
def max_without_arguments(x):
    return max()


@program
def max_of_number(x):
    return max(3)


@program
def max_of_mixture(x):
    return max(1, "a")


@program
def min_with_senseless_default(x):
    return min(1, 2, default=3)


@program
def any_and_all(x):
    return any([0, x is x]), all([0, 1]), any([]), all([]), any(i > 1 for i in (1, 2, 3))


@program
def any_stops_early(x):
    seen = []
    any(seen.append(i) or i for i in (0, 2, 3))
    return seen


@program
def mathematics(x):
    return math.sqrt(4), math.floor(2.5), x * math.pi, math.isclose(1, 1 + 1e-12), math.gcd(12, 18)


@program
def mathematics_with_several_results(x):
    return math.modf(2.5), math.frexp(8.0), cmath.polar(1j), math.comb(5, 2)


@program
def mathematics_of_sequences(x):
    return math.prod([2, 3]), math.prod([x, 2]), math.fsum([0.1] * 10), math.dist([0, 0], [3, 4])


@program
def mathematics_of_objects(x):
    return math.sqrt(Number(1)), math.ceil(Number(1)), math.factorial(Number(1))


@program
def domain_error(x):
    return math.sqrt(-1)


@program
def sqrt_of_text(x):
    return math.sqrt("a")


class Vector:
    def __init__(self, value):
        self.value = value

    def __radd__(self, other):
        return "radd", other, self.value

    def __eq__(self, other):
        return "equal"

    def __lt__(self, other):
        return "less"


@program
def reflected_operators(x):
    return (
        3 + Vector(x),
        3.5 + Vector(1),
        3 == Vector(1),
        3 > Vector(1),
        "a" + Vector(2),
        "a" == Vector(1),
    )


@program
def declined_operator(x):
    return 3 - Vector(1)


@program
def declined_comparison(x):
    return "a" < Vector(1)


@program
def index_function(x):
    return operator.index(True), operator.index(Number(1)), [5, 6, 7, 8, 9][Number(1)]


@program
def index_of_float(x):
    return operator.index(1.0)


@pytest.mark.parametrize("function", PROGRAMS)
def test_same_as_eager(check, function):
    check(function, X)


@pytest.mark.parametrize("convert", [bool, complex])
def test_numbers_from_tensor_data_break_the_graph(breaks, convert):
    code = "data-dependent-branch" if convert is bool else "data-dependent-number"
    breaks(lambda x: x + convert(x[0, 0]), X, code=code)


@pytest.mark.parametrize("convert", [int, float, math.sqrt, math.floor])
def test_numbers_from_tensor_data_are_symbolic(check, convert):
    check(lambda x: x + convert(x[0, 1]), X)


@pytest.mark.parametrize("draw", [lambda: random.choice("ab"), lambda: random.sample("abc", 2)])
def test_random_choices_that_are_no_numbers_break_the_graph(breaks, draw):
    breaks(lambda x: x + draw(), X, code="random-state")
