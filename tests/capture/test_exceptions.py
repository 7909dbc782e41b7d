"""Exceptions of the captured program: raised, caught, chained and left as in eager PyTorch."""

import sys
import traceback

import pytest
import torch

import pliant
from tests.support import asserting
from tests.support.against_eager import check

CASES = []


def case(*args, **expected):
    """Register a program, the arguments to call it with, and what `check` is to expect."""

    def register(function):
        CASES.append(pytest.param(function, args, expected, id=function.__name__))
        return function

    return register


@pliant.disable
def note(log, what):
    """An operation that breaks the graph and whose time matters."""
    log.append(what)
    return len(log)


@pliant.disable
def fail(error):
    raise error


X = torch.arange(6.0).reshape(2, 3)


class Custom(Exception):
    def __init__(self, x, *, code=3):
        super().__init__(f"custom {code}")
        self.x = x
        self.code = code

    def __str__(self):
        return f"Custom with {self.code}"


class Slotted(ValueError):
    __slots__ = ("extra",)

    def __init__(self, extra):
        super().__init__("slotted", extra)
        self.extra = extra


class Child(Custom, KeyError):
    pass


# ---- captured whole


@case(X)
def raised_and_caught(x):
    try:
        y = x + 1
        raise ValueError("no", 3)
    except ValueError as error:
        return y * error.args[1], str(error), error.args


@case(X)
def left_uncaught(x):
    y = x + 1
    raise ValueError(f"shape {tuple(y.shape)}")


@case(X)
def class_raised_without_call(x):
    if x.dim() == 2:
        raise KeyError


@case(X)
def else_and_finally(x):
    steps = []
    for error in (None, ValueError("v"), KeyError("k")):
        try:
            steps.append("try")
            if error is not None:
                raise error
        except ValueError:
            steps.append("except")
            x = x + 1
        except (KeyError, IndexError) as caught:
            steps.append(repr(caught))
        else:
            steps.append("else")
            x = x * 2
        finally:
            steps.append("finally")
            x = x - 1
    return x, steps


@case(X, [])
def finally_on_the_way_out(x, log):
    try:
        try:
            raise ValueError("a")
        finally:
            log.append("inner")
    finally:
        log.append(x.shape[0])
        x.add_(1)


@case(X)
def return_in_finally(x):
    try:
        raise ValueError("lost")
    finally:
        return x + 1  # noqa: B012


@case(X)
def return_in_try_and_finally(x):
    try:
        return x + 1
    finally:
        x.mul_(2)


@case(X)
def break_and_continue_in_finally(x):
    out = []
    for i in range(4):
        try:
            if i == 1:
                continue
            if i == 3:
                break
            out.append(x + i)
        finally:
            out.append(i)
    return out


@case(X)
def custom_class(x):
    try:
        raise Custom(x + 1, code=5)
    except Custom as error:
        return error.x * error.code, str(error), error.args


@case(X)
def custom_class_leaves(x):
    raise Custom(x, code=len(x))


@case(X)
def slotted_class_leaves(x):
    raise Slotted(x.shape[0])


@case(X)
def hierarchy(x):
    out = []
    for cls in (Child, Custom, KeyError):
        try:
            raise Child(x)
        except cls as error:
            out.append((type(error), isinstance(error, KeyError)))
    return out


@case(X)
def raised_in_callee_caught_in_caller(x):
    def inner(y, n):
        if n == 0:
            raise IndexError("deep")
        return inner(y + 1, n - 1)

    try:
        return inner(x, 3)
    except LookupError as error:
        return x - 1, str(error)


@case(X)
def raise_from(x):
    try:
        try:
            raise KeyError("first")
        except KeyError as error:
            raise ValueError("second") from error
    except ValueError as error:
        cause, context = error.__cause__, error.__context__
        return x, cause is context, repr(cause), error.__suppress_context__


@case(X)
def raise_from_leaves(x):
    try:
        raise KeyError("first")
    except KeyError as error:
        raise ValueError("second") from error


@case(X)
def raise_from_none_leaves(x):
    try:
        raise KeyError("first")
    except KeyError:
        raise ValueError("second") from None


@case(X)
def implicit_context(x):
    try:
        raise KeyError("first")
    except KeyError:
        try:
            raise ValueError("second")
        except ValueError as error:
            first = error.__context__
        return x, repr(first), first.__context__ is None


@case(X)
def context_from_the_caller(x):
    def helper():
        raise ValueError("second")

    try:
        raise KeyError("first")
    except KeyError:
        helper()


@case(X)
def context_of_an_error_in_a_handler(x):
    try:
        raise KeyError("first")
    except KeyError:
        return {}["second"]


