"""Whole training steps: gradients dropped, loss, backward, clipping and AdamW, in one function.

Stock PyTorch has several ways to compile such a step, of which the fastest counts.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import torch

import pliant
from benchmarks.compared import BACKEND, EAGER, FAILED, OURS, STOCK, Goal, Made, best, differs
from benchmarks.models import Row, peak
from benchmarks.networks import NETWORKS, Network
from benchmarks.training_programs import loss_of
from pliant.base import events

Wrap = Callable[..., Any]


@dataclass(frozen=True, slots=True)
class Parts:
    """How the parts of a step are compiled."""

    model: Wrap | None = None
    optimizer: Wrap | None = None
    step: Wrap | None = None


def _stock(function: Wrap, **options: Any) -> Wrap:
    return torch.compile(function, dynamic=False, **options)


def _ours(function: Wrap) -> Wrap:
    return pliant.compile(function, backend=BACKEND, dynamic=False)


WAYS: Final[Mapping[str, tuple[Parts, ...]]] = {
    EAGER: (Parts(),),
    STOCK: (
        Parts(model=_stock, optimizer=_stock),
        Parts(step=_stock),
        Parts(step=lambda function: _stock(function, fullgraph=True)),
    ),
    OURS: (Parts(step=_ours),),
}
SMALL: Final = [NETWORKS[i] for i in (0, 2, 4)]
LARGE: Final = [NETWORKS[i] for i in (1, 3, 5)]
GOALS: Final = {"small": 2.0, "large": 1.1}


@dataclass(frozen=True, slots=True)
class Stepped:
    """A step, and what it changes."""

    step: Callable[[], torch.Tensor]
    leaves: list[torch.Tensor]


def make_step(network: Network, parts: Parts) -> Stepped:
    torch.manual_seed(0)
    model, args = network.make()
    model.train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, foreach=True)
    forward = parts.model(model) if parts.model else model
    update = parts.optimizer(optimizer.step) if parts.optimizer else optimizer.step

    def step(*args: Any) -> torch.Tensor:
        optimizer.zero_grad()
        loss = loss_of(forward(*args))
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        update()
        return loss.detach()

    compiled = parts.step(step) if parts.step else step
    return Stepped(lambda: compiled(*args), [*model.parameters()])


def measure(network: Network, count: int, quick: bool) -> Row:
    expected = _after(make_step(network, Parts()))
    times: dict[str, float] = {}
    peaks: dict[str, int] = {}
    made = Made()
    wrong = []
    ready: dict[tuple[str, int], Callable[[], Any]] = {}
    for system, ways in WAYS.items():
        for at, parts in enumerate(ways):
            stepped = make_step(network, parts)
            try:
                with events.listening(made):
                    found = _after(stepped)
                stepped.step()
                highest = peak(stepped.step)
            except Exception as error:  # fullgraph: torch.compile may refuse it
                if system != STOCK or at < 2:
                    print(f"{network.name}, {system}: {type(error).__name__}: {str(error)[:300]}")
                continue
            if system == OURS and differs(found, expected):
                wrong.append(system)
            peaks[system] = min(highest, peaks.get(system, highest))
            ready[system, at] = stepped.step
    names = {f"{system} {at}": step for (system, at), step in ready.items()}
    taken = best(names, *((3, 0.01) if quick else (25, 0.02)))
    for system, at in ready:
        times[system] = min(taken[f"{system} {at}"], times.get(system, math.inf))
    return Row(f"whole step: {network.name}", count, times, peaks, str(made), tuple(wrong))


def _after(stepped: Stepped) -> list[torch.Tensor]:
    """The parameters after two steps."""
    torch.manual_seed(0)  # for dropout
    for _ in range(2):
        stepped.step()
    return [leaf.detach().clone() for leaf in stepped.leaves]


def goals(rows: Sequence[Row]) -> list[Goal]:
    found = []
    for size, networks in (("small", SMALL), ("large", LARGE)):
        names = {f"whole step: {network.name}" for network in networks}
        for count in (2, 1):
            ratios = [r.over(STOCK) for r in rows if r.threads == count and r.name in names]
            if ratios:
                lowest = min([r for r in ratios if r == r], default=FAILED)
                text = f"whole step, {size} networks, {STOCK} / pliant, lowest, threads: {count}"
                found.append(Goal(text, lowest, GOALS[size]))
    return found
