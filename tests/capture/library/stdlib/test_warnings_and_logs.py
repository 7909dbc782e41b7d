"""Warnings and log records are made behind the graph: the same ones, in the same order, from the
same lines."""

from __future__ import annotations

import logging
import warnings
from collections.abc import Callable
from typing import Any

import pytest
import torch

import pliant
from tests.support.against_eager import check

LOG = logging.getLogger("pliant.tests.logs")
LOG.propagate = False
LOG.setLevel(logging.INFO)
ADAPTER = logging.LoggerAdapter(LOG, {"who": "me"})
ARGS = (torch.arange(1.0, 4.0),)


class Keeping(logging.Handler):
    def __init__(self) -> None:
        super().__init__()
        self.records: list[tuple[Any, ...]] = []

    def emit(self, record: logging.LogRecord) -> None:
        error = None if record.exc_info is None else repr(record.exc_info[1])
        place = (record.pathname, record.lineno, record.funcName)
        self.records.append((record.levelname, record.getMessage(), error, *place))


def logged(function: Callable[..., Any]) -> list[tuple[Any, ...]]:
    handler = Keeping()
    LOG.addHandler(handler)
    try:
        function(*ARGS)
    finally:
        LOG.removeHandler(handler)
    return handler.records


def warned(function: Callable[..., Any]) -> list[tuple[Any, ...]]:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        function(*ARGS)
    return [(str(w.message), w.category, w.filename, w.lineno) for w in caught]


def inner(x):
    warnings.warn("from inside", stacklevel=2)
    LOG.info("inside %s", x.shape[0], stacklevel=2)
    return x + 1


def warn_text(x):
    warnings.warn("plain")
    return x + 1


def warn_category(x):
    warnings.warn(f"shape {tuple(x.shape)}", DeprecationWarning)
    return x + 1


def warn_instance(x):
    warnings.warn(UserWarning("a", 1))
    return x + 1


def warn_twice(x):
    warnings.warn("first")
    y = x * 2
    warnings.warn("second", RuntimeWarning)
    return y


def warn_inside(x):
    return inner(x) * 2


def warn_caller(x):
    warnings.warn("the caller's line", stacklevel=2)
    return x + 1


def warn_in_loop(x):
    for i in range(3):
        warnings.warn(f"round {i}")
        x = x + i
    return x


WARNING = (
    warn_text, warn_category, warn_instance, warn_twice, warn_inside, warn_caller, warn_in_loop
)  # fmt: skip


@pytest.mark.parametrize("function", WARNING)
def test_warnings_are_those_of_eager(function):
    compiled = pliant.compile(function, fullgraph=True)
    assert warned(compiled) == warned(function) != []
    assert warned(compiled) == warned(function)


def test_a_warning_is_shown_once_from_a_line():
    def f(x):
        warnings.warn("once only")
        return x + 1

    compiled = pliant.compile(f, fullgraph=True)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("default")
        compiled(*ARGS)
        compiled(*ARGS)
    assert len(caught) == 1


def test_a_filter_that_makes_errors_is_obeyed():
    def f(x):
        try:
            warnings.warn("an error?")
        except UserWarning as error:
            return x * 2, str(error)
        return x + 1

    compiled = pliant.compile(f, fullgraph=True)
    for action in ("ignore", "error", "ignore"):
        with warnings.catch_warnings():
            warnings.simplefilter(action)
            expected, actual = f(*ARGS), compiled(*ARGS)
            assert str(actual) == str(expected)


def test_warnings_ignored_inside():
    def f(x):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            warnings.warn("unseen")
            return x + 1

    check(f, *ARGS)
    assert warned(pliant.compile(f, fullgraph=True)) == []


def test_warnings_recorded_inside():
    def f(x):
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            warnings.warn("one")
            warnings.warn("two", RuntimeWarning)
        return x + len(caught), [str(w.message) for w in caught], [w.lineno for w in caught]

    check(f, *ARGS)


def test_errors_inside():
    def f(x):
        with warnings.catch_warnings():
            warnings.filterwarnings("error", message="bad.*")
            try:
                warnings.warn("bad thing", RuntimeWarning)
            except RuntimeWarning as error:
                return x + 1, str(error)
        return x

    check(f, *ARGS)


def log_levels(x):
    LOG.debug("nothing")
    LOG.info("value %d", 3)
    LOG.warning("hi")
    LOG.error("%s and %s", "a", [1, 2])
    LOG.log(logging.CRITICAL, "worst")
    return x * 2


def log_tensor(x):
    y = x + 1
    LOG.info("y = %s", y)
    return y * 2


def log_mapping(x):
    LOG.info("%(a)s %(b)d", {"a": 1, "b": 2})
    return x


def log_error(x):
    try:
        raise ValueError("a")
    except ValueError:
        LOG.exception("caught")
    return x + 1


def log_by_name(x):
    logging.getLogger("pliant.tests.logs").info("by name")
    return x + 1


