"""Tensors' own hooks and gradients: `register_hook`, `retain_grad`, `torch.autograd.grad`.

A hook is a body, registered by a node of the graph where the program registered it. What the engine
of autograd does by itself (`backward`) is not captured: it runs hooks and writes to any tensor.
"""

from __future__ import annotations

import types
from typing import Any

import torch
from torch.utils.hooks import RemovableHandle

from pliant.capture.library import torch_targets as targets
from pliant.capture.library.torch_bodies import follow_body
from pliant.capture.library.torch_objects import graph_object, method_of
from pliant.capture.native import FUNCTIONS, function
from pliant.capture.torch_calls import NOT_OPERATIONS, convert, record, run_on_fakes
from pliant.capture.trace import Trace
from pliant.capture.value import FALSE, NONE, Break, Value
from pliant.capture.values.containers import Sequence
from pliant.capture.values.graph_objects import GraphObject
from pliant.capture.values.tensors import TensorValue


@function(torch.Tensor.register_hook)
def register_hook(trace: Trace, tensor: Value, hook: Value) -> Value:
    known = trace.read(tensor)
    if not isinstance(known, TensorValue) or not known.fake.requires_grad:
        raise Break("operation-raises", "Tensor.register_hook")
    body = follow_body(trace, "register_hook", hook, [known], {}, [torch.Tensor.detach])
    if body.effect:
        raise Break("body-effect", "a hook that draws or writes")
    trace.lasting.other = True
    args = (known.node, body.node, tuple(body.lifted))
    handle = RemovableHandle.__new__(RemovableHandle)  # one without anything to remove
    return graph_object(trace, targets.register_hook, args, handle, effect=True)


@method_of(RemovableHandle, "remove")
def remove(trace: Trace, handle: GraphObject) -> Value:
    trace.changes += 1
    trace.graph.operation("remove", (handle.node,), {}, trace.stack(), True)
    return NONE


@function(torch.autograd.grad)
def autograd_grad(
    trace: Trace,
    outputs: Value,
    inputs: Value,
    grad_outputs: Value = NONE,
    retain_graph: Value = NONE,
    create_graph: Value = FALSE,
    allow_unused: Value = NONE,
    is_grads_batched: Value = FALSE,
    materialize_grads: Value = FALSE,
) -> Value:
    """Gradients of tensors that the graph has computed, of which all is known.

    A tensor from outside may lead to others in ways that show only when the code runs, so that
    there is no telling whether a gradient will be None.
    """
    given = {
        "outputs": outputs, "inputs": inputs, "grad_outputs": grad_outputs,
        "retain_graph": retain_graph, "create_graph": create_graph, "allow_unused": allow_unused,
        "is_grads_batched": is_grads_batched, "materialize_grads": materialize_grads,
    }  # fmt: skip
    for value in _tensors(trace, inputs):
        if value.real is not None and not value.real.is_leaf:
            raise Break("tensor-method", "torch.autograd.grad of a tensor with a history")
    pairs = {key: convert(trace, value, "torch.autograd.grad") for key, value in given.items()}
    fakes = {key: pair[1] for key, pair in pairs.items()}
    fakes["retain_graph"] = True  # this is to see whether it can be done
    found = run_on_fakes(trace, "torch.autograd.grad", torch.autograd.grad, [], fakes)
    if any(gradient is None for gradient in found.value):
        raise Break("tensor-method", "torch.autograd.grad with a gradient that is None")
    return record(trace, torch.autograd.grad, torch.autograd.grad, [], given)


def _tensors(trace: Trace, value: Value) -> list[TensorValue]:
    known = trace.read(value)
    items = known.items if isinstance(known, Sequence) else [known]
    read = [trace.read(item) for item in items]
    return [item for item in read if isinstance(item, TensorValue)]


def _refuse(name: str) -> Any:
    def refuse(trace: Trace, *args: Value, **kwargs: Value) -> Value:
        raise Break("tensor-method", f"Tensor.{name}")

    return refuse


for _name in NOT_OPERATIONS:
    _method = getattr(torch.Tensor, _name, None)
    dunder = _name.startswith("__")
    if isinstance(_method, types.FunctionType) and _method not in FUNCTIONS and not dunder:
        function(_method)(_refuse(_name))
