"""`backward` inside the program: a node of the graph that writes the gradients of its leaves.

The one idea: fakes have a history that is PyTorch's own, so running `backward` on them tells which
tensors get a gradient and how it looks. What the history does not tell, the graph must not guess:
where it leads to tensors computed outside, or to functions of the program that do more than
compute, Python runs `backward`.
"""

from __future__ import annotations

import operator
from dataclasses import field
from itertools import combinations
from typing import Any, Final

import torch
from torch import fx
from torch.autograd.function import BackwardCFunction

from pliant.base.values import dataclass
from pliant.base.writes import WHOLLY, WRITES
from pliant.capture.failures import program_handles
from pliant.capture.library.torch.bodies import follow_aside
from pliant.capture.library.torch.targets import is_reentrant
from pliant.capture.model import get_attribute
from pliant.capture.native import function
from pliant.capture.torch_calls import (
    SETTERS,
    about_to_write,
    convert,
    from_result,
    gradient,
    run_on_fakes,
)
from pliant.capture.trace import UNFOLLOWED, Restart, Trace
from pliant.capture.value import FALSE, NONE, Break, Const, Value
from pliant.capture.values.containers import Sequence, instance_dict
from pliant.capture.values.objects import Instance
from pliant.capture.values.tensors import TensorValue
from pliant.fake.functions import made_by_rule
from pliant.fake.world import GOES_BACK
from pliant.guards.guard import GuardKind
from pliant.guards.source import Attr

NAME = "Tensor.backward"
HOOKS = ("_backward_hooks", "_post_accumulate_grad_hooks")


@dataclass(slots=True)
class History:
    """What autograd's engine meets on its way back from some tensors: the subgraph of the history
    that they lead to."""

    leaves: list[TensorValue] = field(default_factory=list)
    functions: list[Any] = field(default_factory=list)  # nodes that run Python code
    outside: bool = False  # it goes on in what was computed outside
    reentrant: bool = False  # through a checkpoint, which PyTorch refuses for some gradients only


def history_of(trace: Trace, roots: list[TensorValue]) -> History:
    """Walk the history of the fakes back from these tensors (each node once)."""
    history, visited = History(), set()
    reached = [root.fake.grad_fn for root in roots]
    for root in roots:
        if root.fake.grad_fn is None and root.fake.requires_grad:
            _add_leaf(trace, history, root.fake)
    # Depth-first, with an explicit stack: a history is as long as the program.
    while reached:
        node = reached.pop()
        if node is None or node in visited:
            continue
        visited.add(node)
        reached += [following for following, _ in node.next_functions]
        if hasattr(node, "variable"):
            _add_leaf(trace, history, node.variable)
        elif is_reentrant(node):
            history.reentrant = True
        elif isinstance(node, BackwardCFunction) and not (
            made_by_rule(node) or is_registered(node)
        ):
            history.functions.append(node)
    return history


def is_registered(node: BackwardCFunction) -> bool:
    """Whether this is a step of a custom operator, whose backward is a part of the operator: as the
    operator itself, it may do nothing but compute (`torch.library.register_autograd`)."""
    return bool(type(node)._forward_cls.backward.__module__ == REGISTERED)  # type: ignore[attr-defined]


REGISTERED: Final = torch._library.autograd.__name__


def _add_leaf(trace: Trace, history: History, fake: Any) -> None:
    tensor = trace.tensors.get(id(fake))
    if tensor is None or (tensor.real is not None and not tensor.real.is_leaf):
        history.outside = True  # the fake of a result has a beginning of its own
    elif tensor not in history.leaves:
        history.leaves.append(tensor)


def assume_leaves(trace: Trace, leaves: list[TensorValue]) -> None:
    """Guard that these tensors are leaves on later calls, too: that their history begins with
    them."""
    for leaf in leaves:
        if leaf.source is not None:
            trace.guard(GuardKind.EQUALS, Attr(leaf.source, "is_leaf"), True)


def _assume_no_hooks(trace: Trace, leaves: list[TensorValue]) -> None:
    for leaf in leaves:
        if leaf.source is None:
            continue
        for name in HOOKS:
            if getattr(leaf.real, name) is not None:
                raise Break("tensor-method", f"{NAME} with hooks on a tensor from outside")
            trace.guard(GuardKind.IS, Attr(leaf.source, name), None)


def starts_with_leaves(trace: Trace, history: History) -> bool:
    """Whether the whole history is known: it begins in leaves without hooks. If so, this is
    guarded."""
    if history.outside or history.reentrant:
        return False
    sources = [leaf.real for leaf in history.leaves if leaf.source is not None]
    if any(getattr(real, name) is not None for real in sources for name in HOOKS):
        return False
    assume_leaves(trace, history.leaves)
    _assume_no_hooks(trace, history.leaves)
    return True


# ---- backward


@function(torch.Tensor.backward)
def tensor_backward(
    trace: Trace,
    self: Value,
    gradient: Value = NONE,
    retain_graph: Value = NONE,
    create_graph: Value = FALSE,
    inputs: Value = NONE,
) -> Value:
    return backward(trace, self, gradient, retain_graph, create_graph, NONE, inputs)


