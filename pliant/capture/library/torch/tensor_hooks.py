"""Tensors' own hooks and gradients: `register_hook`, `retain_grad`, `torch.autograd.grad`.

A hook is a body, registered by a node of the graph where the program registered it. The engine of
autograd calls it later: in a `backward` of the graph (`backward`), or after the graph has returned.
"""

from __future__ import annotations

import types
from typing import Any

import torch
from torch.utils.hooks import RemovableHandle

from pliant.base.bodies import LEAVES
from pliant.capture.library.torch import targets
from pliant.capture.library.torch.backward import (
    assume_leaves,
    call_of,
    follow_functions,
    history_of,
    starts_with_leaves,
    take_gradients,
    tensors_in,
)
from pliant.capture.library.torch.bodies import Body, follow_body
from pliant.capture.library.torch.callbacks import (
    function_itself,
    is_leaf,
    keeps_its_variables,
    only_computes,
)
from pliant.capture.library.torch.graph_objects import graph_object, method_of
from pliant.capture.model import drain
from pliant.capture.native import FUNCTIONS, function
from pliant.capture.torch_calls import NOT_OPERATIONS, convert, record, run_on_fakes
from pliant.capture.trace import UNFOLLOWED, Restart, Trace
from pliant.capture.value import FALSE, NONE, TRUE, Break, Const, Value
from pliant.capture.values.containers import Mapping, Sequence, plain_tuple
from pliant.capture.values.graph_objects import GraphObject
from pliant.capture.values.tensors import TensorValue


@function(torch.Tensor.register_hook)
def register_hook(trace: Trace, tensor: Value, hook: Value) -> Value:
    tensor_value = trace.read(tensor)
    if not isinstance(tensor_value, TensorValue) or not tensor_value.fake.requires_grad:
        raise Break("operation-raises", "Tensor.register_hook")
    step = trace.frames[-1].step
    # Some that can be called as they are had better be followed, if they only compute.
    follows = only_computes(trace.read(hook)) and trace.break_at.get(step) is not UNFOLLOWED
    function_node = None if follows else function_itself(trace, hook)
    args: tuple[Any, ...]
    if function_node is not None:
        trace.graph_effects.hooks = True
        args = (tensor_value.node, function_node, ())
    elif not keeps_its_variables(trace, hook):
        raise Break("body-effect", "a hook whose variables may change before it is called")
    else:
        body = _followed(trace, hook, tensor_value, step if follows else None)
        args = (tensor_value.node, body.node, tuple(body.lifted))
    return _registered(trace, targets.register_hook, args)


def _followed(trace: Trace, hook: Value, tensor: TensorValue, step: int | None) -> Body:
    """The body of a hook. If it does more than compute, capture starts over, and calls it as it is,
    where that can be done: `step` is the instruction that registers it."""
    around, trace.optional = trace.optional, step if trace.optional is None else trace.optional
    try:
        body = follow_body(trace, "register_hook", hook, [tensor], {}, [torch.Tensor.detach])
        if body.effect:
            raise Break("body-effect", "a hook that draws or writes")
        return body
    except Break:
        if trace.optional is None:
            raise
        raise Restart(trace.optional, UNFOLLOWED) from None
    finally:
        trace.optional = around


def _registered(trace: Trace, target: Any, args: tuple[Any, ...]) -> Value:
    # A hook can't be unregistered by putting memory back.
    trace.graph_effects.other = True
    handle = RemovableHandle.__new__(RemovableHandle)  # one without anything to remove
    return graph_object(trace, target, args, handle, effect=True)


@function(torch.Tensor.register_post_accumulate_grad_hook)
def register_post_accumulate(trace: Trace, tensor: Value, hook: Value) -> Value:
    tensor_value = trace.read(tensor)
    if (
        not isinstance(tensor_value, TensorValue)
        or not tensor_value.fake.requires_grad
        or not is_leaf(tensor_value)
    ):
        raise Break("operation-raises", "Tensor.register_post_accumulate_grad_hook")
    function_node = function_itself(trace, hook)
    if function_node is None:
        raise Break("body-effect", "a hook that is made anew on each call")
    assume_leaves(trace, [tensor_value])
    trace.graph_effects.hooks = True
    return _registered(
        trace, "register_post_accumulate_grad_hook", (tensor_value.node, function_node)
    )


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
    only_inputs: Value = TRUE,
    allow_unused: Value = NONE,
    is_grads_batched: Value = FALSE,
    materialize_grads: Value = FALSE,
) -> Value:
    """Gradients of tensors that the graph has computed, and of which the whole history is known.

    A tensor from outside may have a history that shows only when the code runs: then there is no
    telling whether a gradient will be None.
    """
    if not trace.read(only_inputs).constant():
        raise Break("warning", "torch.autograd.grad with only_inputs=False")
    options = {
        "outputs": outputs, "inputs": inputs, "grad_outputs": grad_outputs,
        "retain_graph": retain_graph, "create_graph": create_graph, "allow_unused": allow_unused,
        "is_grads_batched": is_grads_batched, "materialize_grads": materialize_grads,
    }  # fmt: skip
    for name in ("outputs", "inputs", "grad_outputs"):
        options[name] = _listed(trace, options[name])
    outputs = options["outputs"]
    history = history_of(trace, tensors_in(trace, outputs))
    follow_functions(trace, history, bool(trace.read(create_graph).constant()))
    pairs = {key: convert(trace, value, "torch.autograd.grad") for key, value in options.items()}
    fakes = {key: pair[1] for key, pair in pairs.items()}
    fakes["retain_graph"] = True  # this is to see whether it can be done
    with trace.sizes.env.taken_as_large():
        gradients = run_on_fakes(trace, "torch.autograd.grad", torch.autograd.grad, [], fakes)
    if any(gradient is None for gradient in gradients.value):
        if history.outside:
            raise Break("tensor-method", "torch.autograd.grad with a gradient that may be None")
        assume_leaves(trace, history.leaves)
    from_leaves = starts_with_leaves(trace, history)
    result = record(trace, torch.autograd.grad, torch.autograd.grad, [], options)
    node = call_of(result)
    if node is not None:
        node.meta[LEAVES] = from_leaves
    take_gradients(trace, [])
    return result


def _listed(trace: Trace, tensors: Value) -> Value:
    """An iterable of tensors, such as `module.parameters()`, as a tuple."""
    tensors = trace.read(tensors)
    if isinstance(tensors, TensorValue | Const | Sequence | Mapping):
        return tensors
    return plain_tuple(drain(trace, tensors))


def _refuse(name: str) -> Any:
    def refuse(trace: Trace, /, *args: Value, **kwargs: Value) -> Value:
        raise Break("tensor-method", f"Tensor.{name}")

    return refuse


for _name in NOT_OPERATIONS:
    _method = getattr(torch.Tensor, _name, None)
    dunder = _name.startswith("__")
    if isinstance(_method, types.FunctionType) and _method not in FUNCTIONS and not dunder:
        function(_method)(_refuse(_name))
