"""`torch.cond`, `while_loop`, `scan` and `map`: control flow in the graph, one node each.

The functions they are given are followed once, on placeholders; which way is taken, and how often,
shows when the code runs.
"""

from __future__ import annotations

from typing import Any

import torch
from torch._higher_order_ops import map as map_over
from torch._higher_order_ops import scan, while_loop
from torch._higher_order_ops.cond import CondOp

from pliant.capture.library.torch import targets
from pliant.capture.library.torch.bodies import (
    Body,
    follow_body,
    named_body,
    record_body_call,
)
from pliant.capture.model import call, truth
from pliant.capture.native import SHORTCUTS, function
from pliant.capture.torch_calls import convert
from pliant.capture.trace import Trace
from pliant.capture.value import FALSE, Break, Const, Value
from pliant.capture.values.containers import Mapping, Sequence
from pliant.capture.values.tensors import TensorValue

NOTHING = Sequence(tuple, [])
FIRST = Const(0)


@function(torch.cond)
def cond(
    trace: Trace, pred: Value, true_fn: Value, false_fn: Value, operands: Value = NOTHING
) -> Value:
    """Without a tensor to decide it, the branch is taken now."""
    test, operand_values = trace.read(pred), trace.read(operands)
    if not isinstance(operand_values, Sequence):
        raise Break("operation-raises", "torch.cond")
    args = list(operand_values.items)
    if not isinstance(test, TensorValue):
        return call(trace, true_fn if truth(trace, test) else false_fn, args)
    if test.fake.numel() != 1:
        raise Break("operation-raises", "torch.cond")
    true = follow_body(trace, "torch.cond", true_fn, args)
    false = follow_body(trace, "torch.cond", false_fn, args)
    ways = named_body(trace, true, "cond_true"), named_body(trace, false, "cond_false")
    return record_body_call(
        trace,
        targets.cond,
        (test.node, *ways, tuple(true.lifted), tuple(false.lifted)),
        (test.fake, true.module, false.module, true.lifted_fakes, false.lifted_fakes),
        effect=true.effect or false.effect,
        on_fakes=targets.cond_on_fakes,
    )


def call_cond_operator(
    trace: Trace, args: list[Value], kwargs: dict[str, Value], direct: bool
) -> Value | None:
    """The operator itself, which `torch.cond` calls when PyTorch compiles it."""
    arguments = dict(zip(COND_ARGUMENTS, args[1:], strict=False))
    if arguments.keys() & kwargs.keys() or not {*arguments, *kwargs}.issubset(COND_ARGUMENTS):
        return None
    return cond(trace, **arguments, **kwargs)


COND_ARGUMENTS = ("pred", "true_fn", "false_fn", "operands")
SHORTCUTS[CondOp.__call__] = call_cond_operator


@function(while_loop)
def loop(trace: Trace, cond_fn: Value, body_fn: Value, carried_inputs: Value) -> Value:
    carried = trace.read(carried_inputs)
    if not isinstance(carried, Sequence):
        raise Break("operation-raises", "while_loop")
    args = [trace.read(item) for item in carried.items]
    if not args or not all(isinstance(arg, TensorValue) for arg in args):
        raise Break("operation-argument", "while_loop with something that is no tensor")
    test, step = (
        follow_body(trace, "while_loop", body, args, {}, [None] * len(args))
        for body in (cond_fn, body_fn)
    )
    nodes, fakes = convert(trace, Sequence(tuple, args), "while_loop")
    return record_body_call(
        trace,
        targets.while_loop,
        (test.node, step.node, nodes, tuple(test.lifted), tuple(step.lifted)),
        (test.module, step.module, fakes, test.lifted_fakes, step.lifted_fakes),
        effect=test.effect or step.effect,
        on_fakes=targets.while_loop_on_fakes,
    )


@function(scan)
def scan_over(
    trace: Trace,
    combine_fn: Value,
    init: Value,
    xs: Value,
    *,
    dim: Value = FIRST,
    reverse: Value = FALSE,
) -> Value:
    along, backwards = trace.read(dim).constant(), trace.read(reverse).constant()
    first, inputs = trace.read(init), trace.read(xs)
    if type(along) is not int or type(backwards) is not bool:
        raise Break("operation-raises", "scan")
    along = _from_the_front(trace, inputs, along)
    body = _followed(trace, "scan", combine_fn, [first, _slice(trace, inputs, along)])
    if not isinstance(body.result, Sequence) or len(body.result.items) != 2:
        raise Break("operation-raises", "scan")
    (carry, carry_fake), (over, over_fake) = (convert(trace, v, "scan") for v in (first, inputs))
    return record_body_call(
        trace,
        targets.scan,
        (body.node, carry, over, along, backwards, tuple(body.lifted)),
        (body.module, carry_fake, over_fake, along, backwards, body.lifted_fakes),
        effect=body.effect,
        on_fakes=targets.scan_on_fakes,
    )


@function(map_over)
def map_function(trace: Trace, f: Value, xs: Value, *args: Value) -> Value:
    inputs, rest = trace.read(xs), list(args)
    body = _followed(trace, "map", f, [_slice(trace, inputs, 0), *rest])
    (over, over_fake) = convert(trace, inputs, "map")
    pairs = [convert(trace, value, "map") for value in rest]
    return record_body_call(
        trace,
        targets.map_over,
        (body.node, over, tuple(pair[0] for pair in pairs), tuple(body.lifted)),
        (body.module, over_fake, tuple(pair[1] for pair in pairs), body.lifted_fakes),
        effect=body.effect,
        on_fakes=targets.map_on_fakes,
    )


def _followed(trace: Trace, name: str, body: Value, args: list[Value]) -> Body:
    return follow_body(trace, name, body, args, {}, [None] * len(args))


def _from_the_front(trace: Trace, value: Value, dim: int) -> int:
    """A dimension counted from the front, as of the first tensor in a structure."""
    value = trace.read(value)
    while isinstance(value, Sequence | Mapping):
        items = value.items if isinstance(value, Sequence) else value.read_all(trace).values()
        value = trace.read(next(iter(items), NOTHING))
        if value is NOTHING:
            break
    return dim + value.fake.dim() if dim < 0 and isinstance(value, TensorValue) else dim


def _slice(trace: Trace, value: Value, dim: int) -> Value:
    """The first of the elements along `dim`, of every tensor in a structure."""
    value = trace.read(value)
    if isinstance(value, TensorValue):
        if not -value.fake.dim() <= dim < value.fake.dim():
            raise Break("operation-raises", "an input without that dimension")
        fake: Any = trace.world.run(torch.Tensor.select, (value.fake, dim, 0)).value
        return TensorValue(value.node, fake, value.cls)
    if isinstance(value, Sequence):
        return Sequence(value.cls, [_slice(trace, item, dim) for item in value.items])
    if isinstance(value, Mapping):
        items = value.read_all(trace).items()
        return Mapping(value.cls, {key: _slice(trace, item, dim) for key, item in items})
    raise Break("operation-argument", "an input that is no tensor")
