"""The networks whose steady state and compilation are measured: small, with random weights.

Only PyTorch is imported here, and transformers when one of its networks is asked for, because the
cold start of others is measured with these too.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from benchmarks.model_zoo import build, tokens
from benchmarks.programs import MLP, Transformer

Made = tuple[nn.Module, tuple[Any, ...]]


class Residual(nn.Module):
    """Two convolutions with batch norm, added to the input."""

    def __init__(self, given: int, width: int, stride: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(given, width, 3, stride=stride, padding=1, bias=False)
        self.norm1 = nn.BatchNorm2d(width)
        self.conv2 = nn.Conv2d(width, width, 3, padding=1, bias=False)
        self.norm2 = nn.BatchNorm2d(width)
        self.short: nn.Module = nn.Identity()
        if stride != 1 or given != width:
            self.short = nn.Sequential(
                nn.Conv2d(given, width, 1, stride=stride, bias=False), nn.BatchNorm2d(width)
            )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        out = torch.relu(self.norm1(self.conv1(x)))
        return torch.relu(self.norm2(self.conv2(out)) + self.short(x))


class ConvNet(nn.Module):
    """A residual network of four stages, in the style of ResNet-18."""

    def __init__(self, width: int = 16, blocks: int = 2, classes: int = 10) -> None:
        super().__init__()
        self.stem = nn.Sequential(
            nn.Conv2d(3, width, 7, stride=2, padding=3, bias=False),
            nn.BatchNorm2d(width),
            nn.ReLU(),
            nn.MaxPool2d(3, stride=2, padding=1),
        )
        layers: list[nn.Module] = []
        given = width
        for stage in range(4):
            here = width * 2**stage
            for block in range(blocks):
                layers.append(Residual(given, here, 2 if stage and not block else 1))
                given = here
        self.stages = nn.Sequential(*layers)
        self.head = nn.Linear(given, classes)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.stages(self.stem(x))
        return self.head(x.mean(dim=(2, 3)))


# What transformers calls the sizes: toy ones are those of the model tests.
WIDER: dict[str, dict[str, Any]] = {
    "bert": {"vocab_size": 1000, "hidden_size": 256, "num_attention_heads": 8,
             "intermediate_size": 1024},
    "gpt2": {"vocab_size": 1000, "n_embd": 256, "n_head": 8},
    "llama": {"vocab_size": 1000, "hidden_size": 256, "num_attention_heads": 8,
              "num_key_value_heads": 4, "intermediate_size": 688},
}  # fmt: skip


def library(name: str, layers: int, batch: int, length: int, wide: bool) -> Callable[[], Made]:
    def make() -> Made:
        changes: dict[str, Any] = dict(WIDER[name]) if wide else {}
        if name != "bert":
            changes["use_cache"] = False
        return build(name, layers, **changes), (tokens(batch, length),)

    return make


@dataclass(frozen=True, slots=True)
class Network:
    name: str
    make: Callable[[], Made]
    needs: str | None = None  # a package

    @property
    def missing(self) -> bool:
        return self.needs is not None and importlib.util.find_spec(self.needs) is None


def ids(batch: int, length: int) -> tuple[torch.Tensor]:
    return (torch.randint(0, 100, (batch, length)),)


NETWORKS = [
    Network("MLP, 20 of 16, 2 rows", lambda: (MLP(), (torch.randn(2, 16),))),
    Network("MLP, 4 of 512, 64 rows", lambda: (MLP(4, 512), (torch.randn(64, 512),))),
    Network("transformer, 12 of 32, 2x16", lambda: (Transformer(), ids(2, 16))),
    Network("transformer, 4 of 256, 4x64", lambda: (Transformer(4, 256, 8), ids(4, 64))),
    Network("convnet, 16 wide, 2x3x64x64", lambda: (ConvNet(), (torch.randn(2, 3, 64, 64),))),
    Network("convnet, 32 wide, 4x3x96x96", lambda: (ConvNet(32), (torch.randn(4, 3, 96, 96),))),
    Network("BERT, 4 of 32, 2x16", library("bert", 4, 2, 16, False), "transformers"),
    Network("BERT, 4 of 256, 4x64", library("bert", 4, 4, 64, True), "transformers"),
    Network("GPT-2, 4 of 32, 2x16", library("gpt2", 4, 2, 16, False), "transformers"),
    Network("GPT-2, 4 of 256, 4x64", library("gpt2", 4, 4, 64, True), "transformers"),
    Network("Llama, 4 of 32, 2x16", library("llama", 4, 2, 16, False), "transformers"),
    Network("Llama, 4 of 256, 4x64", library("llama", 4, 4, 64, True), "transformers"),
]
QUICK = [NETWORKS[i] for i in (1, 3, 4, 6)]
