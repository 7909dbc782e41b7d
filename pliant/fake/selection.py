"""Indexing by numbers that are not known during capture: `x[n]`, `x[:, n]` with an unbacked n.

PyTorch's indexing asks for the value of such a number; `select` does not. So these items of the key
are applied first, by `select`, and the rest of the key to what that returns. PyTorch does the same
with plain numbers.

    x[n, 1:, None]   becomes   x.select(0, n).unsqueeze(1)[1:, :]
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
    """The tensor with the symbolic numbers and the new dimensions (`None`) of the key applied, and
    the rest of the key. None for a key that PyTorch refuses."""
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
    """How many dimensions of the tensor an item of a key indexes."""
    if item is None or item is ... or isinstance(item, bool):
        return 0
    if isinstance(item, torch.Tensor) and item.dtype in (torch.bool, torch.uint8):
        return item.dim()
    return 1