@case(X)
def bare_raise(x):
    try:
        try:
            raise ValueError("v")
        except ValueError:
            x = x + 1
            raise
    except ValueError as error:
        return x, str(error)


@case(X)
def bare_raise_in_callee(x):
    def again():
        raise

    try:
        raise ValueError("v")
    except ValueError:
        again()


@case(X, breaks=None)
def bare_raise_without_exception(x):
    raise  # noqa: PLE0704


@case(X)
def raise_no_exception(x):
    raise 3  # noqa


@case(X)
def same_exception_raised_again(x):
    kept = None
    try:
        raise ValueError("v")
    except ValueError as error:
        kept = error
    try:
        raise kept
    except ValueError as error:
        return x, kept is error, error.__context__ is None


@case(X)
def context_cycles_are_cut(x):
    a, b = ValueError("a"), KeyError("b")
    try:
        try:
            raise a
        except ValueError:
            raise b from None
    except KeyError:
        raise a  # noqa: B904


@case(X)
def exception_variable_is_deleted(x):
    error = 1
    try:
        raise ValueError
    except ValueError as error:
        pass
    return error


@case(X)
def exception_returned(x):
    try:
        raise Custom(x)
    except Custom as error:
        return error, [error]


@case(X)
def built_in_errors(x):
    out = []
    table = {"a": 1}
    for action in (
        lambda: table["b"],
        lambda: [1, 2][5],
        lambda: (1, 2)[x.dim()],
        lambda: 1 // 0,
        lambda: 1.0 / 0,
        lambda: 1 % 0,
        lambda: int("x"),
        lambda: "a" + 1,
        lambda: len(3),
        lambda: x.missing,
        lambda: undefined_name,  # noqa: F821
        lambda: [].missing,
        lambda: next(iter([])),
        lambda: 3 in 3,
        lambda: None(),
        lambda: [][:, 0],
        lambda: -"a",
        lambda: {}[[]],
        lambda: "abc".index("x"),
        lambda: [1].remove(2),
        lambda: {}.pop("k"),
        lambda: [].pop(),
        lambda: float("q"),
        lambda: sum(["a"]),
        lambda: max([]),
        lambda: None.x,
    ):
        try:
            action()
        except Exception as error:
            out.append((type(error).__name__, str(error), error.args))
    return out


@case(X)
def bad_unpacking(x):
    out = []
    for values in ((1,), (1, 2, 3), 5, x):
        try:
            a, b = values
            out.append(a + b)
        except (ValueError, TypeError) as error:
            out.append(str(error))
    return out


case(X)(asserting.fails)
case(X)(asserting.fails_without_text)
case(X)(asserting.is_caught)
case(X, breaks=None)(asserting.depends_on_data)


@case(X)
def stop_iteration(x):
    rows = iter([x])
    first = next(rows)
    try:
        next(rows)
    except StopIteration as stop:
        return first, stop.value, next(rows, 7)


@case(X)
def stop_iteration_in_a_generator(x):
    def rows():
        yield x
        next(iter([]))

    return list(rows())


@case(X)
def stop_iteration_value(x):
    def rows():
        yield x
        return x + 1

    g = rows()
    next(g)
    try:
        next(g)
    except StopIteration as stop:
        return stop.value


@case(X)
def exception_through_a_generator(x):
    def rows():
        try:
            yield x
            raise KeyError("inside")
        finally:
            x.add_(1)

    out = []
    try:
        for row in rows():
            out.append(row)
    except KeyError as error:
        out.append(str(error))
    return out


@case(X)
def wrong_match_class(x):
    try:
        raise ValueError("v")
    except 3:  # noqa
        return x


@case(X)
def nested_handlers(x):
    out = []
    try:
        try:
            raise KeyError("a")
        except KeyError as a:
            try:
                raise ValueError("b") from a
            except ValueError as b:
                out.append((repr(b.__cause__), repr(b.__context__)))
                raise TypeError("c") from b
            finally:
                out.append("finally")
    except TypeError as c:
        out.append((repr(c.__cause__), repr(c.__context__.__context__)))
    return out, x + 1


@case(X)
def exc_info(x):
    before = sys.exc_info()
    try:
        raise ValueError("v")
    except ValueError as error:
        kind, value, _ = sys.exc_info()
        return before, kind, value is error, x + 1


@case(X)
def notes(x):
    error = ValueError("v")
    error.add_note("look here")
    raise error


@case(X)
def attributes_of_exceptions(x):
    error = ValueError("a", 1)
    error.extra = x
    try:
        raise error
    except ValueError as caught:
        caught.more = caught.extra + 1
    raise error


