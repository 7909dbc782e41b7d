"""Jagged nested tensors: what PyTorch does with them in ways that fakes can't follow.

Attention on the CPU splits them into a list of tensors, one for each sequence. Fakes do the same
with one tensor that is padded to the longest sequence: how long that is is a size that the tensor
carries with it.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Any, Final

import torch
from torch.nested._internal.nested_tensor import NestedTensor

from pliant.fake.errors import Unsupported
from pliant.fake.unbacked import new_size

LONGEST: Final = "max_seqlen"


def override_of(func: Callable[..., Any], args: Any, kwargs: Any) -> Callable[..., Any] | None:
    """What is called for a function of jagged tensors; None if nothing is special about it."""
    if not any(isinstance(arg, NestedTensor) for arg in (*args, *kwargs.values())):
        return None
    if func is torch._C._nn.scaled_dot_product_attention:
        return attention
    if func in UNBINDS:
        return unbind
    return functools.partial(_through_the_class, func)


def _through_the_class(func: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    return NestedTensor.__torch_function__(func, (NestedTensor,), args, kwargs)


UNBINDS: Final = (torch.unbind, torch.Tensor.unbind)


def unbind(tensor: Any, dim: int = 0) -> tuple[torch.Tensor, ...]:
    """The parts, as views. How long they are is data."""
    world = tensor._offsets._world()
    if dim or tensor._lengths is not None or not world.reads_numbers:
        raise Unsupported("the parts of a jagged tensor with gaps")
    values, at = tensor._values, tensor._ragged_idx - 1
    sizes, offset = list(values.size()), values.storage_offset()
    parts: list[torch.Tensor] = []
    for _ in range(int(tensor._offsets.size(0)) - 1):
        # Unbacked: how long each part is, is in `offsets`.
        length = sizes[at] = new_size(world.env, "the length of a part")
        parts.append(values.as_strided(sizes, values.stride(), offset))
        offset = offset + length * values.stride(at)
    return tuple(parts)


def attention(
    query: Any,
    key: Any,
    value: Any,
    attn_mask: Any = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> Any:
    """`scaled_dot_product_attention` of [batch, heads, ragged, channels]."""
    tensors = (query, key, value)
    if attn_mask is not None or dropout_p or is_causal or enable_gqa:
        raise Unsupported("attention of jagged tensors with more than a scale")
    if not all(isinstance(t, NestedTensor) and _has_heads(t) for t in tensors):
        raise Unsupported("attention of jagged tensors of another layout")
    factor = math.sqrt(1 / math.sqrt(query._values.size(-1)) if scale is None else scale)
    q, _ = _padded(query)
    k, present = _padded(key)
    v, _ = _padded(value)
    # What is behind the end of a sequence belongs to another one, and may be anything.
    v = torch.where(present[None, :, :, None], v, 0)
    scores = (q * factor) @ (k * factor).transpose(-2, -1)
    scores = scores.masked_fill(~present[None, :, None, :], -math.inf)
    padded = torch._safe_softmax(scores, dim=-1) @ v
    offsets = query._offsets
    place = torch.arange(query._values.size(1), device=padded.device)
    sequence = torch.bucketize(place, offsets[1:], right=True)
    values = padded[:, sequence, place - offsets[sequence]].transpose(0, 1).contiguous()
    cache = {name: t for name, t in query._metadata_cache.items() if t is not None}
    return NestedTensor(values, offsets=offsets, _metadata_cache=cache).transpose(1, 2)


def _has_heads(tensor: Any) -> bool:
    laid_out = tensor._values.dim() == 3 and tensor._ragged_idx == 2 and tensor._lengths is None
    # Eager PyTorch refuses others.
    laid_out = laid_out and tensor._values.transpose(0, 1).is_contiguous()
    return laid_out and tensor._metadata_cache.get(LONGEST) is not None


def _padded(tensor: Any) -> tuple[torch.Tensor, torch.Tensor]:
    """As [heads, batch, longest, channels], and where there is something in it."""
    values, offsets = tensor._values, tensor._offsets
    longest = tensor._metadata_cache[LONGEST].size(0)
    place = offsets[:-1, None] + torch.arange(longest, device=values.device)
    present = place < offsets[1:, None]
    return values[:, torch.where(present, place, 0)], present
