"""How PyTorch lays out and types the result of an operation on several tensors.

The one idea: the rules of TensorIterator, written down as functions of sizes, strides and dtypes.
A meta kernel gives the same answers, but its first use imports a large part of PyTorch's compiler.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

Tensor = torch.Tensor


def contiguous_strides(sizes: Sequence[int]) -> tuple[int, ...]:
    strides, step = [], 1
    for size in reversed(sizes):
        strides.append(step)
        step = step * max(size, 1)
    return tuple(reversed(strides))


def ordered_strides(sizes: Sequence[int], order: Sequence[int]) -> tuple[int, ...]:
    """The strides of a dense tensor with its dimensions in this order, the outermost first."""
    inner = contiguous_strides([sizes[dim] for dim in order])
    found = [0] * len(sizes)
    for dim, stride in zip(order, inner, strict=True):
        found[dim] = stride
    return tuple(found)


def channels_last_strides(sizes: Sequence[int]) -> tuple[int, ...]:
    return ordered_strides(sizes, (0, *range(2, len(sizes)), 1))


def is_like_channels_last(t: Tensor) -> bool:
    """Whether the strides are those of channels-last rather than of contiguous memory.

    Ambiguous ones (one channel, or one pixel) count as contiguous, as PyTorch's kernels have it.
    """
    if t.dim() not in (4, 5) or t.stride(1) == 0:
        return False
    floor = 0
    for dim in (1, *range(t.dim() - 1, 1, -1), 0):
        size, stride = t.size(dim), t.stride(dim)
        if size == 0 or stride < floor or (dim == 0 and floor == t.stride(1)):
            return False
        floor = stride * size if size > 1 else stride
    return True


def suggested_strides(like: Tensor, sizes: Sequence[int]) -> tuple[int, ...]:
    """The strides of a result in the memory format of `like`."""
    return (channels_last_strides if is_like_channels_last(like) else contiguous_strides)(sizes)


def is_dense(t: Tensor) -> bool:
    """Whether the elements fill their stretch of memory, each place once."""
    if t.is_contiguous():
        return True
    expected = 1
    dims = [d for d in range(t.dim()) if t.size(d) != 1]
    for dim in sorted(dims, key=t.stride):
        if t.stride(dim) != expected:
            return False
        expected = expected * t.size(dim)
    return True


def broadcast(shapes: Sequence[Sequence[int]]) -> tuple[int, ...] | None:
    """The common shape, or None where there is none."""
    result: list[int] = [1] * max(map(len, shapes))
    for shape in shapes:
        shift = len(result) - len(shape)
        for i, size in enumerate(shape, shift):
            if size != 1:
                if result[i] not in (1, size):
                    return None
                result[i] = size
    return tuple(result)


def pointwise_strides(
    tensors: Sequence[Tensor], sizes: tuple[int, ...], uniform: bool = True
) -> tuple[int, ...]:
    """The layout of a new result: that of the operands where they agree, else the first's order.

    Not `uniform`: there is a number among the operands, so they are not all of one shape.
    """
    if uniform and all(t.size() == sizes for t in tensors):
        if all(t.is_contiguous() for t in tensors):
            return contiguous_strides(sizes)
        form = torch.channels_last
        if len(sizes) == 4 and all(t.is_contiguous(memory_format=form) for t in tensors):
            return channels_last_strides(sizes)
        first = tensors[0].stride()
        if all(t.stride() == first and is_dense(t) for t in tensors):
            return tuple(first)
    return _permuted_strides([_spread(t, sizes) for t in tensors], sizes)


def _spread(t: Tensor, sizes: tuple[int, ...]) -> list[int]:
    """The strides of `t` broadcast to `sizes`: 0 where its one element serves for all."""
    shift = len(sizes) - t.dim()
    own = zip(t.size(), t.stride(), sizes[shift:], strict=True)
    return [0] * shift + [0 if size == 1 and wide != 1 else stride for size, stride, wide in own]


def _permuted_strides(operands: list[list[int]], sizes: tuple[int, ...]) -> tuple[int, ...]:
    """Dimensions sorted by the strides of the operands; the first that can tell decides."""

    def goes_outside(a: int, b: int) -> int:
        for strides in operands:
            if strides[a] == 0 or strides[b] == 0:
                continue
            if strides[a] != strides[b]:
                return 1 if strides[a] > strides[b] else -1
            if sizes[a] > sizes[b]:
                return 1
        return 0

    # An insertion sort, as there: the comparison is no total order, so the algorithm matters.
    inner = list(reversed(range(len(sizes))))
    for start in range(1, len(inner)):
        at = start
        for below in range(start - 1, -1, -1):
            verdict = goes_outside(inner[below], inner[at])
            if verdict > 0:
                inner[below], inner[at] = inner[at], inner[below]
                at = below
            elif verdict < 0:
                break
    if inner == list(reversed(range(len(sizes)))):
        return contiguous_strides(sizes)
    strides, step = [0] * len(sizes), 1
    for dim in inner:
        strides[dim] = step
        step = step * sizes[dim]
    return tuple(strides)


_CATEGORIES = {bool: torch.bool, int: torch.int64}


def promoted(tensors: Sequence[Tensor], numbers: Sequence[Any]) -> torch.dtype:
    """The dtype the operands have in common: 0-dim tensors count less than others, numbers least.

    `numbers` are Python numbers or dtypes of numbers.
    """
    found: torch.dtype | None = None
    zero_dim = [t.dtype for t in tensors if not t.dim()]
    kinds = [n if isinstance(n, torch.dtype) else _CATEGORIES.get(type(n)) for n in numbers]
    plain = [torch.get_default_dtype() if k is None or k.is_floating_point else k for k in kinds]
    for level in ([t.dtype for t in tensors if t.dim()], zero_dim, plain):
        lower: torch.dtype | None = None
        for dtype in level:
            lower = dtype if lower is None else torch.promote_types(lower, dtype)
        found = _over(found, lower)
    assert found is not None
    return found


def _over(higher: torch.dtype | None, lower: torch.dtype | None) -> torch.dtype | None:
    """A level of operands changes the dtype of those above only by being of a higher category."""
    if higher is None or lower is None:
        return lower if higher is None else higher
    if higher.is_floating_point or not (higher is torch.bool or lower.is_floating_point):
        return higher
    return torch.promote_types(higher, lower)
