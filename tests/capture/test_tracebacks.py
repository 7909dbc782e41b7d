"""Tracebacks name the user's lines and functions, as eager PyTorch's do, and none of pliant's."""

import contextlib
import gc
import os
import traceback
import weakref

import pytest
import torch

import pliant

OURS = os.path.dirname(pliant.__file__) + os.sep

X = torch.arange(6.0).reshape(2, 3)
CASES = []


def case(*args):
    def register(function):
        CASES.append(pytest.param(function, args, id=function.__name__))
        return function

    return register


@pliant.disable
def note(log, what):
    log.append(what)


@pliant.disable
def fail(error):
    raise error


def entries(error, seen=()):
    """Where the traceback goes in this file, of the error and of those behind it."""
    if error is None or error in seen:
        return None
    places = [
        (entry.name, entry.lineno, entry.colno, entry.end_colno)
        for entry in traceback.extract_tb(error.__traceback__)
        if entry.filename == __file__ and entry.name != "raised_by"
    ]
    behind = [entries(each, (*seen, error)) for each in (error.__cause__, error.__context__)]
    return [type(error).__name__, places, *behind]


def raised_by(function, args):
    try:
        function(*args)
    except Exception as error:
        return error
    raise AssertionError("nothing was raised")


# ---- captured whole


@case(X)
def raised(x):
    y = x + 1
    raise ValueError(y.shape)


def thrower(x, n):
    if n == 0:
        raise KeyError("deep")
    return thrower(x + 1, n - 1)


@case(X)
def raised_in_callees(x):
    y = x * 2
    z = thrower(y, 2) + 1
    return z


@case(X)
def raised_in_a_comprehension(x):
    return [thrower(row, 0) for row in x]


@case(X)
def raised_by_python(x):
    y = x + 1
    return y[{"a": 1}["b"]]


@case(X)
def raised_again(x):
    try:
        thrower(x, 1)
    except KeyError:
        y = x + 1
        raise
    return y


@case(X)
def raised_again_by_name(x):
    try:
        thrower(x, 1)
    except KeyError as error:
        raise error


@case(X)
def left_through_finally_and_with(x):
    try:
        with torch.no_grad():
            with contextlib.nullcontext():
                thrower(x, 0)
    finally:
        x = x + 1


@case(X)
def chained(x):
    try:
        thrower(x, 1)
    except KeyError as error:
        raise ValueError("other") from error


@case(X)
def with_context(x):
    try:
        thrower(x, 1)
    except KeyError:
        thrower(x, 0)


@case(X)
def out_of_a_generator(x):
    def rows():
        yield x
        raise ValueError("inside")

    for row in rows():
        x = x + row


@case(X)
def thrown_into_a_generator(x):
    def rows():
        yield x
        yield x + 1

    g = rows()
    next(g)
    g.throw(ValueError("thrown"))


# ---- at and after breaks


@case(X, [])
def the_break_raises(x, log):
    y = x + 1
    fail(ValueError("here"))
    return y


@case(X, [])
def raised_after_a_break(x, log):
    note(log, "a")
    y = x + 1
    raise ValueError(y.shape)


def breaking(x, log, n):
    if n == 0:
        note(log, "bottom")
        raise KeyError("deep")
    y = breaking(x + 1, log, n - 1)
    return y + 1


def calling(x, log):
    return breaking(x, log, 1)


@case(X, [])
def raised_after_a_deep_break(x, log):
    y = calling(x * 2, log)
    return y + 1


@case(X, [])
def the_deep_break_raises(x, log):
    def inner(y):
        return fail(ValueError("inner"))

    return inner(x + 1) + 1


@case(X, [])
def caught_and_raised_again(x, log):
    try:
        calling(x, log)
    except KeyError:
        note(log, "caught")
        raise


@case(X, [])
def caught_from_the_break_and_raised_again(x, log):
    def inner(y):
        z = y + 1
        fail(ValueError("inner"))
        return z

    try:
        inner(x)
    except ValueError:
        note(log, "caught")
        x = x + 1
        raise


