"""Training programs follow eager's loss curve."""

import copy
import functools
import math

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import pliant
from pliant.base import events
from tests.training.test_gradients import Attention

SHORT, LONG = 8, 200


class Perceptron(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(8, 32), nn.Tanh(), nn.Linear(32, 3))

    def batch(self, step, size):
        x = torch.randn(size, 8)
        return x, (x.sum(1) > 0).long()

    def forward(self, x, y):
        return F.cross_entropy(self.net(x), y)


class Language(nn.Module):
    """In the style of GPT-2, with dropout."""

    def __init__(self):
        super().__init__()
        self.tokens, self.places = nn.Embedding(20, 16), nn.Embedding(12, 16)
        self.layers = nn.ModuleList([Attention() for _ in range(2)])
        self.drop, self.head = nn.Dropout(0.1), nn.Linear(16, 20)

    def batch(self, step, size):
        return (torch.randint(0, 20, (size, 12)),)

    def forward(self, ids):
        x = self.drop(self.tokens(ids) + self.places.weight[: ids.size(1)])
        for layer in self.layers:
            x = self.drop(layer(x))
        return F.cross_entropy(self.head(x[:, :-1]).flatten(0, 1), ids[:, 1:].flatten())


class Convolutional(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(
            nn.Conv2d(1, 4, 3, padding=1),
            nn.BatchNorm2d(4),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Conv2d(4, 8, 3),
            nn.BatchNorm2d(8),
            nn.ReLU(),
            nn.AdaptiveAvgPool2d(1),
            nn.Flatten(),
            nn.Linear(8, 2),
        )

    def batch(self, step, size):
        x = torch.randn(size + 2, 1, 8, 8)
        return x, (x.mean((1, 2, 3)) > 0).long()

    def forward(self, x, y):
        return F.cross_entropy(self.net(x), y)


class Recurrent(nn.Module):
    def __init__(self):
        super().__init__()
        self.lstm, self.head = nn.LSTM(4, 8, batch_first=True), nn.Linear(8, 1)

    def batch(self, step, size):
        x = torch.randn(size, 6, 4)
        return x, x.sum((1, 2))

    def forward(self, x, y):
        return F.mse_loss(self.head(self.lstm(x)[0][:, -1]).squeeze(-1), y)


class Variational(nn.Module):
    def __init__(self):
        super().__init__()
        self.encode, self.decode = nn.Linear(8, 8), nn.Sequential(nn.Linear(4, 8), nn.Sigmoid())

    def batch(self, step, size):
        return (torch.rand(size, 8),)

    def forward(self, x):
        mean, log_var = self.encode(x).chunk(2, -1)
        z = mean + torch.randn_like(mean) * (log_var / 2).exp()
        distance = -0.5 * (1 + log_var - mean**2 - log_var.exp()).sum(-1).mean()
        return F.binary_cross_entropy(self.decode(z), x) + 0.1 * distance


class Adapted(nn.Module):
    """A frozen layer with a trained low-rank addition."""

    def __init__(self):
        super().__init__()
        self.base = nn.Linear(8, 8).requires_grad_(False)
        self.a, self.b = nn.Parameter(torch.randn(2, 8) * 0.1), nn.Parameter(torch.zeros(8, 2))
        self.target = nn.Linear(8, 8).requires_grad_(False)

    def batch(self, step, size):
        return (torch.randn(size, 8),)

    def forward(self, x):
        return F.mse_loss(self.base(x) + x @ self.a.T @ self.b.T, self.target(x))


class Policy(nn.Module):
    """A policy gradient with an entropy bonus."""

    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(4, 16), nn.ReLU(), nn.Linear(16, 3))

    def batch(self, step, size):
        return torch.randn(size, 4), torch.randint(0, 3, (size,)), torch.randn(size)

    def forward(self, states, actions, advantages):
        log_probs = self.net(states).log_softmax(-1)
        chosen = log_probs.gather(1, actions[:, None]).squeeze(1)
        entropy = -(log_probs.exp() * log_probs).sum(-1).mean()
        return -(chosen * advantages).mean() - 0.01 * entropy


