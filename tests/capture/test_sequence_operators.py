"""Operators between sequences and objects that are none."""

import copy
import enum
import operator
from collections import deque
from decimal import Decimal
from fractions import Fraction

import numpy as np
import pytest
import torch

import pliant
from tests.support.against_eager import check

X = torch.arange(4.0)


class Reflected:
    def __radd__(self, other):
        return "added", list(other)

    def __rmul__(self, other):
        return "repeated", list(other)


class ReflectedList(list):
    def __radd__(self, other):
        return "added"


class Declining:
    def __radd__(self, other):
        return NotImplemented


class Factor(int):
    def __radd__(self, other):
        return "added"

    def __rmul__(self, other):
        return "repeated"


class Choice(enum.Enum):
    ONE = 1


SEQUENCES = ([1, 2], (1, 2), "ab", b"ab", torch.Size([1, 2]), deque([1, 2]))
OTHERS = (
    Reflected(), ReflectedList([1]), Declining(), Factor(2), Choice.ONE, np.float32(2), np.int64(2),
    np.bool_(True), Fraction(1, 2), Decimal(2), 3.5, None, "x", (1,), [2], torch.Size([1]),
    deque([3]), torch.tensor(2),
)  # fmt: skip
OPERATORS = (operator.add, operator.mul, operator.mod, operator.iadd, operator.imul)


def outcome(function, *args):
    try:
        result = function(*args)
    except TypeError as error:
        return TypeError, str(error)
    return type(result), str(result), str(args[1])


@pytest.mark.parametrize("sequence", SEQUENCES, ids=repr)
@pytest.mark.parametrize("operate", OPERATORS)
def test_what_is_no_sequence_beside_one(operate, sequence):
    def before(x, a, b):
        return operate(a, b)

    def behind(x, a, b):
        return operate(b, a)

    for other in OTHERS:
        for function in (before, behind):
            expected = outcome(function, X, *copy.deepcopy((sequence, other)))
            compiled = pliant.compile(function)
            assert outcome(compiled, X, *copy.deepcopy((sequence, other))) == expected
    assert pliant.counters["fallbacks"] == 0


@pytest.mark.parametrize("sequence", ([1, 2], (1, 2), "ab"), ids=repr)
def test_a_tensor_says_how_often_a_sequence_is_repeated(sequence):
    def f(x, count):
        return sequence * count, count * sequence, x + 1

    compiled = pliant.compile(f)
    for count in (1, 3, 2):
        assert compiled(X, torch.tensor(count))[:2] == f(X, torch.tensor(count))[:2]


def test_a_text_formats_what_a_tensor_holds():
    compiled = pliant.compile(lambda x: "%d" % x)
    assert [compiled(torch.tensor(number)) for number in (1, 2)] == ["1", "2"]


class Own(int):
    def __add__(self, other):
        return "own", other

    def __rsub__(self, other):
        return "own", other

    def __eq__(self, other):
        return "own"

    __hash__ = int.__hash__


class OwnList(list):
    def __add__(self, other):
        return other * 2


@pytest.mark.parametrize("make", (Own, lambda number: OwnList([number])))
@pytest.mark.parametrize("name", ("add", "sub", "eq", "iadd", "radd"))
def test_classes_with_operators_of_their_own_beside_tensors(name, make):
    def f(x, other):
        y = x + 1
        return operator.add(y, other) if name == "radd" else getattr(operator, name)(other, y)

    def g(x, number):
        other = make(number)
        return f(x, other)

    check(f, X, make(3), breaks=None)
    check(g, X, 3, breaks=None)
    check(lambda x: sum([x, x], Own(1)), X, breaks=None)


class Reflecting(torch.Tensor):
    def __rmod__(self, other):
        return "reflected"


def test_a_text_is_asked_before_the_tensor():
    x = torch.ones(2).as_subclass(Reflecting)
    assert pliant.compile(lambda x: "%s" % x)(x) == "%s" % x == str(x)
