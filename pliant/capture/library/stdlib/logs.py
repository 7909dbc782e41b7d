"""Log calls without a graph break: below the level of the logger they do nothing, above it residual
code makes the records, in order with what is printed.

The level of the logger is assumed to stay.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

from pliant.capture.interpreter import current_exception
from pliant.capture.library.python.printing import as_it_is, call_later
from pliant.capture.model import call, get_attribute, set_item, truth
from pliant.capture.native import FUNCTIONS, function
from pliant.capture.residual_messages import log_at, log_to_root
from pliant.capture.trace import PLAIN, Trace, written_objects
from pliant.capture.value import FALSE, NONE, Break, Const, Value, boolean
from pliant.capture.values.containers import Mapping, Sequence, plain_tuple
from pliant.capture.values.number import Number
from pliant.capture.values.objects import ExceptionValue, Instance
from pliant.capture.values.tensors import TensorValue
from pliant.guards.guard import GuardKind
from pliant.guards.predicates import Gives
from pliant.guards.source import Attr, Fixed

LEVELS = {
    "debug": logging.DEBUG,
    "info": logging.INFO,
    "warning": logging.WARNING,
    "error": logging.ERROR,
    "exception": logging.ERROR,
    "critical": logging.CRITICAL,
}
SETTINGS = (logging.Logger, logging.LoggerAdapter, logging.Manager)
OPTIONS = frozenset({"exc_info", "extra", "stacklevel", "stack_info"})
INNER = ("_log", "makeRecord", "findCaller")  # what residual code does in place of them
Settings = dict[str, Value]


def _log(trace: Trace, logger: Value, level: int, args: tuple[Value, ...], options: Settings,
         what: str, target: Callable[..., None] = log_at) -> Value:  # fmt: skip
    logger_value = trace.read(logger)
    if not args:
        raise Break("bad-arguments", what)  # Python makes the error
    if not _ask(trace, logger_value, "isEnabledFor", (level,), what):
        return NONE
    assert isinstance(logger_value, Instance)
    if issubclass(logger_value.cls, logging.LoggerAdapter):
        return _log_adapted(trace, logger_value, level, args, options, what)
    plain = all(getattr(logger_value.cls, name) is getattr(logging.Logger, name) for name in INNER)
    if not plain or not trace.options.reorder_prints or not options.keys() <= OPTIONS:
        raise Break("logging", what)
    if "stack_info" in options and truth(trace, options["stack_info"]):
        raise Break("logging", what)
    message, *rest = [_argument(trace, arg, what) for arg in args]
    parts = [Const(level), message, _arguments(trace, rest), _place(trace, options, what)]
    parts += [_error(trace, options, what), _extra(trace, options, what)]
    call_later(trace, target, [*([logger_value] if target is log_at else []), *parts])
    return NONE


def _arguments(trace: Trace, rest: list[Value]) -> Value:
    """A single dictionary is what `%(name)s` refers to; the record looks after that."""
    return plain_tuple(rest)


def _argument(trace: Trace, value: Value, name: str) -> Value:
    """As it is now: it is turned into text when the record is."""
    value = trace.read(value)
    plain = isinstance(value, Const) and (type(value.value) in PLAIN or _is_text(value.value))
    if plain or isinstance(value, Number | TensorValue):
        return as_it_is(trace, value)
    if isinstance(value, Sequence) and value.cls in (list, tuple):
        return Sequence(value.cls, [_argument(trace, item, name) for item in value.items])
    if isinstance(value, Mapping) and value.cls is dict:
        items = value.read_all(trace).items()
        return Mapping(dict, {key: _argument(trace, item, name) for key, item in items})
    if isinstance(value, ExceptionValue):
        return value
    text = as_it_is(trace, value)
    if isinstance(text, Const):
        return text
    raise Break("logging", name)


def _is_text(real: Any) -> bool:
    return isinstance(real, type) or type(real).__module__ == "torch"


def _place(trace: Trace, options: Settings, name: str) -> Value:
    level = trace.read(options["stacklevel"]).constant() if "stacklevel" in options else 1
    frames = [frame for frame in trace.frames if not frame.internal]
    if level > len(frames):
        raise Break("logging", name)
    frame = frames[-max(level, 1)]
    return Const((frame.code.co_filename, frame.position().line, frame.code.co_name))


def _error(trace: Trace, options: Settings, name: str) -> Value:
    exc_info = trace.read(options.get("exc_info", FALSE))
    if isinstance(exc_info, ExceptionValue):
        return exc_info
    if not isinstance(exc_info, Const) or not truth(trace, exc_info):
        return _nothing(exc_info, name)
    handled = current_exception(trace)
    if handled is None:
        raise Break("logging", name)
    return trace.read(handled)


def _nothing(option: Value, name: str) -> Value:
    if not isinstance(option, Const):
        raise Break("logging", name)
    return NONE


def _extra(trace: Trace, options: Settings, name: str) -> Value:
    extra = trace.read(options.get("extra", NONE))
    return extra if isinstance(extra, Const) else _argument(trace, extra, name)


def _log_adapted(
    trace: Trace,
    adapter: Instance,
    level: int,
    args: tuple[Value, ...],
    options: Settings,
    what: str,
) -> Value:
    """An adapter changes the message first, with code of its own."""
    process = get_attribute(trace, adapter, "process")
    changed = trace.read(call(trace, process, [args[0], Mapping(dict, dict(options))]))
    if not isinstance(changed, Sequence) or len(changed.items) != 2:
        raise Break("logging", what)
    message, table = (trace.read(part) for part in changed.items)
    if not isinstance(table, Mapping):
        raise Break("logging", what)
    inner = get_attribute(trace, adapter, "logger")
    return _log(trace, inner, level, (message, *args[1:]), table.read_all(trace), what)


@function(logging.LoggerAdapter.process)
def adapter_process(trace: Trace, adapter: Value, message: Value, options: Value) -> Value:
    extra = get_attribute(trace, adapter, "extra")
    set_item(trace, options, Const("extra"), extra)
    return plain_tuple([message, options])


def _ask(trace: Trace, logger: Value, question: str, args: tuple[Any, ...], name: str) -> Any:
    """What the logger says, and is assumed to go on saying."""
    if not isinstance(logger, Instance) or logger.real is None or logger.source is None:
        raise Break("logging", name)
    if any(isinstance(real, SETTINGS) for real in written_objects(trace)):
        raise Break("logging", name)
    answer = getattr(logger.real, question)(*args)
    trace.guard(GuardKind.PREDICATE, Attr(logger.source, question), Gives(args, answer))
    return answer


# ---- the functions


def _log_at(name: str, level: int, what: str) -> Callable[..., Value]:
    def handler(trace: Trace, logger: Value, *args: Value, **kwargs: Value) -> Value:
        if name == "exception":
            kwargs.setdefault("exc_info", boolean(True))
        return _log(trace, logger, level, args, kwargs, what)

    return handler


def _level(trace: Trace, level: Value, name: str) -> int:
    level_value = trace.read(level)
    if not isinstance(level_value, Const) or not isinstance(level_value.value, int):
        raise Break("logging", name)
    return level_value.value


def _register(cls: type) -> None:
    for name, level in LEVELS.items():
        real: Any = getattr(cls, name)
        function(real)(_log_at(name, level, f"{real.__qualname__}()"))

    def log(trace: Trace, logger: Value, level: Value, *args: Value, **kwargs: Value) -> Value:
        what = f"{cls.__name__}.log()"
        return _log(trace, logger, _level(trace, level, what), args, kwargs, what)

    function(cls.log)(log)  # type: ignore[attr-defined]
    for name in ("isEnabledFor", "getEffectiveLevel", "hasHandlers"):
        function(getattr(cls, name))(_question(name))


def _question(name: str) -> Callable[..., Value]:
    def handler(trace: Trace, logger: Value, *args: Value) -> Value:
        real_args = tuple(trace.read(arg).constant() for arg in args)
        return Const(_ask(trace, trace.read(logger), name, real_args, f"Logger.{name}()"))

    return handler


def _root_log_at(name: str, level: int) -> Callable[..., Value]:
    def handler(trace: Trace, /, *args: Value, **kwargs: Value) -> Value:
        if name == "exception":
            kwargs.setdefault("exc_info", boolean(True))
        root = trace.wrap(logging.root, Fixed(logging.root, "logging.root"))
        return _log(trace, root, level, args, kwargs, f"logging.{name}()", log_to_root)

    return handler


@function(logging.getLogger)
def get_logger(trace: Trace, name: Value = NONE) -> Value:
    """There is one logger of a name, for ever."""
    real_name = trace.read(name).constant()
    if not (real_name is None or isinstance(real_name, str)):
        raise Break("logging", "getLogger()")
    return trace.wrap_pinned(logging.getLogger(real_name))


_register(logging.Logger)
_register(logging.LoggerAdapter)
for _name, _value in LEVELS.items():
    FUNCTIONS[getattr(logging, _name)] = _root_log_at(_name, _value)
