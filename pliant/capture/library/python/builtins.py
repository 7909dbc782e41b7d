"""The built-in functions that belong to no type, and the C functions that may run on constants.

What acts on the world outside the program, or reads a clock or a file, breaks the graph; each cause
has its code.
"""

from __future__ import annotations

import _thread
import _warnings
import builtins
import logging
import os
import sys
import time
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, NoReturn

import torch

from pliant.base.python_errors import type_name
from pliant.capture.library.folding import on_constants, register_methods
from pliant.capture.library.python.numbers import compute
from pliant.capture.model import advance, call_special, compare, length, truth
from pliant.capture.native import FUNCTIONS, function, pure
from pliant.capture.value import Break, Const, Value
from pliant.capture.values.number import Number

if TYPE_CHECKING:
    from pliant.capture.trace import Trace


@function(len)
def builtin_len(trace: Trace, obj: Value) -> Value:
    size = trace.read(length(trace, obj))
    if isinstance(size, Const) and not (type(size.value) is int and 0 <= size.value <= sys.maxsize):
        return _checked_length(trace, size)
    if isinstance(size, Number) and truth(trace, compare(trace, "<", size, Const(0))):
        trace.throw(ValueError("__len__() should return >= 0"))
    return size


def _checked_length(trace: Trace, size: Const) -> Value:
    class Sized:
        def __len__(self) -> int:
            return size.value

    return compute(trace, len, [Const(Sized())])


@function(next)
def builtin_next(trace: Trace, iterator: Value, *default: Value) -> Value:
    iterator = trace.read(iterator)
    if default:
        item = advance(trace, iterator)
        return default[0] if item is None else item
    result = call_special(trace, iterator, "__next__")
    if result is None:
        name = type_name(iterator.python_type())
        trace.throw(TypeError(f"'{name}' object is not an iterator"))
    return result


@function(builtins.__import__)
def builtin_import(trace: Trace, name: Value, *args: Value, **kwargs: Value) -> Value:
    """Importing what is imported already is looking it up."""
    real = trace.read(name).constant()
    if real not in sys.modules or args or kwargs or "." in real:
        raise Break("import", f"importing {real}")
    return Const(sys.modules[real])


# ---- what can't be part of a graph


def _breaks(code: str, name: str) -> Callable[..., NoReturn]:
    def handler(trace: Trace, /, *args: Value, **kwargs: Value) -> NoReturn:
        raise Break(code, name)

    return handler


def _functions_of(owner: Any, names: Iterable[str]) -> list[Any]:
    return [function for name in names if (function := getattr(owner, name, None)) is not None]


def _register_breaks() -> None:
    for code, owner, names in BREAKING:
        for real in _functions_of(owner, names):
            if real not in FUNCTIONS:
                shown = getattr(real, "__qualname__", None) or getattr(real, "__name__", repr(real))
                function(real)(_breaks(code, f"{shown}()"))


CLOCKS = (
    "time", "time_ns", "perf_counter", "perf_counter_ns", "monotonic", "monotonic_ns",
    "process_time", "process_time_ns", "thread_time", "sleep", "localtime", "gmtime", "ctime",
    "strftime", "asctime",
)  # fmt: skip
OS_FUNCTIONS = (
    "getcwd", "getpid", "getppid", "listdir", "scandir", "stat", "lstat", "mkdir", "remove",
    "unlink", "rename", "open", "read", "write", "close", "urandom", "cpu_count", "system",
    "putenv", "chdir", "rmdir", "access", "getlogin", "times",
)  # fmt: skip
LOGGING_METHODS = (
    "debug", "info", "warning", "warn", "error", "critical", "exception", "log", "handle",
)  # fmt: skip
BREAKING: tuple[tuple[str, Any, tuple[str, ...]], ...] = (
    ("io", builtins, ("print", "input", "open", "breakpoint", "help", "exit", "quit")),
    ("clock", time, CLOCKS),
    ("io", os, OS_FUNCTIONS),
    ("logging", logging, LOGGING_METHODS),
    ("logging", logging.Logger, ("warn", "handle")),  # the others are in `logs`
    ("logging", logging.LoggerAdapter, ("warn",)),
    ("warning", _warnings, ("warn", "warn_explicit")),
    ("unsupported-function", sys, ("_getframe", "getrefcount", "settrace", "setprofile",
                                "setrecursionlimit")),
    ("unsupported-function", _thread, ("get_ident", "start_new_thread")),
)  # fmt: skip
_register_breaks()


# ---- what may be run on constants

pure(
    torch.device,
    torch.finfo,
    torch.iinfo,
)


STATEFUL = frozenset({"__enter__", "__exit__", "__call__"})
for _cls in (torch.dtype, torch.device, torch.finfo, torch.iinfo):
    register_methods(_cls, on_constants, leave=STATEFUL)
