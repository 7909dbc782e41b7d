"""Exceptions of the captured program: raised, caught, chained and left as in eager PyTorch."""

import sys

import pytest
import torch

from tests.support import asserting
from tests.support.against_eager import check
from tests.support.custom_errors import Child, Custom, Slotted
from tests.support.programs import Programs

program = Programs()
X = torch.arange(6.0).reshape(2, 3)


# ---- captured whole


@program(X)
def raised_and_caught(x):
    try:
        y = x + 1
        raise ValueError("no", 3)
    except ValueError as error:
        return y * error.args[1], str(error), error.args


@program(X)
def left_uncaught(x):
    y = x + 1
    raise ValueError(f"shape {tuple(y.shape)}")


@program(X)
def class_raised_without_call(x):
    if x.dim() == 2:
        raise KeyError


@program(X)
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


@program(X, [])
def finally_on_the_way_out(x, log):
    try:
        try:
            raise ValueError("a")
        finally:
            log.append("inner")
    finally:
        log.append(x.shape[0])
        x.add_(1)


@program(X)
def return_in_finally(x):
    try:
        raise ValueError("lost")
    finally:
        return x + 1  # noqa: B012


@program(X)
def return_in_try_and_finally(x):
    try:
        return x + 1
    finally:
        x.mul_(2)


@program(X)
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


@program(X)
def custom_class(x):
    try:
        raise Custom(x + 1, code=5)
    except Custom as error:
        return error.x * error.code, str(error), error.args


@program(X)
def custom_class_leaves(x):
    raise Custom(x, code=len(x))


@program(X)
def slotted_class_leaves(x):
    raise Slotted(x.shape[0])


@program(X)
def hierarchy(x):
    out = []
    for cls in (Child, Custom, KeyError):
        try:
            raise Child(x)
        except cls as error:
            out.append((type(error), isinstance(error, KeyError)))
    return out


@program(X)
def raised_in_callee_caught_in_caller(x):
    def inner(y, n):
        if n == 0:
            raise IndexError("deep")
        return inner(y + 1, n - 1)

    try:
        return inner(x, 3)
    except LookupError as error:
        return x - 1, str(error)


@program(X)
def raise_from(x):
    try:
        try:
            raise KeyError("first")
        except KeyError as error:
            raise ValueError("second") from error
    except ValueError as error:
        cause, context = error.__cause__, error.__context__
        return x, cause is context, repr(cause), error.__suppress_context__


@program(X)
def raise_from_leaves(x):
    try:
        raise KeyError("first")
    except KeyError as error:
        raise ValueError("second") from error


@program(X)
def raise_from_none_leaves(x):
    try:
        raise KeyError("first")
    except KeyError:
        raise ValueError("second") from None


@program(X)
def implicit_context(x):
    try:
        raise KeyError("first")
    except KeyError:
        try:
            raise ValueError("second")
        except ValueError as error:
            first = error.__context__
        return x, repr(first), first.__context__ is None


@program(X)
def context_from_the_caller(x):
    def helper():
        raise ValueError("second")

    try:
        raise KeyError("first")
    except KeyError:
        helper()


@program(X)
def context_of_an_error_in_a_handler(x):
    try:
        raise KeyError("first")
    except KeyError:
        return {}["second"]


@program(X)
def bare_raise(x):
    try:
        try:
            raise ValueError("v")
        except ValueError:
            x = x + 1
            raise
    except ValueError as error:
        return x, str(error)


@program(X)
def bare_raise_in_callee(x):
    def again():
        raise

    try:
        raise ValueError("v")
    except ValueError:
        again()


@program(X, breaks=None)
def bare_raise_without_exception(x):
    raise  # noqa: PLE0704


@program(X)
def raise_no_exception(x):
    raise 3  # noqa


@program(X)
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


@program(X)
def context_cycles_are_cut(x):
    a, b = ValueError("a"), KeyError("b")
    try:
        try:
            raise a
        except ValueError:
            raise b from None
    except KeyError:
        raise a  # noqa: B904


@program(X)
def exception_variable_is_deleted(x):
    error = 1
    try:
        raise ValueError
    except ValueError as error:
        pass
    return error


@program(X)
def exception_returned(x):
    try:
        raise Custom(x)
    except Custom as error:
        return error, [error]


@program(X)
def built_in_errors(x):
    out = []
    table, empty, nothing = {"a": 1}, [], None
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
        lambda: nothing(),
        lambda: empty[:, 0],
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


@program(X)
def bad_unpacking(x):
    out = []
    for values in ((1,), (1, 2, 3), 5, x):
        try:
            a, b = values
            out.append(a + b)
        except (ValueError, TypeError) as error:
            out.append(str(error))
    return out


program(X)(asserting.fails)
program(X)(asserting.fails_without_text)
program(X)(asserting.is_caught)
program(X, breaks=None)(asserting.depends_on_data)


@program(X)
def stop_iteration(x):
    rows = iter([x])
    first = next(rows)
    try:
        next(rows)
    except StopIteration as stop:
        return first, stop.value, next(rows, 7)


@program(X)
def stop_iteration_in_a_generator(x):
    def rows():
        yield x
        next(iter([]))

    return list(rows())


@program(X)
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


@program(X)
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


@program(X)
def wrong_match_class(x):
    try:
        raise ValueError("v")
    except 3:  # noqa
        return x


@program(X)
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


@program(X)
def exc_info(x):
    before = sys.exc_info()
    try:
        raise ValueError("v")
    except ValueError as error:
        kind, value, _ = sys.exc_info()
        return before, kind, value is error, x + 1


@program(X)
def notes(x):
    error = ValueError("v")
    error.add_note("look here")
    raise error


@program(X)
def attributes_of_exceptions(x):
    error = ValueError("a", 1)
    error.extra = x
    try:
        raise error
    except ValueError as caught:
        caught.more = caught.extra + 1
    raise error


@program(X)
def grad_mode_after_failure(x):
    with torch.no_grad():
        y = x + 1
        raise ValueError(str(y.requires_grad))


@pytest.mark.parametrize(("function", "args", "expected"), program.cases)
def test_same_as_eager(function, args, expected):
    check(function, *args, **expected)
