"""Names of `torch.compiler` and `torch._dynamo` for programs that migrate: callbacks, options for a
while, and directives that are accepted without effect."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, TypeVar

import torch
from torch._higher_order_ops.invoke_subgraph import mark_compile_region
from torch.utils import _pytree as pytree

from pliant.base import events
from pliant.base.options import Patch, config

PLAIN = (type(None), bool, int, float, complex, str)
F = TypeVar("F", bound=Callable[..., Any])


def on_compile_start(callback: F) -> F:
    """Have a function called whenever a compilation begins, with the event that reports it.

    As `torch._dynamo.callback.on_compile_start`; it is a decorator too.
    """
    events.subscribe(lambda event: _tell(callback, event, events.CompileStarted))
    return callback


def on_compile_end(callback: F) -> F:
    """Have a function called whenever a compilation ends well, with the event that reports it."""
    events.subscribe(lambda event: _tell(callback, event, events.CompileFinished))
    return callback


def _tell(callback: Callable[..., Any], event: events.Event, kind: type[events.Event]) -> None:
    if isinstance(event, kind):
        callback(event)


def nested_compile_region(fn: Callable[..., Any] | None = None, **options: Any) -> Any:
    """Mark a function that is repeated in a larger one: in the graph it is a subgraph.

    As `torch.compiler.nested_compile_region`. Outside of compiled code it does nothing.

    Args:
        fn: the function. Without it, the result is a decorator.
        **options: accepted, without effect.
    """
    if fn is None:
        return functools.partial(nested_compile_region, **options)
    return mark_compile_region(fn)


def patch_config(names: Any = None, value: Any = None, /, **changes: Any) -> Patch:
    """Other options for a while, as `config.patch`: a context manager or a decorator.

    What a compilation works with is fixed when it begins. So inside of a compiled function it has
    no effect, other than to be understood.
    """
    return config.patch(names, value, **changes)


patch_dynamo_config = patch_config


def dont_skip_tracing(fn: Any = None) -> Any:
    """Accepted as by `torch._dynamo.dont_skip_tracing`, without effect: pliant leaves out nothing
    that it could follow. A decorator, or a context manager."""
    return config.patch() if fn is None else fn


def disable_nested_graph_breaks(fn: Any = None) -> Any:
    """Accepted as by `torch._dynamo.disable_nested_graph_breaks`, without effect: a graph that
    breaks inside of a call goes on there. A decorator, or a context manager."""
    return config.patch() if fn is None else fn


def override_optimization_hint(x: Any, val: int) -> None:
    """Accepted as by `torch._dynamo.override_optimization_hint`, without effect: no code is chosen
    by the size that a number is likely to have."""


def wrap_numpy(fn: Callable[..., Any]) -> Callable[..., Any]:
    """A function of NumPy's arrays as one of tensors, as `torch.compiler.wrap_numpy`."""

    @functools.wraps(fn)
    def wrap(*args: Any, **kwargs: Any) -> Any:
        as_arrays = functools.partial(pytree.tree_map_only, torch.Tensor, lambda t: t.numpy())
        result = fn(*as_arrays(args), **as_arrays(kwargs))
        return pytree.tree_map(lambda v: v if type(v) in PLAIN else torch.as_tensor(v), result)

    return wrap
