"""`PLIANT_REPRO=dir`: a script of each function that pliant fails on, without a change in the
program."""

from __future__ import annotations

import types
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from pliant._native import Dispatcher
from pliant.base.errors import PliantWarning
from pliant.base.isolation import FATAL
from pliant.driver import failures
from pliant.driver.pipeline import Compiler
from pliant.reproduce.reproduce import repro
from pliant.runtime.rerun import arguments_of


def write_failures(directory: str) -> Callable[[], None]:
    """From now on, write a script for each function that pliant fails on, once. Returns a function
    that ends it."""
    seen: set[types.CodeType] = set()

    def failed(dispatcher: Dispatcher, values: tuple[Any, ...]) -> None:
        if dispatcher.fn.__code__ in seen:
            return
        seen.add(dispatcher.fn.__code__)
        try:
            message = str(_reproduction(dispatcher, values, Path(directory)))
        except FATAL:
            raise
        except Exception as error:  # the program goes on without it
            message = f"no script could be written: {type(error).__name__}: {error}"
        name = dispatcher.fn.__qualname__
        warnings.warn(f"pliant failed on {name}; {message}", PliantWarning, stacklevel=2)

    return failures.observe(failed)


def _reproduction(dispatcher: Dispatcher, values: tuple[Any, ...], directory: Path) -> Any:
    args, kwargs = arguments_of(dispatcher.fn, values)
    model: Any = dispatcher
    settings: dict[str, Any] = {}
    if "_made_by" not in vars(dispatcher):  # a part of a function, after a graph break
        on_miss: Any = dispatcher.on_miss
        compiler: Compiler = on_miss.__self__
        model = dispatcher.fn
        settings = {"backend": compiler.backend, "dynamic": compiler.dynamic}
    elif isinstance(dispatcher._made_by[1], torch.nn.Module):
        args = args[1:]
    reproduction = repro(model, path=directory, **settings)(*args, **kwargs)
    return "it works when it is called again" if reproduction.failure is None else reproduction
