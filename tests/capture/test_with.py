"""`with` blocks: contexts entered, left, swallowing exceptions, and entered again after a break."""

import collections
import contextlib

import pytest
import torch

from tests.support.against_eager import check
from tests.support.programs import Programs, fail, note

program = Programs()
X = torch.arange(6.0).reshape(2, 3)
W = torch.ones(2, 3, requires_grad=True)


class Manager:
    """Keeps a log; swallows the exceptions given."""

    def __init__(self, log, *swallowed):
        self.log = log
        self.swallowed = swallowed

    def __enter__(self):
        self.log.append("enter")
        return self

    def __exit__(self, kind, error, traceback):
        self.log.append(("exit", kind, str(error), traceback is None))
        return kind is not None and issubclass(kind, self.swallowed)


class Breaking(Manager):
    """Breaks the graph on the way in and out."""

    def __enter__(self):
        note(self.log, "enter")
        return super().__enter__()

    def __exit__(self, kind, error, traceback):
        note(self.log, "exit")
        return super().__exit__(kind, error, traceback)


@contextlib.contextmanager
def noted(log, swallowed=()):
    log.append("enter")
    try:
        yield len(log)
    except swallowed as error:
        log.append(repr(error))
    finally:
        log.append("exit")


@contextlib.contextmanager
def breaking(log):
    note(log, "enter")
    try:
        yield log
    finally:
        note(log, "exit")


# ---- captured whole


@program(W)
def no_grad(x):
    with torch.no_grad():
        y = x * 2
    z = x * 3
    return y, z, y.requires_grad, z.requires_grad


@program(W)
def nested_grad_modes(x):
    out = []
    with torch.no_grad():
        out.append(x * 2)
        with torch.enable_grad():
            out.append(x * 3)
            with torch.set_grad_enabled(False):
                out.append(x * 4)
            out.append(torch.is_grad_enabled())
        out.append(torch.is_grad_enabled())
    return out


@program(X)
def autocast(x):
    with torch.autocast("cpu", dtype=torch.bfloat16):
        y = x @ x.t()
        with torch.autocast("cpu", enabled=False):
            z = x @ x.t()
    return y, z, x @ x.t()


@program(X, [])
def user_class(x, log):
    with Manager(log) as manager:
        y = x + 1
        manager.extra = y
    return manager.extra * 2


@program(X, [])
def several_at_once(x, log):
    with Manager(log) as a, noted(log) as b, torch.no_grad():
        return x + b, a.log is log


@program(X, [])
def exception_swallowed(x, log):
    with Manager(log, ValueError):
        x = x + 1
        raise ValueError("v")
    return x * 2


@program(X, [])
def exception_not_swallowed(x, log):
    with Manager(log, KeyError):
        x.add_(1)
        raise ValueError("v")


@program(X, [])
def contextmanager_generator(x, log):
    with noted(log, ValueError) as n:
        x = x * n
        raise ValueError("v")
    with noted(log):
        return x + 1


@program(X, [])
def contextmanager_lets_through(x, log):
    try:
        with noted(log, KeyError):
            raise ValueError("v")
    except ValueError as error:
        log.append(repr(error))
    return x + 1


@program(X, [])
def suppress_and_nullcontext(x, log):
    with contextlib.suppress(KeyError, IndexError):
        log.append("before")
        raise IndexError("i")
    with contextlib.nullcontext(x + 1) as y:
        log.append("in")
    return y


@program(X, [], breaks=None)
def exit_stack(x, log):
    with contextlib.ExitStack() as stack:
        n = stack.enter_context(noted(log))
        stack.enter_context(Manager(log))
        stack.callback(log.append, "callback")
        y = x + n
    return y


@program(W, breaks=None)
def decorators(x):
    @torch.no_grad()
    def double(v):
        return v * 2

    return double(x), x * 3


@program(X, [])
def return_break_continue(x, log):
    for i in range(4):
        with noted(log):
            if i == 1:
                continue
            if i == 2:
                break
            x = x + i
    with Manager(log):
        return x


@program(X)
def not_a_manager(x):
    with x:
        return x


class OnlyEnters:
    def __enter__(self):
        raise AssertionError("Python looks for both methods first")


class OnlyExits:
    def __exit__(self, *error):
        raise AssertionError


class Asynchronous:
    async def __aenter__(self):
        raise AssertionError

    async def __aexit__(self, *error):
        raise AssertionError


@program(X)
def no_managers(x):
    """What Python says differs between its versions; classes of C are named with their module."""
    errors = []
    others = (3, None, collections.deque(), collections.OrderedDict(), OnlyEnters)
    for each in (OnlyEnters(), OnlyExits(), Asynchronous(), *others):
        try:
            with each:
                x = x + 1
        except TypeError as error:
            errors.append(str(error))
    return x, errors


# ---- with breaks


@program(W, [], breaks=None)
def break_under_no_grad(x, log):
    with torch.no_grad():
        y = x * 2
        note(log, torch.is_grad_enabled())
        z = y + x
    note(log, torch.is_grad_enabled())
    return y, z, x * 3, z.requires_grad


@program(W, [], breaks=None)
def break_under_nested_modes(x, log):
    with torch.no_grad():
        with torch.enable_grad():
            y = x * 2
            note(log, torch.is_grad_enabled())
            z = x * 3
        note(log, torch.is_grad_enabled())
        w = x * 4
    return [t.requires_grad for t in (y, z, w, x * 5)], y, z, w


