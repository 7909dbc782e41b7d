"""Exceptions: what they carry, how they are chained, where they are caught."""

from __future__ import annotations

import abc
import contextlib
import json
import math
import sys

import pytest
import torch

from tests.support.against_eager import check

X = torch.arange(1.0, 4.0)


class Abstract(Exception, metaclass=abc.ABCMeta):
    pass


@Abstract.register
class Registered(Exception):
    pass


class MyErr(Exception):
    def __init__(self, code, msg="m"):
        super().__init__(msg)
        self.code = code


class MyErr2(ValueError):
    def __init__(self, a, b):
        self.a = a
        self.b = b

    def __str__(self):
        return f"{self.a}-{self.b}"


def does_exc_custom(x):
    try:
        raise MyErr(3, "hello")
    except MyErr as e:
        return x + e.code, str(e), e.args


def does_exc_custom_out(x):
    raise MyErr(3, "hello")


def does_exc_custom2_out(x):
    raise MyErr2(3, x)


def does_exc_custom2(x):
    try:
        raise MyErr2(3, 4)
    except ValueError as e:
        return x, str(e), e.a, e.args, repr(e)


def does_exc_chain(x):
    try:
        try:
            1 / 0
        except ZeroDivisionError as e:
            raise ValueError("v") from e
    except ValueError as e:
        return x, type(e.__cause__), type(e.__context__), e.__suppress_context__


def does_exc_chain_out(x):
    try:
        1 / 0
    except ZeroDivisionError as e:
        raise ValueError("v") from e


def does_exc_from_none(x):
    try:
        {}["a"]
    except KeyError:
        raise ValueError("v") from None


def does_exc_context_out(x):
    try:
        [][0]
    except IndexError:
        raise RuntimeError("r")


def does_exc_notes(x):
    e = ValueError("a")
    e.add_note("n1")
    e.add_note("n2")
    return x, e.__notes__


def does_exc_notes_out(x):
    e = ValueError("a")
    e.add_note("n1")
    raise e


def does_exc_group(x):
    r = []
    try:
        raise ExceptionGroup("g", [ValueError(1), TypeError(2)])
    except* ValueError as eg:
        r.append(len(eg.exceptions))
    except* TypeError as eg:
        r.append(eg.exceptions[0].args)
    return x, r


def does_exc_group_split(x):
    g = ExceptionGroup("g", [ValueError(1), ExceptionGroup("h", [TypeError(2)])])
    m, rest = g.split(TypeError)
    return x, repr(m), repr(rest), g.subgroup(KeyError), str(g)


def does_exc_group_out(x):
    raise ExceptionGroup("g", [ValueError(1), TypeError(2)])


def does_exc_finally(x):
    l = []

    def f():
        try:
            return 1
        finally:
            l.append(2)

    return x + f(), l


def does_exc_else(x):
    l = []
    try:
        pass
    except Exception:
        l.append(1)
    else:
        l.append(2)
    finally:
        l.append(3)
    return x, l


def does_exc_finally_override(x):
    def f():
        try:
            raise ValueError
        finally:
            return 3

    return x + f()


def does_exc_reraise(x):
    try:
        try:
            raise KeyError("a")
        except KeyError:
            raise
    except KeyError as e:
        return x, str(e), e.__context__


def does_exc_tuple(x):
    try:
        int("z")
    except (KeyError, ValueError) as e:
        return x, str(e)


def does_exc_unbound(x):
    try:
        raise ValueError
    except ValueError as e:
        pass
    try:
        e  # noqa: F821
    except UnboundLocalError as u:
        return x, str(u)


def does_exc_nameerr(x):
    try:
        undefined_name_q
    except NameError as e:
        return x, str(e), e.name


def does_exc_attr(x):
    try:
        (3).foo
    except AttributeError as e:
        return x, str(e), e.name, e.obj


def does_exc_keyerr(x):
    try:
        {1: 2}["k"]
    except LookupError as e:
        return x, str(e), repr(e)


def does_exc_tensor_attr(x):
    try:
        x.foo_bar
    except AttributeError as e:
        return x, str(e)


def does_exc_traceback(x):
    try:
        raise ValueError("a")
    except ValueError as e:
        return x, e.__traceback__ is not None, e.with_traceback(None) is e


