"""Programs whose results are compared, with symbolic sizes and for real, over a grid of sizes.

A tensor is written as its sizes, in which `a` and `b` vary, its kind (`:i4` integers below 4, `:b`
bools, `:n` without a gradient, `:p` probabilities, `:d` float64, `:h` bfloat16, `:c` complex) and
its layout (`/T` the last two dimensions swapped in memory, `/cl` channels last, `/s` a slice of
something wider).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F

Program = tuple[Any, ...]  # the function, then its tensors


def multi_head(need_weights: bool) -> Callable[..., Any]:
    def run(x: Any, w: Any, b: Any, ow: Any, ob: Any) -> Any:
        x = x.transpose(0, 1)
        rest = (8, 2, w, b, None, None, False, 0.0, ow, ob)
        return F.multi_head_attention_forward(x, x, x, *rest, need_weights=need_weights)

    return run


POINTWISE: dict[str, Program] = {
    "gelu tanh": (lambda x: F.gelu(x, approximate="tanh"), "a b"),
    "prelu": (F.prelu, "a b 3", "b"),
    "glu": (lambda x: F.glu(x, -1), "a 2*b"),
    "glu0": (lambda x: F.glu(x, -1), "a 6"),
    "rsub": (lambda x: 1 - x, "a b"),
    "rdiv": (lambda x: 1 / x, "a b"),
    "rpow": (lambda x: 2**x, "a b"),
    "add alpha": (lambda x, y: torch.add(x, y, alpha=2), "a b", "a b"),
    "bitand": (lambda x, y: x & y, "a b:b", "a b:b"),
    "invert": (lambda x: ~x, "a b:b"),
    "bitor": (lambda x, y: x | y, "a b:i", "b:i"),
    "shift": (lambda x: x << 1, "a b:i"),
    "xor": (lambda x, y: x ^ y, "a b:b", "b:b"),
    "where": (torch.where, "a b:b", "a b", "a b"),
    "where bc": (torch.where, "a 1:b", "a b", "b"),
    "where num": (lambda c, x: torch.where(c, x, 0.0), "a b:b", "a b"),
    "where nums": (lambda c: torch.where(c, 1.0, 0.0), "a b:b"),
    "clamp": (lambda x: x.clamp(0, 1), "a b"),
    "clamp min": (lambda x: x.clamp(min=0), "a b"),
    "clamp t": (lambda x, y, z: torch.clamp(x, y, z), "a b", "b", "b"),
    "clamp_min": (lambda x: x.clamp_min(0), "a b/T"),
    "clamp max": (lambda x: x.clamp_max(1), "a b"),
    "addcmul": (lambda x, y, z: torch.addcmul(x, y, z, value=2), "a b", "a b", "b"),
    "lerp": (torch.lerp, "a b", "a b", "a b"),
    "lerp n": (lambda x, y: torch.lerp(x, y, 0.3), "a b", "b"),
    "nan_to_num": (torch.nan_to_num, "a b"),
    "to": (lambda x: x.to(torch.float64), "a b"),
    "to T": (lambda x: x.double(), "a b/T"),
    "half s": (lambda x: x.half(), "a b/s"),
    "float i": (lambda x: x.float(), "a b:i"),
    "type_as": (lambda x, y: x.type_as(y), "a b:i", "b"),
    "to bool": (lambda x: x.bool(), "a b"),
    "masked_fill": (lambda x, m: x.masked_fill(m, 0.0), "a b", "a b:b"),
    "masked_fill bc": (lambda x, m: x.masked_fill(m, 0.0), "a b", "b:b"),
    "masked_fill inf": (lambda x, m: x.masked_fill(m == 0, float("-inf")), "a 2 b b", "1 1 b b:i"),
    "masked_fill T": (lambda x, m: x.masked_fill(m, 0.0), "a b/T", "a b:b"),
    "dropout": (lambda x: F.dropout(x, 0.5), "a b"),
    "dropout off": (lambda x: F.dropout(x, 0.5, False), "a b"),
    "dropout1d": (lambda x: F.dropout1d(x, 0.5), "a b 3"),
    "dropout2d": (lambda x: F.dropout2d(x, 0.5), "a 3 b 4"),
    "alpha_dropout": (lambda x: F.alpha_dropout(x, 0.5, True), "a b"),
    "in place": (lambda x: x.clone().add_(1).mul_(x).relu_(), "a b"),
    "in place bc": (lambda x, y: x.clone().add_(y), "a b", "b"),
    "clone T": (lambda x: x.clone(), "a b/T"),
    "clone s": (lambda x: x.clone(), "a b/s"),
    "contig T": (lambda x: x.contiguous(), "a b/T"),
    "contig s": (lambda x: x.contiguous(), "a b/s"),
    "zeros_like": (torch.zeros_like, "a b"),
    "zeros_like T": (torch.zeros_like, "a b/T"),
    "zeros_like s": (torch.zeros_like, "a b/s"),
    "full_like": (lambda x: torch.full_like(x, 2), "a b"),
    "rand_like": (torch.rand_like, "a b"),
    "copy_": (lambda x, y: x.clone().copy_(y), "a b", "b"),
    "slice assign": (lambda x, y: x.clone().__setitem__(0, y), "a b", "b"),
    "fill slice": (lambda x: ((y := x.clone()), y[:, 1:].zero_(), y)[2], "a b"),
    "zero_ T": (lambda x: x.clone().t().zero_(), "a b"),
}

REDUCTIONS: dict[str, Program] = {
    "sum dims": (lambda x: x.sum((0, 2)), "a b 3"),
    "mean dims": (lambda x: x.mean((2, 3), keepdim=True), "a 3 b 4"),
    "var dims": (lambda x: torch.var(x, (1, 2), correction=0, keepdim=True), "a b 3"),
    "amax dims": (lambda x: x.amax((1, 2)), "a b 3"),
    "logsumexp dims": (lambda x: torch.logsumexp(x, (1, 2)), "a b 3"),
    "sum int": (lambda x: x.sum(), "a b:i"),
    "sum dtype": (lambda x: x.sum(0, dtype=torch.float64), "a b"),
    "var_mean": (lambda x: torch.var_mean(x, -1), "a b"),
    "std_mean": (lambda x: torch.std_mean(x, 0), "a b"),
    "sum bool": (lambda x: x.sum(1), "a b:b"),
    "aminmax": (lambda x: tuple(torch.aminmax(x)), "a b"),
    "mean cl": (lambda x: x.mean((2, 3)), "a 3 b 4/cl"),
    "linalg norm": (lambda x: torch.linalg.vector_norm(x, dim=-1, keepdim=True), "a b"),
    "normalize": (lambda x: F.normalize(x, dim=-1), "a b"),
    "cosine": (lambda x, y: F.cosine_similarity(x, y), "a b", "a b"),
    "pairwise": (F.pairwise_distance, "a b", "a b"),
    "softmax 4": (lambda x: x.softmax(-1), "a 2 b b"),
    "softmax f64": (lambda x: F.softmax(x, -1, dtype=torch.float64), "a b"),
    "softmax cl": (lambda x: x.softmax(1), "a 3 b 4/cl"),
    "softmin": (lambda x: F.softmin(x, -1), "a b"),
    "gumbel": (lambda x: F.gumbel_softmax(x), "a b"),
}

NORMS: dict[str, Program] = {
    "layer_norm": (lambda x, w, c: F.layer_norm(x, (4,), w, c), "a b 4", "4", "4"),
    "layer_norm plain": (lambda x: F.layer_norm(x, (4,)), "a b 4"),
    "layer_norm T": (lambda x: F.layer_norm(x, (4,)), "a b 4/T"),
    "layer_norm dyn": (lambda x: F.layer_norm(x, x.shape[-1:]), "a b"),
    "layer_norm 2": (lambda x: F.layer_norm(x, x.shape[-2:]), "a b 4"),
    "layer_norm bf": (lambda x: F.layer_norm(x, (4,)), "a b 4:h"),
    "rms_norm": (lambda x, w: F.rms_norm(x, (4,), w), "a b 4", "4"),
    "rms_norm plain": (lambda x: F.rms_norm(x, (4,)), "a b 4"),
    "rms hand": (
        lambda x, w: x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-06) * w,
        "a b 4",
        "4",
    ),
    "group_norm": (lambda x, w, c: F.group_norm(x, 2, w, c), "a 4 b 3", "4", "4"),
    "group_norm cl": (lambda x: F.group_norm(x, 2), "a 4 b 3/cl"),
    "group_norm3": (lambda x: F.group_norm(x, 2), "a 4 b"),
    "batch_norm": (
        lambda x, m, v, w, c: F.batch_norm(x, m, v, w, c),
        "a 4 b 3",
        "4:n",
        "4:n",
        "4",
        "4",
    ),
    "batch_norm cl": (lambda x, m, v: F.batch_norm(x, m, v), "a 4 b 3/cl", "4:n", "4:n"),
    "batch_norm train": (
        lambda x, m, v, w, c: F.batch_norm(x, m.clone().detach(), v.clone().detach(), w, c, True),
        "a 4 b 3",
        "4:n",
        "4:n",
        "4",
        "4",
    ),
    "batch_norm 2d": (lambda x, m, v: F.batch_norm(x, m, v), "a 4", "4:n", "4:n"),
    "batch_norm 3d": (lambda x, m, v: F.batch_norm(x, m, v), "a 4 b", "4:n", "4:n"),
    "instance_norm": (lambda x: F.instance_norm(x), "a 4 b 3"),
    "lrn": (lambda x: F.local_response_norm(x, 2), "a 4 b 3"),
    "batch_norm train2": (
        lambda x, m, v: F.batch_norm(x, m.clone().detach(), v.clone().detach(), training=True),
        "a 4",
        "4:n",
        "4:n",
    ),
}

PRODUCTS: dict[str, Program] = {
    "linear": (F.linear, "a 8", "3 8", "3"),
    "linear nb": (F.linear, "a 8", "3 8"),
    "linear3": (F.linear, "a b 8", "3 8", "3"),
    "linear3 nb": (F.linear, "a b 8", "3 8"),
    "linear1": (F.linear, "8", "3 8", "3"),
    "linear T": (F.linear, "a 8/T", "3 8", "3"),
    "linear s": (F.linear, "a b 8/s", "3 8", "3"),
    "linear3 T": (F.linear, "a b 8/T", "3 8", "3"),
    "linear4": (F.linear, "a 2 b 8", "3 8", "3"),
    "linear dyn": (F.linear, "a b", "3 b", "3"),
    "mm": (torch.mm, "a b", "b 3"),
    "mm ab": (torch.mm, "a 4", "4 b"),
    "mm T": (torch.mm, "a b/T", "b 3"),
    "bmm": (torch.bmm, "a 4 b", "a b 4"),
    "bmm T": (lambda x, y: torch.bmm(x, y.transpose(1, 2)), "a b 4", "a b 4"),
    "matmul 12": (torch.matmul, "b", "b a"),
    "matmul 21": (torch.matmul, "a b", "b"),
    "matmul 11": (torch.matmul, "a", "a"),
    "matmul 32": (torch.matmul, "a b 4", "4 3"),
    "matmul 32b": (torch.matmul, "a 3 b", "b 4"),
    "matmul 23": (torch.matmul, "3 b", "a b 4"),
    "matmul 33": (torch.matmul, "a 3 b", "a b 3"),
    "matmul 33 bc": (torch.matmul, "1 3 b", "a b 3"),
    "matmul 44": (torch.matmul, "a 2 b 4", "a 2 4 b"),
    "matmul 44 T": (lambda x, y: x @ y.transpose(-1, -2), "a 2 b 4", "a 2 b 4"),
    "matmul 44 heads": (
        lambda x, y: x.transpose(1, 2) @ y.transpose(1, 2).transpose(-1, -2),
        "a b 2 4",
        "a b 2 4",
    ),
    "matmul 43": (torch.matmul, "a 2 b 4", "2 4 b"),
    "matmul 42": (torch.matmul, "a 2 b 4", "4 3"),
    "matmul 31": (torch.matmul, "a b 4", "4"),
    "mv": (torch.mv, "a b", "b"),
    "dot": (torch.dot, "a", "a"),
    "outer": (torch.outer, "a", "b"),
    "addmm": (torch.addmm, "3", "a b", "b 3"),
    "addmm 2": (torch.addmm, "a 3", "a b", "b 3"),
    "baddbmm": (torch.baddbmm, "a 3 3", "a 3 b", "a b 3"),
    "baddbmm bc": (torch.baddbmm, "1 3 3", "a 3 b", "a b 3"),
    "addmv": (torch.addmv, "a", "a b", "b"),
    "addbmm": (torch.addbmm, "3 3", "a 3 b", "a b 3"),
    "chain": (lambda x, y, z: x @ y @ z, "a b", "b 3", "3 4"),
    "tensordot": (lambda x, y: torch.tensordot(x, y, 1), "a b", "b 3"),
    "bilinear": (F.bilinear, "a 3", "a 4", "5 3 4"),
    "kron": (torch.kron, "a 2", "b 3"),
    "cdist": (torch.cdist, "a 4", "b 4"),
    "cdist b": (torch.cdist, "a b 4", "a 3 4"),
    "cross": (lambda x, y: torch.linalg.cross(x, y), "a 3", "a 3"),
    "inner": (torch.inner, "a b", "b"),
}

EMBEDDING: dict[str, Program] = {
    "embedding": (F.embedding, "a b:i7", "7 4"),
    "embedding 1": (F.embedding, "a:i7", "7 4"),
    "embedding pad": (lambda i, w: F.embedding(i, w, padding_idx=0), "a b:i7", "7 4"),
    "embedding_bag": (lambda i, w: F.embedding_bag(i, w), "a b:i7", "7 4"),
    "one_hot": (lambda i: F.one_hot(i, 7), "a b:i7"),
}

IMAGES: dict[str, Program] = {
    "conv1d": (lambda x, w: F.conv1d(x, w), "a 3 b+4", "4 3 3"),
    "conv1d p": (lambda x, w, c: F.conv1d(x, w, c, padding=1, stride=2), "a 3 b", "4 3 3", "4"),
    "conv2d": (lambda x, w, c: F.conv2d(x, w, c, padding=1), "a 3 b 8", "4 3 3 3", "4"),
    "conv2d s": (lambda x, w: F.conv2d(x, w, stride=2), "2 3 a+3 b+3", "4 3 3 3"),
    "conv2d nopad": (lambda x, w: F.conv2d(x, w), "a 3 b b", "4 3 3 3"),
    "conv2d same": (lambda x, w: F.conv2d(x, w, padding="same"), "a 3 b b", "4 3 3 3"),
    "conv2d g": (lambda x, w: F.conv2d(x, w, groups=3, padding=1), "a 3 b 8", "3 1 3 3"),
    "conv2d dil": (lambda x, w: F.conv2d(x, w, dilation=2, padding=2), "a 3 b 8", "4 3 3 3"),
    "conv2d cl": (lambda x, w: F.conv2d(x, w, padding=1), "a 3 b 8/cl", "4 3 3 3"),
    "conv2d clw": (lambda x, w: F.conv2d(x, w, padding=1), "a 3 b 8", "4 3 3 3/cl"),
    "conv2d 1x1": (lambda x, w: F.conv2d(x, w), "a 3 b 8", "4 3 1 1"),
    "conv2d unb": (lambda x, w: F.conv2d(x, w, padding=1), "3 a b", "4 3 3 3"),
    "conv3d": (lambda x, w: F.conv3d(x, w, padding=1), "a 2 b 3 3", "4 2 3 3 3"),
    "convT2d": (lambda x, w: F.conv_transpose2d(x, w, stride=2), "a 3 b 4", "3 4 2 2"),
    "convT1d": (
        lambda x, w: F.conv_transpose1d(x, w, stride=2, padding=1, output_padding=1),
        "a 3 b",
        "3 4 3",
    ),
    "convT3d": (lambda x, w: F.conv_transpose3d(x, w), "a 2 b 3 3", "2 4 2 2 2"),
    "max_pool2d": (lambda x: F.max_pool2d(x, 2), "a 3 b 8"),
    "max_pool2d ceil": (lambda x: F.max_pool2d(x, 3, 2, 1, ceil_mode=True), "a 3 b 8"),
    "max_pool2d cl": (lambda x: F.max_pool2d(x, 2), "a 3 b 8/cl"),
    "max_pool2d i": (lambda x: F.max_pool2d(x, 2, return_indices=True), "a 3 b 8"),
    "max_pool1d": (lambda x: F.max_pool1d(x, 2), "a 3 b"),
    "max_pool3d": (lambda x: F.max_pool3d(x, 2), "a 3 b 4 4"),
    "avg_pool1d": (lambda x: F.avg_pool1d(x, 2), "a 3 b"),
    "avg_pool2d": (lambda x: F.avg_pool2d(x, 2), "a 3 b 8"),
    "avg_pool2d p": (lambda x: F.avg_pool2d(x, 3, 2, 1, ceil_mode=True), "a 3 b 8"),
    "avg_pool3d": (lambda x: F.avg_pool3d(x, 2), "a 3 b 4 4"),
    "lp_pool": (lambda x: F.lp_pool2d(x, 2, 2), "a 3 b 8"),
    "aavg 1": (lambda x: F.adaptive_avg_pool2d(x, 1), "a 3 b 8"),
    "aavg 2": (lambda x: F.adaptive_avg_pool2d(x, (2, 3)), "a 3 b 8"),
    "aavg1d": (lambda x: F.adaptive_avg_pool1d(x, 2), "a 3 b"),
    "amax2d": (lambda x: F.adaptive_max_pool2d(x, 2), "a 3 b 8"),
    "amax1d": (lambda x: F.adaptive_max_pool1d(x, 2), "a 3 b"),
    "aavg3d": (lambda x: F.adaptive_avg_pool3d(x, 2), "a 3 b 4 4"),
    "aavg cl": (lambda x: F.adaptive_avg_pool2d(x, 1), "a 3 b 8/cl"),
    "aavg none": (lambda x: F.adaptive_avg_pool2d(x, (None, 3)), "a 3 b 8"),
    "interp cl": (lambda x: F.interpolate(x, scale_factor=2), "a 3 b 4/cl"),
    "interp lin": (lambda x: F.interpolate(x, scale_factor=2, mode="linear"), "a 3 b"),
    "interp 0.5": (lambda x: F.interpolate(x, scale_factor=0.5, mode="bilinear"), "a 3 b 4"),
    "interp dyn": (lambda x, y: F.interpolate(x, size=y.shape[-2:]), "a 3 4 4", "a 3 b 5"),
    "interp align": (
        lambda x: F.interpolate(x, scale_factor=2, mode="bilinear", align_corners=True),
        "a 3 b 4",
    ),
    "interp 1d": (lambda x: F.interpolate(x, scale_factor=2), "a 3 b"),
    "interp 3d": (lambda x: F.interpolate(x, scale_factor=2), "a 3 b 2 2"),
    "grid_sample": (lambda x, g: F.grid_sample(x, g), "a 3 b 4", "a 5 6 2"),
    "affine_grid": (lambda t: F.affine_grid(t, (t.shape[0], 3, 4, 5)), "a 2 3"),
    "unfold2": (lambda x: F.unfold(x, 2), "a 3 b 4"),
    "fold": (lambda x: F.fold(x, (4, 4), 2), "a 12 9"),
    "pixel_shuffle": (lambda x: F.pixel_shuffle(x, 2), "a 8 b 3"),
    "pixel_unshuffle": (lambda x: F.pixel_unshuffle(x, 2), "a 3 2*b 4"),
    "channel_shuffle": (lambda x: F.channel_shuffle(x, 2), "a 4 b 3"),
}

LAYERS: dict[str, Program] = {
    "sdpa": (F.scaled_dot_product_attention, "a 2 b 8", "a 2 b 8", "a 2 b 8"),
    "sdpa causal": (
        lambda q, k, v: F.scaled_dot_product_attention(q, k, v, is_causal=True),
        "a 2 b 8",
        "a 2 b 8",
        "a 2 b 8",
    ),
    "sdpa mask": (F.scaled_dot_product_attention, "a 2 b 8", "a 2 b 8", "a 2 b 8", "b b:b"),
    "sdpa fmask": (F.scaled_dot_product_attention, "a 2 b 8", "a 2 b 8", "a 2 b 8", "a 1 b b"),
    "sdpa cross": (F.scaled_dot_product_attention, "a 2 3 8", "a 2 b 8", "a 2 b 8"),
    "sdpa heads": (
        lambda q, k, v: F.scaled_dot_product_attention(
            q.transpose(1, 2), k.transpose(1, 2), v.transpose(1, 2)
        ),
        "a b 2 8",
        "a b 2 8",
        "a b 2 8",
    ),
    "sdpa 3": (F.scaled_dot_product_attention, "a b 8", "a b 8", "a b 8"),
    "sdpa view": (
        lambda x: (
            lambda q, k, v: (
                F.scaled_dot_product_attention(q, k, v, is_causal=True)
                .transpose(1, 2)
                .reshape(x.shape[0], x.shape[1], 16)
            )
        )(*[t.view(x.shape[0], x.shape[1], 2, 8).transpose(1, 2) for t in x.split(16, -1)]),
        "a b 48",
    ),
    "sdpa drop": (
        lambda q, k, v: F.scaled_dot_product_attention(q, k, v, dropout_p=0.5),
        "a 2 b 8",
        "a 2 b 8",
        "a 2 b 8",
    ),
    "sdpa gqa": (
        lambda q, k, v: F.scaled_dot_product_attention(q, k, v, enable_gqa=True),
        "a 4 b 8",
        "a 2 b 8",
        "a 2 b 8",
    ),
    "sdpa bf": (F.scaled_dot_product_attention, "a 2 b 8:h", "a 2 b 8:h", "a 2 b 8:h"),
    "sdpa vdim": (F.scaled_dot_product_attention, "a 2 b 8", "a 2 b 8", "a 2 b 4"),
    "mha": (multi_head(True), "a b 8", "24 8", "24", "8 8", "8"),
    "mha nw": (multi_head(False), "a b 8", "24 8", "24", "8 8", "8"),
    "mha native": (
        lambda x, *w: torch._native_multi_head_attention(
            x, x, x, 8, 2, *w, None, False, True, None
        ),
        "a b 8",
        "24 8",
        "24",
        "8 8",
        "8",
    ),
    "lstm": (
        lambda x, h, c, wi, wh, bi, bh: torch.lstm(
            x, [h, c], [wi, wh, bi, bh], True, 1, 0.0, False, False, True
        ),
        "a b 6",
        "1 a 5",
        "1 a 5",
        "20 6",
        "20 5",
        "20",
        "20",
    ),
    "gru": (
        lambda x, h, wi, wh, bi, bh: torch.gru(
            x, h, [wi, wh, bi, bh], True, 1, 0.0, False, False, True
        ),
        "a b 6",
        "1 a 5",
        "15 6",
        "15 5",
        "15",
        "15",
    ),
    "lstm_cell": (
        lambda x, h, c, wi, wh: torch.lstm_cell(x, (h, c), wi, wh),
        "a 6",
        "a 5",
        "a 5",
        "20 6",
        "20 5",
    ),
    "gru_cell": (torch.gru_cell, "a 6", "a 5", "15 6", "15 5"),
    "rnn_tanh": (
        lambda x, h, wi, wh: torch.rnn_tanh(x, h, [wi, wh], False, 1, 0.0, False, False, True),
        "a 3 6",
        "1 a 5",
        "5 6",
        "5 5",
    ),
}

JOINING: dict[str, Program] = {
    "cat": (lambda x, y: torch.cat([x, y]), "a 4", "b 4"),
    "cat 1": (lambda x, y: torch.cat([x, y], 1), "a b", "a 3"),
    "cat -1": (lambda x, y: torch.cat([x, y], -1), "a b 2", "a 3 2"),
    "cat T": (lambda x, y: torch.cat([x, y]), "a b/T", "a b/T"),
    "cat cl": (lambda x, y: torch.cat([x, y], 1), "a 3 b 4/cl", "a 3 b 4/cl"),
    "cat 4": (lambda x, y: torch.cat([x, y], 1), "a 3 b 4", "a 2 b 4"),
    "cat self": (lambda x: torch.cat([x, x]), "a b"),
    "cat legacy": (lambda x, y: torch.cat([x, y]), "0", "a b"),
    "cat same": (lambda x, y: torch.cat([x, y]), "a", "b"),
    "cat types": (lambda x, y: torch.cat([x, y]), "a b", "a b:i"),
    "stack": (lambda x, y: torch.stack([x, y]), "a b", "a b"),
    "stack -1": (lambda x, y: torch.stack([x, y], -1), "a b", "a b"),
    "hstack": (lambda x, y: torch.hstack([x, y]), "a b", "a b"),
    "vstack": (lambda x, y: torch.vstack([x, y]), "a b", "a b"),
    "dstack": (lambda x, y: torch.dstack([x, y]), "a b", "a b"),
    "split": (lambda x: x.split(2)[0] if len(x.split(2)) else x, "a b"),
    "split sizes": (lambda x: x.split([1, 2], 1), "a 3"),
    "chunk": (lambda x: x.chunk(2), "a b"),
    "chunk -1": (lambda x: x.chunk(2, -1), "a 2*b"),
    "chunk static": (lambda x: x.chunk(3, -1), "a 9"),
    "unbind": (lambda x: x.unbind(1), "a 3"),
    "tensor_split": (lambda x: x.tensor_split(2), "a b"),
    "unbind0": (lambda x: x.unbind(0), "3 a b"),
}

MOVEMENT: dict[str, Program] = {
    "pad": (lambda x: F.pad(x, (1, 2)), "a b"),
    "pad 4": (lambda x: F.pad(x, (1, 2, 3, 4)), "a b"),
    "pad neg": (lambda x: F.pad(x, (-1, 2)), "a b+2"),
    "pad value": (lambda x: F.pad(x, (0, 1), value=2.0), "a b"),
    "pad reflect": (lambda x: F.pad(x, (1, 1, 1, 1), mode="reflect"), "a 3 b+2 4"),
    "pad replicate": (lambda x: F.pad(x, (1, 1, 1, 1), mode="replicate"), "a 3 b 4"),
    "pad circular": (lambda x: F.pad(x, (1, 1, 1, 1), mode="circular"), "a 3 b+2 4"),
    "pad 1d reflect": (lambda x: F.pad(x, (1, 1), mode="reflect"), "a b+2"),
    "pad cl": (lambda x: F.pad(x, (1, 1, 1, 1)), "a 3 b 4/cl"),
    "pad zero": (lambda x: F.pad(x, (0, 0)), "a b"),
    "pad dyn": (lambda x: F.pad(x, (0, 8 - x.shape[1])), "a b"),
    "roll": (lambda x: x.roll(1, 0), "a b"),
    "roll flat": (lambda x: x.roll(1), "a b"),
    "roll 2": (lambda x: x.roll((1, -1), (1, 2)), "a b 4"),
    "rot90": (lambda x: x.rot90(), "a b"),
    "tril": (torch.tril, "a b"),
    "triu": (lambda x: torch.triu(x, 1), "a b"),
    "tril T": (torch.tril, "a b/T"),
    "tril 3": (torch.tril, "a b b"),
    "tril s": (torch.tril, "a b/s"),
    "diag": (torch.diag, "a"),
    "diag 2": (torch.diag, "a b"),
    "diagonal": (lambda x: x.diagonal(), "a b"),
    "diag_embed": (torch.diag_embed, "a b"),
    "trace": (torch.trace, "a b"),
    "flip 2": (lambda x: x.flip(0, 1), "a b"),
    "fliplr": (torch.fliplr, "a b"),
    "gather": (lambda x, i: x.gather(1, i), "a 4", "a b:i4"),
    "gather T": (lambda x, i: x.gather(1, i), "a 4/T", "a b:i4"),
    "scatter": (lambda x, i, s: x.scatter(1, i, s), "a 4", "a b:i4", "a b"),
    "scatter num": (lambda x, i: x.scatter(1, i, 1.0), "a 4", "a b:i4"),
    "scatter_add": (lambda x, i, s: x.scatter_add(0, i, s), "4 b", "a b:i4", "a b"),
    "scatter_reduce": (lambda x, i, s: x.scatter_reduce(0, i, s, "mean"), "4 b", "a b:i4", "a b"),
    "index_select": (lambda x, i: x.index_select(0, i), "4 b", "a:i4"),
    "index_select T": (lambda x, i: x.index_select(0, i), "4 b/T", "a:i4"),
    "index": (lambda x, i: x[i], "4 b", "a:i4"),
    "index 2": (lambda x, i: x[i], "4 b", "a b:i4"),
    "index col": (lambda x, i: x[:, i], "a 4", "b:i4"),
    "index pair": (lambda x, i, j: x[i, j], "4 4", "a:i4", "a:i4"),
    "index mix": (lambda x, i: x[:, i, None], "a 4", "b:i4"),
    "index bc": (lambda x, i, j: x[i, j], "4 4", "a 1:i4", "b:i4"),
    "index apart": (lambda x, i, j: x[i, :, j], "4 b 4", "a:i4", "a:i4"),
    "index T": (lambda x, i: x[i], "4 b/T", "a:i4"),
    "index dyn": (lambda x, i: x[i], "a 3", "b:i1"),
    "index arange": (lambda x, i: x[torch.arange(x.shape[0]), i], "a 4", "a:i4"),
    "index_put": (lambda x, i, v: x.index_put((i,), v), "4 b", "a:i4", "a b"),
    "setitem": (
        lambda x, i, v: ((y := x.clone()), y.__setitem__(i, v), y)[2],
        "4 b",
        "a:i4",
        "a b",
    ),
    "setitem num": (lambda x, i: ((y := x.clone()), y.__setitem__(i, 0.0), y)[2], "4 b", "a:i4"),
    "index_add": (lambda x, i, v: x.index_add(0, i, v), "4 b", "a:i4", "a b"),
    "index_copy": (lambda x, i, v: x.index_copy(0, i, v), "4 b", "a:i4", "a b"),
    "index_fill": (lambda x, i: x.index_fill(0, i, 1.0), "4 b", "a:i4"),
    "setmask": (lambda x, m: ((y := x.clone()), y.__setitem__(m, 0.0), y)[2], "a b", "a b:b"),
    "take": (lambda x, i: x.take(i), "2 3", "a b:i6"),
    "take_along": (lambda x, i: torch.take_along_dim(x, i, 1), "a 4", "a b:i4"),
    "select": (lambda x: x[1], "2 a b"),
    "last": (lambda x: x[:, -1], "a b"),
    "first": (lambda x: x[0], "a b"),
    "masked_scatter": (lambda x, m, s: x.masked_scatter(m, s), "a b", "a b:b", "a b"),
    "topk": (lambda x: tuple(x.topk(2, -1)), "a 4"),
    "topk dyn": (lambda x: tuple(x.topk(1, -1)), "a b"),
    "topk 0": (lambda x: tuple(x.topk(2, 0)), "a b"),
    "kthvalue": (lambda x: tuple(x.kthvalue(1, -1)), "a b"),
    "sort st": (lambda x: tuple(torch.sort(x, stable=True, descending=True)), "a b"),
    "argsort d": (lambda x: x.argsort(-1, descending=True), "a b"),
    "cumsum int": (lambda x: x.cumsum(0), "a b:b"),
    "bucketize": (torch.bucketize, "a b", "4"),
    "searchsorted": (torch.searchsorted, "4", "a b"),
    "isin": (torch.isin, "a:i4", "b:i4"),
    "diff": (torch.diff, "a b"),
    "histc": (lambda x: torch.histc(x, 4), "a b"),
    "multinomial": (lambda x: torch.multinomial(x, 2, True), "a 4:p"),
    "bernoulli": (torch.bernoulli, "a b:p"),
}

MAKING: dict[str, Program] = {
    "new_zeros": (lambda x: x.new_zeros(x.shape), "a b"),
    "new_ones": (lambda x: x.new_ones((x.shape[0], 3)), "a b"),
    "new_full": (lambda x: x.new_full((x.shape[1],), 2.0), "a b"),
    "zeros shape": (lambda x: torch.zeros(x.shape[0], x.shape[1] * 2), "a b"),
    "new_empty": (lambda x: x.new_empty(x.shape), "a b"),
    "arange len": (lambda x: torch.arange(x.shape[1]), "a b"),
    "arange mask": (
        lambda x: torch.arange(x.shape[1])[None, :] < torch.arange(x.shape[0])[:, None],
        "a b",
    ),
    "repeat": (lambda x: x.repeat(2, 3), "a b"),
    "repeat 3": (lambda x: x.repeat(2, 1, 1), "a b"),
    "tile": (lambda x: x.tile(2), "a b"),
    "repeat_int": (lambda x: x.repeat_interleave(2), "a b"),
    "repeat_int d": (lambda x: x.repeat_interleave(2, dim=1), "a b"),
    "repeat kv": (
        lambda x: (
            x[:, :, None]
            .expand(x.shape[0], x.shape[1], 2, x.shape[2])
            .reshape(x.shape[0], x.shape[1] * 2, x.shape[2])
        ),
        "a b 4",
    ),
    "expand": (lambda x: x.unsqueeze(0).expand(4, -1, -1), "a b"),
    "expand 1": (lambda x, y: x.expand(y.shape), "a 1", "a b"),
    "expand_as": (lambda x, y: x.expand_as(y), "b", "a b"),
    "expand T": (lambda x, y: x.expand(-1, 3), "a 1", "b"),
    "meshgrid": (lambda x, y: torch.meshgrid(x, y, indexing="ij"), "a", "b"),
    "meshgrid xy": (lambda x, y: torch.meshgrid(x, y, indexing="xy"), "a", "b"),
    "cartesian": (torch.cartesian_prod, "a", "b"),
    "broadcast_to": (lambda x, y: torch.broadcast_to(x, (y.shape[0], x.shape[0])), "b", "a"),
    "broadcast_tensors": (lambda x, y: torch.broadcast_tensors(x, y), "a 1", "b"),
}

VIEWS: dict[str, Program] = {
    "view(-1)": (lambda x: x.view(-1), "a b"),
    "flatten": (lambda x: x.flatten(1), "a b 4"),
    "flatten0": (lambda x: x.flatten(0, 1), "a b 4"),
    "reshape T": (lambda x: x.reshape(-1), "a b/T"),
    "reshape s": (lambda x: x.reshape(-1), "a b/s"),
    "t": (lambda x: x.t(), "a b"),
    "permute": (lambda x: x.permute(2, 0, 1), "a b 3"),
    "mT": (lambda x: x.mT, "a b 3"),
    "movedim": (lambda x: x.movedim(0, -1), "a b 3"),
    "unsqueeze": (lambda x: x.unsqueeze(1), "a b"),
    "unsqueeze T": (lambda x: x.unsqueeze(-1), "a b/T"),
    "squeeze1": (lambda x: x.squeeze(1), "a 1 b"),
    "squeeze": (lambda x: x.squeeze(), "a 1 b"),
    "squeeze dyn": (lambda x: x.squeeze(0), "a b"),
    "heads": (lambda x: x.view(x.shape[0], x.shape[1], 2, 4).transpose(1, 2), "a b 8"),
    "heads back": (
        lambda x: (
            x.view(x.shape[0], x.shape[1], 2, 4)
            .transpose(1, 2)
            .transpose(1, 2)
            .reshape(x.shape[0], x.shape[1], 8)
        ),
        "a b 8",
    ),
    "heads back c": (lambda x: x.transpose(1, 2).contiguous().view(x.shape[0], -1, 8), "a 2 b 4"),
    "view split": (lambda x: x.view(x.shape[0], 2, -1), "a 2*b"),
    "[1:]": (lambda x: x[1:], "a b"),
    "[:-1]": (lambda x: x[:-1], "a b"),
    "[:,:3]": (lambda x: x[:, :3], "a b"),
    "[::2]": (lambda x: x[::2], "a b"),
    "[...,None]": (lambda x: x[..., None], "a b"),
    "[a//2:]": (lambda x: x[x.shape[0] // 2 :], "a b"),
    "rot half": (
        lambda x: torch.cat([-x[..., x.shape[-1] // 2 :], x[..., : x.shape[-1] // 2]], -1),
        "a b 4",
    ),
    "narrow": (lambda x: x.narrow(1, 1, 2), "a b+2"),
    "unfold": (lambda x: x.unfold(1, 2, 1), "a b+1"),
    "view_as": (lambda x, y: x.view_as(y), "a b", "a b"),
    "unflatten": (lambda x: x.unflatten(1, (2, -1)), "a 2*b"),
    "window": (
        lambda x: (
            x.view(x.shape[0], x.shape[1] // 2, 2, 2, 2, 3)
            .permute(0, 1, 3, 2, 4, 5)
            .reshape(-1, 2, 2, 3)
        ),
        "a 2*b 4 3",
    ),
    "swapaxes": (lambda x: x.swapaxes(0, 1), "a b 3"),
    "view dtype": (lambda x: x.view(torch.int32), "a b"),
    "as_strided": (lambda x: x.as_strided((2,), (1,)), "a+1 b+1"),
    "select": (lambda x: x.select(1, 0), "a b+1"),
    "detach": (lambda x: x.detach(), "a b"),
    "real": (lambda x: torch.view_as_real(x), "a b:c"),
    "complex": (lambda x: torch.view_as_complex(x), "a b 2"),
    "rope": (
        lambda x, f: torch.view_as_real(
            torch.view_as_complex(x.reshape(*x.shape[:-1], -1, 2)) * f
        ).flatten(3),
        "a b 2 8",
        "b 1 4:c",
    ),
    "ravel": (lambda x: x.ravel(), "a b"),
    "reshape as": (lambda x: x.reshape(x.shape[0] * x.shape[1], -1), "a b 4"),
    "atleast": (lambda x: torch.atleast_3d(x), "a b"),
    "hsplit": (lambda x: x.hsplit(2), "a 2*b"),
    "diagonal3": (lambda x: x.diagonal(0, 1, 2), "a b b"),
    "squeeze dims": (lambda x: x.squeeze((1, 2)), "a 1 1 b"),
    "view merge T": (lambda x: x.transpose(0, 1).reshape(x.shape[1], -1), "a b 4"),
    "patch": (lambda x: x.unfold(2, 2, 2).unfold(3, 2, 2).contiguous(), "a 3 2*b 4"),
    "flat conv": (lambda x: x.flatten(2).transpose(1, 2), "a 3 b 4"),
}

LOSSES: dict[str, Program] = {
    "ce": (F.cross_entropy, "a 4", "a:i4"),
    "ce w": (lambda x, t, w: F.cross_entropy(x, t, w), "a 4", "a:i4", "4"),
    "ce 3": (F.cross_entropy, "a 4 b", "a b:i4"),
    "ce none": (lambda x, t: F.cross_entropy(x, t, reduction="none"), "a 4", "a:i4"),
    "ce prob": (F.cross_entropy, "a 4", "a 4:p"),
    "ce smooth": (lambda x, t: F.cross_entropy(x, t, label_smoothing=0.1), "a 4", "a:i4"),
    "ce ignore": (
        lambda x, t: F.cross_entropy(x.view(-1, 4), t.view(-1), ignore_index=0),
        "a b 4",
        "a b:i4",
    ),
    "ce 4": (F.cross_entropy, "a 4 b 3", "a b 3:i4"),
    "nll": (F.nll_loss, "a 4", "a:i4"),
    "mse": (F.mse_loss, "a b", "a b"),
    "mse none": (lambda x, y: F.mse_loss(x, y, reduction="none"), "a b", "a b"),
    "l1": (F.l1_loss, "a b", "a b"),
    "smooth": (F.smooth_l1_loss, "a b", "a b"),
    "huber": (F.huber_loss, "a b", "a b"),
    "bce": (F.binary_cross_entropy, "a b:p", "a b:p"),
    "bcel": (F.binary_cross_entropy_with_logits, "a b", "a b:p"),
    "kl": (lambda x, y: F.kl_div(x, y, reduction="batchmean"), "a b", "a b:p"),
    "triplet": (F.triplet_margin_loss, "a b", "a b", "a b"),
    "cosemb": (F.cosine_embedding_loss, "a b", "a b", "a"),
    "hinge": (F.hinge_embedding_loss, "a b", "a b"),
    "margin": (F.margin_ranking_loss, "a", "a", "a"),
    "multi margin": (F.multi_margin_loss, "a 4", "a:i4"),
    "softmargin": (F.soft_margin_loss, "a b", "a b"),
    "poisson": (F.poisson_nll_loss, "a b", "a b:p"),
}

LINALG: dict[str, Program] = {
    "inverse": (torch.linalg.inv, "a 3 3"),
    "det": (torch.linalg.det, "a 3 3"),
    "solve": (torch.linalg.solve, "a 3 3", "a 3 b"),
    "cholesky": (lambda x: torch.linalg.cholesky(x @ x.mT + torch.eye(3) * 5), "a 3 3"),
    "svd": (lambda x: tuple(torch.linalg.svd(x, full_matrices=False)), "a 3 4"),
    "qr": (lambda x: tuple(torch.linalg.qr(x)), "a 4 3"),
    "eigh": (lambda x: tuple(torch.linalg.eigh(x @ x.mT)), "a 3 3"),
    "fft": (torch.fft.fft, "a b"),
    "rfft": (torch.fft.rfft, "a b"),
    "irfft": (lambda x: torch.fft.irfft(x), "a b+1:c"),
    "fft2": (torch.fft.fft2, "a b 4"),
    "matrix_exp": (torch.matrix_exp, "a 3 3"),
    "pinv": (torch.linalg.pinv, "a 3 2"),
    "stft": (lambda x: torch.stft(x, 4, return_complex=True, center=False), "a b+4"),
}

BACKWARD: dict[str, Program] = {
    "backward": (
        lambda x: torch.autograd.grad((x * x).sum(), [x])[0] if x.requires_grad else x,
        "a b",
    ),
    "backward mm": (
        lambda x, w: (
            torch.autograd.grad(F.linear(x, w).relu().sum(), [x, w]) if x.requires_grad else x
        ),
        "a b 8",
        "3 8",
    ),
    "backward ln": (
        lambda x, w, c: (
            torch.autograd.grad(F.layer_norm(x, (8,), w, c).softmax(-1).sum(), [x, w, c])
            if x.requires_grad
            else x
        ),
        "a b 8",
        "8",
        "8",
    ),
    "backward conv": (
        lambda x, w: (
            torch.autograd.grad(F.conv2d(x, w, padding=1).sum(), [x, w]) if x.requires_grad else x
        ),
        "a 3 b 4",
        "4 3 3 3",
    ),
    "addcdiv": (torch.addcdiv, "a b", "a b", "a b"),
}

UNARY = (
    "relu neg abs exp log1p sin tanh sigmoid sqrt rsqrt erf floor round "
    "sign square reciprocal cos log trunc frac isnan isfinite logical_not expm1 acos atan"
)
ACTIVATIONS = (
    "gelu silu elu leaky_relu hardtanh softplus hardswish mish "
    "selu celu relu6 logsigmoid hardsigmoid softsign tanhshrink softshrink"
)
POINTWISE |= {name: (getattr(torch, name), "a b") for name in UNARY.split()}
POINTWISE |= {name: (getattr(F, name), "a b") for name in ACTIVATIONS.split()}
BINARY = (
    "add sub mul div maximum minimum pow atan2 fmod remainder eq lt logical_and floor_divide xlogy"
)
OPERANDS: dict[str, tuple[str, ...]] = {
    "": ("a b", "a b"),
    "row": ("a b", "b"),
    "col": ("a b", "a 1"),
    "outer": ("a 1", "1 b"),
    "one": ("a b", "1"),
    "0d": ("a b", ""),
    "T": ("a b/T", "a b"),
    "TT": ("a b/T", "a b/T"),
    "T0": ("a b/T", ""),
    "s": ("a b/s", "a b"),
    "three": ("a b 4", "b 4"),
    "three T": ("a b 4/T", "a b 4"),
    "row T": ("b", "a b/T"),
    "two": ("a", "b"),
    "mixed": ("a b:i", "a b"),
}
POINTWISE |= {
    f"{name} {how}": (getattr(torch, name), *operands)
    for name in BINARY.split()
    for how, operands in OPERANDS.items()
}


def with_two(function: Callable[..., Any]) -> Callable[..., Any]:
    return lambda x: function(x, 2)


NUMBERS = "add sub mul div pow eq gt remainder floor_divide"
POINTWISE |= {
    f"{name} number {form}": (with_two(getattr(torch, name)), form)
    for name in NUMBERS.split()
    for form in ("a b", "a b/T", "a b/s", "a 3 b 4/cl", "a b:i")
}
OVER_A_DIMENSION = (
    "sum mean prod amax amin std var argmax argmin all any logsumexp nansum count_nonzero cumsum "
    "cumprod softmax log_softmax sort argsort logcumsumexp norm median max min flip"
)


def over(function: Callable[..., Any], dim: Any, **more: Any) -> Callable[..., Any]:
    return lambda x: function(x, dim=dim, **more)


REDUCTIONS |= {
    f"{name} {dim} {form}": (over(getattr(torch, name), (dim,) if name == "flip" else dim), form)
    for name in OVER_A_DIMENSION.split()
    for dim in (0, -1)
    for form in ("a b", "a b/T", "a b/s")
    if not (name == "flip" and form != "a b")
}
REDUCTIONS["flip T"] = (lambda x: x.flip(0), "a b/T")
KEEPING = "sum mean amax amin argmax prod all any"
REDUCTIONS |= {
    f"{name} keep": (over(getattr(torch, name), -1, keepdim=True), "a b 3")
    for name in KEEPING.split()
}
OF_ALL = "sum mean prod max min std var argmax all any norm median"
REDUCTIONS |= {
    f"{name} of all {form}": (getattr(torch, name), form)
    for name in OF_ALL.split()
    for form in ("a b", "a b/T")
}
MODES = ("nearest", "bilinear", "bicubic", "area", "nearest-exact")


def resized(**how: Any) -> Callable[..., Any]:
    return lambda x: F.interpolate(x, **how)


IMAGES |= {f"interpolate {m}": (resized(scale_factor=2, mode=m), "a 3 b 4") for m in MODES}
IMAGES |= {f"interpolate to {m}": (resized(size=(6, 7), mode=m), "a 3 b 4") for m in MODES}
EQUATIONS: dict[str, tuple[str, ...]] = {
    "ij,jk->ik": ("a b", "b 3"),
    "bij,bjk->bik": ("a b 4", "a 4 b"),
    "bhqd,bhkd->bhqk": ("a 2 b 4", "a 2 b 4"),
    "bhqk,bhkd->bhqd": ("a 2 b b", "a 2 b 4"),
    "i,j->ij": ("a", "b"),
    "ii->i": ("a a",),
    "ij->ji": ("a b",),
    "ij->": ("a b",),
    "bi,bi->b": ("a b", "a b"),
    "bnd,de->bne": ("a b 4", "4 3"),
    "...i,ij->...j": ("a b 4", "4 3"),
    "blhd,bshd->bhls": ("a b 2 4", "a b 2 4"),
}


def einsum(equation: str) -> Callable[..., Any]:
    return lambda *operands: torch.einsum(equation, *operands)


PRODUCTS |= {f"einsum {e}": (einsum(e), *operands) for e, operands in EQUATIONS.items()}
# Of the numbers themselves; the tensor only brings them.
OF_SIZES: dict[str, Callable[[Any, Any], Any]] = {
    "zeros": lambda a, b: torch.zeros(a, b),
    "ones": lambda a, b: torch.ones(a, b),
    "full": lambda a, b: torch.full((a, b), 1.5),
    "empty": lambda a, b: torch.empty(a, b),
    "rand": lambda a, b: torch.rand(a, b),
    "randn": lambda a, b: torch.randn(a, b),
    "randint": lambda a, b: torch.randint(0, 5, (a, b)),
    "arange": lambda a, b: torch.arange(a),
    "arange2": lambda a, b: torch.arange(a, a + b),
    "arange3": lambda a, b: torch.arange(0, a, 2),
    "arange f": lambda a, b: torch.arange(a, dtype=torch.float32),
    "arange neg": lambda a, b: torch.arange(a - 1, -1, -1),
    "linspace": lambda a, b: torch.linspace(0, 1, a),
    "linspace2": lambda a, b: torch.linspace(0, a, 5),
    "eye": lambda a, b: torch.eye(a),
    "eye2": lambda a, b: torch.eye(a, b),
    "tri": lambda a, b: torch.ones(a, a).tril(),
    "full bool": lambda a, b: torch.full((a, b), True),
    "full sym": lambda a, b: torch.full((3, b), a),
    "triu_ind": lambda a, b: torch.triu_indices(a, a),
    "tensor": lambda a, b: torch.tensor([1, 2]),
    "randperm": lambda a, b: torch.randperm(a),
    "scalar": lambda a, b: torch.scalar_tensor(a),
    "zeros dt": lambda a, b: torch.zeros((a, b), dtype=torch.int32),
    "causal": lambda a, b: torch.triu(torch.full((a, a), float("-inf")), diagonal=1),
}


def of_sizes(function: Callable[[Any, Any], Any]) -> Callable[..., Any]:
    return lambda x: function(x.shape[0], x.shape[1])


MAKING |= {f"make {name}": (of_sizes(function), "a b") for name, function in OF_SIZES.items()}

GROUPS = {
    "pointwise": POINTWISE,
    "reductions": REDUCTIONS,
    "norms": NORMS,
    "products": PRODUCTS,
    "embedding": EMBEDDING,
    "images": IMAGES,
    "layers": LAYERS,
    "joining": JOINING,
    "movement": MOVEMENT,
    "making": MAKING,
    "views": VIEWS,
    "losses": LOSSES,
    "linalg": LINALG,
    "backward": BACKWARD,
}
PROGRAMS = {
    f"{group}: {name}": program
    for group, found in GROUPS.items()
    for name, program in found.items()
}
