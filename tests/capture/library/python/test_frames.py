"""Operations that look at the frame that calls them: its name, line, variables and globals."""

from __future__ import annotations

import gc
import inspect
import sys
import traceback
import weakref

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


# ---- tracebacks


def raises_inside(x, depth):
    if depth:
        raises_inside(x, depth - 1)
    raise ValueError("inside")


def lines_of_a_traceback(x):
    lines = []
    try:
        raises_inside(x, 2)
    except ValueError as error:
        entry = error.__traceback__
        assert entry is error.__traceback__
        while entry is not None:
            lines.append((entry.tb_lineno, entry.tb_frame.f_code.co_name))
            entry = entry.tb_next
    return x + 1, lines


def variables_of_a_failed_call(x):
    try:
        raises_inside(x, 1)
    except ValueError as error:
        last = error.__traceback__.tb_next.tb_next
        return x + 1, dict(last.tb_frame.f_locals), last.tb_frame.f_back.f_locals["depth"]


def cleared_frames(x):
    try:
        raises_inside(x, 1)
    except ValueError as error:
        traceback.clear_frames(error.__traceback__)
        last = error.__traceback__.tb_next
        running = error.__traceback__.tb_frame
        try:
            running.clear()
        except RuntimeError as refused:
            return x + 1, dict(last.tb_frame.f_locals), str(refused)


def walked(x):
    try:
        raises_inside(x, 1)
    except ValueError as error:
        return x + 1, [line for _, line in traceback.walk_tb(error.__traceback__)]


def raised_again_with_a_traceback(x):
    try:
        raises_inside(x, 0)
    except ValueError as error:
        kept = error.__traceback__
    try:
        raise KeyError("other").with_traceback(kept.tb_next)
    except KeyError as error:
        return x + 1, error.__traceback__.tb_next is kept.tb_next, error.__traceback__.tb_lineno


@pytest.mark.parametrize(
    "function",
    [
        lines_of_a_traceback,
        variables_of_a_failed_call,
        cleared_frames,
        walked,
        raised_again_with_a_traceback,
    ],
)
def test_tracebacks_are_followed(function):
    check(function, torch.ones(2))


def keeps_a_traceback(x):
    try:
        raises_inside(x, 1)
    except ValueError as error:
        return x + 1, error, error.__traceback__


def test_a_traceback_that_is_kept_is_the_exceptions_own():
    _, error, kept = pliant.compile(keeps_a_traceback, fullgraph=True)(torch.ones(2))
    assert error.__traceback__ is kept
    names = [entry.name for entry in traceback.extract_tb(kept)]
    assert names == ["keeps_a_traceback", "raises_inside", "raises_inside"]


def test_variables_of_frames_are_not_kept():
    class Thing:
        pass

    def holds(x, thing):
        raise ValueError

    def function(x, thing):
        try:
            holds(x, thing)
        except ValueError as error:
            kept = error
        return x + 1, kept.args

    thing = Thing()
    gone = weakref.ref(thing)
    gc.disable()
    try:
        pliant.compile(function, fullgraph=True)(torch.ones(2), thing)
        del thing
        assert gone() is None
    finally:
        gc.enable()


def changed_traceback(x):
    results = []
    try:
        raises_inside(x, 0)
    except ValueError as error:
        first = error.__traceback__
        try:
            raise KeyError
        except KeyError as other:
            second = other.__traceback__
            second.tb_next = first
            results.append(second.tb_next is first)
            for wrong in (second, 3):
                try:
                    first.tb_next = wrong
                except (ValueError, TypeError) as refused:
                    results.append(str(refused))
            second.tb_next = None
            results.append(second.tb_next)
    return x + 1, results


def test_tb_next_is_written():
    check(changed_traceback, torch.ones(2))
