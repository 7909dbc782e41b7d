"""Operands that are converted before an operation reads them.

The one idea: on CPU, PyTorch converts operands of another dtype to temporaries first. Those lie as
the operands do, but without gaps and without elements that share a place, and the result is laid
out by them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from pliant.base.values import dataclass
from pliant.fake import numbers
from pliant.fake.layout import is_symbolic, like_strides, pointwise_strides
from pliant.fake.order import is_contiguous
from pliant.fake.tensor import Fake


@dataclass(frozen=True, slots=True)
class Converted:
    """A temporary: what the rules for layouts ask of a tensor."""

    sizes: tuple[Any, ...]
    strides: tuple[Any, ...]
    dtype: torch.dtype

    def is_complex(self) -> bool:
        return self.dtype.is_complex

    def is_floating_point(self) -> bool:
        return self.dtype.is_floating_point

    def size(self, dim: int | None = None) -> Any:
        return self.sizes if dim is None else self.sizes[dim]

    def stride(self, dim: int | None = None) -> Any:
        return self.strides if dim is None else self.strides[dim]

    def dim(self) -> int:
        return len(self.sizes)

    def is_contiguous(self, memory_format: torch.memory_format = torch.contiguous_format) -> bool:
        """If sizes and strides are known."""
        layout = (self.sizes, self.strides)
        if memory_format is torch.channels_last:
            return numbers.is_packed(layout, (1, 3, 2, 0))
        return numbers.is_contiguous(layout)

    @property
    def _has_symbolic_sizes_strides(self) -> bool:
        return is_symbolic((*self.sizes, *self.strides))


def as_computed(tensors: Sequence[Fake], dtype: torch.dtype) -> list[Any]:
    """The operands as the loop reads them, in this dtype."""
    return [t if t.dtype is dtype else _converted(t, dtype) for t in tensors]


def _converted(t: Fake, dtype: torch.dtype) -> Any:
    if not t.dim() or t.device.type != "cpu" or is_contiguous(t):
        return t
    sizes = tuple(t.size())
    strides = like_strides(t) or pointwise_strides([t], sizes, uniform=False)
    return Converted(sizes, tuple(strides), dtype)
