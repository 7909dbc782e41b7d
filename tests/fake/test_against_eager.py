"""A table of calls, each run on fakes and for real; everything but the values must agree."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F

Make = Callable[[], tuple[Any, ...]]


def r(*sizes: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    return torch.randn(sizes, dtype=dtype)


def ints(high: int, *sizes: int) -> torch.Tensor:
    return torch.randint(0, high, sizes)


def cl(*sizes: int) -> torch.Tensor:
    return r(*sizes).contiguous(memory_format=torch.channels_last)


def flipped(*sizes: int) -> torch.Tensor:
    """The last two dimensions transposed in memory."""
    return r(*sizes[:-2], sizes[-1], sizes[-2]).transpose(-1, -2)


def call(func: Callable[..., Any], *args: Any, **kwargs: Any) -> tuple[Any, ...]:
    return func, args, kwargs


def lstm(x: torch.Tensor, layers: int, bidirectional: bool, batch_first: bool) -> Any:
    net = torch.nn.LSTM(6, 5, layers, bidirectional=bidirectional, batch_first=batch_first)
    weights = [p.detach() for p in net.parameters()]
    ways = layers * (2 if bidirectional else 1)
    batch = x.size(0 if batch_first else 1)
    state = [r(ways, batch, 5), r(ways, batch, 5)]
    rest = (True, layers, 0.0, False, bidirectional, batch_first)
    return call(torch.lstm, x, state, weights, *rest)


def gru(x: torch.Tensor) -> Any:
    weights = [p.detach() for p in torch.nn.GRU(6, 5).parameters()]
    return call(torch.gru, x, r(1, x.size(1), 5), weights, True, 1, 0.0, False, False, False)


def native_attention(x: torch.Tensor, need_weights: bool) -> Any:
    weights = [p.detach() for p in torch.nn.MultiheadAttention(8, 2).parameters()]
    rest = (None, need_weights, True, None)
    return call(torch._native_multi_head_attention, x, x, x, 8, 2, *weights, *rest)


POINTWISE: dict[str, Make] = {
    "add": lambda: call(torch.add, r(3, 4), r(4)),
    "add number": lambda: call(operator.add, r(3, 4), 1),
    "int plus float": lambda: call(operator.add, ints(5, 3), 1.5),
    "int divided": lambda: call(operator.truediv, ints(5, 3), 2),
    "floor divide": lambda: call(operator.floordiv, r(2, 3), 2),
    "0-dim": lambda: call(torch.mul, r(3), r(dtype=torch.float64)),
    "0-dim of both": lambda: call(torch.mul, r(), r(dtype=torch.float64)),
    "bool and int": lambda: call(torch.add, ints(2, 3).bool(), ints(5, 3)),
    "compare": lambda: call(torch.lt, r(3, 1), r(1, 4)),
    "flipped": lambda: call(torch.add, flipped(2, 3, 4), flipped(2, 3, 4)),
    "flipped and not": lambda: call(torch.add, flipped(2, 3, 4), r(2, 3, 4)),
    "not and flipped": lambda: call(torch.add, r(2, 3, 4), flipped(2, 3, 4)),
    "channels last": lambda: call(torch.add, cl(2, 3, 4, 5), r(3, 1, 1)),
    "strided slice": lambda: call(torch.relu, r(4, 6)[:, ::2]),
    "expanded": lambda: call(torch.relu, r(4, 1).expand(4, 5)),
    "gelu": lambda: call(torch._C._nn.gelu, r(3, 4)),
    "clamp": lambda: call(torch.clamp, r(3), 0, 1),
    "where": lambda: call(torch.where, r(3, 4) > 0, r(3, 4), 0.0),
    "where dtypes": lambda: call(torch.where, r(3) > 0, r(3), r(3, dtype=torch.float64)),
    "lerp": lambda: call(torch.lerp, r(3), r(3), 0.5),
    "masked fill": lambda: call(torch.masked_fill, r(3, 4), r(4) > 0, 1.0),
    "empty": lambda: call(torch.mul, r(0, 3), r(3)),
    "one element": lambda: call(torch.mul, r(1, 1), r(1)),
    "pow of int": lambda: call(torch.pow, ints(5, 3), 2.0),
    "sin of int": lambda: call(torch.sin, ints(5, 3)),
    "abs of complex": lambda: call(torch.abs, r(3, dtype=torch.complex64)),
    "conj": lambda: call(torch.conj, r(3, dtype=torch.complex64)),
    "conj input": lambda: call(torch.mul, r(3, dtype=torch.complex64).conj(), 2.0),
    "imag of conj": lambda: call(torch.imag, r(3, dtype=torch.complex64).conj()),
    "negative bit input": lambda: call(torch.add, r(3, dtype=torch.complex64).conj().imag, 1),
}

SHAPES: dict[str, Make] = {
    "view": lambda: call(torch.Tensor.view, r(4, 6), 2, -1),
    "view dtype": lambda: call(torch.Tensor.view, r(4, 6), torch.int32),
    "reshape copies": lambda: call(torch.reshape, flipped(4, 6), (-1,)),
    "reshape views": lambda: call(torch.reshape, r(4, 6), (-1,)),
    "flatten": lambda: call(torch.flatten, r(2, 3, 4), 1),
    "expand": lambda: call(torch.Tensor.expand, r(1, 4), 3, -1),
    "permute": lambda: call(torch.permute, r(2, 3, 4), (2, 0, 1)),
    "T": lambda: call(getattr, r(2, 3), "T"),
    "mT": lambda: call(getattr, r(2, 3, 4), "mT"),
    "squeeze": lambda: call(torch.squeeze, r(2, 1, 3, 1)),
    "unbind": lambda: call(torch.unbind, r(3, 2)),
    "iterate": lambda: call(list, r(3, 2)),
    "split": lambda: call(torch.split, r(7, 2), 3),
    "split sizes": lambda: call(torch.split, r(7, 2), [2, 5]),
    "chunk": lambda: call(torch.chunk, r(7, 2), 3),
    "tensor split": lambda: call(torch.tensor_split, r(7, 2), 3),
    "diagonal": lambda: call(torch.diagonal, r(4, 4)),
    "unfold dim": lambda: call(torch.Tensor.unfold, r(8), 0, 3, 2),
    "as strided": lambda: call(torch.as_strided, r(4, 4), (2, 2), (1, 4), 3),
    "narrow": lambda: call(torch.narrow, r(5, 4), 0, 1, 2),
    "select": lambda: call(operator.getitem, r(4, 5), 1),
    "slices": lambda: call(
        operator.getitem, r(4, 5, 6), (slice(1, 3), None, Ellipsis, slice(0, 6, 2))
    ),
    "int index": lambda: call(operator.getitem, r(4, 5), ints(4, 3)),
    "two indices": lambda: call(
        operator.getitem, r(4, 5, 6), (slice(None), ints(5, 3), ints(6, 3))
    ),
    "split indices": lambda: call(
        operator.getitem, r(4, 5, 6), (ints(4, 2, 1), slice(None), ints(6, 3))
    ),
    "list index": lambda: call(operator.getitem, r(4, 5), [0, 2]),
    "contiguous": lambda: call(torch.Tensor.contiguous, flipped(3, 4)),
    "contiguous already": lambda: call(torch.Tensor.contiguous, r(3, 4)),
    "clone": lambda: call(torch.clone, flipped(3, 4)),
    "to same": lambda: call(torch.Tensor.to, r(3), torch.float32),
    "to double": lambda: call(torch.Tensor.to, flipped(3, 4), torch.float64),
    "type as": lambda: call(torch.Tensor.type_as, r(3), ints(3, 3)),
    "detach": lambda: call(torch.detach, r(3)),
    "data": lambda: call(getattr, r(3), "data"),
    "view as real": lambda: call(torch.view_as_real, r(3, dtype=torch.complex64)),
    "cat": lambda: call(torch.cat, [r(2, 3), r(4, 3)]),
    "cat dtypes": lambda: call(torch.cat, [ints(3, 2), r(4)]),
    "cat legacy empty": lambda: call(torch.cat, [r(0), r(4, 3)]),
    "cat channels last": lambda: call(torch.cat, [cl(2, 3, 4, 4), cl(2, 2, 4, 4)], 1),
    "cat flipped": lambda: call(torch.cat, [flipped(2, 3, 4), flipped(2, 3, 4)], 2),
    "stack": lambda: call(torch.stack, [r(2, 3), r(2, 3)], 1),
    "repeat": lambda: call(torch.Tensor.repeat, r(2, 3), 2, 1, 2),
    "repeat interleave": lambda: call(torch.repeat_interleave, r(2, 3), 2, 1),
    "tile": lambda: call(torch.tile, r(2, 3), (2,)),
    "flip": lambda: call(torch.flip, flipped(2, 3, 4), (0,)),
    "roll": lambda: call(torch.roll, cl(2, 3, 4, 4), 1, 2),
    "meshgrid": lambda: call(torch.meshgrid, r(3), r(4), indexing="ij"),
    "broadcast": lambda: call(torch.broadcast_tensors, r(3, 1), r(4)),
    "tril": lambda: call(torch.tril, r(2, 4, 4)),
    "one hot": lambda: call(F.one_hot, ints(5, 3, 2), 5),
    "pad": lambda: call(F.pad, r(2, 3), (1, 2)),
    "pad reflect": lambda: call(F.pad, cl(2, 3, 4, 4), (1, 1, 1, 1), mode="reflect"),
    "pixel shuffle": lambda: call(F.pixel_shuffle, cl(2, 4, 3, 3), 2),
    "channel shuffle": lambda: call(torch.channel_shuffle, cl(2, 4, 3, 3), 2),
    "gather": lambda: call(torch.gather, r(3, 4), 1, ints(4, 3, 2)),
    "scatter": lambda: call(torch.scatter, flipped(3, 4), 1, ints(4, 3, 2), r(3, 2)),
    "index select": lambda: call(torch.index_select, r(3, 4), 1, ints(4, 6)),
    "take along": lambda: call(torch.take_along_dim, r(3, 4), ints(4, 3, 2), 1),
    "triu indices": lambda: call(torch.triu_indices, 3, 3),
    "combined": lambda: call(torch.einsum, "bij,bjk->bik", r(2, 3, 4), r(2, 4, 5)),
}

REDUCTIONS: dict[str, Make] = {
    "sum": lambda: call(torch.sum, r(3, 4)),
    "sum of bool": lambda: call(torch.sum, r(3, 4) > 0, 1),
    "mean": lambda: call(torch.mean, flipped(2, 3, 4), (0, 2), True),
    "max": lambda: call(torch.max, r(3, 4), 1),
    "amax": lambda: call(torch.amax, r(3, 4), (0,)),
    "argmax": lambda: call(torch.argmax, r(3, 4)),
    "any": lambda: call(torch.any, r(3, 4) > 0, 1),
    "var mean": lambda: call(torch.var_mean, r(3, 4), 1),
    "std": lambda: call(torch.std, r(3, 4)),
    "norm": lambda: call(torch.linalg.vector_norm, r(3, 4), 2, 1),
    "cumsum": lambda: call(torch.cumsum, flipped(3, 4), 0),
    "logsumexp": lambda: call(torch.logsumexp, r(3, 4), 1),
    "softmax": lambda: call(torch.softmax, flipped(3, 4), 1),
    "softmax channels last": lambda: call(torch.softmax, cl(2, 3, 4, 5), 1),
    "softmax dtype": lambda: call(F.softmax, r(3, 4), -1, dtype=torch.float64),
    "sort": lambda: call(torch.sort, flipped(3, 4), 0),
    "topk": lambda: call(torch.topk, r(3, 4), 2),
    "kthvalue": lambda: call(torch.kthvalue, r(3, 4), 2),
    "median": lambda: call(torch.median, r(3, 4), 1),
    "cdist": lambda: call(torch.cdist, r(3, 4), r(5, 4)),
    "cov": lambda: call(torch.cov, r(3, 4)),
}

PRODUCTS: dict[str, Make] = {
    "mm": lambda: call(torch.mm, r(3, 4), r(4, 5)),
    "matmul expanded": lambda: call(torch.matmul, r(1, 3, 4).expand(2, 3, 4), r(4, 5)),
    "matmul flipped": lambda: call(torch.matmul, flipped(2, 3, 4), flipped(4, 5)),
    "matmul batch": lambda: call(torch.matmul, r(2, 1, 3, 4), r(5, 4, 6)),
    "matmul vector": lambda: call(torch.matmul, r(2, 3, 4), r(4)),
    "dot": lambda: call(torch.matmul, r(4), r(4)),
    "baddbmm": lambda: call(torch.baddbmm, r(5), r(2, 3, 4), r(2, 4, 5)),
    "linear": lambda: call(F.linear, r(2, 3, 4), r(5, 4), r(5)),
    "linear of a matrix": lambda: call(F.linear, r(2, 4), r(5, 4), r(5)),
    "linear of a matrix without bias": lambda: call(F.linear, r(2, 4), r(5, 4)),
    "linear of one row": lambda: call(F.linear, r(1, 4), r(5, 4), r(5)),
    "linear of no rows": lambda: call(F.linear, r(0, 4), r(5, 4), r(5)),
    "linear of a slice": lambda: call(F.linear, r(6, 4)[::2], r(5, 4), r(5)),
    "linear by a flipped matrix": lambda: call(F.linear, r(2, 4), flipped(5, 4), r(5)),
    "linear with one bias": lambda: call(F.linear, r(2, 4), r(5, 4), r(1)),
    "linear flipped": lambda: call(F.linear, flipped(2, 3, 4), r(5, 4)),
    "bilinear": lambda: call(F.bilinear, r(2, 3), r(2, 4), r(5, 3, 4)),
    "outer": lambda: call(torch.outer, r(3), r(4)),
    "einsum": lambda: call(torch.einsum, "bhid,bhjd->bhij", r(2, 3, 4, 5), r(2, 3, 6, 5)),
    "svd": lambda: call(torch.linalg.svd, r(4, 3), full_matrices=False),
    "svd full": lambda: call(torch.linalg.svd, r(2, 3, 4)),
    "qr": lambda: call(torch.linalg.qr, r(4, 3)),
    "eig": lambda: call(torch.linalg.eig, r(3, 3)),
    "eigh": lambda: call(torch.linalg.eigh, r(3, 3)),
    "inverse": lambda: call(torch.linalg.inv, r(2, 3, 3)),
    "solve": lambda: call(torch.linalg.solve, r(3, 3), r(3, 2)),
    "det": lambda: call(torch.linalg.det, r(3, 3)),
    "cholesky": lambda: call(torch.linalg.cholesky, torch.eye(3)),
    "lu": lambda: call(torch.linalg.lu, r(3, 3)),
    "fft": lambda: call(torch.fft.fft, r(3, 4)),
    "rfftn": lambda: call(torch.fft.rfftn, r(3, 4, 5)),
    "irfft2": lambda: call(torch.fft.irfft2, r(3, 4, 5, dtype=torch.complex64)),
    "stft": lambda: call(torch.stft, r(2, 64), 16, return_complex=True, window=torch.ones(16)),
    "istft": lambda: call(torch.istft, r(9, 9, dtype=torch.complex64), 16, window=torch.ones(16)),
}

NETWORKS: dict[str, Make] = {
    "conv1d": lambda: call(F.conv1d, r(2, 3, 8), r(4, 3, 3), r(4)),
    "conv1d flipped": lambda: call(F.conv1d, flipped(2, 3, 8), r(4, 3, 3)),
    "conv1d weight flipped": lambda: call(F.conv1d, r(2, 3, 8), flipped(4, 3, 3)),
    "conv2d": lambda: call(F.conv2d, r(2, 3, 8, 8), r(4, 3, 3, 3), r(4), 2, 1),
    "conv2d channels last": lambda: call(F.conv2d, cl(2, 3, 8, 8), r(4, 3, 3, 3)),
    "conv2d weight channels last": lambda: call(F.conv2d, r(2, 3, 8, 8), cl(4, 3, 3, 3)),
    "conv2d unbatched": lambda: call(F.conv2d, r(3, 8, 8), r(4, 3, 3, 3)),
    "conv2d grouped": lambda: call(F.conv2d, r(2, 4, 8, 8), r(4, 1, 3, 3), groups=4),
    "conv2d same": lambda: call(F.conv2d, r(2, 3, 8, 8), r(4, 3, 3, 3), padding="same"),
    "conv3d": lambda: call(F.conv3d, r(2, 3, 5, 5, 5), r(4, 3, 2, 2, 2)),
    "conv transpose": lambda: call(F.conv_transpose2d, cl(2, 3, 4, 4), r(3, 4, 2, 2), stride=2),
    "batch norm": lambda: call(F.batch_norm, cl(2, 3, 4, 4), torch.zeros(3), torch.ones(3)),
    "batch norm train": lambda: call(
        F.batch_norm, r(2, 3, 4), torch.zeros(3), torch.ones(3), r(3), r(3), True
    ),
    "instance norm": lambda: call(F.instance_norm, cl(2, 3, 4, 4)),
    "group norm": lambda: call(F.group_norm, cl(2, 4, 3, 3), 2, r(4), r(4)),
    "layer norm": lambda: call(F.layer_norm, flipped(2, 3, 4), (4,), r(4), r(4)),
    "rms norm": lambda: call(F.rms_norm, r(2, 3, 4), (4,), r(4)),
    "embedding": lambda: call(F.embedding, ints(5, 2, 3), r(5, 4)),
    "embedding bag": lambda: call(F.embedding_bag, ints(5, 6), r(5, 4), torch.tensor([0, 3])),
    "max pool": lambda: call(F.max_pool2d, cl(2, 3, 8, 8), 2),
    "max pool indices": lambda: call(F.max_pool2d, r(2, 3, 8, 8), 3, 2, return_indices=True),
    "max pool1d": lambda: call(torch.max_pool1d, flipped(2, 3, 8), 2),
    "avg pool": lambda: call(F.avg_pool2d, cl(2, 3, 8, 8), 2),
    "adaptive pool": lambda: call(F.adaptive_avg_pool2d, cl(2, 3, 8, 8), (1, 1)),
    "unpool": lambda: call(F.max_unpool2d, cl(1, 2, 2, 2), torch.zeros(1, 2, 2, 2).long(), 2),
    "nearest": lambda: call(F.interpolate, cl(2, 3, 4, 4), scale_factor=2),
    "bilinear": lambda: call(F.interpolate, r(2, 3, 4, 4), size=(7, 5), mode="bilinear"),
    "bicubic": lambda: call(F.interpolate, cl(2, 3, 4, 4), scale_factor=1.5, mode="bicubic"),
    "grid sample": lambda: call(F.grid_sample, r(2, 3, 4, 4), r(2, 5, 5, 2), align_corners=False),
    "affine grid": lambda: call(F.affine_grid, r(2, 2, 3), (2, 3, 4, 4), align_corners=False),
    "unfold": lambda: call(F.unfold, r(2, 3, 8, 8), 3),
    "fold": lambda: call(F.fold, r(2, 12, 9), (4, 4), 2),
    "attention": lambda: call(
        F.scaled_dot_product_attention, r(2, 4, 6, 8), r(2, 4, 6, 8), r(2, 4, 6, 8)
    ),
    "attention of a part": lambda: call(
        F.scaled_dot_product_attention, *(r(2, 6, 3, 4, 8)[:, :, 0].transpose(1, 2),) * 3
    ),
    "attention of one": lambda: call(
        F.scaled_dot_product_attention, *(r(1, 6, 3, 1, 8)[:, :, 0].transpose(1, 2),) * 3
    ),
    "attention of one token": lambda: call(
        F.scaled_dot_product_attention, *(r(2, 1, 3, 4, 8)[:, :, 0].transpose(1, 2),) * 3
    ),
    "attention causal": lambda: call(
        F.scaled_dot_product_attention, *(r(2, 6, 4, 8).transpose(1, 2),) * 3, is_causal=True
    ),
    "attention mask": lambda: call(
        F.scaled_dot_product_attention, *(r(2, 4, 6, 8),) * 3, attn_mask=r(6, 6) > 0
    ),
    "attention dropout": lambda: call(
        F.scaled_dot_product_attention, *(r(2, 4, 6, 8),) * 3, dropout_p=0.5
    ),
    "native attention": lambda: native_attention(r(2, 5, 8), False),
    "native attention weights": lambda: native_attention(r(2, 5, 8), True),
    "lstm": lambda: lstm(r(4, 2, 6), 1, False, False),
    "lstm deep": lambda: lstm(r(2, 4, 6), 2, True, True),
    "gru": lambda: gru(r(4, 2, 6)),
    "lstm cell": lambda: call(torch.lstm_cell, r(2, 6), [r(2, 5), r(2, 5)], r(20, 6), r(20, 5)),
    "cross entropy": lambda: call(F.cross_entropy, r(4, 5), ints(5, 4)),
    "cross entropy 2d": lambda: call(F.cross_entropy, r(4, 5, 3), ints(5, 4, 3), reduction="none"),
    "nll": lambda: call(F.nll_loss, r(4, 5), ints(5, 4), r(5)),
    "mse": lambda: call(F.mse_loss, r(3), r(3)),
    "kl": lambda: call(F.kl_div, r(3, 4), r(3, 4), reduction="batchmean"),
    "bce": lambda: call(F.binary_cross_entropy_with_logits, r(3), r(3)),
    "huber": lambda: call(F.smooth_l1_loss, r(3), r(3)),
    "cosine": lambda: call(F.cosine_similarity, r(3, 4), r(3, 4)),
    "ctc": lambda: call(F.ctc_loss, r(9, 2, 5).log_softmax(2), ints(4, 2, 3) + 1, (9, 9), (3, 2)),
    "ctc tensors": lambda: call(
        F.ctc_loss,
        r(9, 2, 5).log_softmax(2),
        ints(4, 2, 3) + 1,
        torch.tensor([9, 9]),
        torch.tensor([3, 2]),
    ),
}

RANDOM: dict[str, Make] = {
    "dropout": lambda: call(F.dropout, flipped(3, 4)),
    "dropout off": lambda: call(F.dropout, r(3, 4), training=False),
    "dropout2d": lambda: call(F.dropout2d, r(2, 3, 4, 4)),
    "bernoulli": lambda: call(torch.bernoulli, r(3, 4).sigmoid()),
    "rand": lambda: call(torch.rand, 3, 4),
    "rand like": lambda: call(torch.rand_like, flipped(3, 4)),
    "generator": lambda: call(torch.randn, 3, generator=torch.Generator().manual_seed(0)),
    "randint": lambda: call(torch.randint, 0, 5, (3,)),
    "randperm": lambda: call(torch.randperm, 5),
    "normal": lambda: call(torch.normal, flipped(3, 4), 1.0),
    "multinomial": lambda: call(torch.multinomial, r(3, 4).sigmoid(), 2),
    "rrelu": lambda: call(F.rrelu, r(3, 4), training=True),
    "alpha dropout": lambda: call(F.alpha_dropout, r(3, 4), training=True),
    "gumbel": lambda: call(F.gumbel_softmax, r(3, 4)),
}

FACTORIES: dict[str, Make] = {
    "zeros": lambda: call(torch.zeros, 3, 4, dtype=torch.int32),
    "full": lambda: call(torch.full, (3,), 1),
    "arange": lambda: call(torch.arange, 0, 5, 2),
    "arange float": lambda: call(torch.arange, 0, 1, 0.1),
    "linspace": lambda: call(torch.linspace, 0, 1, 5),
    "eye": lambda: call(torch.eye, 3),
    "tensor": lambda: call(torch.tensor, [1, 2.0]),
    "tensor requires grad": lambda: call(torch.tensor, [1.0], requires_grad=True),
    "tensor number": lambda: call(torch.tensor, 3),
    "as tensor": lambda: call(torch.as_tensor, [[1, 2], [3, 4]]),
    "zeros like": lambda: call(torch.zeros_like, flipped(3, 4)),
    "ones like format": lambda: call(
        torch.ones_like, cl(2, 3, 4, 4), memory_format=torch.contiguous_format
    ),
    "empty strided": lambda: call(torch.empty_strided, (2, 3), (1, 2)),
    "new zeros": lambda: call(torch.Tensor.new_zeros, r(3), 2, 2),
    "new tensor": lambda: call(torch.Tensor.new_tensor, r(3), [1, 2]),
    "scalar tensor": lambda: call(torch.scalar_tensor, 1.0),
    "hann window": lambda: call(torch.hann_window, 5),
    "on another device": lambda: call(torch.zeros, 3, device="meta"),
    "moved": lambda: call(torch.Tensor.to, r(3, 4), "meta"),
}

MUTATIONS: dict[str, Make] = {
    "add_": lambda: call(torch.Tensor.add_, r(3, 4), r(4)),
    "add_ itself": lambda: (lambda t: call(torch.Tensor.add_, t, t))(r(3)),
    "iadd": lambda: call(operator.iadd, r(3), 1),
    "copy_": lambda: call(torch.Tensor.copy_, r(3, 4), ints(3, 4)),
    "zero_": lambda: call(torch.Tensor.zero_, r(3)),
    "fill_": lambda: call(torch.Tensor.fill_, r(3), 1),
    "setitem": lambda: call(operator.setitem, r(3, 4), 0, r(4)),
    "setitem number": lambda: call(operator.setitem, r(3, 4), (slice(None), 1), 2.0),
    "setitem mask": lambda: call(operator.setitem, r(3, 4), r(3, 4) > 0, 0.0),
    "setitem index": lambda: call(operator.setitem, r(3, 4), ints(3, 2), r(2, 4)),
    "masked_fill_": lambda: call(torch.Tensor.masked_fill_, r(3), r(3) > 0, 0),
    "scatter_add_": lambda: call(torch.Tensor.scatter_add_, r(3, 4), 0, ints(3, 2, 4), r(2, 4)),
    "index_add_": lambda: call(torch.Tensor.index_add_, r(3, 4), 0, ints(3, 2), r(2, 4)),
    "bernoulli_": lambda: call(torch.Tensor.bernoulli_, r(3)),
    "relu_": lambda: call(F.relu, r(3), inplace=True),
    "clamp_": lambda: call(torch.Tensor.clamp_, r(3), 0),
    "foreach": lambda: call(torch._foreach_add_, [r(3), r(4)], 1.0),
    "foreach new": lambda: call(torch._foreach_mul, [r(3), r(4)], [r(3), r(4)]),
    "running statistics": lambda: call(
        F.batch_norm, r(2, 3), torch.zeros(3), torch.ones(3), training=True
    ),
    "embedding max norm": lambda: call(F.embedding, ints(5, 3), r(5, 4), max_norm=1.0),
    "out": lambda: call(torch.add, r(3), r(3), out=r(3)),
    "out resized": lambda: call(torch.mm, r(3, 4), r(4, 5), out=torch.empty(0)),
    "out pair": lambda: call(torch.sort, r(3), out=(torch.empty(3), torch.empty(3).long())),
    "out flipped": lambda: call(torch.add, r(3, 4), r(3, 4), out=flipped(3, 4)),
    "t_": lambda: call(torch.Tensor.t_, r(3, 4)),
    "unsqueeze_": lambda: call(torch.Tensor.unsqueeze_, r(3, 4), 1),
    "squeeze_": lambda: call(torch.Tensor.squeeze_, r(3, 1)),
    "transpose_": lambda: call(torch.Tensor.transpose_, r(3, 4, 5), 0, 2),
    "as_strided_": lambda: call(torch.Tensor.as_strided_, r(3, 4), (2, 2), (4, 1)),
    "resize_ smaller": lambda: call(torch.Tensor.resize_, r(3, 4), 2, 2),
    "resize_ larger": lambda: call(torch.Tensor.resize_, r(3, 4), 5, 5),
    "resize_as_": lambda: call(torch.Tensor.resize_as_, r(3), r(2, 4)),
    "set_": lambda: call(torch.Tensor.set_, r(3), r(2, 4)),
    "set data": lambda: call(torch.Tensor.data.__set__, r(3), r(2, 4)),
    "requires_grad_": lambda: call(torch.Tensor.requires_grad_, r(3)),
    "detach_": lambda: call(torch.Tensor.detach_, r(3)),
    "set requires_grad": lambda: call(setattr, r(3), "requires_grad", True),
}

TABLES = {
    "pointwise": POINTWISE,
    "shapes": SHAPES,
    "reductions": REDUCTIONS,
    "products": PRODUCTS,
    "networks": NETWORKS,
    "random": RANDOM,
    "factories": FACTORIES,
    "mutations": MUTATIONS,
}
CASES = [(table, name) for table, cases in TABLES.items() for name in cases]

# Functions that refuse arguments which require grad, in eager too.
NO_GRAD = {"set data", "out", "out resized", "out pair", "out flipped", "resize_ smaller", "set_"}
NO_GRAD |= {"batch norm", "batch norm train", "running statistics", "nll"}
NO_GRAD |= {"resize_ larger", "resize_as_", "requires_grad_", "set requires_grad", "foreach"}


@pytest.mark.parametrize(("table", "name"), CASES)
def test_no_grad(agree: Any, table: str, name: str) -> None:
    with torch.no_grad():
        func, args, kwargs = TABLES[table][name]()
        agree(func, *args, **kwargs)


@pytest.mark.parametrize(("table", "name"), CASES)
def test_plain_arguments(agree: Any, table: str, name: str) -> None:
    func, args, kwargs = TABLES[table][name]()
    agree(func, *args, **kwargs)


@pytest.mark.parametrize(("table", "name"), [c for c in CASES if c[1] not in NO_GRAD])
def test_arguments_that_require_grad(agree: Any, with_grad: Any, table: str, name: str) -> None:
    func, args, kwargs = TABLES[table][name]()
    agree(func, *with_grad(args), **with_grad(kwargs))


@pytest.mark.parametrize(("table", "name"), CASES)
def test_inference_mode(agree: Any, table: str, name: str) -> None:
    with torch.inference_mode():
        func, args, kwargs = TABLES[table][name]()
        if "grad" in name or name == "detach_":
            pytest.skip("eager refuses this in inference mode")
        agree(func, *args, **kwargs)
