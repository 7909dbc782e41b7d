"""What a view shows of its storage, for tensors with symbolic sizes."""

from __future__ import annotations

from typing import Any

import torch

from pliant.base.values import dataclass
from pliant.fake.layout import is_symbolic


@dataclass(frozen=True, slots=True)
class ViewLayout:
    """Which elements of its storage a view shows. None for a dtype or bit means that of the tensor
    viewed."""

    sizes: tuple[Any, ...]
    strides: tuple[Any, ...]
    offset: Any
    # As the tensor has it, if it is not said.
    dtype: torch.dtype | None = None
    conj: bool | None = None
    neg: bool | None = None


def view_layout(t: torch.Tensor) -> ViewLayout:
    """The layout of a tensor as a view of its storage."""
    place = (tuple(t.size()), tuple(t.stride()), t.storage_offset())
    return ViewLayout(*place, t.dtype, t.is_conj(), t.is_neg())


def is_symbolic_call(args: tuple[Any, ...]) -> bool:
    """Whether a tensor with symbolic sizes or a symbolic number is among the arguments."""
    for arg in args:
        if isinstance(arg, torch.Tensor):
            if arg._has_symbolic_sizes_strides:
                return True
        elif isinstance(arg, torch.SymInt) or (isinstance(arg, list | tuple) and is_symbolic(arg)):
            return True
    return False
