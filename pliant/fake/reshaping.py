"""`reshape` of a tensor with symbolic sizes: a view where that is possible, else a copy.

The one idea: dimensions that become one can be a view if the outer stride spans the inner
dimension, or one of them has size 1. That is asked for each pair that is merged, and nothing else:
dimensions that stay, or are split, ask nothing.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from itertools import accumulate, pairwise, product
from operator import mul
from typing import Any

import torch

from pliant.fake.order import hint, is_contiguous, sure
from pliant.fake.views import filled_in, is_view_now

Group = tuple[list[int], list[Any]]  # dimensions of the tensor, and the sizes that they become


def reshape(input: torch.Tensor, *shape: Any) -> Any:
    """Stands in for `torch.reshape`."""
    sizes = filled_in(input, shape[0] if len(shape) == 1 and _is_list(shape[0]) else shape)
    if is_contiguous(input):
        return input.view(sizes)
    groups = _groups(input, sizes)
    if groups is None:
        return NotImplemented
    if all(_merges(input, dims) for dims, _ in groups):
        strides = [stride for dims, parts in groups for stride in _split(input, dims, parts)]
        if not is_view_now(input, sizes, strides):
            return NotImplemented
        return input.as_strided(sizes, strides, input.storage_offset())
    if _falls_apart(input, groups):
        return NotImplemented
    return input.clone(memory_format=torch.contiguous_format).view(sizes)


def flatten(input: torch.Tensor, start_dim: int = 0, end_dim: int = -1) -> Any:
    """Stands in for `torch.flatten`."""
    rank = input.dim()
    if not rank or not (-rank <= start_dim < rank and -rank <= end_dim < rank):
        return NotImplemented
    first, last = start_dim % rank, end_dim % rank
    if first >= last:
        return NotImplemented
    sizes = input.shape
    return reshape(input, *sizes[:first], math.prod(sizes[first : last + 1]), *sizes[last + 1 :])


def _is_list(value: Any) -> bool:
    return isinstance(value, list | tuple)


def _groups(t: torch.Tensor, sizes: Sequence[Any]) -> list[Group] | None:
    """Which dimensions become which sizes, as far as it is known; from the outermost on."""
    found: list[Group] = []
    dims, left = list(range(t.dim())), list(sizes)
    while dims or left:
        group = _next_group(t, dims, left)
        if group is None:
            return None
        found.append(group)
    return found


def _next_group(t: torch.Tensor, dims: list[int], left: list[Any]) -> Group | None:
    """Takes dimensions and sizes, one more on the side that has fewer elements, until both sides
    have the same number."""
    taken: Group = ([], [])
    have, want = 1, 1
    while not taken[0] or not taken[1] or not sure(have == want):
        few, many = hint(have), hint(want)
        if dims and (not taken[0] or (taken[1] and _less(few, many))):
            taken[0].append(dims.pop(0))
            have = have * t.size(taken[0][-1])
        elif left and (not taken[1] or _less(many, few)):
            taken[1].append(left.pop(0))
            want = want * taken[1][-1]
        else:
            return None
    return taken


def _less(a: int | None, b: int | None) -> bool:
    return a is not None and b is not None and a < b


def _falls_apart(t: torch.Tensor, groups: Sequence[Group]) -> bool:
    """Whether the first group that does not lie as one is several: with other sizes it may be, as
    (m, n) to (n, m) where these are equal, and those may lie as one."""
    dims, parts = next(group for group in groups if not _merges(t, group[0]))
    starts = (_starts([t.size(d) for d in dims]), _starts(parts))
    pairs = [(a, b) for a, b in product(*starts) if None not in (hint(a), hint(b))]
    return any(a == b for a, b in pairs)


def _starts(sizes: Sequence[Any]) -> list[Any]:
    """How many elements the first dimensions have, for each number of these but all."""
    return list(accumulate(sizes[:-1], mul))


def _merges(t: torch.Tensor, dims: list[int]) -> bool:
    """Whether the dimensions lie in memory as one."""
    if all(sure(_spans(t, *pair)) for pair in _pairs(t, dims)):
        return True
    real = [d for d in dims if not t.size(d) == 1]  # noqa: SIM201  a question: the answer is guarded
    return all(_spans(t, *pair) for pair in _pairs(t, real))


def _pairs(t: torch.Tensor, dims: list[int]) -> Iterator[tuple[int, int]]:
    return pairwise(d for d in dims if not sure(t.size(d) == 1))


def _spans(t: torch.Tensor, outer: int, inner: int) -> Any:
    return t.stride(outer) == t.stride(inner) * t.size(inner)


def _split(t: torch.Tensor, dims: list[int], parts: list[Any]) -> list[Any]:
    """The strides of the sizes that dimensions lying as one become."""
    real = [d for d in dims if not sure(t.size(d) == 1)] or dims[-1:]
    step, strides = t.stride(real[-1]), []
    for part in reversed(parts):
        strides.append(step)
        step = step * part
    return list(reversed(strides))
