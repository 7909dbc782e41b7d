"""Operations that look at the frame that calls them, and PyTorch's state after a failure."""

import logging
import sys
import warnings

import pytest
import torch

import pliant
from tests.support.against_eager import check
from tests.support.programs import note

X = torch.ones(2, 3)
OUTSIDE = 7
logger = logging.getLogger(__name__)


# ---- where warnings and log records come from


def warns(x):
    y = x + 1
    warnings.warn("one", stacklevel=1)
    return y * 2


def helper(x):
    warnings.warn("of the caller", DeprecationWarning, stacklevel=2)
    warnings.warn("of the test", stacklevel=3)
    return x + 1


def calls_helper(x):
    return helper(x * 2) + 1


@pytest.mark.parametrize("function", [warns, calls_helper])
def test_warnings_point_at_the_users_lines(function):
    places = []
    for version in (function, pliant.compile(function)):
        with warnings.catch_warnings(record=True) as seen:
            warnings.simplefilter("always")
            version(X)
        places.append([(str(w.message), w.category, w.filename, w.lineno) for w in seen])
    assert places[0] == places[1]


def test_warnings_as_errors():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        check(warns, X, breaks=None)


def logs(x):
    def inner(y):
        logger.warning("rows: %d", y.shape[0])
        return y + 1

    return inner(x)


def test_log_records_point_at_the_users_lines(caplog):
    logs(X)
    pliant.compile(logs)(X)
    expected, actual = [(r.funcName, r.lineno, r.pathname, r.message) for r in caplog.records]
    assert actual == expected


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
def test_same_as_eager(function, args):
    check(function, *args, breaks=None)


# ---- PyTorch's state after a failure of the graph


def state():
    depth = torch.autocast_increment_nesting()
    torch.autocast_decrement_nesting()
    cpu = torch.is_autocast_enabled("cpu"), torch.get_autocast_dtype("cpu")
    return torch.is_grad_enabled(), *cpu, torch.is_autocast_cache_enabled(), depth


def under_no_grad(x, index):
    with torch.no_grad():
        return x[index]


def under_autocast(x, index):
    with torch.autocast("cpu", dtype=torch.float16, cache_enabled=False):
        y = x @ x.t()
        return y[index]


def under_autocast_after_a_write(x, index):
    x.add_(1)
    with torch.autocast("cpu", dtype=torch.float16), torch.no_grad():
        return x[index]


@pytest.mark.parametrize("function", [under_no_grad, under_autocast, under_autocast_after_a_write])
def test_state_after_a_failure(function):
    before = state()
    compiled = pliant.compile(function, fullgraph=True)
    for _ in range(2):
        with pytest.raises(IndexError):
            compiled(X.clone(), torch.tensor([7]))
        assert state() == before


def draws(x, index):
    y = torch.nn.functional.dropout(x, 0.5)
    try:
        y = y[index]
    except IndexError:
        y = y + torch.rand(3)
    return y


def test_random_numbers_after_a_failure():
    check(draws, X, torch.tensor([7]))
