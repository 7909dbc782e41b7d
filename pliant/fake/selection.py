"""Items of tensors chosen by numbers that are not known while the program is followed.

PyTorch asks such a number (a size, or what a tensor without dimensions holds) for its value before
it selects by it; `select` itself does not. So selections are made first, with the new dimensions
between them, the rest of the key after them, which is what PyTorch does with plain numbers.
"""

from __future__ import annotations

import operator
from typing import Any

import torch


def get(tensor: torch.Tensor, key: Any) -> Any:
    """`tensor[key]`"""
    selected = _selected(tensor, key)
    return operator.getitem(tensor, key) if selected is None else _rest(*selected)


def _rest(tensor: torch.Tensor, key: tuple[Any, ...]) -> torch.Tensor:
    return tensor[key] if key else tensor


def put(tensor: torch.Tensor, key: Any, value: Any) -> None:
    """`tensor[key] = value`"""
    selected = _selected(tensor, key)
    if selected is None:
        tensor[key] = value
    else:
        view, rest = selected
        view[rest or ...] = value


def _selected(tensor: torch.Tensor, key: Any) -> tuple[torch.Tensor, tuple[Any, ...]] | None:
    """The tensor with the symbolic numbers of the key selected, and the rest of the key. None for a
    key that PyTorch has something to say about."""
    items = key if isinstance(key, tuple) else (key,)
    takes = [_dimensions(item) for item in items]
    left = tensor.dim() - sum(takes)
    if left < 0 or sum(item is ... for item in items) > 1:
        return None
    dim, rest = 0, []
    for item, count in zip(items, takes, strict=True):
        if isinstance(item, torch.SymInt):
            tensor = tensor.select(dim, item)
        elif item is None:
            # In its turn: its stride is that of the dimension after it, before this is selected.
            tensor = tensor.unsqueeze(dim)
            rest.append(slice(None))
            dim += 1
        else:
            rest.append(item)
            dim += left if item is ... else count
    return tensor, tuple(rest)


def _dimensions(item: Any) -> int:
    """How many dimensions of the tensor an item of a key is about."""
    if item is None or item is ... or isinstance(item, bool):
        return 0
    if isinstance(item, torch.Tensor) and item.dtype in (torch.bool, torch.uint8):
        return item.dim()
    return 1