@case(X, [])
def contexts_across_breaks(x, log):
    try:
        thrower(x, 1)
    except KeyError:
        note(log, "handling")
        fail(ValueError("second"))


@case(X, [])
def causes_across_breaks(x, log):
    try:
        fail(KeyError("first"))
    except KeyError as error:
        note(log, "handling")
        raise ValueError("second") from error


@case(X, [])
def in_a_loop_after_many_breaks(x, log):
    for i in range(3):
        note(log, i)
        x = x + i
        if i == 2:
            thrower(x, 0)


@case(X, [])
def in_with_after_a_break(x, log):
    with torch.no_grad():
        note(log, "in")
        y = x + 1
        raise ValueError(str(y.shape))


@case(X, [])
def with_cells(x, log):
    def use():
        note(log, "use")
        return thrower(x, 0)

    note(log, "a")
    return use()


@case(X, [])
def in_a_comprehension_with_breaks(x, log):
    return [thrower(row, note(log, i) or 0) for i, row in enumerate(x)]


@case(X, [])
def in_a_generator_with_breaks(x, log):
    def rows():
        note(log, "first")
        yield x
        raise ValueError("inside")

    for row in rows():
        x = x + row


# ---- operations of PyTorch


@case(X, torch.ones(4, 5))
def refused_operation(x, y):
    z = x * 2
    return z @ y


@case(X, torch.ones(4, 5))
def refused_in_a_callee(x, y):
    def inner(a, b):
        return torch.cat([a, b], dim=1)

    return inner(x, y) + 1


@case(X, torch.tensor([7]))
def fails_at_run_time(x, index):
    y = x * 2
    return y[index] + 1


@case(X, torch.tensor([7]))
def fails_at_run_time_in_a_callee(x, index):
    def inner(a):
        return a[index]

    return inner(x) + 1


@case(X, torch.tensor([7]))
def fails_at_run_time_after_a_write(x, index):
    x.add_(1)
    y = x + 1
    return y[index]


@case(X, torch.tensor([7]), [])
def fails_at_run_time_after_a_break(x, index, log):
    note(log, "a")
    y = x + 1
    return y[index]


def refused_shapes(x):
    return x @ x


def fails_at_run_time_in_try(x):
    try:
        return x[torch.tensor([7])]
    finally:
        x = x + 1


@pytest.mark.parametrize(("function", "args"), CASES)
def test_same_lines_as_eager(function, args):
    compiled = pliant.compile(function)
    for _ in range(2):
        expected, actual = raised_by(function, args), raised_by(compiled, args)
        assert type(actual) is type(expected)
        assert str(actual) == str(expected)
        assert entries(actual) == entries(expected)
        for entry in traceback.extract_tb(actual.__traceback__):
            assert not entry.filename.startswith((OURS, "<"))


def prints_its_traceback(x, log):
    try:
        thrower(x, 1)
    except KeyError:
        log.append(traceback.format_exc())
    try:
        open("no such file")
    except OSError:
        log.append(traceback.format_exc())
    return x + 1


@pytest.mark.parametrize("function", [raised, chained, refused_shapes, fails_at_run_time_in_try])
def test_exceptions_are_freed_at_once(function):
    """No cycle through the traceback keeps the user's tensors alive."""
    compiled = pliant.compile(function)
    raised_by(compiled, (X,))
    gc.collect()
    gc.disable()
    try:
        x = X.clone()
        error = raised_by(compiled, (x,))
        error.tensor = x
        kept = weakref.ref(x)
        del error, x
        assert kept() is None
    finally:
        gc.enable()


def test_traceback_printed_by_the_program():
    expected, actual = [], []
    prints_its_traceback(X, expected)
    pliant.compile(prints_its_traceback)(X, actual)
    assert actual == expected


def test_text_of_the_whole_traceback():
    """What Python prints: the user's source lines and carets, and nothing of ours."""
    expected = raised_by(chained, (X,))
    actual = raised_by(pliant.compile(chained), (X,))
    assert shown(actual) == shown(expected)


def shown(error):
    return "".join(traceback.format_exception(error))
