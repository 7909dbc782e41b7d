"""The facts about a tensor that exist without its data."""

from __future__ import annotations

import torch

from pliant.base.values import dataclass


@dataclass(frozen=True, slots=True)
class TensorSpec:
    """Everything observable about a tensor but its values and its neighbours in memory."""

    dtype: torch.dtype
    device: torch.device
    sizes: tuple[int | torch.SymInt, ...]
    strides: tuple[int | torch.SymInt, ...]
    offset: int | torch.SymInt
    requires_grad: bool
    is_leaf: bool
    layout: torch.layout
    is_conj: bool
    is_neg: bool


def metadata(t: torch.Tensor) -> TensorSpec:
    """The spec of a real or a fake tensor; equal specs look the same to every PyTorch function."""
    return TensorSpec(
        dtype=t.dtype,
        device=t.device,
        sizes=tuple(t.size()),
        strides=tuple(t.stride()),
        offset=t.storage_offset(),
        requires_grad=t.requires_grad,
        is_leaf=t.is_leaf,
        layout=t.layout,
        is_conj=t.is_conj(),
        is_neg=t.is_neg(),
    )
