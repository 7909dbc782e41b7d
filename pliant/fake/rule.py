"""What a shape rule is, and what all of them are made with."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from pliant.fake.layout import contiguous_strides
from pliant.fake.overload import Overload
from pliant.fake.results import New, Recipe

Args = tuple[Any, ...]
Kwargs = dict[str, Any]
ShapeRule = Callable[[Overload, Args, Kwargs, torch.device], Recipe | None]


def new(
    sizes: Sequence[int], strides: Sequence[int], dtype: torch.dtype, device: torch.device
) -> New:
    """The recipe of a new tensor with these strides."""
    return New(torch.Size(sizes), tuple(strides), 0, dtype, device, False)


def dense(sizes: Sequence[int], dtype: torch.dtype, device: torch.device) -> New:
    """The recipe of a new contiguous tensor."""
    return new(sizes, contiguous_strides(sizes), dtype, device)


def is_empty(t: torch.Tensor) -> bool:
    return any(type(size) is int and size == 0 for size in t.size())
