"""Compiled modules met during capture: the module that was compiled is followed."""

from __future__ import annotations

from pliant.capture.model import call
from pliant.capture.native import METHODS, SHORTCUTS
from pliant.capture.trace import Trace
from pliant.capture.value import Break, Value
from pliant.capture.values.containers import instance_dict
from pliant.capture.values.objects import Instance
from pliant.module import CompiledModule, bound_through, method_of, run_original


def call_original(trace: Trace, self: Value, /, *args: Value, **kwargs: Value) -> Value:
    module = trace.read(self)
    method = (
        instance_dict(trace, module).get(trace, "_orig_mod")
        if isinstance(module, Instance)
        else None
    )
    if method is None:
        raise Break("unsupported", "a compiled module without an original")
    return call(trace, method, list(args), kwargs)


def call_method(
    trace: Trace, args: list[Value], kwargs: dict[str, Value], direct: bool
) -> Value | None:
    """Calls inside the method are compiled here: there is nothing to tell."""
    _, function, module, *rest = args
    return call(trace, function, [module, *rest], kwargs, direct)


def bind_method(
    trace: Trace, args: list[Value], kwargs: dict[str, Value], direct: bool
) -> Value | None:
    """Without the table of the methods that there are."""
    return call(trace, trace.wrap_pinned(bound_through), args, kwargs)


METHODS[CompiledModule, "__call__"] = call_original
SHORTCUTS[run_original] = call_method
SHORTCUTS[method_of] = bind_method