@case(X)
def grad_mode_after_failure(x):
    with torch.no_grad():
        y = x + 1
        raise ValueError(str(y.requires_grad))


# ---- with breaks


@case(X, [], breaks=None)
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


@case(X, [], breaks=None)
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


@case(X, [], breaks=None)
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


@case(X, [], breaks=None)
def raises_and_leaves(x, log):
    y = x + 1
    try:
        fail(Custom(y, code=7))
    finally:
        note(log, "finally")
        x.add_(1)


@case(X, [], breaks=None)
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


@case(X, [], breaks=None)
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


@case(X, [], breaks=None)
def bare_raise_leaves_after_a_break(x, log):
    try:
        raise ValueError("v")
    except ValueError:
        note(log, "handling")
        x = x + 1
        raise


@case(X, [], breaks=None)
def raise_from_after_a_break(x, log):
    try:
        raise KeyError("first")
    except KeyError as error:
        note(log, "handling")
        x = x + 1
        raise ValueError("second") from error


@case(X, [], breaks=None)
def context_after_a_break(x, log):
    try:
        raise KeyError("first")
    except KeyError:
        note(log, "handling")
        raise ValueError("second")  # noqa: B904


@case(X, [], breaks=None)
def break_fails_in_a_handler(x, log):
    try:
        raise KeyError("first")
    except KeyError:
        fail(ValueError("second"))


@case(X, [], breaks=None)
def break_fails_in_a_callee_of_a_handler(x, log):
    def helper(y):
        z = y + 1
        fail(ValueError("second"))
        return z

    try:
        raise KeyError("first")
    except KeyError:
        return helper(x)


@case(X, [], breaks=None)
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


@case(X, [], breaks=None)
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


@case(X, [], breaks=None)
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


@case(X, [], breaks=None)
def exception_made_before_raised_after(x, log):
    error = Slotted(x.shape[0])
    note(log, "made")
    try:
        raise error
    except ValueError as caught:
        note(log, caught.extra)
        return caught is error, x + 1


@case(X, [], breaks=None)
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


@case(X, [], breaks=None)
def return_in_finally_with_breaks(x, log):
    try:
        note(log, "try")
        fail(ValueError("lost"))
    finally:
        note(log, "finally")
        return x + 1  # noqa: B012


@case(X, [], breaks=None)
def return_through_finally(x, log):
    try:
        return x + note(log, "value")
    finally:
        x.add_(1)
        note(log, "finally")


@case(X, [], breaks=None)
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


@case(X, [], breaks=None)
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


@case(X, [], breaks=None)
def exception_groups_leave(x, log):
    try:
        raise ExceptionGroup("many", [ValueError("a"), KeyError("b")])
    except* ValueError:
        note(log, "value")


@case(X, [], breaks=None)
def data_dependent_raise(x, log):
    if x.sum() > 3:
        raise ValueError(f"sum {x.sum().item()}")
    return x


@case(X, [], breaks=None)
def print_the_traceback(x, log):
    try:
        raise ValueError("v")
    except ValueError:
        log.append(traceback.format_exc().splitlines()[-1])
    return x + 1


# ---- operations that PyTorch refuses


@case(X, torch.ones(4, 5), breaks=None)
def shapes_do_not_fit(x, y):
    return x @ y


@case(X, torch.ones(4, 5), breaks=None)
def shapes_do_not_fit_caught(x, y):
    try:
        return x + y
    except RuntimeError as error:
        return x * 2, str(error)


@case(X, torch.ones(4, 5), breaks=None)
def shapes_do_not_fit_in_a_callee(x, y):
    def inner(a, b):
        return torch.cat([a, b], dim=1)

    x.add_(1)
    try:
        return inner(x, y)
    finally:
        x.mul_(2)


@case(X, breaks=None)
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


@case(X, breaks=None)
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


@case(X, torch.tensor([7]))
def fails_at_run_time(x, index):
    return x[index] + 1


@case(X, torch.tensor([7]))
def fails_at_run_time_caught(x, index):
    y = x * 2
    try:
        y = y[index] + 1
    except IndexError as error:
        return y - 1, str(error)
    return y


@case(X, torch.tensor([7]), [])
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


@case(X, torch.tensor([7]), [])
def fails_at_run_time_after_a_write(x, index, log):
    x.add_(1)
    log.append("before")
    try:
        y = x[index]
    except IndexError:
        log.append("caught")
        y = x * 3
    return y + 1


@case(X, torch.tensor([7]), [], breaks=None)
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


@pytest.mark.parametrize(("function", "args", "expected"), CASES)
def test_same_as_eager(function, args, expected):
    check(function, *args, **expected)
