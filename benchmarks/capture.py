"""How long it takes to capture a program: the first call, with a backend that compiles nothing."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from typing import Any

import torch

import pliant
from benchmarks.model_zoo import LAYERED, build, tokens
from benchmarks.programs import MLP, Transformer, add_one
from benchmarks.timing import machine, table


def programs() -> list[tuple[str, Callable[..., Any], tuple[Any, ...]]]:
    ids = torch.randint(0, 100, (2, 16))
    return [
        ("x + 1", add_one, (torch.randn(4),)),
        ("20-layer MLP, eval", MLP().eval(), (torch.randn(2, 16),)),
        ("12-layer transformer, eval", Transformer().eval(), (ids,)),
        ("24-layer transformer, eval", Transformer(layers=24).eval(), (ids,)),
    ]


def first_call(make: Callable[[], Callable[..., Any]], args: tuple[Any, ...]) -> float:
    compiled = make()
    started = time.perf_counter()
    compiled(*args)
    return time.perf_counter() - started


def main(quick: bool = False) -> None:
    rows = []
    for name, function, args in programs():
        function(*args)

        def stock(function: Any = function) -> Any:
            torch._dynamo.reset()
            return torch.compile(function, backend="eager")

        def ours(function: Any = function) -> Any:
            pliant.reset()
            return pliant.compile(function, backend="eager")

        first_call(stock, args), first_call(ours, args)  # imports and caches of both
        times: list[list[float]] = [[], []]
        for _ in range(3 if quick else 7):
            for make, taken in zip((stock, ours), times, strict=True):
                taken.append(first_call(make, args))
        theirs, mine = (statistics.median(taken) for taken in times)
        rows.append([name, f"{theirs * 1e3:.1f}", f"{mine * 1e3:.1f}", f"{theirs / mine:.1f}x"])
    head = ["program", "torch.compile", "pliant", "ratio"]
    table(f'Milliseconds to capture, backend="eager" ({machine()})', head, rows)


def model_times(name: str, layers: int, dynamic: bool, rounds: int) -> tuple[float, float]:
    """Median seconds of the first call of a model, under torch.compile and under pliant."""
    model, args = build(name, layers), (tokens(2, 8),)

    def stock() -> Any:
        torch._dynamo.reset()
        return torch.compile(model, backend="eager", dynamic=dynamic)

    def ours() -> Any:
        pliant.reset()
        return pliant.compile(model, backend="eager", dynamic=dynamic)

    model(*args)
    times: list[list[float]] = [[], []]
    for _ in range(rounds):
        for make, taken in zip((stock, ours), times, strict=True):
            taken.append(first_call(make, args))
    theirs, mine = (statistics.median(taken) for taken in times)
    return theirs, mine


@torch.no_grad()
def models(quick: bool = False) -> None:
    """Networks of the transformers library, and how the time grows with their depth."""
    rows = []
    for name, title in LAYERED.items():
        for dynamic in (False, True):
            model_times(name, 2, dynamic, 1)  # imports and caches of both
            before: tuple[float, float] | None = None
            for layers in (12, 24):
                times = model_times(name, layers, dynamic, 1 if quick else 3)
                cells = [f"{seconds * 1e3:.0f}" for seconds in times]
                growth = [f"{new / old:.2f}x" for new, old in zip(times, before or ())] or ["", ""]
                ratio = f"{times[0] / times[1]:.1f}x"
                rows.append([f"{title}, {layers} layers", str(dynamic), *cells, ratio, *growth])
                before = times
    head = ["model", "dynamic", "torch.compile", "pliant", "ratio",
            "torch.compile: 24 to 12 layers", "pliant: 24 to 12 layers"]  # fmt: skip
    table(f'Milliseconds to capture, backend="eager" ({machine()})', head, rows)