def does_exc_sysinfo(x):
    try:
        raise ValueError("a")
    except ValueError:
        return x, sys.exc_info()[0], str(sys.exc_info()[1]), sys.exception() is sys.exc_info()[1]


def does_exc_oserror(x):
    e = OSError(2, "no", "file")
    return x, type(e), e.errno, e.strerror, e.filename, str(e)


def does_exc_stopiter(x):
    e = StopIteration(3)
    return x, e.value


def does_exc_unicode(x):
    try:
        b"\xff".decode("utf-8")
    except UnicodeDecodeError as e:
        return x, e.reason, e.start, e.encoding


def does_exc_unicode_out(x):
    return b"\xff".decode("utf-8")


def does_exc_systemexit(x):
    try:
        sys.exit(3)
    except SystemExit as e:
        return x, e.code


def does_exc_json(x):

    try:
        json.loads("{")
    except json.JSONDecodeError as e:
        return x, e.pos, e.lineno, str(e)


def does_exc_json_out(x):

    json.loads("{")


def does_exc_overflow(x):
    try:
        math.exp(1000)
    except OverflowError as e:
        return x, str(e)


def does_exc_class_state(x):
    class E(Exception):
        def __init__(self, a, *, b):
            super().__init__(a)
            self.b = b

    try:
        raise E(1, b=x)
    except E as e:
        return e.b + e.args[0]


def does_exc_nested_finally(x):
    l = []
    for i in range(3):
        try:
            if i == 1:
                continue
            l.append(i)
        finally:
            l.append("f")
    return x, l


def does_exc_in_except(x):
    try:
        try:
            raise ValueError("a")
        except ValueError:
            {}["z"]
    except KeyError as e:
        return x, str(e.__context__)


def does_exc_eq(x):
    return (
        x,
        ValueError("a") == ValueError("a"),
        isinstance(ValueError(), Exception),
        issubclass(KeyError, LookupError),
    )


def does_exc_raise_class(x):
    raise KeyError


def does_exc_raise_bad(x):
    try:
        raise 3
    except TypeError as e:
        return x, str(e)


def does_fail_in_a_call_with_keywords(x):
    def fails(*, a):
        raise ValueError(a)

    try:
        fails(a=x)
    except ValueError as error:
        y = error.args[0]
    return torch.add(x, y, alpha=2), str(len([y]))


def does_refuse_arguments(x):
    def f(a, /, b, *, c=3):
        return a + b + c

    result = f(x, 1), f(x, b=2, c=5)
    try:
        f(a=1, b=2)
    except TypeError as error:
        return result, str(error)


def does_keep_the_name_and_object(x):
    try:
        x.nothing
    except AttributeError as error:
        return x, error.name, error.obj is x, str(error)


def does_catch_by_base_classes_only(x):
    try:
        try:
            raise Registered("r")
        except (KeyError, Abstract):
            x = x + 1
    except Registered as error:
        return x, isinstance(error, Abstract)


def does_not_catch_registered_classes_in_groups(x):
    try:
        try:
            raise ExceptionGroup("g", [Registered("r"), ValueError("v")])
        except* Abstract:
            x = x + 1
    except ExceptionGroup as group:
        return x, repr(group), group.split(Abstract)[0]


def does_suppress_as_subclasses(x):
    with contextlib.suppress(Abstract):
        raise Registered("r")
    return x + 1


def does_check_all_classes_first(x):
    try:
        try:
            raise ValueError("v")
        except (ValueError, 3):
            x = x + 1
    except TypeError as error:
        return x, str(error)


def does_refuse_tuples_of_tuples(x):
    try:
        try:
            raise ValueError("v")
        except (KeyError, (ValueError, TypeError)):
            x = x + 1
    except TypeError as error:
        return x, str(error)


def does_refuse_what_is_no_class_in_a_group(x):
    try:
        try:
            raise ValueError("v")
        except* 3:
            x = x + 1
    except BaseExceptionGroup as group:
        return x, repr(group)
    except TypeError as error:
        return x, str(error)


PROGRAMS = [value for name, value in list(globals().items()) if name.startswith("does_")]


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.__name__[5:])
def test_same_as_eager(program):
    check(program, X)
