"""How long it takes to capture a program: the first call, with a backend that compiles nothing."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from typing import Any

import torch

import pliant
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
            return pliant.compile(function)

        first_call(stock, args), first_call(ours, args)  # imports and caches of both
        times: list[list[float]] = [[], []]
        for _ in range(3 if quick else 7):
            for make, taken in zip((stock, ours), times, strict=True):
                taken.append(first_call(make, args))
        theirs, mine = (statistics.median(taken) for taken in times)
        rows.append([name, f"{theirs * 1e3:.1f}", f"{mine * 1e3:.1f}", f"{theirs / mine:.1f}x"])
    head = ["program", "torch.compile", "pliant", "ratio"]
    table(f'Milliseconds to capture, backend="eager" ({machine()})', head, rows)
