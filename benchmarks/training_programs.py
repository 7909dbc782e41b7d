"""What is trained: networks, losses of many pointwise operators, and an optimizer.

Only PyTorch is imported here, because cold starts are measured with these too.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from benchmarks.networks import NETWORKS, Network

Compile = Callable[[Callable[..., Any]], Callable[..., Any]]


@dataclass(frozen=True, slots=True)
class Trained:
    """A function to be compiled, and what its gradients are of."""

    function: Callable[..., Any]
    args: tuple[Any, ...]
    leaves: list[torch.Tensor]

    def step(self, compiled: Callable[..., Any]) -> Callable[[], None]:
        """Forward, loss and backward, with no gradients before."""

        def step() -> None:
            self.clear()
            loss_of(compiled(*self.args)).backward()

        return step

    def clear(self) -> None:
        for leaf in self.leaves:
            leaf.grad = None


@dataclass(frozen=True, slots=True)
class Program:
    name: str
    make: Callable[[], Trained]
    missing: bool = False


def loss_of(result: Any) -> torch.Tensor:
    output = getattr(result, "logits", result)
    if not isinstance(output, torch.Tensor):
        output = output[0]
    return output if output.dim() == 0 else output.float().pow(2).mean()


def _network(network: Network) -> Program:
    def make() -> Trained:
        model, args = network.make()
        model.train()
        return Trained(model, args, list(model.parameters()))

    return Program(network.name, make, network.missing)


def focal_and_dice(logits: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    """A segmentation loss."""
    p = torch.sigmoid(logits)
    likelihood = p * mask + (1 - p) * (1 - mask)
    weight = 0.25 * mask + 0.75 * (1 - mask)
    focal = -(weight * (1 - likelihood) ** 2 * torch.log(likelihood.clamp_min(1e-6))).mean()
    dice = 1 - (2 * (p * mask).sum((1, 2)) + 1) / (p.sum((1, 2)) + mask.sum((1, 2)) + 1)
    return focal + dice.mean()


def boxes(predicted: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
    """Generalized intersection over union, and Huber's loss, of boxes (x0, y0, x1, y1)."""
    start = torch.maximum(predicted[:, :2], target[:, :2])
    stop = torch.minimum(predicted[:, 2:], target[:, 2:])
    both = (stop - start).clamp_min(0).prod(1)
    one = (predicted[:, 2:] - predicted[:, :2]).clamp_min(0).prod(1)
    other = (target[:, 2:] - target[:, :2]).prod(1)
    union = one + other - both + 1e-6
    start = torch.minimum(predicted[:, :2], target[:, :2])
    stop = torch.maximum(predicted[:, 2:], target[:, 2:])
    hull = (stop - start).prod(1) + 1e-6
    overlap = 1 - both / union + (hull - union) / hull
    return overlap.mean() + nn.functional.smooth_l1_loss(predicted, target, beta=0.1)


def _focal_and_dice() -> Trained:
    logits = torch.randn(8, 256, 256, requires_grad=True)
    return Trained(focal_and_dice, (logits, (torch.rand(8, 256, 256) > 0.5).float()), [logits])


def _boxes() -> Trained:
    corners = torch.rand(2, 20_000, 2)
    target = torch.cat([corners[0], corners[0] + corners[1]], 1)
    predicted = (target + 0.1 * torch.randn_like(target)).requires_grad_()
    return Trained(boxes, (predicted, target), [predicted])


PROGRAMS = [
    *[_network(network) for network in NETWORKS],
    Program("focal and Dice loss, 8x256x256", _focal_and_dice),
    Program("GIoU and Huber loss, 20000 boxes", _boxes),
]
QUICK = [PROGRAMS[i] for i in (0, 4, 12)]
BY_NAME = {program.name: program for program in PROGRAMS}


def optimizer_step(compile_: Compile | None, parameters: int = 100) -> Callable[[], Any]:
    """AdamW over small parameters, as its `foreach` implementation runs it."""
    generator = torch.Generator().manual_seed(0)
    leaves: Sequence[torch.Tensor] = [
        torch.randn(16, 16, generator=generator).requires_grad_() for _ in range(parameters)
    ]
    for leaf in leaves:
        leaf.grad = torch.randn(16, 16, generator=generator)
    optimizer = torch.optim.AdamW(leaves, lr=1e-3, foreach=True)
    optimizer.step()  # its state is made
    step = optimizer.step
    return step if compile_ is None else compile_(step)
