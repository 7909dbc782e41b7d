"""Functions that residual code calls by itself, where Python has no expression for what is needed."""

from __future__ import annotations

import sys
import types
from collections.abc import Callable, Generator
from typing import Any, NoReturn

from pliant.base.tracebacks import rewrite

GeneratorObject = Generator[Any, Any, Any]


def primed(generator: GeneratorObject) -> GeneratorObject:
    """Bring a generator made to continue another to the `yield` where that one was suspended."""
    next(generator)
    return generator


def finished_generator() -> GeneratorObject:
    """A generator that has nothing left to give."""
    generator = (item for item in ())
    next(generator, None)
    return generator


def handling(error: BaseException, operation: Callable[[], Any]) -> Any:
    """Run `operation` as in `except` block that handles `error`."""
    known = error.__traceback__, error.__context__
    try:
        raise error
    except BaseException:
        error.__traceback__, error.__context__ = known
        return operation()


def raise_as_is(error: BaseException) -> NoReturn:
    """Raise an exception whose context is known. What is being handled here is the context of the
    first exception of the chain, as in the program."""
    outside = sys.exception()
    context = error.__context__
    first, seen = error, {id(error)}
    while first.__context__ is not None and id(first.__context__) not in seen:
        first = first.__context__
        seen.add(id(first))
    if first.__context__ is None and outside is not None and id(outside) not in seen:
        first.__context__ = outside
        context = error.__context__
    try:
        raise error
    finally:
        error.__context__ = context


HELPERS: dict[str, Any] = {
    "CellType": types.CellType,
    "FunctionType": types.FunctionType,
    "MethodType": types.MethodType,
    "clean_traceback": rewrite,
    "finished_generator": finished_generator,
    "handling": handling,
    "primed": primed,
    "raise_as_is": raise_as_is,
}
