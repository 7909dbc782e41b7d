"""Recurrent networks over packed sequences are part of one graph."""

import pytest
import torch
from torch import nn
from torch.nn.utils import rnn

import pliant
from tests.support.against_eager import check

LENGTHS = torch.tensor([4, 6, 1])
CELLS = [nn.LSTM, nn.GRU, nn.RNN]


def inputs(batch=3, length=6):
    return torch.randn(batch, length, 5)


@pytest.mark.parametrize("cell", CELLS)
@pytest.mark.parametrize("options", [{}, {"num_layers": 2, "bidirectional": True}])
@pytest.mark.parametrize("dynamic", [False, True])
def test_there_and_back(cell, options, dynamic):
    layer = cell(5, 4, batch_first=True, **options)

    def f(x, lengths):
        packed = rnn.pack_padded_sequence(x, lengths, batch_first=True, enforce_sorted=False)
        states, last = layer(packed)
        return rnn.pad_packed_sequence(states, batch_first=True), last

    check(f, inputs(), LENGTHS, graphs=1, dynamic=dynamic)


@pytest.mark.parametrize("lengths", [[6, 4, 1], [5, 5, 5]])
def test_sorted_and_time_first(lengths):
    layer = nn.GRU(5, 4)

    def f(x, lengths):
        states, last = layer(rnn.pack_padded_sequence(x, lengths))
        padded, sizes = rnn.pad_packed_sequence(states, total_length=x.shape[0], padding_value=7.0)
        return padded, sizes, last

    check(f, inputs().transpose(0, 1).contiguous(), torch.tensor(lengths), graphs=1)


def test_lengths_that_are_refused():
    """By PyTorch, when the graph runs; its message is eager's."""
    layer = nn.GRU(5, 4)

    def f(x, lengths):
        return layer(rnn.pack_padded_sequence(x, lengths))[1]

    for lengths in ([1, 4, 6], [6, 4, 0]):
        check(f, inputs().transpose(0, 1), torch.tensor(lengths))


def test_too_short_a_total_length():
    def f(x, lengths):
        packed = rnn.pack_padded_sequence(x, lengths, batch_first=True, enforce_sorted=False)
        return rnn.pad_packed_sequence(packed, batch_first=True, total_length=5)

    check(f, inputs(), LENGTHS)


def test_given_state():
    layer = nn.LSTM(5, 4, batch_first=True, proj_size=3)

    def f(x, lengths, state, cell):
        packed = rnn.pack_padded_sequence(x, lengths, batch_first=True, enforce_sorted=False)
        states, last = layer(packed, (state, cell))
        return states.data, last

    check(f, inputs(), LENGTHS, torch.randn(1, 3, 3), torch.randn(1, 3, 4), breaks=None)


def test_packed_outside():
    layer = nn.GRU(5, 4)

    def f(packed):
        states, last = layer(packed)
        return states.data * 2, last

    check(f, rnn.pack_sequence([torch.randn(4, 5), torch.randn(2, 5)]))


@pytest.mark.parametrize("cell", CELLS)
def test_training(cell):
    layer = cell(5, 4, num_layers=2, dropout=0.5, batch_first=True)

    def f(x, lengths):
        packed = rnn.pack_padded_sequence(x, lengths, batch_first=True, enforce_sorted=False)
        padded, _ = rnn.pad_packed_sequence(layer(packed)[0], batch_first=True)
        return padded.sum() * torch.rand(1)

    x = inputs().requires_grad_()
    outcomes = []
    for function in (f, pliant.compile(f, fullgraph=True)):
        torch.manual_seed(1)
        layer.zero_grad()
        x.grad = None
        function(x, LENGTHS).sum().backward()
        outcomes.append([x.grad, *(p.grad for p in layer.parameters())])
    for mine, theirs in zip(*outcomes, strict=True):
        torch.testing.assert_close(mine, theirs)