@program(X, [], breaks=None)
def break_under_autocast(x, log):
    with torch.autocast("cpu", dtype=torch.bfloat16):
        y = x @ x.t()
        note(log, str(y.dtype))
        z = x @ x.t()
        note(log, str(z.dtype))
    note(log, torch.is_autocast_enabled("cpu"))
    return y, z, x @ x.t()


@program(W, [], breaks=None)
def failure_under_no_grad(x, log):
    try:
        with torch.no_grad():
            y = x * 2
            fail(ValueError("v"))
    except ValueError:
        note(log, torch.is_grad_enabled())
    return y, x * 3


@program(W, [], breaks=None)
def failure_leaves_no_grad(x, log):
    with torch.no_grad():
        note(log, torch.is_grad_enabled())
        fail(ValueError("v"))


@program(W, [], breaks=None)
def return_under_no_grad(x, log):
    with torch.no_grad():
        note(log, "in")
        return x * 2


@program(X, [], breaks=None)
def break_in_user_class(x, log):
    with Manager(log) as manager:
        y = x + 1
        note(log, "in")
        manager.extra = y * 2
    note(log, "out")
    return manager.extra


@program(X, [], breaks=None)
def breaks_in_enter_and_exit(x, log):
    y = x * 2
    with Breaking(log) as manager:
        y = y + 1
    y = y * 3
    with Breaking(log, ValueError):
        y = y - 1
        raise ValueError("v")
    return y, manager.log is log


@program(X, [], breaks=None)
def exception_swallowed_after_a_break(x, log):
    with Manager(log, ValueError):
        x = x + 1
        note(log, "in")
        raise ValueError("v")
    note(log, "out")
    return x * 2


@program(X, [], breaks=None)
def the_break_raises_and_is_swallowed(x, log):
    with Manager(log, ValueError):
        x = x + 1
        fail(ValueError("v"))
    note(log, "out")
    return x * 2


@program(X, [], breaks=None)
def the_break_raises_and_is_not_swallowed(x, log):
    with Manager(log, KeyError):
        x.add_(1)
        fail(ValueError("v"))


@program(X, [], breaks=None)
def break_in_contextmanager_block(x, log):
    with noted(log) as n:
        x = x * n
        note(log, "in")
        x = x + 1
    return x


@program(X, [], breaks=None)
def contextmanager_swallows_after_a_break(x, log):
    with noted(log, ValueError):
        note(log, "in")
        raise ValueError("v")
    note(log, "out")
    return x + 1


@program(X, [], breaks=None)
def contextmanager_that_breaks(x, log):
    y = x * 2
    with breaking(log) as same:
        y = y + 1
        note(log, same is log)
        y = y * 2
    return y - 1


@program(X, [], breaks=None)
def contextmanager_that_breaks_and_fails(x, log):
    try:
        with breaking(log):
            x = x + 1
            fail(KeyError("k"))
    except KeyError as error:
        note(log, repr(error))
    return x


@program(X, [], breaks=None)
def nested_with_breaks(x, log):
    with Manager(log, KeyError) as a:
        with noted(log) as b, Breaking(log, ValueError):
            x = x + b
            note(log, "deep")
            raise ValueError("v")
        note(log, "middle")
        with torch.no_grad():
            fail(KeyError("k"))
    note(log, torch.is_grad_enabled())
    return x, a.log is log


@program(X, [], breaks=None)
def with_in_a_loop(x, log):
    for i in range(3):
        with noted(log), torch.no_grad():
            x = x + i
            note(log, i)
            if i == 1:
                continue
            x = x * 2
    return x


@program(X, [], breaks=None)
def exit_stack_with_breaks(x, log):
    with contextlib.ExitStack() as stack:
        n = stack.enter_context(noted(log))
        note(log, "in")
        stack.callback(note, log, "callback")
        y = x + n
        note(log, "more")
    return y


@program(X, [], breaks=None)
def break_in_a_callee_under_with(x, log):
    def inner(y):
        with noted(log):
            y = y + 1
            note(log, torch.is_grad_enabled())
            return y * 2

    with torch.no_grad():
        return inner(x) + 1


@program(X, [], breaks=None)
def manager_from_a_callee(x, log):
    def make():
        note(log, "make")
        return Manager(log)

    with make() as manager, make():
        x = x + 1
    return x, manager.log is log


@program(W, [], breaks=None)
def grad_mode_set_for_good(x, log):
    torch.set_grad_enabled(False)
    y = x * 2
    note(log, "off")
    torch.set_grad_enabled(True)
    return y, x * 3


@program(X, [], breaks=None)
def default_dtype(x, log):
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)
    try:
        a = torch.ones(2)
        note(log, "in")
        b = torch.ones(2)
    finally:
        torch.set_default_dtype(before)
    return a, b, torch.ones(2)


@program(W, [], breaks=None)
def inference_mode(x, log):
    with torch.inference_mode():
        y = x * 2
        note(log, "in")
        z = y + 1
    return z.is_inference(), y


@pytest.mark.parametrize(("function", "args", "expected"), program.cases)
def test_same_as_eager(function, args, expected):
    check(function, *args, **expected)
