"""Python code of PyTorch that is looked up instead of followed: the same answer, sooner."""

from __future__ import annotations

from collections import OrderedDict
from typing import Any

import torch

from pliant.capture.attributes import module_namespace
from pliant.capture.model import CALL, call, get_attribute, iterate, set_attribute
from pliant.capture.native import FUNCTIONS, LATE, SHORTCUTS, function
from pliant.capture.trace import Trace, has_met
from pliant.capture.value import FALSE, NONE, TRUE, Break, Const, Unread, Value
from pliant.capture.values.containers import Mapping, instance_dict
from pliant.capture.values.functions import CompiledFunction
from pliant.capture.values.objects import Instance, Opaque
from pliant.capture.wrap import BUILDERS
from pliant.guards.guard import MISSING, GuardKind
from pliant.guards.source import Attr, Fixed, Source

TABLES = ("_parameters", "_buffers", "_modules")


@function(torch.nn.Module.__getattr__)
def module_getattr(trace: Trace, self: Value, name: Value) -> Value:
    """Parameters, buffers and submodules, which live in tables of their own."""
    module, attribute = trace.read(self), trace.read(name).constant()
    if not isinstance(module, Instance):
        raise Break("unsupported-attribute", f"Module.{attribute}")
    for table in TABLES:
        entries = instance_dict(trace, module).get(trace, table)
        if entries is None:
            continue
        mapping = trace.read(entries)
        if not isinstance(mapping, Mapping):
            raise Break("unsupported-attribute", f"Module.{table}")
        member = mapping.get(trace, attribute)
        if member is not None:
            return member
    cls = module.cls.__name__
    trace.throw(AttributeError(f"'{cls}' object has no attribute '{attribute}'"))


PLAIN_TABLES = (dict, OrderedDict)
OWN_HOOKS = ("_backward_hooks", "_backward_pre_hooks", "_forward_hooks", "_forward_pre_hooks")
GLOBAL_HOOKS = (
    "_global_backward_pre_hooks", "_global_backward_hooks", "_global_forward_hooks",
    "_global_forward_pre_hooks",
)  # fmt: skip


def call_module(
    trace: Trace, args: list[Value], kwargs: dict[str, Value], direct: bool
) -> Value | None:
    """`Module.__call__` of a module without hooks is its `forward`. Every model does little
    else."""
    module = trace.read(args[0]) if args else None
    if not isinstance(module, Instance) or not _is_ordinary(trace, module):
        return None
    own, shared = instance_dict(trace, module), module_namespace(trace, torch.nn.modules.module)
    # Hooks for the backward pass do nothing where there will be none.
    acts = (lambda name: True) if torch.is_grad_enabled() else (lambda name: "forward" in name)
    tables = [own.get(trace, name) for name in filter(acts, OWN_HOOKS)]
    tables += [shared.get(trace, name) for name in filter(acts, GLOBAL_HOOKS)]
    if not all(table is not None and _is_empty(trace, table) for table in tables):
        return None
    return call(trace, get_attribute(trace, module, "forward"), args[1:], kwargs, direct)


def _is_ordinary(trace: Trace, module: Instance) -> bool:
    """Whether calling the module goes the way that `torch.nn.Module` defines."""
    cls, attributes = module.cls, instance_dict(trace, module)
    if trace.lookup(cls, "__getattribute__") is not object.__getattribute__:
        return False
    if trace.lookup(cls, "_compiled_call_impl") is not None:
        return False
    if trace.lookup(cls, "_call_impl") is not torch.nn.Module._call_impl:
        return False
    trace.read(trace.class_value(cls, "_call_impl"))  # assumes its code too
    if any(trace.lookup(cls, name) is not MISSING for name in OWN_HOOKS):
        return False
    return not any(attributes.get(trace, name) for name in ("_compiled_call_impl", "_call_impl"))


