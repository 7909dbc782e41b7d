"""Exceptions across graph breaks, and those that PyTorch raises: all as in eager PyTorch."""

import sys
import traceback

import pytest
import torch

import pliant
from tests.support.against_eager import check, run, same_outcome
from tests.support.custom_errors import Custom, Slotted
from tests.support.programs import Programs, fail, note

program = Programs(breaks=None)
X = torch.arange(6.0).reshape(2, 3)


# ---- with breaks


@program(X, [])
def breaks_everywhere(x, log):
    note(log, "start")
    try:
        note(log, "try")
        x = x + 1
        raise ValueError("v")
    except ValueError as error:
        note(log, "except")
        x = x * 2
        note(log, str(error))
    else:
        note(log, "else")
    finally:
        note(log, "finally")
        x = x - 1
        note(log, "end")
    return x


@program(X, [])
def break_in_else(x, log):
    try:
        x = x + 1
        note(log, "try")
    except ValueError:
        note(log, "except")
    else:
        note(log, "else")
        x = x * 2
    finally:
        note(log, "finally")
    return x


@program(X, [])
def the_break_itself_raises(x, log):
    try:
        y = x + 1
        fail(KeyError("k"))
        y = y * 100
    except KeyError as error:
        note(log, repr(error))
        return y * 2, str(error)
    finally:
        note(log, "finally")


@program(X, [])
def raises_and_leaves(x, log):
    y = x + 1
    try:
        fail(Custom(y, code=7))
    finally:
        note(log, "finally")
        x.add_(1)


@program(X, [])
def raised_deep_caught_high(x, log):
    def low(y):
        try:
            fail(ValueError("low"))
        finally:
            note(log, "low finally")
        return y

    def mid(y):
        try:
            return low(y + 1) * 2
        except KeyError:
            note(log, "never")
        finally:
            note(log, "mid finally")

    try:
        return mid(x) + 1
    except ValueError as error:
        note(log, str(error))
        return x - 1


@program(X, [])
def bare_raise_after_a_break(x, log):
    try:
        try:
            raise ValueError("v")
        except ValueError:
            note(log, "handling")
            x = x + 1
            raise
    except ValueError as error:
        note(log, str(error))
        return x * 2, str(error), error.__context__ is None


@program(X, [])
def bare_raise_leaves_after_a_break(x, log):
    try:
        raise ValueError("v")
    except ValueError:
        note(log, "handling")
        x = x + 1
        raise


@program(X, [])
def raise_from_after_a_break(x, log):
    try:
        raise KeyError("first")
    except KeyError as error:
        note(log, "handling")
        x = x + 1
        raise ValueError("second") from error


@program(X, [])
def context_after_a_break(x, log):
    try:
        raise KeyError("first")
    except KeyError:
        note(log, "handling")
        raise ValueError("second")  # noqa: B904


@program(X, [])
def break_fails_in_a_handler(x, log):
    try:
        raise KeyError("first")
    except KeyError:
        fail(ValueError("second"))


@program(X, [])
def break_fails_in_a_callee_of_a_handler(x, log):
    def helper(y):
        z = y + 1
        fail(ValueError("second"))
        return z

    try:
        raise KeyError("first")
    except KeyError:
        return helper(x)


@program(X, [])
def handled_in_a_handler_of_a_break(x, log):
    try:
        fail(KeyError("first"))
    except KeyError:
        try:
            fail(ValueError("second"))
        except ValueError as error:
            note(log, repr(error.__context__))
            x = x + 1
        note(log, repr(sys.exc_info()[1]))
        raise


@program(X, [])
def exc_info_at_a_break(x, log):
    try:
        raise ValueError("v")
    except ValueError:
        x = x + 1
        note(log, repr(disabled_exc_info()))
    note(log, repr(disabled_exc_info()))
    return x


@pliant.disable
def disabled_exc_info():
    return sys.exc_info()[1]


@program(X, [])
def variable_live_across_a_break(x, log):
    saved = None
    try:
        raise Custom(x + 1, code=2)
    except Custom as error:
        note(log, error.code)
        saved = error
        error.code = 9
        note(log, error.code)
    note(log, str(saved))
    return saved.x, saved.code


@program(X, [])
def exception_made_before_raised_after(x, log):
    error = Slotted(x.shape[0])
    note(log, "made")
    try:
        raise error
    except ValueError as caught:
        note(log, caught.extra)
        return caught is error, x + 1


@program(X, [])
def loop_with_try(x, log):
    for i in range(4):
        try:
            if note(log, i) == 2:
                raise ValueError(i)
            if i == 3:
                break
            x = x + i
        except ValueError as error:
            note(log, repr(error))
            continue
        finally:
            note(log, "finally")
    return x, i


@program(X, [])
def return_in_finally_with_breaks(x, log):
    try:
        note(log, "try")
        fail(ValueError("lost"))
    finally:
        note(log, "finally")
        return x + 1  # noqa: B012


