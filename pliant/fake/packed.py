"""Packed sequences: recurrent networks over them, and their way back to padded ones.

The one idea: how long the sequences are is in the data, and PyTorch's C++ reads it to take its
steps. The shapes of the results need no more than the number of rows and of sequences.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F

from pliant.fake.layout import contiguous_strides
from pliant.fake.tensor import Fake, make
from pliant.fake.whole import depending_on

Tensor = torch.Tensor


def recurrent(func: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """`torch.lstm`, `torch.gru`, … of the rows of a packed sequence."""
    if len(args) != 9 or kwargs or not _is_packed(*args[:2]):
        return func(*args, **kwargs)
    rows, _, hidden, weights, _, layers, dropout, train, both_ways = args
    states = tuple(hidden) if isinstance(hidden, list | tuple) else (hidden,)
    if train and dropout and layers > 1:
        F.dropout(rows, dropout)  # draws random numbers, as the whole does
    inputs = (rows, *states, *weights)
    width = states[0].size(2) * (2 if both_ways else 1)
    results = [_dense(rows, (rows.size(0), width)), *(_dense(rows, s.size()) for s in states)]
    return tuple(depending_on(result, inputs) for result in results)


def _is_packed(rows: Any, batch_sizes: Any) -> bool:
    usual = type(rows) is Fake and rows.dim() == 2 and rows.dtype.is_floating_point
    counts = type(batch_sizes) is Fake and batch_sizes.dim() == 1
    return usual and counts and not torch._C._is_any_autocast_enabled()


def _dense(like: Fake, sizes: Any) -> Fake:
    sizes = tuple(sizes)
    return make(like._world, sizes, contiguous_strides(sizes), 0, like.dtype, like.device)


def pad(
    func: Callable[..., Any],
    rows: Any,
    batch_sizes: Any,
    batch_first: Any,
    padding: Any,
    length: Any,
) -> Any:
    """`torch._pad_packed_sequence`: as many sequences as there are in the first step."""
    if type(rows) is not Fake or not rows.dim() or type(batch_sizes) is not Fake:
        return func(rows, batch_sizes, batch_first, padding, length)
    count: Any = batch_sizes[0].item()
    if type(count) is not int:
        count.node.shape_env._constrain_range_for_size(count.node.expr)
    fixed = type(length) is not int or length > 0
    steps = length if fixed else batch_sizes.size(0)
    padded = depending_on(_dense(rows, (steps, count, *rows.shape[1:])), (rows,))
    lengths = make(rows._world, (count,), (1,), 0, torch.int64, torch.device("cpu"))
    return padded.transpose(0, 1) if batch_first else padded, lengths
