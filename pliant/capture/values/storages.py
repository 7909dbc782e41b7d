"""The memory of a tensor as an object: `tensor.untyped_storage()`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from pliant.capture.value import Value
from pliant.capture.values.tensors import TensorValue

if TYPE_CHECKING:
    from pliant.capture.residual import Emitter


class StorageValue(Value):
    """The storage of a tensor. Whether two are the same object is not known: nothing is assumed of
    memory that inputs share."""

    __slots__ = ("tensor",)

    def __init__(self, tensor: TensorValue) -> None:
        super().__init__(None)
        self.tensor = tensor

    def python_type(self) -> type:
        return torch.UntypedStorage

    def children(self) -> list[Value]:
        return [self.tensor]

    def rebuild(self, emit: Emitter) -> str:
        return f"{emit.expression(self.tensor)}.untyped_storage()"
