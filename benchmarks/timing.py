"""Timing and tables."""

from __future__ import annotations

import platform
import statistics
import time
from collections.abc import Callable, Sequence

import torch


def interleaved(calls: Sequence[Callable[[], object]], rounds: int, repeat: int) -> list[float]:
    """Median seconds of one call of each. The calls take turns, so that a noisy moment of the
    machine hits all of them."""
    samples: list[list[float]] = [[] for _ in calls]
    for call in calls:
        for _ in range(min(repeat, 10)):
            call()
    for _ in range(rounds):
        for call, taken in zip(calls, samples, strict=True):
            started = time.perf_counter()
            for _ in range(repeat):
                call()
            taken.append((time.perf_counter() - started) / repeat)
    return [statistics.median(taken) for taken in samples]


def machine() -> str:
    with open("/proc/cpuinfo") as info:
        names = [line.split(":")[1].strip() for line in info if line.startswith("model name")]
    return (
        f"{names[0] if names else platform.processor()}, {len(names)} cores, "
        f"Python {platform.python_version()}, torch {torch.__version__}, "
        f"{torch.get_num_threads()} threads"
    )


def table(title: str, head: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Print a Markdown table, so that it can be pasted into the docs."""
    print(f"\n{title}\n")
    widths = [max(len(row[i]) for row in (head, *rows)) for i in range(len(head))]
    for number, row in enumerate((head, *rows)):
        cells = [
            cell.ljust(w) if i == 0 else cell.rjust(w)
            for i, (cell, w) in enumerate(zip(row, widths, strict=True))
        ]
        print("| " + " | ".join(cells) + " |")
        if number == 0:
            print(
                "|"
                + "|".join("-" * (w + 1) + (":" if i else "-") for i, w in enumerate(widths))
                + "|"
            )
