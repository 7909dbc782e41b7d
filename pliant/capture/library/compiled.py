"""Compiled modules met during capture: they are the module they stand for."""

from __future__ import annotations

from pliant.capture.model import call
from pliant.capture.native import METHODS
from pliant.capture.trace import Trace
from pliant.capture.value import Break, Value
from pliant.capture.values.containers import instance_dict
from pliant.capture.values.objects import Instance
from pliant.module import CompiledModule


def call_original(trace: Trace, self: Value, /, *args: Value, **kwargs: Value) -> Value:
    module = trace.read(self)
    found = (
        instance_dict(trace, module).get(trace, "_orig_mod")
        if isinstance(module, Instance)
        else None
    )
    if found is None:
        raise Break("unsupported", "a compiled module that stands for nothing")
    return call(trace, found, list(args), kwargs)


METHODS[CompiledModule, "__call__"] = call_original
