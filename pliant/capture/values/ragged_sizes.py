"""Sizes of jagged tensors that are no numbers: how long each of their parts is."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from pliant.capture.value import Break, Value
from pliant.capture.values.tensors import TensorValue
from pliant.fake.wrappers import has_own_sizes, is_wrapper

if TYPE_CHECKING:
    from pliant.capture.residual import Emitter
    from pliant.capture.trace import Trace


class RaggedSize(Value):
    """The size of a tensor in a dimension. It can be handed to functions, and returned."""

    __slots__ = ("dim", "number", "tensor")

    def __init__(self, tensor: TensorValue, dim: int, number: torch.SymInt) -> None:
        super().__init__(None)
        self.tensor = tensor
        self.dim = dim
        self.number = number

    def python_type(self) -> type:
        return torch.SymInt

    def children(self) -> list[Value]:
        return [self.tensor]

    def rebuild(self, emit: Emitter) -> str:
        return f"{emit.expression(self.tensor)}.size({self.dim})"

    def instance_attribute(self, trace: Trace, name: str) -> Value | None:
        raise Break("opaque-object", f"a ragged size: {name}")


def is_ragged(number: Any) -> bool:
    return isinstance(number, torch.SymInt) and number.node.is_nested_int()


def ragged_size(trace: Trace, number: torch.SymInt) -> Value:
    """The value of such a size. It is read from a tensor from outside, if one has it."""
    places: list[RaggedSize] = []
    for tensor in trace.tensors.values():
        if is_wrapper(tensor.fake) and has_own_sizes(tensor.fake):
            sizes = tensor.fake._size
            for dim, size in enumerate(sizes):
                if is_ragged(size) and size.node.nested_int() == number.node.nested_int():
                    places.append(RaggedSize(tensor, dim, number))
    if not places or number.node.nested_int_coeff() != 1:
        raise Break("tensor-attribute", "a ragged size")
    return next((place for place in places if place.tensor.source is not None), places[0])
