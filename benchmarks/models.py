"""Whole networks once everything is compiled: the time of a call, and the memory it needs."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch.profiler import ProfilerActivity, profile

from benchmarks.compared import (
    EAGER,
    FAILED,
    OURS,
    STOCK,
    Goal,
    Made,
    best,
    compiled,
    differs,
    geometric_mean,
    ratio,
    report,
    threads,
    time_cell,
)
from benchmarks.networks import NETWORKS, QUICK, Network
from benchmarks.timing import machine, table
from pliant.base import events

SYSTEMS = (EAGER, STOCK, OURS)
COLUMNS = [EAGER, STOCK, OURS, "torch.compile / pliant", "eager / pliant",
           "peak: eager", "torch.compile", "pliant", "kernels"]  # fmt: skip


@dataclass(frozen=True, slots=True)
class Row:
    """Seconds per call (of a network, of a step) and peak bytes by system."""

    name: str
    threads: int
    times: dict[str, float]
    peaks: dict[str, int]
    made: str = ""
    wrong: tuple[str, ...] = ()

    def over(self, system: str) -> float:
        return self.times.get(system, FAILED) / self.times.get(OURS, FAILED)

    def cells(self) -> list[str]:
        times = [self.times.get(name, FAILED) for name in SYSTEMS]
        peaks = [f"{self.peaks[n] / 1024:.0f}" if n in self.peaks else "-" for n in SYSTEMS]
        return [
            self.name,
            *[time_cell(t) for t in times],
            ratio(times[1], times[2]),
            ratio(times[0], times[2]),
            *peaks,
            self.made + "".join([f"; {name} differs" for name in self.wrong]),
        ]


def peak(call: Callable[[], Any]) -> int:
    """The most bytes of tensors that are allocated at once in a call, beyond those from before, as
    PyTorch's allocator reports them."""
    os.environ.setdefault("KINETO_LOG_LEVEL", "6")  # it says when it starts and stops
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as profiled:
        call()
    assert profiled.profiler is not None and profiled.profiler.kineto_results is not None
    found = [e for e in profiled.profiler.kineto_results.events() if e.name() == "[memory]"]
    total = highest = 0
    for event in sorted(found, key=lambda e: e.start_ns()):
        total += event.nbytes()
        highest = max(highest, total)
    return highest


def measure(network: Network, count: int, quick: bool) -> Row:
    torch.manual_seed(0)
    model, args = network.make()
    model.eval()
    expected = model(*args)
    made = Made()
    calls: dict[str, Callable[[], Any]] = {}
    peaks: dict[str, int] = {}
    wrong = []
    for name in SYSTEMS:
        try:
            if name == OURS:
                with events.listening(made):
                    calls[name] = compiled(name, model, args)
            else:
                calls[name] = compiled(name, model, args)
            if differs(calls[name](), expected):
                wrong.append(name)
            peaks[name] = peak(calls[name])
        except Exception as error:
            print(f"{network.name}, {name}: {type(error).__name__}: {str(error)[:300]}")
    times = best(calls, *((3, 0.01) if quick else (25, 0.02)))
    return Row(network.name, count, times, peaks, str(made), tuple(wrong))


@torch.no_grad()
def main(quick: bool = False, only: str | None = None) -> None:
    wanted = [n for n in (QUICK if quick else NETWORKS) if only is None or only in n.name]
    missing = sorted({n.needs for n in wanted if n.missing and n.needs})
    networks = [n for n in wanted if not n.missing]
    every: list[Row] = []
    for count in (2, 1):
        with threads(count):
            rows = [measure(network, count, quick) for network in networks]
            words = "1 thread" if count == 1 else f"{count} threads"
            title = f"Microseconds per call and KB at its peak, {words} ({machine()})"
            table(title, ["network", *COLUMNS], [row.cells() for row in rows])
            every += rows
    if every:
        report(goals(every))
    if missing:
        print(
            f"\nNot installed, so left out: {', '.join(missing)}. `make test-models` installs it."
        )
    print("\npeak: tensors that a call allocates, its results included; not the parameters.")
    print("kernels: how many, + calls of PyTorch; ! where a graph runs operator by operator.")


def goals(rows: Sequence[Row]) -> list[Goal]:
    found = []
    for count in (2, 1):
        some = [row for row in rows if row.threads == count]
        for system in (STOCK, EAGER):
            text = f"{system} / pliant, geometric mean, threads: {count}"
            found.append(Goal(text, geometric_mean([row.over(system) for row in some]), 1.0))
    both = [r for r in rows if OURS in r.peaks and STOCK in r.peaks]
    more = sorted({r.name for r in both if r.peaks[OURS] > r.peaks[STOCK]})
    if more:
        print(f"\nMore memory than torch.compile: {'; '.join(more)}")
    found.append(Goal("networks with a higher peak than torch.compile", len(more), 0, False, 0))
    return found