@program(X, [])
def return_through_finally(x, log):
    try:
        return x + note(log, "value")
    finally:
        x.add_(1)
        note(log, "finally")


@program(X, [])
def retry(x, log):
    attempts = 0
    while True:
        try:
            attempts += 1
            if note(log, attempts) < 3:
                raise OSError(attempts, "again")
            return x + attempts
        except OSError as error:
            note(log, error.errno)


@program(X, [])
def exception_groups(x, log):
    try:
        raise ExceptionGroup("many", [ValueError("a"), KeyError("b"), TypeError("c")])
    except* ValueError as group:
        note(log, [repr(e) for e in group.exceptions])
        x = x + 1
    except* (KeyError, TypeError) as group:
        note(log, len(group.exceptions))
        x = x * 2
    return x


@program(X, [])
def exception_groups_leave(x, log):
    try:
        raise ExceptionGroup("many", [ValueError("a"), KeyError("b")])
    except* ValueError:
        note(log, "value")


@program(X, [])
def data_dependent_raise(x, log):
    if x.sum() > 3:
        raise ValueError(f"sum {x.sum().item()}")
    return x


@program(X, [])
def print_the_traceback(x, log):
    try:
        raise ValueError("v")
    except ValueError:
        log.append(traceback.format_exc().splitlines()[-1])
    return x + 1


# ---- operations that PyTorch refuses


@program(X, torch.ones(4, 5))
def shapes_do_not_fit(x, y):
    return x @ y


@program(X, torch.ones(4, 5))
def shapes_do_not_fit_caught(x, y):
    try:
        return x + y
    except RuntimeError as error:
        return x * 2, str(error)


@program(X, torch.ones(4, 5))
def shapes_do_not_fit_in_a_callee(x, y):
    def inner(a, b):
        return torch.cat([a, b], dim=1)

    x.add_(1)
    try:
        return inner(x, y)
    finally:
        x.mul_(2)


@program(X)
def operation_refuses_arguments(x):
    out = []
    for action in (
        lambda: x.view(7),
        lambda: x.sum(dim=5),
        lambda: torch.add(x),
        lambda: torch.zeros(-1),
        lambda: x.reshape("a"),
        lambda: torch.nn.functional.linear(x, x.t()),
    ):
        try:
            action()
        except Exception as error:
            out.append((type(error).__name__, str(error)))
    return out


@program(X)
def more_refused_arguments(x):
    out = []
    for action in (
        lambda: x[5],
        lambda: x[0, 0, 0],
        lambda: torch.nosuch(x),
        lambda: x.nosuch(),
        lambda: x + "a",
        lambda: torch.stack([]),
    ):
        try:
            action()
        except Exception as error:
            out.append((type(error).__name__, str(error)))
    return out


@program(X, torch.tensor([7]))
def fails_at_run_time(x, index):
    return x[index] + 1


@program(X, torch.tensor([7]))
def fails_at_run_time_caught(x, index):
    y = x * 2
    try:
        y = y[index] + 1
    except IndexError as error:
        return y - 1, str(error)
    return y


@program(X, torch.tensor([7]), [])
def fails_at_run_time_after_effects(x, index, log):
    log.append("before")
    with torch.no_grad():
        try:
            y = x[index]
        except IndexError:
            log.append("caught")
            y = x
    log.append(torch.is_grad_enabled())
    return y + 1


@program(X, torch.tensor([7]), [])
def fails_at_run_time_after_a_write(x, index, log):
    x.add_(1)
    log.append("before")
    try:
        y = x[index]
    except IndexError:
        log.append("caught")
        y = x * 3
    return y + 1


@program(X, torch.tensor([7]), [])
def fails_at_run_time_after_a_break(x, index, log):
    try:
        y = x + 1
        note(log, "a")
        y = y[index]
        note(log, "never")
    except IndexError as error:
        note(log, str(error))
        y = x
    return y * 2


@pytest.mark.parametrize(("function", "args", "expected"), program.cases)
def test_same_as_eager(function, args, expected):
    check(function, *args, **expected)


# ---- called where the caller handles an exception


def raises(x):
    raise ValueError("inner")


def raises_chained(x):
    try:
        raise ValueError("inner")
    except ValueError:
        raise TypeError("last")  # noqa: B904


def raises_what_is_handled(x):
    raise  # noqa: PLE0704


def asks_what_is_handled(x):
    return repr(sys.exc_info()[1]), x + 1


def raises_after_a_break(x):
    note([], "a")
    raise ValueError("inner")


def called_in_a_handler(function):
    try:
        raise KeyError("outer")
    except KeyError:
        return function(X)


@pytest.mark.parametrize(
    "function",
    [
        raises,
        raises_chained,
        raises_what_is_handled,
        asks_what_is_handled,
        raises_after_a_break,
    ],
)
def test_called_in_a_handler(function):
    compiled = pliant.compile(function)
    for caller in (called_in_a_handler, lambda function: function(X)):
        expected = run(lambda: caller(function), ())
        same_outcome(run(lambda: caller(compiled), ()), expected)
