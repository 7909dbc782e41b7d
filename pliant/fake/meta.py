"""Where PyTorch's meta kernels say too little, or something else than the real kernels.

The one idea: an operator without a rule in its record looks as its meta kernel says. A rule takes
the operator and its arguments, meta tensors for tensors, and returns meta tensors; most call the
meta kernel and correct the layout of what it returned.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from pliant.base.operators import Record
from pliant.fake.layout import (
    ordered_strides,
    suggested_strides,
)
from pliant.fake.order import hint

Tensor = torch.Tensor

MASKS = (torch.bool, torch.uint8)


def check_masks(t: torch.Tensor, indices: Sequence[torch.Tensor | None]) -> None:
    """Raise PyTorch's IndexError if a mask has other sizes than the dimensions that it indexes,
    which meta kernels don't check."""
    dim = 0
    for at, index in enumerate(indices):
        if index is None or index.dtype not in MASKS:
            dim += 1
            continue
        for own, size in zip(index.size(), t.shape[dim:]):
            if hint(own) is not None and hint(size) is not None and own != size:
                raise IndexError(
                    f"The shape of the mask {list(index.shape)} at index {at} does not match the "
                    f"shape of the indexed tensor {list(t.shape)} at index {dim}"
                )
        dim += index.dim()


def meta_rule(record: Record, device: torch.device) -> Callable[..., Any] | None:
    """What replaces the meta kernel of this operator on this device, if anything does. Without a
    real device to look at, meta kernels describe CUDA's layouts."""
    return (record.cpu_meta if device.type == "cpu" else None) or record.meta


def laid_out(
    like: Tensor, sizes: Sequence[int], strides: Sequence[int], dtype: Any = None
) -> Tensor:
    return like.new_empty_strided(sizes, strides, dtype=dtype or like.dtype)


def column_major(t: Tensor) -> Tensor:
    dims = list(range(t.dim()))
    order = [*dims[:-2], dims[-1], dims[-2]]
    return laid_out(t, t.size(), ordered_strides(t.size(), order))


def suggested(like: Tensor, t: Tensor) -> Tensor:
    """`t` in the memory format of `like`."""
    return laid_out(t, t.size(), suggested_strides(like, t.size()))


def like_sum(func: Any, a: Tensor, b: Any, *args: Any, **kwargs: Any) -> Tensor:
    """The result in the layout of `torch.add(a, b)`: that of any pointwise operation, which these
    meta kernels lose for numbers."""
    result: Tensor = func(a, b, *args, **kwargs)
    return result.new_empty_strided(result.size(), torch.add(a, b).stride())


def like_input(func: Any, t: Tensor, *args: Any, **kwargs: Any) -> Tensor:
    return suggested(t, func(t, *args, **kwargs))


# Rules that need the real device: they see the fakes, and what the meta kernel said.


def contiguous(func: Any, *args: Any, **kwargs: Any) -> Tensor:
    result: Tensor = func(*args, **kwargs)
    return result.new_empty(result.size())
