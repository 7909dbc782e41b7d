"""Operators the sizes of whose results are in the data: each size is an unbacked symbol."""

from __future__ import annotations

from typing import Any

import torch

from pliant.base.operators import aten_names, register
from pliant.fake.layout import (
    contiguous_strides,
)
from pliant.fake.raising import never
from pliant.fake.results import New, Recipe, Several
from pliant.fake.rule import Args, Kwargs
from pliant.fake.unbacked import DataShape, always, dense, new_size
from pliant.sym.cond import eq
from pliant.sym.env import ShapeEnv
from pliant.sym.node import from_torch

Tensor = torch.Tensor
aten = torch.ops.aten


def _nonzero(env: ShapeEnv, device: torch.device, args: Args, kwargs: Kwargs) -> Recipe:
    t = args[0]
    # Of a mask, as many as there are elements in `x[mask]`.
    count = t._world().count_of(t, "the number of nonzero elements")
    # Found coordinate by coordinate, and returned transposed.
    return New((count, t.dim()), (1, count), 0, torch.int64, device, False)


def _masked_select(env: ShapeEnv, device: torch.device, args: Args, kwargs: Kwargs) -> Recipe:
    t, mask = args
    picked = torch.broadcast_tensors(*(torch.empty(x.shape, device="meta") for x in (t, mask)))
    count = new_size(env, "the number of selected elements", picked[0].numel())
    return dense((count,), t.dtype, device)


def _repeat_interleave(
    env: ShapeEnv, device: torch.device, args: Args, kwargs: Kwargs
) -> Recipe | None:
    if kwargs.get("output_size") is not None:
        return None
    count = new_size(env, "the sum of repeats")
    return dense((count,), args[0].dtype, device)


def _bincount(env: ShapeEnv, device: torch.device, args: Args, kwargs: Kwargs) -> Recipe:
    weights, least = (*args[1:], None, 0)[:2] if len(args) < 3 else args[1:3]
    weights, least = kwargs.get("weights", weights), kwargs.get("minlength", least)
    count = new_size(env, "the number of bins", least=least if type(least) is int else 0)
    if type(least) is not int or least > 0:  # who says how many there are has no larger elements
        env.suppose(eq(from_torch(count), from_torch(least)))
    dtype = torch.int64 if weights is None else _weighted(weights.dtype)
    return dense((count,), dtype, device)


def _weighted(dtype: torch.dtype) -> torch.dtype:
    return dtype if dtype is torch.float32 else torch.float64


def _unique(inverse_at: int, counts_at: int | None) -> DataShape:
    """The shape rule of an operator that returns the distinct elements of a tensor. Results that
    aren't asked for are empty."""

    def rule(env: ShapeEnv, device: torch.device, args: Args, kwargs: Kwargs) -> Recipe | None:
        t = args[0]
        flags = _flags(args, kwargs, (inverse_at, "return_inverse"), (counts_at, "return_counts"))
        count = new_size(env, "the number of unique elements", t.numel())
        inverse = t.size() if flags[0] else (0,)
        parts = [dense((count,), t.dtype, device), dense(inverse, torch.int64, device)]
        if counts_at is not None:
            parts.append(dense((count,) if flags[1] else (0,), torch.int64, device))
        return Several(tuple, tuple(parts))

    return rule


def _unique_consecutive(
    env: ShapeEnv, device: torch.device, args: Args, kwargs: Kwargs
) -> Recipe | None:
    dim = args[3] if len(args) > 3 else kwargs.get("dim")
    if dim is None:
        return _unique(1, 2)(env, device, args, kwargs)
    return _unique_dim(env, device, (args[0], dim), {})


def _flags(args: Args, kwargs: Kwargs, *wanted: tuple[int | None, str]) -> list[bool]:
    def one(at: int | None, name: str) -> bool:
        return bool(args[at] if at is not None and at < len(args) else kwargs.get(name, False))

    return [one(at, name) for at, name in wanted]


def _unique_dim(env: ShapeEnv, device: torch.device, args: Args, kwargs: Kwargs) -> Recipe:
    t, dim = args[:2]
    dim = dim % t.dim()
    count = new_size(env, "the number of unique slices", t.size(dim))
    sizes = [count if d == dim else size for d, size in enumerate(t.size())]
    # PyTorch moves the dimension to the front, and back at the end.
    order = [dim, *[d for d in range(t.dim()) if d != dim]]
    inner = contiguous_strides([sizes[d] for d in order])
    strides = tuple(inner[order.index(d)] for d in range(t.dim()))
    unique = New(tuple(sizes), strides, 0, t.dtype, device, False)
    counts = dense((count,), torch.int64, device)
    return Several(tuple, (unique, dense((t.size(dim),), torch.int64, device), counts))


def _nonzero_static_meta(func: Any, t: Tensor, *, size: int, **_: Any) -> Tensor:
    return t.new_empty((size, t.dim()), dtype=torch.int64)


register("aten.nonzero.default", "aten.argwhere.default", needs_data=always, data_shape=_nonzero)
register("aten.masked_select.default", needs_data=always, data_shape=_masked_select)
register("aten.bincount.default", needs_data=always, data_shape=_bincount)
register("aten._unique.default", needs_data=always, data_shape=_unique(2, None))
register("aten._unique2.default", needs_data=always, data_shape=_unique(2, 3))
register("aten.unique_consecutive.default", needs_data=always, data_shape=_unique_consecutive)
register(
    *("aten.unique_dim.default", "aten.unique_dim_consecutive.default"),
    needs_data=always,
    data_shape=_unique_dim,
)
register(
    "aten.repeat_interleave.Tensor",
    needs_data=lambda args, kwargs: kwargs.get("output_size") is None,
    data_shape=_repeat_interleave,
)
register(
    "aten.nonzero.out",
    "aten.masked_select.out",
    "aten.linalg_lstsq.default",
    "aten.linalg_lstsq.out",
    needs_data=always,
)
register("aten.nonzero_static.default", cpu_meta=_nonzero_static_meta)


register(
    *aten_names(
        "nonzero masked_select unique_dim _unique2 unique_consecutive equal _local_scalar_dense"
        " item"
    ),
    raises=never,
)
register(
    "aten._nested_tensor_from_mask_left_aligned.default",
    "aten._cslt_sparse_mm_search.default",
    reads_data=True,
)
