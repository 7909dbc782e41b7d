"""Recurrent networks with gradients, where sizes are symbols.

The one idea: PyTorch's C++ takes a recurrent network apart by plain sizes. Here it is taken apart
in the same way, with symbolic ones: oneDNN's operator for each layer of an LSTM where eager uses
that, and the operators of each time step otherwise.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F

from pliant.base.operators import register_functions
from pliant.ops.differentiable import differentiable_linear, is_plain_float

aten = torch.ops.aten
LSTM_MODE = 2  # as oneDNN's operator counts the kinds of networks

Layer = Callable[[Any, Sequence[Any], Sequence[Any], bool], tuple[Any, tuple[Any, ...]]]
"""Runs a layer in one direction: its input, weights, state, and whether it goes backwards in time.
Returns the outputs of all steps, and the state at the end."""

Step = Callable[[Any, Sequence[Any], Callable[[Any], Any]], tuple[Any, ...]]
"""One time step: what the input adds to the gates, the state, and the layer of the hidden state.
Returns the state afterwards."""


def _lstm(t: Any, state: Any, *rest: Any) -> Any:
    if not _is_usual(t, state, *rest) or len(state) != 2 or state[0].size(2) != state[1].size(2):
        return NotImplemented
    if t.dtype is torch.float32 and torch.backends.mkldnn.is_available():
        if not torch._C._get_mkldnn_enabled() or t.size(0) == 0 or t.size(1) == 0:
            return NotImplemented
        return _layers(partial(_onednn_layer, rest), t, state, *rest)
    return _step_by_step(_lstm_step, t, state, *rest)


def _gru(t: Any, state: Any, *rest: Any) -> Any:
    if not _is_usual(t, (state,), *rest):
        return NotImplemented
    return _step_by_step(_gru_step, t, (state,), *rest)


def _rnn(activation: Callable[[Any], Any], t: Any, state: Any, *rest: Any) -> Any:
    if not _is_usual(t, (state,), *rest):
        return NotImplemented
    return _step_by_step(partial(_rnn_step, activation), t, (state,), *rest)


def _step_by_step(step: Step, t: Any, state: Sequence[Any], *rest: Any) -> Any:
    """A network unrolled into its time steps. NotImplemented if the length is a symbol."""
    if type(t.size(1 if rest[-1] else 0)) is not int:
        return NotImplemented
    return _layers(partial(_steps, step), t, state, *rest)


def _is_usual(t: Any, state: Any, weights: Any, biases: Any, layers: Any, *rest: Any) -> bool:
    """Whether PyTorch's C++ can't do it, and this can: a padded sequence with symbolic sizes."""
    if len(rest) != 4 or not isinstance(state, (list, tuple)) or t.dim() != 3:
        return False
    *_, both_ways, _ = rest
    count = layers * (2 if both_ways else 1) * (4 if biases else 2)
    symbolic = any(type(size) is not int for size in t.shape)
    return symbolic and len(weights) == count and is_plain_float([t, *state, *weights])


def _layers(
    run: Layer,
    t: Any,
    state: Sequence[Any],
    weights: Sequence[Any],
    biases: bool,
    layers: int,
    dropout: float,
    train: bool,
    both_ways: bool,
    batch_first: bool,
) -> tuple[Any, ...]:
    """Run all layers in all directions, each on the outputs of the one before. Returns the outputs
    of the last, and the states of all stacked."""
    x = t.transpose(0, 1) if batch_first else t
    directions, per_direction = 2 if both_ways else 1, 4 if biases else 2
    ends: list[tuple[Any, ...]] = []
    for layer in range(layers):
        outputs: list[Any] = []
        for direction in range(directions):
            at = layer * directions + direction
            # For each layer and direction: input weights, recurrent weights, then their biases.
            own = weights[at * per_direction : (at + 1) * per_direction]
            output, end = run(x, own, [s[at] for s in state], direction == 1)
            outputs.append(output)
            ends.append(end)
        x = outputs[0] if directions == 1 else torch.cat(outputs, -1)
        if dropout != 0 and train and layer < layers - 1:
            x = torch.dropout(x, dropout, True)
    states = tuple([torch.stack(parts) for parts in zip(*ends, strict=True)])
    return x.transpose(0, 1) if batch_first else x, *states


def _onednn_layer(
    rest: Sequence[Any], x: Any, weights: Sequence[Any], state: Sequence[Any], backwards: bool
) -> tuple[Any, tuple[Any, ...]]:
    _, biases, layers, _, train, both_ways, batch_first = rest
    hidden, cell = state
    if not biases:  # they aren't read, but PyTorch takes their sizes for those of gradients
        zeros = weights[0].new_zeros(weights[0].size(0))
        weights = [*weights, zeros, zeros]
    output, last, last_cell, _ = aten.mkldnn_rnn_layer.default(
        *(x.contiguous(), *weights, hidden, cell, backwards, [], LSTM_MODE, hidden.size(1)),
        *(layers, biases, both_ways, batch_first, train),
    )
    return output, (last, last_cell)


def _steps(
    step: Step,
    x: Any,
    weights: Sequence[Any],
    state: Sequence[Any],
    backwards: bool,
) -> tuple[Any, tuple[Any, ...]]:
    """Run one layer in one direction, step by step. What the input adds to the gates is one product
    for all steps."""
    into, recurrent, *biases = weights
    bias, recurrent_bias = biases or (None, None)
    # One large product instead of one for each step, as eager PyTorch does.
    inputs = _linear(x, into, bias).unbind(0)
    hidden = partial(_linear, weight=recurrent, bias=recurrent_bias)
    now = tuple(state)
    outputs: list[Any] = []
    for gates in reversed(inputs) if backwards else inputs:
        now = step(gates, now, hidden)
        outputs.append(now[0])
    return torch.stack(outputs[::-1] if backwards else outputs), now


def _linear(x: Any, weight: Any, bias: Any) -> Any:
    result = differentiable_linear(x, weight, bias)
    return F.linear(x, weight, bias) if result is NotImplemented else result


def _parts(gates: Any, count: int) -> list[Any]:
    width = gates.size(1) // count
    return [gates.narrow(1, at * width, width) for at in range(count)]


def _lstm_step(gates: Any, state: Sequence[Any], hidden: Callable[[Any], Any]) -> tuple[Any, ...]:
    h, c = state
    # Input, forget, cell and output gate, in PyTorch's order.
    into, keep, new, out = _parts(hidden(h) + gates, 4)
    cell = keep.sigmoid() * c + into.sigmoid() * new.tanh()
    return out.sigmoid() * cell.tanh(), cell


def _gru_step(gates: Any, state: Sequence[Any], hidden: Callable[[Any], Any]) -> tuple[Any, ...]:
    (h,) = state
    reset, update, new = _parts(gates, 3)
    own_reset, own_update, own_new = _parts(hidden(h), 3)
    # h' = (1 - z) * candidate + z * h, as one product less.
    keep = (own_update + update).sigmoid()
    candidate = (new + own_new * (own_reset + reset).sigmoid()).tanh()
    return ((h - candidate) * keep + candidate,)


def _rnn_step(
    activation: Callable[[Any], Any],
    gates: Any,
    state: Sequence[Any],
    hidden: Callable[[Any], Any],
) -> tuple[Any, ...]:
    (h,) = state
    return (activation(hidden(h) + gates),)


register_functions((torch.lstm,), differentiable=_lstm)
register_functions((torch.gru,), differentiable=_gru)
register_functions((torch.rnn_tanh,), differentiable=partial(_rnn, torch.tanh))
register_functions((torch.rnn_relu,), differentiable=partial(_rnn, torch.relu))
