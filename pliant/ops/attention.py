"""Attention: called whole; it is the CPU's fused kernel, or composed where that is not taken."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F

from pliant.base.operators import aten_names, register, register_functions
from pliant.fake.layout import broadcast, contiguous_strides, like_strides
from pliant.fake.order import is_contiguous, known_same, need, sure
from pliant.fake.overload import Overload
from pliant.fake.raising import never
from pliant.fake.results import Recipe, Several
from pliant.fake.rule import Args, Kwargs, new
from pliant.ops.matmul import symbolic_matmul

Tensor = torch.Tensor
aten = torch.ops.aten


def _attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_mask: Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    *,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> Any:
    """`scaled_dot_product_attention` of fakes with symbolic sizes: the operator that eager PyTorch
    chooses on a CPU, without its questions about sizes. That is the fused kernel, or a composition
    of products and softmax where that isn't taken."""
    tensors = (query, key, value)
    alike = len({t.dtype for t in tensors}) == 1 and query.is_floating_point()
    if not alike or not query.is_cpu or any(t.dim() < 2 for t in tensors):
        return NotImplemented
    if attn_mask is not None and is_causal:
        return NotImplemented
    fused = all(t.dim() == 4 for t in tensors) and not dropout_p
    fused = fused and (attn_mask is None or _mask_fits(attn_mask, query, key))
    # The fused kernel takes heads of one size, and as many of keys as of queries, unless groups of
    # heads share keys.
    heads = (1,) if not enable_gqa else ()
    fused = fused and all(
        known_same(t.size(d), query.size(d)) for t in tensors for d in (3, *heads)
    )
    if enable_gqa and not (fused and _divides(key, query) and _divides(value, query)):
        return NotImplemented
    fused = fused and all(known_same(t.stride(-1), 1) for t in tensors)
    if not fused:
        return _composed_attention(query, key, value, attn_mask, dropout_p)
    for t in (key, value):
        need(t.size(0) == query.size(0))
    need(key.size(2) == value.size(2))
    # Over nothing, the composed one is taken; only the layout tells.
    if not is_contiguous(query) and not sure(key.size(2) == query.size(2)) and key.size(2) == 0:
        return _composed_attention(query, key, value, attn_mask, dropout_p)
    return torch.ops.aten._scaled_dot_product_flash_attention_for_cpu(
        query, key, value, 0.0, is_causal, scale=scale
    )[0]


def _divides(key: Tensor, query: Tensor) -> bool:
    """Whether groups of heads share the same keys."""
    key_heads, query_heads = key.size(1), query.size(1)
    return (
        type(key_heads) is int
        and type(query_heads) is int
        and key_heads > 0
        and query_heads % key_heads == 0
    )


def _mask_fits(mask: Tensor, query: Tensor, key: Tensor) -> bool:
    if mask.requires_grad or mask.dim() not in (2, 4):
        return False
    full = (query.size(0), query.size(1), query.size(2), key.size(2))[-mask.dim() :]
    if mask.dtype is not torch.bool and mask.dtype is not query.dtype:
        return False
    spread = broadcast([mask.size(), full])
    return spread is not None and all(map(known_same, spread, full))


def _composed_attention(
    query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None, dropout_p: float
) -> Any:
    scores = symbolic_matmul(query, key.transpose(-2, -1))
    if scores is NotImplemented:
        return NotImplemented
    if mask is not None:
        if mask.dtype is not torch.bool and mask.dtype is not query.dtype:
            return NotImplemented
        scores = scores + mask
    scores = scores.softmax(-1)
    if dropout_p:
        # Shapes are all that counts here, and that random numbers are drawn.
        scores = scores * torch.rand_like(scores)
    return symbolic_matmul(scores.to(value.dtype), value)


_SUMMED_IN = {
    torch.float16: torch.float32,
    torch.bfloat16: torch.float32,
    torch.float32: torch.float32,
    torch.float64: torch.float64,
}


def _attention_shape(
    op: Overload, args: Args, kwargs: Kwargs, device: torch.device
) -> Recipe | None:
    query, _, value = args[:3]
    usual = query.dim() == 4 and query.dtype in _SUMMED_IN and query.size(3) == value.size(3)
    if not usual:
        return None
    batch, heads, length, _ = query.size()
    strides = like_strides(query)
    if strides is None:
        return None
    order = contiguous_strides((batch, length, heads))
    summed = _SUMMED_IN[query.dtype]
    logsumexp = new((batch, heads, length), (order[0], order[2], order[1]), summed, device)
    return Several(tuple, (new(query.size(), strides, query.dtype, device), logsumexp))


def _native_attention_meta(func: Any, *args: Any, **kwargs: Any) -> Any:
    result, weights = func(*args, **kwargs)
    return result, weights if weights.numel() else None


register(
    "aten.scaled_dot_product_attention.default", opaque=F.scaled_dot_product_attention, fresh=True
)
register_functions((F.scaled_dot_product_attention,), symbolic=_attention)
register("aten._scaled_dot_product_flash_attention_for_cpu.default", shape=_attention_shape)
register("aten._native_multi_head_attention.default", meta=_native_attention_meta)


register(
    *aten_names("scaled_dot_product_attention _scaled_dot_product_flash_attention_for_cpu"),
    raises=never,
)
