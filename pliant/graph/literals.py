"""Constants of one element, as numbers in the code of kernels.

The one idea: in a graph on a GPU, `y[1] = 3` and `x * torch.tensor(2.0)` have a tensor on the CPU
that never changes. PyTorch's operators get that tensor; a kernel, which can't read its memory,
has the number.
"""

from __future__ import annotations

from typing import Any

from pliant.base.values import replace
from pliant.graph.ir import Tensor
from pliant.loop.define import Definition
from pliant.loop.types import BY_DTYPE
from pliant.ops.indexed_tensor import IndexedTensor
from pliant.ops.lowering import Lowering
from pliant.sym.expr import ONE


class Literals:
    """The constants of one element that kernels have as numbers, by their definitions."""

    def __init__(self, low: Lowering) -> None:
        self.low = low
        self._numbers: dict[Definition, Any] = {}

    def note(self, tensor: Tensor, definition: Definition, real: Any) -> None:
        """A constant, if it is one number and on another device than kernels are."""
        elsewhere = tensor.device.type == "cpu" != self.low.device
        if elsewhere and tensor.dtype in BY_DTYPE and all(size is ONE for size in tensor.sizes):
            self._numbers[definition] = real.item()

    def has(self, indexed: IndexedTensor | None) -> bool:
        """Whether it is one, or a view of one."""
        memory = None if indexed is None else indexed.memory
        return memory is not None and memory.of in self._numbers

    def read(self, indexed: IndexedTensor) -> IndexedTensor:
        """The tensor, whose elements are its number for kernels if it is a literal. PyTorch still
        gets its memory."""
        if not self.has(indexed):
            return indexed
        assert indexed.memory is not None
        number = self.low.indexed(self._numbers[indexed.memory.of], indexed.type)
        return replace(indexed, at=lambda b, index: number.at(b, ()), reads=0)
