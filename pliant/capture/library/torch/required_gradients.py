"""`x.requires_grad_()` and `x.requires_grad = True` of tensors from outside.

The one idea: as long as nothing has been computed from the tensor, it makes no difference whether
it requires grad a little earlier. So residual code says so before it calls the graph, whose input
is then a leaf like any parameter:

    x.requires_grad_()            # in the residual code
    graph_of_f(x, weight)
"""

from __future__ import annotations

import torch

from pliant.base.values import replace
from pliant.capture.host_randomness import RandomDraw
from pliant.capture.native import method
from pliant.capture.overrides import ORDINARY
from pliant.capture.torch_calls import SETTERS, record
from pliant.capture.trace import Trace
from pliant.capture.value import TRUE, Const, Value
from pliant.capture.values.tensors import TensorValue

REQUIRED = ("{}.requires_grad", "{}.requires_grad_({})")


@method(torch._C.TensorBase, "requires_grad_")
def requires_grad_(trace: Trace, tensor: Value, requires_grad: Value = TRUE) -> Value:
    value = trace.read(tensor)
    if isinstance(value, TensorValue) and _require_before_the_graph(trace, value, requires_grad):
        return value
    args = [] if requires_grad is TRUE else [requires_grad]
    return record(trace, "requires_grad_", torch.Tensor.requires_grad_, [tensor, *args], {})


def set_requires_grad(trace: Trace, tensor: TensorValue, requires_grad: Value) -> None:
    if not _require_before_the_graph(trace, tensor, requires_grad):
        record(trace, setattr, setattr, [tensor, Const("requires_grad"), requires_grad], {})


SETTERS["requires_grad"] = set_requires_grad


def _require_before_the_graph(trace: Trace, tensor: TensorValue, requires_grad: Value) -> bool:
    """Have residual code make an input a leaf that requires grad; False if it must be a node."""
    required = trace.read(requires_grad)
    if not isinstance(required, Const) or required.value is not True:
        return False
    if tensor.real is None or not _is_untouched(trace, tensor):
        return False
    with torch.no_grad():
        tensor.fake.requires_grad_()
    at = next(i for i, entry in enumerate(trace.graph.inputs) if entry.node is tensor.node)
    entry = trace.graph.inputs[at]
    trace.graph.inputs[at] = replace(entry, example=_as_leaf(tensor.real))
    trace.changes += 1
    trace.writes_tensors = True  # another input must not be the same tensor in the next call
    trace.random_draws.append(RandomDraw((), tensor, "{}.requires_grad_()", REQUIRED))
    return True


def _is_untouched(trace: Trace, tensor: TensorValue) -> bool:
    """Whether it is a plain input that can be a leaf, and the graph has done nothing with it."""
    if tensor.source is None or tensor.cls not in ORDINARY or tensor.node.op != "placeholder":
        return False
    if tensor.node.users or tensor.written or trace.graph.in_body or trace.under_transforms:
        return False
    fake = tensor.fake
    can_be_leaf = fake.is_floating_point() or fake.is_complex()
    return can_be_leaf and not fake.requires_grad and not fake.is_inference()


def _as_leaf(real: torch.Tensor) -> torch.Tensor:
    """A tensor of the same elements that requires grad, and no view."""
    with torch.no_grad():
        leaf = torch.empty((), dtype=real.dtype, device=real.device)
        place = (real.storage_offset(), real.size(), real.stride())
        return leaf.set_(real.untyped_storage(), *place).requires_grad_()
