"""After a graph failed at run time: PyTorch's state put back, and the function run by Python."""

from __future__ import annotations

import inspect
import types
from typing import Any

import torch

from pliant._native import State, set_bypass


def restore(state: State) -> None:
    """Put back the modes that a graph may have changed before it failed."""
    torch._C._set_grad_enabled(state.grad_enabled)
    torch.set_autocast_enabled("cpu", state.autocast_cpu)
    torch.set_autocast_enabled("cuda", state.autocast_cuda)
    torch.set_autocast_cache_enabled(state.autocast_cache)
    for device, dtype in (("cpu", state.autocast_cpu_dtype), ("cuda", state.autocast_cuda_dtype)):
        if dtype is not None:  # it is, while autocast is off
            torch.set_autocast_dtype(device, dtype)
    torch.set_default_dtype(state.default_dtype)
    torch.use_deterministic_algorithms(state.deterministic, warn_only=state.deterministic_warn_only)


def call(function: types.FunctionType, values: tuple[Any, ...]) -> Any:
    """Call a function with the values of its parameters, in the order of `co_varnames`."""
    code = function.__code__
    count = code.co_argcount
    args = list(values[:count])
    names = code.co_varnames[count : count + code.co_kwonlyargcount]
    kwargs = dict(zip(names, values[count:], strict=False))
    rest = list(values[count + len(names) :])
    if code.co_flags & inspect.CO_VARARGS:
        args += rest.pop(0)
    if code.co_flags & inspect.CO_VARKEYWORDS:
        kwargs.update(rest.pop(0))
    before = set_bypass(True)
    try:
        return function(*args, **kwargs)
    finally:
        set_bypass(before)