@function(torch.autograd.backward)
def backward(
    trace: Trace,
    tensors: Value,
    grad_tensors: Value = NONE,
    retain_graph: Value = NONE,
    create_graph: Value = FALSE,
    grad_variables: Value = NONE,
    inputs: Value = NONE,
) -> Value:
    if trace.watch is not None or program_handles(trace.frames):
        raise Break("tensor-method", f"{NAME} where it may be repeated")
    if trace.read(grad_variables) is not NONE and trace.read(grad_variables).constant() is not None:
        raise Break("warning", f"{NAME} with grad_variables")
    roots, chosen_inputs = tensors_in(trace, tensors), tensors_in(trace, inputs)
    history = history_of(trace, roots)
    if history.outside or not roots:
        raise Break("tensor-method", f"{NAME} through what was computed outside")
    if history.reentrant and not _is_none(trace, inputs):
        raise Break("tensor-method", f"{NAME} into some leaves through a reentrant checkpoint")
    leaves = history.leaves if _is_none(trace, inputs) else chosen_inputs
    if not all(leaf in history.leaves for leaf in leaves):
        raise Break("tensor-method", f"{NAME} into a tensor that is no leaf")
    creates = bool(trace.read(create_graph).constant())
    # The program's own backward functions run during `backward`: they may only compute.
    follow_functions(trace, history, creates)
    assume_leaves(trace, history.leaves)
    _assume_no_hooks(trace, history.leaves)
    arguments = [tensors, grad_tensors, retain_graph, create_graph, NONE, inputs]
    pairs = [convert(trace, value, NAME) for value in arguments]
    # Before the run on fakes, which adds to these gradients.
    settings = [_setting(trace, leaf) for leaf in leaves]
    before = [None if held is None else held.fake for held in settings]
    for leaf, fake in zip(leaves, before, strict=True):
        leaf.fake.grad = fake
    # Formulas of gradients treat small sizes apart.
    with trace.sizes.env.taken_as_large():
        result = run_on_fakes(trace, NAME, _backward_beside, [before, *(p[1] for p in pairs)], {})
    trace.sizes.emit_checks()  # in front of `backward`, which can't be undone
    for leaf, held in zip(leaves, settings, strict=True):
        _settle(trace, leaf, held)
    about_to_write(trace, torch.autograd.backward, result.mutated)
    trace.changes += 1
    trace.writes_tensors = True
    node = trace.graph.operation(
        torch.autograd.backward, tuple(p[0] for p in pairs), {}, trace.stack(), True
    )
    written = {fake.untyped_storage()._cdata for fake in result.mutated}
    trace.graph_effects.note_backward(node, leaves, written)
    take_gradients(trace, leaves)
    return NONE


def _backward_beside(gradients: Any, *args: Any) -> None:
    """`backward`, with the present gradients among the arguments, so that the run on fakes shows
    whether they are written to."""
    torch.autograd.backward(*args)


setattr(_backward_beside, GOES_BACK, True)


def set_gradient(trace: Trace, tensor: TensorValue, value: Value) -> None:
    """`tensor.grad = value`, which residual code does unless `backward` adds to it."""
    trace.mutate_always(tensor)
    tensor.slots["grad"] = value
    tensor.written["grad"] = None


SETTERS["grad"] = set_gradient


def _is_none(trace: Trace, value: Value) -> bool:
    constant = trace.read(value)
    return isinstance(constant, Const) and constant.value is None


def tensors_in(trace: Trace, value: Value) -> list[TensorValue]:
    content = trace.read(value)
    items = content.items if isinstance(content, Sequence) else [content]
    read = [trace.read(item) for item in items]
    return [item for item in read if isinstance(item, TensorValue)]


def _setting(trace: Trace, leaf: TensorValue) -> TensorValue | None:
    """The gradient that a leaf has by now, if there is one."""
    value = gradient(trace, leaf)
    setting = NONE if value is None else trace.read(value)
    if setting is not NONE and not isinstance(setting, TensorValue | Const):
        raise Break("tensor-attribute", f"{NAME} with a gradient of another kind")
    return setting if isinstance(setting, TensorValue) else None


def _settle(trace: Trace, leaf: TensorValue, held: TensorValue | None) -> None:
    """Have the graph write a gradient that the program has set in Python only: `backward` adds to
    it."""
    outside = held is not None and held.source is not None
    if "grad" in leaf.written or outside:  # what `backward` adds to is an input of the graph
        leaf.written.pop("grad", None)
        args = (leaf.node, "grad", None if held is None else held.node)
        trace.graph.operation(setattr, args, {}, trace.stack(), True).meta[WRITES] = WHOLLY


