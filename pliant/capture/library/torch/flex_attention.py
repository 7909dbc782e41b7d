"""`flex_attention`: attention whose scores and mask are functions of the program's.

The operator is written as what it means, matrix products, softmax and the two functions mapped over
batch, head, query and key, and followed like the program's own code. So the functions are bodies of
`vmap`, and the rest is lowered like any attention that is written out.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch._higher_order_ops.flex_attention import FlexAttentionHOP

from pliant.capture.library.python.equivalents import as_value
from pliant.capture.model import call
from pliant.capture.native import SHORTCUTS
from pliant.capture.trace import Trace
from pliant.capture.value import Value
from pliant.capture.values.containers import Sequence

EACH: Any = (
    (None, None, None, 0),
    (None, None, 0, None),
    (None, 0, None, None),
    (0, None, None, None),
)


def attention(
    query: Any,
    key: Any,
    value: Any,
    score_mod: Any,
    block_mask: Any,
    scale: Any,
    kernel_options: Any,
    score_buffers: Any,
    mask_buffers: Any,
) -> Any:
    """What the operator computes: the result, and of each row the logarithm of the sum of its
    exponentials and its largest score, to the base of 2."""
    groups = query.size(1) // key.size(1)
    batch = query.size(0)
    if groups > 1:
        key, value = (torch.repeat_interleave(t, groups, dim=1) for t in (key, value))
    key, value = (t.expand(batch, -1, -1, -1) for t in (key, value))
    dtype = torch.float64 if query.dtype == torch.float64 else torch.float32
    scores = (query.to(dtype) @ key.to(dtype).transpose(-2, -1)) * scale
    places = [torch.arange(0, size, device=scores.device) for size in scores.shape]
    mask_mod = block_mask[-1]
    for dims in EACH:
        score_mod = torch.vmap(score_mod, in_dims=(0, *dims, *[None] * len(score_buffers)))
        mask_mod = torch.vmap(mask_mod, in_dims=(*dims, *[None] * len(mask_buffers)))
    masked = torch.tensor(-math.inf, dtype=dtype, device=scores.device)
    mask = mask_mod(*places, *mask_buffers)
    scores = torch.where(mask, score_mod(scores, *places, *score_buffers), masked)
    empty = torch.all(scores == -math.inf, dim=-1)
    total = torch.where(empty, -math.inf, scores.logsumexp(dim=-1))
    largest = torch.max(scores, dim=-1)[0]
    result = torch._safe_softmax(scores, dim=-1).to(query.dtype) @ value.to(query.dtype)
    return result, total / math.log(2), largest / math.log(2)


NOTHING = Sequence(tuple, [])


def call_flex_attention(
    trace: Trace, args: list[Value], kwargs: dict[str, Value], direct: bool
) -> Value | None:
    names = attention.__code__.co_varnames[: attention.__code__.co_argcount]
    bound = dict(zip(names, args[1:], strict=False)) | {
        {"score_mod_other_buffers": "score_buffers", "mask_mod_other_buffers": "mask_buffers"}.get(
            name, name
        ): value
        for name, value in kwargs.items()
    }
    before, trace.indexes_with_tensors = trace.indexes_with_tensors, True
    try:
        arguments = [bound.get(name, NOTHING) for name in names]
        return call(trace, as_value(attention), arguments, {}, direct)
    finally:
        trace.indexes_with_tensors = before


SHORTCUTS[FlexAttentionHOP.__call__] = call_flex_attention
