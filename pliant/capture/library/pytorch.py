"""Python code of PyTorch that is looked up instead of followed: the same answer, sooner."""

from __future__ import annotations

import torch

from pliant.capture.native import function
from pliant.capture.trace import Trace
from pliant.capture.value import Break, Const, Value
from pliant.capture.values.containers import Mapping, instance_dict
from pliant.capture.values.objects import Instance

TABLES = ("_parameters", "_buffers", "_modules")


@function(torch.nn.Module.__getattr__)
def module_getattr(trace: Trace, self: Value, name: Value) -> Value:
    """Parameters, buffers and submodules, which live in tables of their own."""
    module, wanted = trace.read(self), trace.read(name).constant()
    if not isinstance(module, Instance):
        raise Break("unsupported-attribute", f"Module.{wanted}")
    for table in TABLES:
        entries = instance_dict(trace, module).get(trace, table)
        if entries is None:
            continue
        known = trace.read(entries)
        if not isinstance(known, Mapping):
            raise Break("unsupported-attribute", f"Module.{table}")
        found = known.get(trace, wanted)
        if found is not None:
            return found
    cls = module.cls.__name__
    trace.throw(AttributeError(f"'{cls}' object has no attribute '{wanted}'"))


@function(torch.manual_seed, torch.seed, torch.initial_seed)
def seeding(trace: Trace, *args: Value) -> Value:
    raise Break("random-state", "seeding PyTorch's generator")


@function(torch.is_tensor)
def is_tensor(trace: Trace, obj: Value) -> Value:
    return Const(issubclass(trace.read(obj).python_type(), torch.Tensor))