def take_gradients(trace: Trace, leaves: list[TensorValue]) -> None:
    """Have the program find the gradients that the graph has written, as `tensor.grad`."""
    retaining = [value for value in trace.tensors.values() if value.fake.retains_grad]
    for tensor in [*leaves, *retaining]:
        gradient = tensor.fake.grad
        if gradient is None:
            continue
        gradient_value = trace.tensors.get(id(gradient))
        if gradient_value is None:
            node = trace.graph.operation(getattr, (tensor.node, "grad"), {}, trace.stack(), False)
            gradient_value = from_result(trace, gradient, node, "Tensor.grad")
        tensor.slots["grad"] = gradient_value


# ---- the program's own functions on the way


@dataclass(frozen=True, slots=True)
class Applied:
    """A call of an `autograd.Function`: what its forward left in the context, and its results."""

    cls: Any
    context: Instance
    outputs: list[Value]


def note_applied(trace: Trace, cls: Any, context: Instance, result: Value) -> None:
    outputs = result.items if isinstance(result, Sequence) else [result]
    for output in outputs:
        node = output.fake.grad_fn if isinstance(output, TensorValue) else None
        if isinstance(node, BackwardCFunction):
            trace.applied[node] = Applied(cls, context, list(outputs))


def call_of(result: Value) -> fx.Node | None:
    """The node of the call that returned this, or a tuple with it."""
    outputs = result.items if isinstance(result, Sequence) else [result]
    nodes = [output.node for output in outputs if isinstance(output, TensorValue)]
    if not nodes:
        return None
    node = nodes[0].args[0] if nodes[0].target is operator.getitem else nodes[0]
    return node if isinstance(node, fx.Node) else None


def follow_backward(trace: Trace, result: Value) -> bool:
    """Follow the backward of the function that returned this, on the side. False if it does more
    than compute: then it isn't followed, and the function stays one that PyTorch runs."""
    step = trace.frames[-1].step
    if trace.break_at.get(step) is UNFOLLOWED:
        return False
    outputs = result.items if isinstance(result, Sequence) else [result]
    nodes = {o.fake.grad_fn: None for o in outputs if isinstance(o, TensorValue)}
    around, trace.optional = trace.optional, step if trace.optional is None else trace.optional
    try:
        for node in nodes:
            if node in trace.applied:
                _follow_function(trace, trace.applied[node], False)
    except Break:  # what it has changed so far is part of the trace
        raise Restart(trace.optional, UNFOLLOWED) from None
    finally:
        trace.optional = around
    return True


def follow_functions(trace: Trace, history: History, creates: bool) -> None:
    """Follow the backward of each of the program's functions in the history, on the side: they may
    do nothing but compute."""
    if torch.is_anomaly_enabled():
        raise Break("tensor-method", f"{NAME} with anomaly detection")
    if trace.graph_effects.hooks:
        raise Break("tensor-method", f"{NAME} with hooks that may do anything")
    for node in history.functions:
        applied = trace.applied.get(node)
        if applied is None:
            raise Break("tensor-method", f"{NAME} through {type(node).__name__}")
        _follow_function(trace, applied, creates)


def _follow_function(trace: Trace, applied: Applied, creates: bool) -> None:
    context = applied.context
    attributes = instance_dict(trace, context)
    materialized = attributes.get(trace, "materialize_grads")
    absent = materialized is not None and not trace.read(materialized).constant()
    saved = attributes.get(trace, "to_save") or Sequence(tuple, [])
    context.store_attribute(trace, "saved_tensors", saved)
    for missing in _sets_of_missing(applied.outputs) if absent else [frozenset[int]()]:
        gradients = [
            NONE if at in missing else _like(trace, output)
            for at, output in enumerate(applied.outputs)
        ]
        _follow_once(trace, applied, creates, gradients)


def _sets_of_missing(outputs: list[Value]) -> list[frozenset[int]]:
    """The sets of outputs whose gradient may be None when the backward runs. At least one gradient
    arrives."""
    graded = {at for at, output in enumerate(outputs) if _requires_grad(output)}
    if len(graded) > MOST_GRADED:
        raise Break(
            "tensor-method", f"{NAME} through a function with many results that may be None"
        )
    others = frozenset(range(len(outputs))) - graded
    return [
        others | (graded - set(present))
        for count in range(1, len(graded) + 1)
        for present in combinations(sorted(graded), count)
    ]


MOST_GRADED: Final = 3  # its backward is followed once for each set that may arrive


def _follow_once(trace: Trace, applied: Applied, creates: bool, gradients: list[Value]) -> None:
    before = torch.is_grad_enabled()
    torch._C._set_grad_enabled(creates)
    try:
        method = get_attribute(trace, Const(applied.cls), "backward")
        arguments = [applied.context, *gradients]
        follow_aside(trace, applied.cls.__name__, method, arguments, {}, applied.context)
    finally:
        torch._C._set_grad_enabled(before)


def _requires_grad(output: Value) -> bool:
    return isinstance(output, TensorValue) and output.fake.requires_grad


def _like(trace: Trace, output: Value) -> Value:
    """A stand-in for the gradient of a result."""
    if not isinstance(output, TensorValue):
        return NONE
    fake = trace.world.run(torch.empty_like, (output.fake.detach(),)).value
    gradient = TensorValue(output.node, fake)
    trace.tensors[id(fake)] = gradient
    return gradient
