"""Python equivalents of C code of the language, followed like the user's own code.

What C code does in several steps (`type.__call__`: make, then initialise) can't be left in its
middle; the same steps as bytecode can, so that a graph break inside `__init__` is resumed there.
"""

from __future__ import annotations

from abc import ABCMeta, get_cache_token
from functools import _find_impl as find_implementation  # type: ignore[attr-defined]
from typing import Any

from torch import Tensor

from pliant.capture.values.functions import FunctionValue


def initialised(obj: Any, init: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """The second half of `type.__call__`."""
    result = init(obj, *args, **kwargs)
    if result is not None:
        raise TypeError(f"__init__() should return None, not '{type(result).__name__}'")
    return obj


def applied(forward: Any, context: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """`apply` of an `autograd.Function` where no gradients are recorded. Tensors that come back as
    they were given are others, unless the forward has written to them."""
    results = forward(context, *args, **kwargs)
    several = isinstance(results, tuple)
    written = getattr(context, "dirty_tensors", ())
    outputs = []
    for result in results if several else (results,):
        for arg in args:
            if result is arg and isinstance(arg, Tensor) and not any(arg is t for t in written):
                result = arg.detach() if arg.requires_grad else arg.view_as(arg)
        outputs.append(result)
    return tuple(outputs) if several else outputs[0]


def dispatched(cls: Any, registry: Any) -> Any:
    """`dispatch` of a `functools.singledispatch`, without its cache: that is there for speed."""
    if cls in registry:
        return registry[cls]
    if any(isinstance(key, ABCMeta) for key in registry):
        get_cache_token()  # the answer is assumed to hold as long as no class is registered
    return find_implementation(cls, registry)


def as_value(function: Any) -> FunctionValue:
    """One of these functions as a value. It never changes, so it needs no guards."""
    value = FunctionValue(function.__code__, function.__globals__)
    value.cells, value.defaults, value.kwdefaults = [], [], {}
    return value
