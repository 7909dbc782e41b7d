"""Symbolic numbers in the program: sizes, arguments and numbers read from tensors give what eager
Python gives, in value and type, and cost no more compilations than they have to."""

import math
import operator
import sys

import pytest
import torch

import pliant
from tests.support.against_eager import compilations

SIZES = (3, 7, 2, 5, 1, 0, 4, 10)


def of_size(number):
    return lambda x: (number(x.size(0)), x + 1)


def of_argument(number):
    return lambda x, n: (number(n), x + 1)


def of_item(number):
    return lambda x, t: (number(t.item()), x + 1)


def sized():
    return [(torch.ones(size, 2),) for size in SIZES]


def in_place(n):
    a = b = c = d = n
    a += 1
    a -= 3
    a *= 2
    a //= 3
    a %= 7
    b /= 2
    b **= 2
    c <<= 2
    c >>= 1
    c |= 1
    c &= 7
    c ^= 2
    d **= 2
    return a, b, c, d


# No question about the number is asked by any of these: one compilation does for all numbers.
ANY_NUMBER = {
    "arithmetic": lambda n: (n // 2, n % 3, -n, +n, n**2, n / 2, n * 0.5, 0.5 * n + 1, n - 2.5),
    "bits": lambda n: (n & 3, n | 1, n ^ 3, ~n, n << 1, n >> 1, 7 & n, n & (n + 1)),
    "in_place": in_place,
    "conversions": lambda n: (int(n), float(n), bool(n), not n, int(n * 0.5), int(n / 3)),
    "rounding": lambda n: (round(n / 3), round(n / 3, 1), round(n), math.floor(n / 3)),
    "ceil": lambda n: (math.ceil(n / 3), math.trunc(n / 3), math.floor(n), math.ceil(n * 0.75)),
    "divmod": lambda n: (divmod(n, 4), divmod(7, abs(n) + 1), n / 2 // 1, n / 2 % 1),
    "extremes": lambda n: (max(n, 4), min([n, 4, n + 2]), max(n / 2, 1.5), abs(n - 5)),
    "sums": lambda n: (sum([n, n, 1]), sum([n], n), math.prod([n, 2, n])),
    "comparisons": lambda n: (n < 3, n == 3, n != 3, 3 > n, n < 2.5, n >= 2.5, n == 2.5, n == 2.0),
    "flags": lambda n: ((n < 3) + 1, (n < 3) & (n > 1), (n < 3) ^ (n > 1), (n < 3) == (n > 1)),
    "flags_as_numbers": lambda n: (int(n < 3), float(n < 3), -(n < 3), sum([n < 3, n > 1])),
    "other_kinds": lambda n: (n == "a", n != None, n is None, isinstance(n, int)),  # noqa: E711
    "kind": lambda n: (type(n) is int, callable(n), hasattr(n, "shape"), n.real, n.imag),
    "math": lambda n: (math.exp(n), math.sin(n), math.atan2(n, 2), math.hypot(n, 2), math.tanh(n)),
    "logarithms": lambda n: (math.log(abs(n) + 1), math.log(abs(n) + 1, 2), math.log1p(abs(n))),
    "roots": lambda n: (math.sqrt(abs(n)), abs(n) ** 0.5, (abs(n) + 1) ** -1),
    "infinite": lambda n: (math.isnan(n / 2), math.isfinite(n), n < math.inf),
    "operators": lambda n: (operator.add(n, 1), operator.index(n), operator.not_(n)),
    "big": lambda n: (n * 10**20 + 2**70, 10**30 // (n * n + 1)),
}


@pytest.mark.parametrize("name", ANY_NUMBER)
def test_one_compilation_for_all_numbers(name):
    number = ANY_NUMBER[name]
    x = torch.ones(3)
    assert compilations(of_size(number), sized(), dynamic=True) == 1
    arguments = [(x, n) for n in (*SIZES, -4)]
    assert compilations(of_argument(number), arguments) == 2
    items = [(x, torch.tensor(n)) for n in (*SIZES, -4)]
    assert compilations(of_item(number), items, fullgraph=True) == 1


# By size, under dynamic=True: each side of a question is compiled when it is first met.
ASKING = {
    "power": (2, lambda n: 2 ** (n - 3)),
    # The error says for which number since Python 3.14.
    "no_root": (2 if sys.version_info < (3, 14) else 4, lambda n: math.sqrt(n - 3)),
    "no_logarithm": (2, lambda n: math.log(n)),
    "divided_by": (2, lambda n: (10 // n, 10 / n, 10 % n, divmod(10, n))),
    "divided_by_zero": (1, lambda n: n // (n - n)),
    "shifted_by": (2, lambda n: 1 << (n - 3)),
    "chain": (2, lambda n: 2 < n <= 10),
    "and_or": (2, lambda n: n and n + 1),
    "choice": (2, lambda n: n if n > 3 else 0),
    "contained": (4, lambda n: n in (1, 2, 3)),
    "tuples": (2, lambda n: ((n, 1) < (3, 2), (n, 1)[1])),
    "equal_tuples": (2, lambda n: (n, 1) == (3, 1)),
    "mixed_extreme": (2, lambda n: max(n, 1.5)),
    "sorting": (3, lambda n: sorted([n, 2, 5])),
    "by_key": (2, lambda n: max([n, 3], key=lambda v: -v)),
    "all_any": (3, lambda n: (all([n > 3, n < 9]), any([n > 3]))),
    "identity": (2, lambda n: (n > 3) is True),
    "index": (8, lambda n: [1, 2, 3][n]),
    "slice": (8, lambda n: list(range(9))[:n]),
    "loop": (8, lambda n: [i for i in range(n)]),  # noqa: C416
    "repeated": (8, lambda n: [0] * n),
    "key": (8, lambda n: {n: 1, n + 1: 2}),
    "text": (8, lambda n: f"{n} {n / 2:.2f} {n!r:>3}" + str(n)),
    "method": (8, lambda n: n.bit_length()),
    "whole_numbers": (8, lambda n: (math.gcd(n, 6), math.isqrt(n), round(n, -1), hash(n))),
    "complex": (8, lambda n: (complex(n), n + 1j)),
    "wrong_operand": (8, lambda n: n + "a"),
}


@pytest.mark.parametrize("name", ASKING)
def test_questions_cost_a_compilation_for_each_answer(name):
    count, number = ASKING[name]
    assert compilations(of_size(number), sized(), dynamic=True, fullgraph=True) == count


def test_floats():
    x = torch.ones(3)

    def program(x, v):
        return v * 2, v / 3, v + 1, v**2, abs(v), -v, v < 1, max(v, 1.0), min(1.0, v), x * v

    values = [0.5, 0.7, -0.9, 0.0, -0.0, math.inf, math.nan, 1e300]
    assert compilations(program, [(x, v) for v in values]) == 2


def test_a_float_without_an_integer_raises_even_if_nobody_needs_it():
    def program(x, v):
        int(v)
        return x + 1

    calls = [(torch.ones(3), v) for v in (0.5, 1.7, math.nan, math.inf, -3.5)]
    assert compilations(program, calls) == 2


def test_division_by_a_float_that_may_be_zero():
    def program(x, v):
        try:
            return x + 1 / v
        except ZeroDivisionError:
            return x - 1

    calls = [(torch.ones(3), v) for v in (0.5, 1.7, 0.0, 2.5)]
    assert compilations(program, calls) <= 3


def test_roots_of_negative_floats_are_complex():
    def program(x, v):
        return v**0.5, x + 1

    calls = [(torch.ones(3), v) for v in (0.5, 1.7, -1.0, 2.5)]
    assert compilations(program, calls) <= 3


def test_bias_corrections():
    def program(x, step):
        return x / math.sqrt(1 - 0.999**step) * (1 - 0.9**step) ** 0.5

    calls = [(torch.ones(3), step) for step in range(1, 8)]
    assert compilations(program, calls) == 2


def test_division_by_an_unknown_number_raises_in_place():
    def program(x, t):
        10 // t.item()
        return x + 1

    calls = [(torch.ones(3), torch.tensor(n)) for n in (3, 0, 2)]
    assert compilations(program, calls, fullgraph=True) == 1


@pytest.mark.parametrize("values", [(3, 4, 2**62, 2**63, -(2**63) - 1, 10**30, 5), (True, 2, 3.5)])
def test_numbers_beyond_64_bits_and_of_other_kinds(values):
    calls = [(torch.ones(3), n) for n in values]
    compilations(lambda x, n: (n + 1, n * 2, n // 3, x + 1), calls)


def test_text_of_an_unknown_number_breaks():
    def program(x, t):
        return f"{t.item()}", x + 1

    compilations(program, [(torch.ones(3), torch.tensor(n)) for n in (1, 2)])
    with pytest.raises(pliant.errors.DataDependentError):
        pliant.compile(program, fullgraph=True)(torch.ones(3), torch.tensor(1))


def test_lists_read_from_tensors():
    def program(t):
        values = t.tolist()
        return sum(values), max(values), [v * 2 for v in values], values[0] == 1

    calls = [(torch.tensor(v),) for v in ([1, 2, 3], [4, 5, 6], [0, -1, 0])]
    assert compilations(program, calls, fullgraph=True) == 1


MILESTONES = {4: "four", 10: "ten", "name": "other"}


@pytest.mark.parametrize(
    "function",
    [
        of_size(lambda n: n in MILESTONES),
        of_size(lambda n: n not in MILESTONES),
        of_size(lambda n: MILESTONES[n] if n in MILESTONES else n * 2),
        of_size(lambda n: n in {}),
        of_size(lambda n: n in {True: 1}),
    ],
)
def test_keys_of_a_dictionary(function) -> None:
    """A number that is no key stays a symbol."""
    many = compilations(function, [(torch.randn(n),) for n in (3, 7, 2, 5, 9, 6, 8, 11)])
    assert many <= 2
    compilations(function, [(torch.randn(n),) for n in SIZES])


def test_a_dictionary_that_changes() -> None:
    known = {2: "two"}

    def function(x):
        return x.size(0) in known, x + 1

    compiled = pliant.compile(function, dynamic=True)
    for size in (3, 4, 2, 5):
        x = torch.randn(size)
        assert compiled(x)[0] is function(x)[0]
        known[size] = "now it is one"
        assert compiled(x)[0] is True
        del known[size]
        assert compiled(x)[0] is False