def log_adapted(x):
    ADAPTER.info("adapted %s", 1)
    return x + 1


def log_in_function(x):
    return inner(x) + 1


LOGGING = (
    log_levels, log_tensor, log_mapping, log_error, log_by_name, log_adapted, log_in_function
)  # fmt: skip


@pytest.mark.parametrize("function", LOGGING)
@pytest.mark.filterwarnings("ignore")
def test_records_are_those_of_eager(function):
    compiled = pliant.compile(function, fullgraph=True)
    assert logged(compiled) == logged(function) != []
    assert logged(compiled) == logged(function)


def test_a_changed_level_is_noticed():
    def f(x):
        LOG.info("told")
        return x + 1 if LOG.isEnabledFor(logging.INFO) else x

    compiled = pliant.compile(f, fullgraph=True)
    assert len(logged(compiled)) == 1
    LOG.setLevel(logging.ERROR)
    try:
        assert logged(compiled) == []
        assert torch.equal(compiled(*ARGS), f(*ARGS))
    finally:
        LOG.setLevel(logging.INFO)


def test_a_logged_tensor_is_logged_as_it_was():
    def f(x):
        x = x.clone()
        LOG.info("%s", x)
        x.add_(1)
        return x

    compiled = pliant.compile(f)
    assert [r[1] for r in logged(compiled)] == [r[1] for r in logged(f)]


def test_the_root_logger(caplog):
    def f(x):
        logging.warning("from %s", "root")
        logging.debug("unseen")
        return x + 1

    check(f, *ARGS)
    assert [record.getMessage() for record in caplog.records] == ["from root"] * 4


def test_levels_asked_for():
    def f(x):
        return x + LOG.level + LOG.getEffectiveLevel(), LOG.isEnabledFor(logging.DEBUG), LOG.name

    check(f, *ARGS)


# What an interpreter begins with, in C: modules are named there, not matched.
PLAIN_FILTERS = [
    ("default", None, DeprecationWarning, "__main__", 0),
    ("ignore", None, DeprecationWarning, None, 0),
    ("ignore", None, ResourceWarning, None, 0),
]


@pytest.mark.parametrize("program", [warn_text, warn_category, warn_instance])
def test_the_filters_of_a_plain_interpreter(program: Any) -> None:
    def shown(function: Callable[..., Any]) -> list[tuple[str, type, int]]:
        with warnings.catch_warnings(record=True) as caught:
            warnings.filters[:] = PLAIN_FILTERS  # type: ignore[index]
            globals().pop("__warningregistry__", None)
            function(*ARGS)
        return [(str(w.message), w.category, w.lineno) for w in caught]

    assert shown(pliant.compile(program, fullgraph=True)) == shown(program)


# ---- where warnings and log records come from

LINES = logging.getLogger(__name__)


def warns(x):
    y = x + 1
    warnings.warn("one", stacklevel=1)
    return y * 2


def warns_for_callers(x):
    warnings.warn("of the caller", DeprecationWarning, stacklevel=2)
    warnings.warn("of the test", stacklevel=3)
    return x + 1


def calls_helper(x):
    return warns_for_callers(x * 2) + 1


@pytest.mark.parametrize("function", [warns, calls_helper])
def test_warnings_point_at_the_users_lines(function):
    places = []
    for version in (function, pliant.compile(function)):
        with warnings.catch_warnings(record=True) as seen:
            warnings.simplefilter("always")
            version(*ARGS)
        places.append([(str(w.message), w.category, w.filename, w.lineno) for w in seen])
    assert places[0] == places[1]


def test_warnings_as_errors():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        check(warns, *ARGS, breaks=None)


def logs(x):
    def inner(y):
        LINES.warning("rows: %d", y.shape[0])
        return y + 1

    return inner(x)


def test_log_records_point_at_the_users_lines(caplog):
    logs(*ARGS)
    pliant.compile(logs)(*ARGS)
    expected, actual = [(r.funcName, r.lineno, r.pathname, r.message) for r in caplog.records]
    assert actual == expected


# ---- levels of loggers


@pytest.fixture
def logger():
    logger = logging.getLogger(f"{__name__}.silent")
    logger.setLevel(logging.WARNING)
    return logger


def test_log_call_below_the_level_is_nothing(logger):
    adapter = logging.LoggerAdapter(logger, {})

    def program(x):
        logger.debug("x is %s", x)
        logger.log(5, "fine")
        adapter.info("adapted")
        return x + 1

    compiled = pliant.compile(program)
    assert torch.equal(compiled(*ARGS), ARGS[0] + 1)
    assert (pliant.counters["graphs"], pliant.counters["graph_breaks"]) == (1, 0)


def test_level_of_a_logger_is_guarded(logger, caplog):
    def program(x):
        logger.info("now %d", len(x))
        return x + 1

    compiled = pliant.compile(program)
    compiled(*ARGS)
    assert caplog.messages == []
    logger.setLevel(logging.INFO)
    compiled(*ARGS)
    assert caplog.messages == ["now 3"]
