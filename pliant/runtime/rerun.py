"""After a graph failed at run time: PyTorch's state put back, and the function run by Python."""

from __future__ import annotations

import inspect
import types
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import fx

from pliant._native import Dispatcher, call_bypassed
from pliant.base import tracebacks
from pliant.base.dispatch_mode import DispatchMode
from pliant.runtime import graphs

InferenceMode: Any = torch._C._InferenceMode


def restore(undo: Sequence[Callable[[], Any]], graph: fx.GraphModule, error: BaseException) -> None:
    """Put back the modes that `graph` may have changed before it failed with `error`."""
    # An inference mode puts back what was set when it was entered, autocast included, once it is
    # freed. The traceback has it, and that may be long after.
    for value in reversed(graphs.values_at(graph, error)):
        if isinstance(value, InferenceMode):
            value.__exit__(None, None, None)
    # The last change is undone first: what came before it is then as it was when it was made.
    for put_back in reversed(undo):
        put_back()
    # The nesting is a counter, which no `undo` can set to a value, so it is counted how often the
    # graph changed it.
    ran = [node.target for node in graphs.ran_before(graph, error)]
    entered = ran.count(torch.autocast_increment_nesting)
    for _ in range(entered - ran.count(torch.autocast_decrement_nesting)):
        torch.autocast_decrement_nesting()


def keep_modes(changes: Sequence[Any], graph: fx.GraphModule, error: BaseException) -> None:
    """Change modes as the program had before `graph` failed with `error`, where it leaves them so:
    `restore` has put all of them back."""
    for change, args, kwargs in changes[: graphs.mode_changes_kept(graph, error)]:
        change(*args, **kwargs)


def raising(error: BaseException) -> Any:
    """What the dispatcher's `on_error` returns to raise `error` as the user's code would: a call of
    a function that stands in for the outermost frame, so that no frame of ours is seen."""
    outermost = tracebacks.rewrite(error).__traceback__
    if outermost is None:
        raise error
    error.__traceback__ = outermost.tb_next
    dispatcher = Dispatcher(tracebacks.raiser(outermost))
    dispatcher.mode = DispatchMode.EAGER
    return dispatcher.tail(error, error.__context__)


def arguments_of(
    function: types.FunctionType, values: tuple[Any, ...]
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """The arguments that give the parameters of a function, in the order of `co_varnames`, these
    values."""
    code = function.__code__
    count, only = code.co_argcount, code.co_kwonlyargcount
    args, rest = values[:count], list(values[count + only :])
    kwargs = dict(zip(code.co_varnames[count:], values[count : count + only], strict=False))
    if code.co_flags & inspect.CO_VARARGS:
        args += rest.pop(0)
    if code.co_flags & inspect.CO_VARKEYWORDS:
        kwargs |= rest.pop(0)
    return args, kwargs


def call(
    function: types.FunctionType, values: tuple[Any, ...], compiled: Dispatcher | None = None
) -> Any:
    """Call a function with the values of its parameters; the function itself, or what was
    `compiled` of it."""
    args, kwargs = arguments_of(function, values)
    if compiled is not None:
        return compiled(*args, **kwargs)
    # The functions that it calls may be compiled ones; those run as they are, too.
    return call_bypassed(function, *args, **kwargs)
