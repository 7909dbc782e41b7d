"""Generated kernels once everything is compiled: eager, torch.compile and pliant, two threads and
one; large ones beside a copy of as many bytes, and pliant's kernels for all sizes beside those for
one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch

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
from benchmarks.kernel_programs import CASES, FOUR, LARGE, QUICK, Case
from benchmarks.timing import machine, table
from pliant.base import events

DYNAMIC, COPY = "pliant, dynamic", "copy"
HEAD = ["function", "size", EAGER, STOCK, OURS, "torch.compile / pliant", "eager / pliant",
        DYNAMIC, "dynamic / static", COPY, "pliant / copy", "kernels"]  # fmt: skip


@dataclass(frozen=True, slots=True)
class Row:
    """Seconds per call by system, of one function in one size with one number of threads."""

    case: Case
    size: tuple[int, int]
    threads: int
    times: dict[str, float]
    made: str
    wrong: tuple[str, ...]

    def over(self, system: str, other: str = OURS) -> float:
        """How much longer a system takes than another one."""
        return self.times.get(system, FAILED) / self.times.get(other, FAILED)

    def cells(self) -> list[str]:
        t = {name: self.times.get(name, FAILED) for name in (EAGER, STOCK, OURS, DYNAMIC, COPY)}
        copy = [time_cell(t[COPY]), ratio(t[OURS], t[COPY])] if COPY in self.times else ["", ""]
        made = self.made + "".join([f"; {name} differs" for name in self.wrong])
        return [
            self.case.name,
            f"{self.size[0]}x{self.size[1]}",
            *[time_cell(t[name]) for name in (EAGER, STOCK, OURS)],
            ratio(t[STOCK], t[OURS]),
            ratio(t[EAGER], t[OURS]),
            time_cell(t[DYNAMIC]),
            ratio(t[DYNAMIC], t[OURS]),
            *copy,
            made,
        ]


def copy_of(args: Sequence[Any], result: Any) -> Any:
    """A call that copies as many bytes as are read and written in all: half of them, once."""
    tensors = [t for t in (*args, result) if isinstance(t, torch.Tensor)]
    source = torch.zeros(sum(t.numel() * t.element_size() for t in tensors) // 8)
    return source.clone


def measure(case: Case, size: tuple[int, int], count: int, quick: bool) -> Row:
    torch.manual_seed(0)
    args = case.args(*size)
    expected = case.function(*args)
    made = Made()
    calls, wrong = {}, []
    for name in (EAGER, STOCK, OURS, DYNAMIC):
        system = OURS if name == DYNAMIC else name
        try:
            with events.listening(made) if name == OURS else events.listening(_ignored):
                calls[name] = compiled(system, case.function, args, dynamic=name == DYNAMIC)
            if differs(calls[name](), expected):
                wrong.append(name)
        except Exception as error:
            print(f"{case.name}, {name}: {type(error).__name__}: {str(error)[:300]}")
    if case.streams and size == LARGE:
        calls[COPY] = copy_of(args, expected)
    times = best(calls, *((3, 0.002) if quick else (25, 0.005)))
    return Row(case, size, count, times, str(made), tuple(wrong))


def _ignored(event: events.Event) -> None:
    pass


@torch.no_grad()
def main(quick: bool = False, only: str | None = None) -> None:
    cases = [case for case in (QUICK if quick else CASES) if only is None or only in case.name]
    every: list[Row] = []
    for count in (2, 1):
        with threads(count):
            rows = []
            for case in cases:
                rows += [measure(case, size, count, quick) for size in case.sizes]
            words = "1 thread" if count == 1 else f"{count} threads"
            title = f"Microseconds per call, {words}, best of many rounds ({machine()})"
            table(title, HEAD, [row.cells() for row in rows])
            every += rows
    if every:
        summarise(every)
    print("\nkernels: how many, + calls of PyTorch; ! where a graph runs operator by operator.")


def summarise(rows: Sequence[Row]) -> None:
    others = [row for row in rows if row.case is not FOUR]
    means = []
    for count in (2, 1):
        for name, small in (("cache", True), ("memory", False)):
            some = [r for r in others if r.threads == count and (r.size != LARGE) is small]
            ratios = [[r.over(s) for r in some] for s in (STOCK, EAGER)]
            cells = [f"{geometric_mean(found):.2f}" for found in ratios]
            slow = [r for r in some if r.over(STOCK) < 0.8]
            means.append([f"{count}", name, str(len(some)), *cells, str(len(slow))])
    head = ["threads", "sizes", "functions", "torch.compile / pliant", "eager / pliant",
            "below 0.8 of torch.compile"]  # fmt: skip
    table("Geometric means", head, means)
    behind(others)
    report(goals(rows, others))


def behind(rows: Sequence[Row]) -> None:
    """The functions that torch.compile is faster at, worst first."""
    slow = sorted([r for r in rows if r.over(STOCK) < 1], key=lambda r: r.over(STOCK))
    cells = [
        [r.case.name, f"{r.size[0]}x{r.size[1]}", str(r.threads), f"{r.over(STOCK):.2f}",
         f"{r.over(EAGER):.2f}"]
        for r in slow
    ]  # fmt: skip
    head = ["function", "size", "threads", "torch.compile / pliant", "eager / pliant"]
    table(f"Slower than torch.compile: {len(slow)} of {len(rows)}", head, cells)


def goals(rows: Sequence[Row], others: Sequence[Row]) -> list[Goal]:
    tiny = [row.over(EAGER) for row in rows if row.case is FOUR]
    stock = [row.over(STOCK) for row in others if row.over(STOCK) == row.over(STOCK)]
    copies = [row.over(OURS, COPY) for row in rows if COPY in row.times]
    dynamic = [row.over(DYNAMIC) for row in rows]
    found = []
    if tiny:
        found.append(Goal("x + 1 on 4 elements, eager / pliant", min(tiny), 1.0))
    if stock:
        mean = geometric_mean(stock)
        found.append(Goal("torch.compile / pliant, geometric mean", mean, 1.0))
        found.append(Goal("torch.compile / pliant, worst", min(stock), 0.8))
    if copies:
        text = "large pointwise, pliant / copy, worst"
        found.append(Goal(text, max(copies), 1.2, at_least=False))
    mean = geometric_mean(dynamic)
    found.append(Goal("dynamic / static, geometric mean", mean, 1.03, False, 3))
    worst = max([d for d in dynamic if d == d], default=FAILED)
    found.append(Goal("dynamic / static, worst", worst, 1.03, False, 3))
    return found
