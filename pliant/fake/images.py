"""How results of operators on images look: batch and channels pass through, the sizes change, and
most results are laid out as the image is."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from pliant.fake.layout import (
    suggested_strides,
)
from pliant.fake.order import need
from pliant.fake.results import New
from pliant.fake.rule import dense, is_empty, new
from pliant.fake.tensor import Fake


def has_pixels(t: Fake, rank: int) -> bool:
    """Otherwise it is an error, for PyTorch to tell. Symbolic sizes are taken not to be 0."""
    if is_empty(t):
        return False
    for size in t.shape[-rank - 1 :]:
        need(size != 0)
    return True


def image(
    t: Fake, sizes: Sequence[Any], device: torch.device, dtype: torch.dtype | None = None
) -> New:
    """Laid out as `t` is."""
    strides = suggested_strides(t, sizes)
    return new(sizes, strides, dtype or t.dtype, device)


def plain_image(t: Fake, sizes: Sequence[Any], device: torch.device) -> New:
    return dense(sizes, t.dtype, device)


def resized(t: Fake, sizes: Sequence[Any], least: int) -> list[Any] | None:
    rank = len(sizes)
    dims = (rank + 2,) if least else (rank + 1, rank + 2)
    if t.dim() not in dims or not t.is_floating_point() or not has_pixels(t, rank):
        return None
    return [*t.shape[:-rank], *sizes] if all(size >= least for size in sizes) else None
