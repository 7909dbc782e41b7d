"""Programs of our own, as people write them: PyTorch alone, random weights, toy sizes.

The one idea: what real networks do around their layers. A detector keeps the boxes it believes in,
a decoder keeps several hypotheses, sequences have lengths, an agent acts on what it drew.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import nn
from torch.distributions import Categorical
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from benchmarks.programs import Transformer

Boxes = tuple[torch.Tensor, torch.Tensor, torch.Tensor]


def overlaps(boxes: torch.Tensor, others: torch.Tensor) -> torch.Tensor:
    """Intersection over union of each box with each other one; a box is (x1, y1, x2, y2)."""
    areas = [(b[:, 2] - b[:, 0]) * (b[:, 3] - b[:, 1]) for b in (boxes, others)]
    low = torch.max(boxes[:, None, :2], others[None, :, :2])
    high = torch.min(boxes[:, None, 2:], others[None, :, 2:])
    sides = (high - low).clamp(min=0)
    inside = sides[..., 0] * sides[..., 1]
    return inside / (areas[0][:, None] + areas[1][None, :] - inside)


def nms(boxes: torch.Tensor, scores: torch.Tensor, most: float) -> torch.Tensor:
    """The best box, then the best of those that don't overlap it, and so on: a loop over data."""
    order = scores.argsort(descending=True)
    kept = []
    while order.numel() > 0:
        best = order[0]
        kept.append(best)
        rest = order[1:]
        overlap = overlaps(boxes[best].unsqueeze(0), boxes[rest])[0]
        order = rest[overlap <= most]
    return torch.stack(kept) if kept else order


def matrix_nms(boxes: torch.Tensor, scores: torch.Tensor, most: float) -> torch.Tensor:
    """All at once: a box goes if one with a better score overlaps it."""
    order = scores.argsort(descending=True)
    overlap = overlaps(boxes[order], boxes[order]).triu(diagonal=1)
    worst = torch.cat([overlap, overlap.new_zeros(1, overlap.shape[1])]).amax(dim=0)
    return order[worst <= most]


class Detector(nn.Module):
    """Convolutions, then per place a box and scores of classes; an image at a time is selected."""

    def __init__(self, select: Callable[..., torch.Tensor], classes: int = 3) -> None:
        super().__init__()
        self.select = select
        self.body = nn.Sequential(
            nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(), nn.MaxPool2d(4)
        )
        self.boxes = nn.Conv2d(8, 4, 1)
        self.scores = nn.Conv2d(8, classes, 1)

    def places(self, height: int, width: int) -> torch.Tensor:
        rows, columns = torch.meshgrid(torch.arange(height), torch.arange(width), indexing="ij")
        return torch.stack([columns, rows], dim=-1).reshape(-1, 2) * 4.0

    def keep(self, boxes: torch.Tensor, scores: torch.Tensor) -> Boxes:
        places, classes = torch.nonzero(scores > 0.5, as_tuple=True)
        boxes, scores = boxes[places], scores[places, classes]
        apart = boxes + classes[:, None] * 1000.0  # boxes of different classes never meet
        kept = self.select(apart, scores, 0.3)
        return boxes[kept], scores[kept], classes[kept]

    def forward(self, images: torch.Tensor) -> list[Boxes]:
        seen = self.body(images)
        sides = self.boxes(seen).flatten(2).transpose(1, 2).sigmoid() * 16
        scores = self.scores(seen).flatten(2).transpose(1, 2).sigmoid()
        centres = self.places(*seen.shape[2:]).to(images)
        boxes = torch.cat([centres - sides[..., :2], centres + sides[..., 2:]], dim=-1)
        return [self.keep(*image) for image in zip(boxes, scores, strict=True)]


