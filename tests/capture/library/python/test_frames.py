"""Operations that look at the frame that calls them: its name, line, variables and globals."""

from __future__ import annotations

import inspect
import sys

import pytest
import torch

import pliant
from tests.support.against_eager import check
from tests.support.programs import note

X = torch.arange(1.0, 4.0)
OUTSIDE = 7


class Pt:
    pass


def does_frame_name(x):
    def where():
        return sys._getframe(1).f_code.co_name

    return x, where(), sys._getframe().f_code.co_name, sys._getframe().f_lineno


def does_frame_globals(x):
    return (
        x,
        sys._getframe().f_globals["__name__"],
        inspect.currentframe().f_back is not None if False else 1,
    )


def does_frame_locals(x):
    a = 5

    def g():
        return sys._getframe(1).f_locals["a"]

    return x + g(), sys._getframe().f_locals["a"]


def does_getsourcelines(x):
    return x, inspect.getsourcelines(Pt)[0][0], inspect.getsourcelines(does_frame_name)[1]


PROGRAMS = [value for name, value in list(globals().items()) if name.startswith("does_")]


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.__name__[5:])
@pytest.mark.parametrize("dynamic", [None, True])
def test_same_as_eager(program, dynamic):
    check(program, X, dynamic=dynamic)


# ---- names and classes of the frame


def evaluates(x):
    y = x + 1

    def uses():
        return y

    return eval("x + y"), eval("k", {"k": 3}), exec("y = 5"), uses(), eval("OUTSIDE")


class Base:
    def __init__(self, n):
        self.n = n

    @pliant.disable
    def method(self, x):
        return x + self.n


class Derived(Base):
    def __init__(self, n):
        super().__init__(n + 1)

    @pliant.disable
    def method(self, x):
        return super().method(x) * 10

    def both(self, x):
        return super().method(x) + Base.method(self, x)


def overridden(x):
    thing = Derived(3)
    return thing.method(x), thing.both(x), Base.method(thing, x)


def asks_for_its_frame(x):
    return sys._getframe().f_code.co_name, x + 1


def lists_its_variables(x, log):
    dead = x + 1
    note(log, "a")
    return sorted(locals()), sorted(dir()), "dead" in vars()


def refers_to_itself(x, log):
    class Namespace:
        pass

    space = Namespace()
    table = vars(space)
    note(log, "a")
    table["x"] = x
    note(log, "b")
    return space.x + 1, table is vars(space)


@pytest.mark.parametrize(
    ("function", "args"),
    [
        (evaluates, (X,)),
        (overridden, (X,)),
        (asks_for_its_frame, (X,)),
        (lists_its_variables, (X, [])),
        (refers_to_itself, (X, [])),
    ],
)
def test_with_breaks(function, args):
    check(function, *args, breaks=None)
