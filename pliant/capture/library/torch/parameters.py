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
    """Lists of tensors, by the kinds of the first list. The order of several kinds is that of a
    hash table of PyTorch's, which is asked."""
    outer = trace.read(lists)
    assert isinstance(outer, Sequence)
    columns = [trace.read(column) for column in outer.items]
    rows = [list(column.items) for column in columns if isinstance(column, Sequence)]
    fakes = [[_fake_or_none(trace, item) for item in row] for row in rows]
    try:
        kinds = torch._C._group_tensors_by_device_and_dtype(fakes, True)
    except RuntimeError as error:
        raise Break("operation-raises", f"_group_tensors_by_device_and_dtype: {error}") from None
    numbered = trace.read(with_indices).constant()
    groups: dict[Any, Any] = {}
    for kind, (_, places) in kinds.items():
        chosen = [[row[at] for at in places] if row else [] for row in rows]
        members = Sequence(list, [Sequence(list, row) for row in chosen])
        indices = Sequence(list, [Const(at) for at in places] if numbered else [])
        key = key_of(trace, Sequence(tuple, [Const(part) for part in kind]))
        groups[key] = Sequence(tuple, [members, indices])
    return Mapping(dict, groups)


def _fake_or_none(trace: Trace, value: Value) -> Any:
    item = trace.read(value)
    return item.fake if isinstance(item, TensorValue) else item.constant()