def _is_empty(trace: Trace, table: Value) -> bool:
    """Whether a table of hooks is empty, as nearly all are: two guards say so, and the dictionary
    needs no value."""
    if (
        isinstance(table, Unread)
        and type(table.real) in PLAIN_TABLES
        and not table.real
        and table.seen is None
        and not has_met(trace, table.real)
    ):
        trace.guard(GuardKind.TYPE, table.source, type(table.real))
        trace.guard(GuardKind.KEYS, table.source, ())
        return True
    mapping = trace.read(table)
    return isinstance(mapping, Mapping) and not mapping.read_all(trace)


SHORTCUTS[torch.nn.Module._wrapped_call_impl] = call_module


class Scripted(CompiledFunction):
    """What `torch.jit.script` made of a function, which it remembers for other compilers."""

    __slots__ = ()

    def python_type(self) -> type:
        return torch.jit.ScriptFunction


def scripted_from_outside(trace: Trace, real: Any, source: Source) -> Value:
    if not isinstance(source, Fixed):
        trace.guard(GuardKind.IS, source, real)
    function = getattr(real, SCRIPTED, None)
    if function is None:  # loaded from a file
        return Opaque(real, source)
    return Scripted(Unread(function, Attr(source, SCRIPTED)), source)


def call_scripted(
    trace: Trace, target: Scripted, args: list[Value], kwargs: dict[str, Value], direct: bool
) -> Value:
    return call(trace, target.function, args, kwargs, direct)


SCRIPTED = "_torchdynamo_inline"
BUILDERS[torch.jit.ScriptFunction] = scripted_from_outside
CALL[Scripted] = call_scripted


@function(torch._C._log_api_usage_once)
def log_api_usage(trace: Trace, event: Value) -> Value:
    """Reported to a logger inside PyTorch that has no listeners by default."""
    return NONE


@function(torch.is_tensor)
def is_tensor(trace: Trace, obj: Value) -> Value:
    return Const(issubclass(trace.read(obj).python_type(), torch.Tensor))


@function(torch.Tensor.__iter__)
def tensor_iter(trace: Trace, self: Value) -> Value:
    return iterate(trace, self)


@function(torch.use_deterministic_algorithms)
def use_deterministic_algorithms(trace: Trace, mode: Value, *, warn_only: Value = FALSE) -> Value:
    """Without the note in the options of PyTorch's own compiler, which it imports for that."""
    setter = Const(torch._C._set_deterministic_algorithms)
    return call(trace, setter, [mode], {"warn_only": warn_only})


@function(torch.jit.annotate)
def annotate(trace: Trace, the_type: Value, the_value: Value) -> Value:
    return the_value


def is_off(trace: Trace) -> Value:
    """Where this is on, nothing is captured."""
    return FALSE


LATE["torch.onnx"].append(lambda: FUNCTIONS.update({torch.onnx.is_in_onnx_export: is_off}))


@function(torch._C._are_functorch_transforms_active)
def are_transforms_active(trace: Trace) -> Value:
    """Inside of the function they call a body."""
    if trace.watch is not None or trace.under_transforms:
        raise Break("unsupported-function", "asking for transforms in a body")
    return FALSE


@function(torch.autograd._is_checkpoint_valid)
def is_checkpoint_valid(trace: Trace) -> Value:
    """Only a backward that asks for gradients of some inputs says otherwise, from inside."""
    return TRUE


# ---- names of what runs, in profiles

Record: Any = torch.autograd.profiler.record_function


@function(Record.__init__)
def initialise_record(trace: Trace, record: Value, name: Value, args: Value = NONE) -> Value:
    """It has all its attributes, so that Python can go on with it behind a graph break."""
    values = {"name": name, "args": args}
    for attribute, default in vars(Record("")).items():
        set_attribute(trace, record, attribute, values.get(attribute, Const(default)))
    return NONE


@function(Record.__enter__)
def enter_record(trace: Trace, record: Value) -> Value:
    """Nothing is recorded: the graph has no such names. So there is nothing to end either, in case
    that Python leaves the block."""
    set_attribute(trace, record, "run_callbacks_on_exit", FALSE)
    return record


@function(Record.__exit__)
def leave_record(trace: Trace, record: Value, *error: Value) -> Value:
    set_attribute(trace, record, "run_callbacks_on_exit", TRUE)
    return NONE
