"""Annotations of functions that a program makes, reads, writes and returns."""

import dataclasses
import functools
import sys
import typing

import pytest
import torch

import pliant
from tests.support.against_eager import check

Alias = list[int]


def returned(x):
    def f(a: int, *b: Alias, c: float = 1.0) -> torch.Tensor:
        return x

    return x + 1, f


def read(x):
    def f(a: int, b: "text" = 1) -> Alias:  # noqa: F821
        return a

    return f(x), f.__annotations__


def read_twice(x):
    def f(a: int):
        return a

    f.__annotations__["b"] = str
    return f(x), f.__annotations__, f.__annotations__ is f.__annotations__


def none(x):
    def f(a):
        return a

    return f(x), f, f.__annotations__


def written(x):
    def f(a: int):
        return a

    f.__annotations__ = {"other": bool}
    return f(x), f, f.__annotations__


def written_none(x):
    def f(a: int):
        return a

    f.__annotations__ = None
    return f(x), f, f.__annotations__


def of_another_type(x):
    def f(a: int):
        return a

    try:
        f.__annotations__ = 3
    except TypeError as error:
        return f(x), str(error), f.__annotations__


def from_the_closure(x):
    kind = float

    def f(a: kind):
        return a

    return f(x), f, f.__annotations__


def wraps_a_function_made_inside(x):
    def inner(a: int) -> float:
        return a

    @functools.wraps(inner)
    def outer(*args):
        return inner(*args) * 2

    return outer(x), outer, outer.__annotations__


def annotated(x: torch.Tensor, y: int = 2) -> Alias:
    return x * y


def wraps_a_function_from_outside(x):
    @functools.wraps(annotated)
    def outer(*args):
        return annotated(*args) * 2

    return outer(x), outer, outer.__annotations__


PROGRAMS = [
    returned, read, read_twice, none, written, written_none, of_another_type, from_the_closure,
    wraps_a_function_made_inside, wraps_a_function_from_outside,
]  # fmt: skip


@pytest.mark.parametrize("program", PROGRAMS)
def test_same_as_eager(program):
    check(program, torch.ones(2))


@pytest.mark.parametrize("program", PROGRAMS)
def test_of_what_is_returned(program):
    x = torch.ones(2)
    results = pliant.compile(program, fullgraph=True)(x)
    for result, expected in zip(results, program(x)):
        if callable(expected):
            assert result.__annotations__ == expected.__annotations__


def test_another_function_from_outside_has_other_annotations():
    def made(kind):
        def f(a: kind):
            return a

        return f

    @pliant.compile(fullgraph=True)
    def program(f, x):
        return f(x), f.__annotations__

    for kind in (int, str, int):
        assert program(made(kind), torch.ones(2))[1] == {"a": kind}


# ---- from Python 3.14 on: what makes them


def fails_when_asked(x):
    def f(a: not_defined) -> int:  # noqa: F821
        return a

    y = f(x)
    try:
        f.__annotations__
    except NameError as error:
        return y, str(error)


def is_a_function(x):
    def f(a: int):
        return a

    return f(x), f.__annotate__(1), (lambda a: a).__annotate__


def replaced(x):
    def f(a: int):
        return a

    f.__annotations__
    f.__annotate__ = lambda format: {"format": format}
    return f(x), f.__annotations__


def forgotten(x):
    def f(a: int):
        return a

    f.__annotate__ = None
    return f(x), f.__annotations__, f.__annotate__


def replaced_by_annotations(x):
    def f(a: int):
        return a

    f.__annotations__ = {"b": str}
    return f(x), f.__annotate__


def not_callable(x):
    def f(a: int):
        return a

    try:
        f.__annotate__ = 5
    except TypeError as error:
        return f(x), str(error), f.__annotations__


def no_dictionary(x):
    def f(a: int):
        return a

    f.__annotate__ = lambda format: 5
    try:
        f.__annotations__
    except TypeError as error:
        return f(x), str(error)


@pytest.mark.skipif(sys.version_info < (3, 14), reason="annotations are made at once")
@pytest.mark.parametrize(
    "program",
    [fails_when_asked, is_a_function, replaced, forgotten, replaced_by_annotations, not_callable,
     no_dictionary],
)  # fmt: skip
def test_what_makes_them(program):
    check(program, torch.ones(2))


class Unit:
    pass


METRES = Unit()


def test_annotations_that_are_objects():
    def program(x):
        unit = Unit()
        unit.scale = x

        @dataclasses.dataclass
        class Settings:
            length: METRES
            width: unit = 2
            _: dataclasses.KW_ONLY
            depth: "int" = 3
            shared: typing.ClassVar[int] = 4
            start: dataclasses.InitVar[int] = 5

            def __post_init__(self, start):
                self.total = self.length + self.width + self.depth + start

        kinds = Settings.__annotations__
        names = [field.name for field in dataclasses.fields(Settings)]
        try:
            Settings(1, 2, 3)
        except TypeError as error:
            text = str(error)
        result = kinds["width"].scale * Settings(1, depth=6).total
        return result, kinds["width"] is unit, kinds["length"] is METRES, names, text

    check(program, torch.arange(3.0))