PROGRAMS = {
    "mlp": (Perceptron, True),
    "language model": (Language, True),
    "convnet": (Convolutional, True),
    "lstm": (Recurrent, True),
    "vae": (Variational, True),
    "lora": (Adapted, True),
    "policy": (Policy, True),
}


def curve(model, compile, steps: int, sizes) -> list[float]:
    optimizer = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=0.003)
    run = compile(model)
    losses = []
    for step in range(steps):
        torch.manual_seed(step)
        loss = run(*model.batch(step, sizes[step % len(sizes)]))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


def follows(name: str, steps: int, sizes) -> None:
    make, generated = PROGRAMS[name]
    model = make()
    eager = curve(copy.deepcopy(model), lambda m: m, steps, sizes)
    events.counters.reset()
    run = []

    def compile(module):
        run.append(pliant.compile(module, backend="llvm"))
        return run[0]

    mine = curve(copy.deepcopy(model), compile, steps, sizes)
    assert all(map(math.isfinite, eager)) and eager[-1] != eager[0]
    torch.testing.assert_close(mine, eager, rtol=2e-3, atol=2e-4)
    assert events.counters["fallbacks"] == 0
    assert not generated or events.counters["not_generated"] == 0
    assert events.counters["compilations"] <= 2


@pytest.mark.parametrize("name", PROGRAMS)
def test_fixed_sizes(name: str) -> None:
    follows(name, SHORT, (6,))


@pytest.mark.parametrize("name", PROGRAMS)
def test_sizes_that_vary(name: str) -> None:
    follows(name, SHORT, (6, 9, 4))


@pytest.mark.long
@pytest.mark.parametrize("sizes", [(6,), (6, 9, 4)])
@pytest.mark.parametrize("name", PROGRAMS)
def test_many_steps(name: str, sizes) -> None:
    follows(name, LONG, sizes)


def adversarial_losses(compile, steps: int, sizes) -> list[float]:
    """A generator against a discriminator, each with its optimizer."""
    torch.manual_seed(0)
    make = nn.Sequential(nn.Linear(4, 16), nn.ReLU(), nn.Linear(16, 2))
    judge = nn.Sequential(nn.Linear(2, 16), nn.LeakyReLU(0.2), nn.Linear(16, 1))
    optimizers = [torch.optim.Adam(m.parameters(), lr=0.003) for m in (make, judge)]
    generate, discriminate = compile(make), compile(judge)
    told = []
    for step in range(steps):
        size = sizes[step % len(sizes)]
        real, noise = torch.randn(size, 2) + 3, torch.randn(size, 4)
        made = generate(noise)
        for optimizer, loss in (
            (optimizers[1], F.softplus(discriminate(made.detach())).mean()
             + F.softplus(-discriminate(real)).mean()),
            (optimizers[0], F.softplus(-discriminate(made)).mean()),
        ):  # fmt: skip
            optimizer.zero_grad()
            loss.backward()
            told.append(loss.item())
        for optimizer in optimizers:
            optimizer.step()
    return told


@pytest.mark.parametrize("sizes", [(8,), (8, 5, 11)])
@pytest.mark.parametrize("steps", [SHORT, pytest.param(LONG, marks=pytest.mark.long)])
def test_two_optimizers(steps: int, sizes) -> None:
    eager = adversarial_losses(lambda module: module, steps, sizes)
    events.counters.reset()
    compile = functools.partial(pliant.compile, backend="llvm")
    mine = adversarial_losses(compile, steps, sizes)
    torch.testing.assert_close(mine, eager, rtol=2e-3, atol=2e-4)
    assert events.counters["fallbacks"] == events.counters["not_generated"] == 0
    # The judge of what requires grad and of what doesn't, and the generator: for a size, and all.
    assert events.counters["compilations"] <= 3 * min(len(sizes), 2)
