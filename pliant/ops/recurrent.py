"""Recurrent networks, over padded and packed sequences: called whole."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.nn.functional as F

from pliant.base.devices import CPU
from pliant.base.operators import aten_names, register, register_functions
from pliant.fake import unbacked
from pliant.fake.functions import depending_on
from pliant.fake.layout import (
    contiguous_strides,
)
from pliant.fake.order import need
from pliant.fake.raising import never
from pliant.fake.results import Recipe, Several
from pliant.fake.rule import Args, Kwargs
from pliant.fake.tensor import Fake, make
from pliant.sym.env import ShapeEnv

Tensor = torch.Tensor
aten = torch.ops.aten


def _lstm(
    t: Any,
    state: Any,
    weights: Any,
    biases: Any,
    layers: Any,
    dropout: Any,
    train: Any,
    both_ways: Any,
    batch_first: Any = None,
) -> Any:
    if batch_first is None or t.dim() != 3 or not isinstance(state, list | tuple):
        return NotImplemented
    projected = state[0].size(2) != state[1].size(2)
    if projected:
        return NotImplemented
    output = _recurrent(t, (*state, *weights), state[0], both_ways, batch_first)
    return output, *(depending_on(_dense(s, s.size()), (t, *state, *weights)) for s in state)


def _gru(
    t: Any,
    state: Any,
    weights: Any,
    biases: Any,
    layers: Any,
    dropout: Any,
    train: Any,
    both_ways: Any,
    batch_first: Any = None,
) -> Any:
    """The metadata of a network with one state: a GRU or a plain RNN."""
    if batch_first is None or t.dim() != 3 or not isinstance(state, Tensor):
        return NotImplemented
    inputs = (t, state, *weights)
    output = _recurrent(t, inputs, state, both_ways, batch_first)
    return output, depending_on(_dense(state, state.size()), inputs)


def _lstm_cell(t: Any, state: Any, *weights: Any) -> Any:
    if not isinstance(state, list | tuple) or len(state) != 2 or t.dim() != 2:
        return NotImplemented
    need(t.size(0) == state[0].size(0))
    inputs = (t, *state, *weights)
    return tuple(depending_on(_dense(s, s.size()), inputs) for s in state)


def _gru_cell(t: Any, state: Any, *weights: Any) -> Any:
    """The metadata of a cell with one state: a GRU or a plain RNN."""
    if not isinstance(state, Tensor) or t.dim() != 2 or state.dim() != 2:
        return NotImplemented
    need(t.size(0) == state.size(0))
    return depending_on(_dense(state, state.size()), (t, state, *weights))


def _recurrent(t: Tensor, inputs: Any, state: Tensor, both_ways: bool, batch_first: bool) -> Tensor:
    """The hidden state of every step: made step by step, so time is the outermost dimension."""
    time, batch = (1, 0) if batch_first else (0, 1)
    need(state.size(1) == t.size(batch))
    need(t.size(time) != 0)  # eager PyTorch refuses
    width = state.size(2) * (2 if both_ways else 1)
    steps = _dense(t, (t.size(time), t.size(batch), width))
    output: Tensor = depending_on(steps, (t, *inputs))
    return output.transpose(0, 1) if batch_first else output


def _dense(like: Any, sizes: Sequence[Any]) -> Fake:
    strides = contiguous_strides(sizes)
    return make(like._world, sizes, strides, 0, like.dtype, like.device)


# --------------------------------------------------------------------------------------------------
# Packed sequences: how long they are is in the data, and PyTorch's C++ reads it to take its steps.
# The shapes of the results need no more than the number of rows and of sequences.


def recurrent(func: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """`torch.lstm`, `torch.gru`, … of the rows of a packed sequence."""
    if not _of_packed(*args, **kwargs):
        return func(*args, **kwargs)
    rows, _, hidden, weights, _, layers, dropout, train, both_ways = args
    states = tuple(hidden) if isinstance(hidden, list | tuple) else (hidden,)
    if train and dropout and layers > 1:
        F.dropout(rows, dropout)  # draws random numbers, as the whole does
    inputs = (rows, *states, *weights)
    width = states[0].size(2) * (2 if both_ways else 1)
    results = [_dense(rows, (rows.size(0), width)), *(_dense(rows, s.size()) for s in states)]
    return tuple(depending_on(result, inputs) for result in results)


def _of_packed(*args: Any, **kwargs: Any) -> bool:
    return len(args) == 9 and not kwargs and _is_packed(*args[:2])


def _left_whole(general: bool, *args: Any, **kwargs: Any) -> bool:
    """Whether PyTorch differentiates it: networks over packed sequences, and where code is to be
    `general`, those over sequences of any length."""
    if len(args) != 9 or kwargs or torch._C._is_any_autocast_enabled():
        return False
    if _is_packed(*args[:2]):
        return True
    t, batch_first = args[0], args[-1]
    padded = type(t) is Fake and t.dim() == 3
    return general and padded and type(t.size(1 if batch_first else 0)) is not int


def _is_packed(rows: Any, batch_sizes: Any) -> bool:
    usual = type(rows) is Fake and rows.dim() == 2 and rows.dtype.is_floating_point
    counts = type(batch_sizes) is Fake and batch_sizes.dim() == 1
    return usual and counts and not torch._C._is_any_autocast_enabled()


def _of_fakes(general: bool, *args: Any) -> bool:
    return all(type(arg) is Fake for arg in args[:2])


def pack(func: Callable[..., Any], t: Any, lengths: Any, batch_first: Any) -> Any:
    """`torch._pack_padded_sequence`. All sequences have a first step."""
    if type(t) is not Fake or type(lengths) is not Fake:
        return func(t, lengths, batch_first)
    rows, counts = func(t.detach(), lengths, batch_first)
    world: Any = t._world()
    world.in_data.note_first(counts, t.size(0 if batch_first else 1))
    return depending_on(rows, (t,)), counts


def _pack_functional(t: Any, lengths: Any, batch_first: Any) -> Any:
    rows, counts = torch._pack_padded_sequence(t, lengths, batch_first)
    world: Any = t._world()
    world.in_data.note_first(counts, t.size(0 if batch_first else 1))
    return rows, counts


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
        # It was read as any number is; as a size, it is not negative.
        count.node.shape_env._constrain_range_for_size(count.node.expr)
    fixed = type(length) is not int or length > 0
    steps = length if fixed else batch_sizes.size(0)
    padded = depending_on(_dense(rows, (steps, count, *rows.shape[1:])), (rows,))
    lengths = make(rows._world, (count,), (1,), 0, torch.int64, CPU)
    return padded.transpose(0, 1) if batch_first else padded, lengths


def _pack_shape(env: ShapeEnv, device: torch.device, args: Args, kwargs: Kwargs) -> Recipe:
    """Sequences have one element or more. How many are still going on is counted on the CPU."""
    t, _, batch_first = args
    rows = unbacked.new_size(env, "the sum of the lengths", least=1)
    steps = unbacked.new_size(env, "the longest length", t.size(1 if batch_first else 0), least=1)
    counts = unbacked.dense((steps,), torch.int64, CPU)
    return Several(tuple, (unbacked.dense((rows, *t.shape[2:]), t.dtype, device), counts))


register("aten.mkldnn_rnn_layer.default", workspace=3)
register("aten.lstm.input", opaque=torch.lstm)
register("aten.gru.input", opaque=torch.gru)
register("aten.rnn_tanh.input", opaque=torch.rnn_tanh)
register("aten.rnn_relu.input", opaque=torch.rnn_relu)
_packed = {"on_fakes": recurrent, "keeps_history": _left_whole}
register_functions((torch.lstm,), symbolic=_lstm, **_packed)
register_functions((torch.gru, torch.rnn_tanh, torch.rnn_relu), symbolic=_gru, **_packed)
register_functions((torch.lstm_cell,), symbolic=_lstm_cell)
register_functions((torch.gru_cell, torch.rnn_tanh_cell, torch.rnn_relu_cell), symbolic=_gru_cell)
register_functions((torch._pad_packed_sequence,), on_fakes=pad, keeps_history=_of_fakes)
register_functions(
    (torch._pack_padded_sequence,),
    on_fakes=pack,
    override=_pack_functional,
    keeps_history=_of_fakes,
)
register(
    "aten._pack_padded_sequence.default",
    needs_data=unbacked.always,
    data_shape=_pack_shape,
    mixed_devices=True,
)


register(*aten_names("lstm gru rnn_tanh rnn_relu"), raises=never)
