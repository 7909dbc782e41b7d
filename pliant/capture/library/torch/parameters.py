"""Parameters and buffers made by the program: the graph makes the objects themselves."""

from __future__ import annotations

from typing import Any

import torch

from pliant.capture.library.torch import targets
from pliant.capture.library.torch.bodies import record_body_call
from pliant.capture.library.torch.tensor_subclasses import new_of_class
from pliant.capture.native import function
from pliant.capture.trace import Trace
from pliant.capture.value import FALSE, Break, Const, Value
from pliant.capture.values.containers import Mapping, Sequence, key_of
from pliant.capture.values.tensors import TensorValue

MAKERS: dict[type, Any] = {torch.nn.Parameter: targets.parameter, torch.nn.Buffer: targets.buffer}


@function(torch.Tensor._make_subclass)
def make_subclass(trace: Trace, cls: Value, data: Value, require_grad: Value = FALSE) -> Value:
    """What `torch.nn.Parameter(data)` comes to: the graph makes the object itself."""
    kind, tensor = trace.read(cls).constant(), trace.read(data)
    maker = MAKERS.get(kind)
    if maker is None and isinstance(tensor, TensorValue):
        return new_of_class(trace, kind, tensor, bool(trace.read(require_grad).constant()))
    if maker is None or not isinstance(tensor, TensorValue):
        raise Break("tensor-kind", f"a new {kind.__name__}")
    flag = trace.read(require_grad).constant()
    result = record_body_call(
        trace, maker, (tensor.node, flag), (tensor.fake, flag), on_fakes=targets.leaf_like
    )
    assert isinstance(result, TensorValue)
    result.cls = kind
    return result


# ---- lists of tensors


@function(torch._C._group_tensors_by_device_and_dtype)
def group_tensors(trace: Trace, lists: Value, with_indices: Value = FALSE) -> Value:
    """Lists of tensors as those of one kind. The order of several kinds is PyTorch's secret."""
    outer = trace.read(lists)
    assert isinstance(outer, Sequence)
    columns = [trace.read(column) for column in outer.items]
    rows = [list(column.items) for column in columns if isinstance(column, Sequence)]
    first = [trace.read(item) for item in rows[0]] if rows else []
    kinds = {(t.fake.device, t.fake.dtype) for t in first if isinstance(t, TensorValue)}
    if len(kinds) != 1 or not all(isinstance(t, TensorValue) for t in first):
        raise Break("unsupported-function", "tensors of several kinds in one list")
    numbered = trace.read(with_indices).constant()
    indices: list[Value] = [Const(index) for index in range(len(first))] if numbered else []
    groups = Sequence(list, [Sequence(list, row) for row in rows])
    key = key_of(trace, Sequence(tuple, [Const(part) for part in kinds.pop()]))
    return Mapping(dict, {key: Sequence(tuple, [groups, Sequence(list, indices)])})
