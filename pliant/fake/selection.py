"""Indexing by numbers that are not known during capture: `x[n]`, `x[:, n]` with an unbacked n.

PyTorch's indexing asks for the value of such a number; `select` does not. So these items of the key
are applied first, by `select`, and the rest of the key to what that returns. PyTorch does the same
with plain numbers.

    x[n, 1:, None]   becomes   x.select(0, n).unsqueeze(1)[1:, :]

A write to `x[n:m]` asks whether what is written is as long, and demands it only if that isn't so.
Here it is demanded at once.

    x[n:m] = y       becomes   x[n:m].copy_(y.expand(x[n:m].shape))
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
        put_in_slices(operator.setitem, view, rest or ..., value)


def put_in_slices(put_usually: Any, tensor: torch.Tensor, key: Any, value: Any) -> None:
    """`tensor[key] = value`, as usual unless a tensor is written to slices of unknown lengths."""
    part = tensor[key] if isinstance(value, torch.Tensor) and has_unknown_slice(key) else None
    more = 0 if part is None else max(0, value.dim() - part.dim())
    # PyTorch leaves out further dimensions in front, of one element.
    if part is None or not all(type(size) is int and size == 1 for size in value.shape[:more]):
        put_usually(tensor, key, value)
    else:
        part.copy_(value[(0,) * more].expand(part.shape))


def has_unknown_slice(key: Any) -> bool:
    """Whether the key consists of numbers and slices, and what bounds one of these isn't known."""
    items = key if isinstance(key, tuple) else (key,)
    if not all(type(item) in _PLAIN_ITEMS for item in items):
        return False
    slices = [item for item in items if isinstance(item, slice)]
    bounds = [bound for item in slices for bound in (item.start, item.stop, item.step)]
    return any(isinstance(bound, torch.SymInt) and not bound.node.has_hint() for bound in bounds)


_PLAIN_ITEMS = frozenset((int, torch.SymInt, slice, type(...), type(None)))


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