class BeamSearch(nn.Module):
    """The most probable continuations of each prompt; a hypothesis ends with the end token."""

    def __init__(self, beams: int = 3, steps: int = 6, end: int = 7, words: int = 20) -> None:
        super().__init__()
        self.model = Transformer(layers=2, words=words)
        self.beams, self.steps, self.end, self.words = beams, steps, end, words

    def forward(self, prompt: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        batch = prompt.shape[0]
        ids = prompt.repeat_interleave(self.beams, dim=0)
        totals = torch.full((batch, self.beams), float("-inf"))
        totals[:, 0] = 0
        done = torch.zeros(batch, self.beams, dtype=torch.bool)
        only_end = torch.full((self.words,), float("-inf"))
        only_end[self.end] = 0
        for _ in range(self.steps):
            chances = self.model(ids)[:, -1].log_softmax(-1).view(batch, self.beams, self.words)
            chances = torch.where(done.unsqueeze(-1), only_end, chances)
            best, places = (totals.unsqueeze(-1) + chances).flatten(1).topk(self.beams)
            beam, word = places // self.words, places % self.words
            rows = (torch.arange(batch).unsqueeze(1) * self.beams + beam).flatten()
            ids = torch.cat([ids[rows], word.flatten().unsqueeze(1)], dim=1)
            totals, done = best, done.gather(1, beam) | (word == self.end)
            if done.all():
                break
        return ids.view(batch, self.beams, -1), totals


class PackedTagger(nn.Module):
    """Tags of sentences of different lengths: a recurrent network that skips the padding."""

    def __init__(self, cell: type[nn.RNNBase], words: int = 100, tags: int = 5) -> None:
        super().__init__()
        self.embedding = nn.Embedding(words, 16, padding_idx=0)
        self.layers = cell(16, 12, num_layers=2, bidirectional=True, batch_first=True)
        self.tags = nn.Linear(24, tags)

    def forward(self, ids: torch.Tensor, lengths: torch.Tensor) -> Any:
        packed = pack_padded_sequence(
            self.embedding(ids), lengths, batch_first=True, enforce_sorted=False
        )
        states, last = self.layers(packed)
        padded, sizes = pad_packed_sequence(states, batch_first=True, total_length=ids.shape[1])
        hidden = last[0] if isinstance(last, tuple) else last
        mask = torch.arange(ids.shape[1]) < sizes[:, None]
        return self.tags(padded).masked_fill(~mask.unsqueeze(-1), 0.0), hidden[-1]


class Rollout(nn.Module):
    """An agent balances a pole: it draws actions and learns from the returns. Gives the loss."""

    def __init__(self, steps: int = 5, discount: float = 0.9) -> None:
        super().__init__()
        self.steps, self.discount = steps, discount
        self.body = nn.Sequential(nn.Linear(4, 16), nn.Tanh())
        self.policy, self.value = nn.Linear(16, 2), nn.Linear(16, 1)

    def step(self, state: torch.Tensor, action: torch.Tensor) -> tuple[torch.Tensor, ...]:
        """The world, after one fiftieth of a second."""
        _, speed, angle, turn = state.unbind(-1)
        force = torch.where(action == 1, 10.0, -10.0)
        push = (force + 0.05 * turn**2 * angle.sin()) / 1.1
        bend = (9.8 * angle.sin() - angle.cos() * push) / (
            0.5 * (4 / 3 - 0.1 * angle.cos() ** 2 / 1.1)
        )
        change = torch.stack([speed, push - 0.05 * bend * angle.cos() / 1.1, turn, bend], dim=-1)
        state = state + 0.02 * change
        fallen = (state[:, 0].abs() > 2.4) | (state[:, 2].abs() > 0.2095)
        return state, (~fallen).float(), fallen

    def forward(self, state: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        rewards, chances, values, entropy = [], [], [], torch.zeros(())
        alive = torch.ones(state.shape[0])
        for _ in range(self.steps):
            hidden = self.body(state)
            choice = Categorical(logits=self.policy(hidden))
            action = choice.sample()
            state, reward, fallen = self.step(state, action)
            rewards.append(reward * alive)
            chances.append(choice.log_prob(action))
            values.append(self.value(hidden).squeeze(-1))
            entropy = entropy + choice.entropy().mean()
            alive = alive * (~fallen)
        returns: list[torch.Tensor] = []
        total = torch.zeros_like(rewards[0])
        for reward in reversed(rewards):
            total = reward + self.discount * total
            returns.insert(0, total)
        target = torch.stack(returns)
        target = (target - target.mean()) / (target.std() + 1e-6)
        advantage = target - torch.stack(values)
        actor = -(torch.stack(chances) * advantage.detach()).mean()
        return actor + 0.5 * advantage.pow(2).mean() - 0.01 * entropy, torch.stack(rewards).sum()


def images(batch: int, length: int) -> Any:
    return (torch.rand(batch, 3, 4 * length, 32),)


def prompts(batch: int, length: int) -> Any:
    return (torch.randint(0, 20, (batch, length)),)


def sentences(batch: int, length: int) -> Any:
    lengths = torch.tensor([max(1, length - 3 * place) for place in range(batch)]).flip(0)
    ids = torch.randint(1, 100, (batch, length))
    return ids.masked_fill(torch.arange(length) >= lengths[:, None], 0), lengths


def states(batch: int, length: int) -> Any:
    return (torch.randn(batch * length, 4) * 0.05,)


# What makes the model, what gives its arguments, whether gradients are wanted.
OWN: dict[str, tuple[Callable[[], nn.Module], Callable[[int, int], Any], bool]] = {
    "detector, NMS in a loop": (lambda: Detector(nms).eval(), images, False),
    "detector, matrix NMS": (lambda: Detector(matrix_nms).eval(), images, False),
    "beam search": (lambda: BeamSearch().eval(), prompts, False),
    "packed LSTM": (lambda: PackedTagger(nn.LSTM).eval(), sentences, False),
    "packed GRU": (lambda: PackedTagger(nn.GRU).eval(), sentences, False),
    "actor-critic rollout": (Rollout, states, True),
}
