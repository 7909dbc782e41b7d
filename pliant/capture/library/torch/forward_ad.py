"""Forward-mode derivatives: dual numbers (`torch.autograd.forward_ad`) and `torch.func.linearize`.

The level of dual numbers is state of PyTorch's. It is entered for real while the program is
followed, so that fakes have tangents too, and by nodes of the graph; both leave it.
"""

from __future__ import annotations

import contextlib
import functools
import types
from typing import Any

import torch
from torch._functorch import eager_transforms
from torch.autograd import forward_ad

from pliant.capture.attributes import module_namespace
from pliant.capture.library.torch import targets
from pliant.capture.library.torch.bodies import Body, follow_body, record_body_call
from pliant.capture.model import CALL
from pliant.capture.native import function
from pliant.capture.torch_calls import convert, record
from pliant.capture.trace import Trace
from pliant.capture.value import NONE, Break, Const, Value
from pliant.capture.values.containers import Sequence
from pliant.capture.values.tensors import TensorValue

LEVEL = 0  # PyTorch has no other
CURRENT = "_current_level"
ENTERED = 0  # the key in `trace.entered`


EXIT = functools.partial(torch._C._exit_dual_level, level=LEVEL)


def leave_dual_level() -> None:
    """However far a graph that failed, or the capture, has come."""
    with contextlib.suppress(RuntimeError):
        torch._C._exit_dual_level(level=LEVEL)


@function(forward_ad.enter_dual_level)
def enter_dual_level(trace: Trace) -> Value:
    current = module_namespace(trace, forward_ad).get(trace, CURRENT)
    if current is None or trace.read(current).constant() != LEVEL - 1 or trace.watch is not None:
        raise Break("unsupported", "a level of dual numbers inside another")
    trace.undo_later(leave_dual_level, EXIT)
    torch._C._enter_dual_level()
    trace.entered[ENTERED] = True
    trace.world.keeps_tangents = True
    _change_level(trace, LEVEL)
    trace.graph.operation(torch._C._enter_dual_level, (), {}, trace.stack(), True)
    return Const(LEVEL)


@function(forward_ad.exit_dual_level)
def exit_dual_level(trace: Trace, *, level: Value = NONE) -> Value:
    _must_be_inside(trace, level)
    del trace.entered[ENTERED]
    torch._C._exit_dual_level(level=LEVEL)
    trace.cleanups.remove(EXIT)
    trace.world.keeps_tangents = False
    _change_level(trace, LEVEL - 1)
    trace.graph.operation(torch._C._exit_dual_level, (LEVEL,), {}, trace.stack(), True)
    return NONE


def _must_be_inside(trace: Trace, level: Value) -> None:
    """Of a level that was entered outside, tensors from outside may have tangents."""
    requested = trace.read(level)
    if ENTERED not in trace.entered or requested.constant() not in (None, LEVEL):
        raise Break("unsupported", "a level of dual numbers that was entered outside")


def _change_level(trace: Trace, level: int) -> None:
    trace.changes += 1
    module_namespace(trace, forward_ad).store(trace, CURRENT, Const(level))


@function(forward_ad.make_dual)
def make_dual(trace: Trace, tensor: Value, tangent: Value, *, level: Value = NONE) -> Value:
    _must_be_inside(trace, level)
    pair = [trace.read(tensor), trace.read(tangent)]
    for value in pair:
        graded = isinstance(value, TensorValue) and value.fake.dtype
        if not graded or not (graded.is_floating_point or graded.is_complex):
            raise Break("operation-raises", "make_dual")
    forward_ad._maybe_load_decompositions()
    return record(trace, torch._make_dual, torch._make_dual, pair, {"level": Const(LEVEL)})


@function(forward_ad.unpack_dual)
def unpack_dual(trace: Trace, tensor: Value, *, level: Value = NONE) -> Value:
    _must_be_inside(trace, level)
    pair = record(trace, torch._unpack_dual, torch._unpack_dual, [tensor], {"level": Const(LEVEL)})
    assert isinstance(pair, Sequence)
    return Sequence(forward_ad.UnpackedDualTensor, pair.items)


# ---- linearize


class LinearMap(Value):
    """The function that `torch.func.linearize` returns."""

    __slots__ = ("body", "primals")

    def __init__(self, body: Body, primals: list[TensorValue]) -> None:
        super().__init__()
        self.body = body
        self.primals = primals

    def python_type(self) -> type:
        return types.FunctionType

    def instance_attribute(self, trace: Trace, name: str) -> Value | None:
        raise Break("unsupported-attribute", f"the function of torch.func.linearize, {name}")


@function(eager_transforms.linearize)
def linearize(trace: Trace, func: Value, *primals: Value) -> Value:
    primal_values = [trace.read(primal) for primal in primals]
    tensors = [value for value in primal_values if isinstance(value, TensorValue)]
    if len(tensors) != len(primal_values) or not primal_values:
        raise Break("operation-argument", "torch.func.linearize of what is no tensor")
    body = follow_body(trace, "linearize", func, primal_values, {}, [None] * len(primal_values))
    if body.effect:
        raise Break("body-effect", "torch.func.linearize of a function that draws or writes")
    output = record_body_call(
        trace,
        call_body,
        (body.node, tuple(t.node for t in tensors), tuple(body.lifted)),
        (body.module, tuple(t.fake for t in tensors), tuple(body.lifted_fakes)),
    )
    return Sequence(tuple, [output, LinearMap(body, tensors)])


def call_body(body: Any, args: Any, lifted: Any) -> Any:
    return body(*args, *lifted)


def linear_map(body: Any, primals: Any, lifted: Any, tangents: Any) -> Any:
    return targets.jvp(body, {}, primals, lifted, tangents)[1]


def call_linear_map(
    trace: Trace, target: LinearMap, args: list[Value], kwargs: dict[str, Value], direct: bool
) -> Value:
    pairs = [convert(trace, arg, "linearize") for arg in args]
    if kwargs or len(pairs) != len(target.primals):
        raise Break("operation-raises", "the function of torch.func.linearize")
    for primal, (_, fake) in zip(target.primals, pairs, strict=True):
        alike = isinstance(fake, torch.Tensor) and fake.dtype is primal.fake.dtype
        if not alike or tuple(fake.shape) != tuple(primal.fake.shape):
            raise Break("operation-raises", "the function of torch.func.linearize")
    body, primals = target.body, target.primals
    return record_body_call(
        trace,
        linear_map,
        (body.node, tuple(t.node for t in primals), tuple(body.lifted), tuple(p[0] for p in pairs)),
        (
            body.module,
            tuple(t.fake for t in primals),
            tuple(body.lifted_fakes),
            tuple(p[1] for p in pairs),
        ),
        may_write=False,
    )


CALL[LinearMap] = call_linear_map
