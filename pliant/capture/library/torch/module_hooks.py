"""Hooks of modules on the backward pass: nodes of the graph that set them up.

PyTorch puts a node of its own around the inputs and the outputs of a module, and calls the hooks
from there when gradients arrive, long after the graph has run. So the hooks need not be followed:
the graph holds the same objects, and does the same with them.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import fx
from torch.nn.modules._functions import BackwardHookFunction
from torch.utils.hooks import BackwardHook

from pliant.base.bodies import BODY_CALLS, BodyCall
from pliant.capture.library.torch.bodies import record_body_call
from pliant.capture.library.torch.callbacks import function_itself
from pliant.capture.library.torch.custom_functions import either
from pliant.capture.library.torch.graph_objects import graph_object, method_of
from pliant.capture.native import function
from pliant.capture.trace import Trace
from pliant.capture.value import Break, Value
from pliant.capture.values.containers import Sequence
from pliant.capture.values.graph_objects import GraphObject
from pliant.capture.values.tensors import TensorValue


@function(BackwardHook)
def backward_hook(trace: Trace, module: Value, user_hooks: Value, user_pre_hooks: Value) -> Value:
    lists = [trace.read(user_hooks), trace.read(user_pre_hooks)]
    hooks = [[_hook(trace, h) for h in v.items] for v in lists if isinstance(v, Sequence)]
    trace.graph_effects.hooks = True
    node, _ = either(trace, module, "a module with backward hooks")
    return graph_object(trace, make_backward_hook, (node, *hooks), BackwardHook(None, [], []))


def _hook(trace: Trace, hook: Value) -> fx.Node:
    node = function_itself(trace, hook)
    if node is None:
        raise Break("body-effect", "a backward hook of a module that is made anew on each call")
    return node


def make_backward_hook(module: torch.nn.Module, hooks: list[Any], pre_hooks: list[Any]) -> Any:
    return BackwardHook(module, list(hooks), list(pre_hooks))


def setup_input_hook(hook: BackwardHook, args: Any) -> Any:
    return hook.setup_input_hook(args)


def setup_output_hook(hook: BackwardHook, results: Any) -> Any:
    return hook.setup_output_hook(results)


BODY_CALLS[make_backward_hook] = BodyCall.MODULE_HOOKS
BODY_CALLS[setup_input_hook] = BODY_CALLS[setup_output_hook] = BodyCall.SETS_UP_HOOKS


@method_of(BackwardHook, "setup_input_hook")
def setup_inputs(trace: Trace, obj: GraphObject, args: Value) -> Value:
    return _set_up(trace, setup_input_hook, obj, trace.read(args))


@method_of(BackwardHook, "setup_output_hook")
def setup_outputs(trace: Trace, obj: GraphObject, args: Value) -> Value:
    outputs = trace.read(args)
    if isinstance(outputs, Sequence) and issubclass(outputs.cls, tuple):
        return _set_up(trace, setup_output_hook, obj, outputs)
    result = _set_up(trace, setup_output_hook, obj, Sequence(tuple, [outputs]))
    assert isinstance(result, Sequence)
    return result.items[0]


def _pass_through(args: tuple[torch.Tensor | None, ...]) -> Any:
    """On fakes: what a hook does to the tensors. (PyTorch counts the hooks it has ever made.)"""
    tensors = [arg for arg in args if arg is not None]
    if not torch.is_grad_enabled() or not any(t.requires_grad for t in tensors):
        return args
    passed = iter(BackwardHookFunction.apply(*tensors))
    return tuple(None if arg is None else next(passed) for arg in args)


def _set_up(trace: Trace, target: Any, obj: GraphObject, values: Value) -> Value:
    """Only tensors matter to the hook, and where they are."""
    assert isinstance(values, Sequence)
    items = [trace.read(item) for item in values.items]
    tensors = [item if isinstance(item, TensorValue) else None for item in items]
    nodes, fakes = (tuple(t and getattr(t, name) for t in tensors) for name in ("node", "fake"))
    before = trace.graph_effects.other
    result = record_body_call(
        trace, target, (obj.node, nodes), (fakes,), effect=True, on_fakes=_pass_through
    )
    trace.graph_effects.other = before  # it changes nothing but what this graph has made
    assert isinstance(result, Sequence)
    pairs = zip(result.items, items, strict=True)
    results = [new if isinstance(old, TensorValue) else old for new, old in pairs]
    return Sequence(values.cls, results)


def _in_python(trace: Trace, self: Value, args: Value) -> Value:
    """Of a hook that was set up outside. Following it would find many things that can't be."""
    raise Break("tensor-method", "setting up backward hooks of a module")


function(BackwardHook.setup_input_hook, BackwardHook.setup_output_hook)(_in_python)
