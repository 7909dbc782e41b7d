"""Numbers, texts and members of enumerations whose classes are the program's own."""

import enum
import types

import pytest
import torch

import pliant
from tests.support.against_eager import check

X = torch.arange(3.0)
SCALE = [2]


class Level(enum.IntEnum):
    LOW = 1
    HIGH = 2

    @property
    def scale(self):
        return self.value * SCALE[0]


def test_properties_of_members_read_the_present():
    compiled = pliant.compile(lambda x: x * Level.HIGH.scale)
    for scale in (2, 3, 2):
        SCALE[0] = scale
        assert compiled(X).equal(X * 2 * scale)


class Found(float):
    def __getattr__(self, name):
        if name == "nothing":
            raise KeyError(name)
        if name.startswith("__"):
            raise AttributeError(name)
        return name, SCALE[0]


class Everything(str):
    def __getattribute__(self, name):
        return name if name == "special" else super().__getattribute__(name)


def test_attributes_that_a_class_makes_up():
    check(lambda x, number: (number.other, getattr(number, "third", 1), x + number), X, Found(2))
    check(lambda x, number: hasattr(number, "nothing"), X, Found(2))
    check(lambda x, text: (text.special, text.upper(), x + 1), X, Everything("a"))


class Lying(float):
    def __float__(self):
        return 100.0


class LyingInteger(int):
    def __int__(self):
        return 100


@pytest.mark.parametrize("cls", (Lying, LyingInteger))
def test_a_number_is_what_it_holds(cls):
    check(lambda x, number: (x + number, number * x, torch.full((2,), number)), X, cls(2))
    check(lambda x: x + cls(2), X)


class Answering(int):
    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        return func.__name__, len(args)


def test_numbers_that_answer_for_pytorch():
    def f(x, number):
        return x + number, number * x, torch.add(x, number), x[number], torch.full((2,), number)

    check(f, X, Answering(2), breaks=None)


class Counting(types.SimpleNamespace):
    made = 0

    def __init__(self, **names):
        type(self).made += 1
        super().__init__(**names)


def test_a_namespace_is_made_once():
    compiled = pliant.compile(lambda x: Counting(a=x + 1))
    for count in (1, 2):
        assert compiled(X).a.equal(X + 1)
        assert Counting.made == count


class Group(set):
    pass


def test_texts_of_objects_that_are_not_looked_into():
    check(lambda x, *items: (repr(items[0]), str(items[1]), x + 1), X, Group([1]), Counting(a=1),
          breaks=None)  # fmt: skip
    assert pliant.counters["fallbacks"] == 0


class Recording(ValueError):
    def __setattr__(self, name, value):
        super().__setattr__(name, [value])

    def __delattr__(self, name):
        super().__setattr__(name, "deleted")


def test_exceptions_that_store_attributes_themselves():
    def f(x):
        error = Recording("message")
        error.note = 1
        first = error.note
        del error.note
        return first, error.note, x + 1

    check(f, X, breaks=None)


class Made(ValueError):
    count = 0

    def __new__(cls, *args):
        cls.count += 1
        return super().__new__(cls, *args)


def test_an_exception_is_made_once():
    compiled = pliant.compile(lambda x: (Made("message"), x + 1))
    for count in (1, 2):
        assert compiled(X)[0].args == ("message",)
        assert Made.count == count
