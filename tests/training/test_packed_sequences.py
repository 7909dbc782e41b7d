"""Packed sequences in training: how many steps there are is in the data."""

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.nn.utils.rnn import pack_padded_sequence, pack_sequence, pad_packed_sequence

import pliant
from pliant.base import events
from tests.support.training_programs import trains_alike

LENGTHS = [
    [5, 4, 2, 1], [6, 3, 3, 2], [7, 7, 1, 1], [4, 4, 4, 4], [9, 2, 1], [5], [1, 1], [8, 6, 5, 2],
]  # fmt: skip


def batches(lengths=LENGTHS):
    def batch(of):
        return torch.randn(len(of), max(of), 8), torch.tensor(of), torch.randn(len(of), 2)

    return [lambda of=of: batch(of) for of in lengths]


class Means(nn.Module):
    """The mean of what a network gives for the steps of a sequence."""

    def __init__(self, kind, batch_first=True, **form):
        super().__init__()
        self.embed = nn.Linear(8, 8)
        self.net = kind(8, 6, batch_first=batch_first, **form)
        self.head = nn.Linear(12 if form.get("bidirectional") else 6, 2)
        self.batch_first = batch_first

    def forward(self, x, lengths):
        x = self.embed(x)
        x = x if self.batch_first else x.transpose(0, 1)
        form = {"batch_first": self.batch_first}
        packed = pack_padded_sequence(x, lengths, enforce_sorted=False, **form)
        output, lengths = pad_packed_sequence(self.net(packed)[0], **form)
        output = output if self.batch_first else output.transpose(0, 1)
        there = torch.arange(output.shape[1])[None] < lengths[:, None]
        return self.head((output * there.unsqueeze(-1)).sum(1) / lengths[:, None])


class Ends(nn.Module):
    """What is left at the end of a sequence."""

    def __init__(self, kind, **form):
        super().__init__()
        self.net = kind(8, 6, batch_first=True, **form)
        self.head = nn.Linear(6, 2)

    def forward(self, x, lengths):
        packed = pack_padded_sequence(x.tanh(), lengths, batch_first=True)
        state = self.net(packed)[1]
        return self.head((state[0] if isinstance(state, tuple) else state)[-1])


NETS = {
    "lstm": lambda: Means(nn.LSTM),
    "gru": lambda: Means(nn.GRU),
    "rnn": lambda: Means(nn.RNN),
    "layers, both ways": lambda: Means(
        nn.LSTM, False, num_layers=2, bidirectional=True, dropout=0.2
    ),
    "ends of lstm": lambda: Ends(nn.LSTM),
    "ends of gru": lambda: Ends(nn.GRU, num_layers=2),
}


def training(build, whole: bool):
    def make(compile):
        model = build()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        run = model if whole else compile(model)

        def step(x, lengths, y):
            optimizer.zero_grad()
            loss = F.mse_loss(run(x, lengths), y)
            loss.backward()
            optimizer.step()
            return loss

        return compile(step) if whole else step, [model, optimizer]

    return make


@pytest.mark.parametrize("whole", [False, True])
@pytest.mark.parametrize("name", NETS)
def test_lengths_in_the_data(name: str, whole: bool) -> None:
    trains_alike(training(NETS[name], whole), batches(), compilations=3)


@pytest.mark.parametrize("name", ["lstm", "layers, both ways", "ends of gru"])
def test_without_gradients(name: str) -> None:
    def make(compile):
        model = NETS[name]().eval()
        run = compile(model)

        def call(x, lengths, y):
            with torch.no_grad():
                return run(x, lengths)

        return call, model

    trains_alike(make, batches(), compilations=3)


def test_one_backward_after_the_other() -> None:
    """The history stays as long as it may be needed, and no longer."""
    model = Means(nn.GRU)
    compiled = pliant.compile(model, backend="llvm")
    x, lengths, _ = batches()[0]()
    x.requires_grad_()
    results = []
    for run in (compiled, model):
        loss = run(x, lengths).square().sum()
        first = torch.autograd.grad(loss, x, retain_graph=True)
        results.append((*first, *torch.autograd.grad(loss, x)))
        with pytest.raises(RuntimeError, match="a second time"):
            torch.autograd.grad(loss, x)
    torch.testing.assert_close(*results)
    assert events.counters["not_generated"] == 0


def test_gradients_of_gradients() -> None:
    model = Means(nn.GRU).double()
    x = torch.randn(2, 3, 8, dtype=torch.float64, requires_grad=True)
    compiled = pliant.compile(lambda x: model(x, torch.tensor([3, 1])), backend="llvm")
    assert torch.autograd.gradgradcheck(compiled, (x,), fast_mode=True)


def test_hooks_that_replace_what_is_saved() -> None:
    """A copy has no history: PyTorch runs the graph once more."""
    model = Means(nn.LSTM)
    compiled = pliant.compile(model, backend="llvm")
    x, lengths, _ = batches()[0]()
    gradients = []
    for run in (compiled, model):
        with torch.autograd.graph.saved_tensors_hooks(lambda t: t.clone(), lambda t: t):
            loss = run(x, lengths).square().sum()
        gradients.append(torch.autograd.grad(loss, list(model.parameters())))
    torch.testing.assert_close(*gradients)
    assert events.counters["fallbacks"] == 0


def test_sequences_of_their_own() -> None:
    def make(compile):
        net, head = nn.LSTM(4, 3), nn.Linear(3, 1)

        @compile
        def loss_of(parts):
            packed = pack_sequence(parts, enforce_sorted=False)
            return head(net(packed)[0].data).square().mean()

        def step(parts):
            net.zero_grad()
            loss = loss_of(parts)
            loss.backward()
            return loss

        return step, [net, head]

    sizes = [(3, 1, 4), (3, 1, 4), (2, 2, 2)]
    trains_alike(make, [lambda of=of: ([torch.randn(n, 4) for n in of],) for of in sizes])


@pytest.mark.parametrize("whole", [False, True])
@pytest.mark.parametrize("kind", [nn.GRU, nn.RNN])
def test_networks_of_any_length(kind, whole: bool) -> None:
    """What is unrolled for some lengths is called as a whole for all others."""

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.net, self.head = kind(8, 6, batch_first=True), nn.Linear(6, 2)

        def forward(self, x, lengths):
            return self.head(self.net(x.sin())[0]).mean(1)

    lengths = [[n, 1, 1] for n in (5, 7, 4, 9, 2, 3, 6, 8, 10, 11, 12, 13, 5, 14)]
    trains_alike(training(Net, whole), batches(lengths), compilations=2)
