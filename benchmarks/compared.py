"""Eager PyTorch, torch.compile and pliant on one function, side by side in one run.

The one idea: the systems take turns, round after round, and the best round of each counts: what
other work on the machine costs is in no best round, or in all of them.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from time import perf_counter
from typing import Any

import torch
import torch._dynamo

import pliant
from pliant.base import events

Function = Callable[..., Any]
EAGER, STOCK, OURS = "eager", "torch.compile", "pliant"
BACKEND = "llvm"
FAILED = float("nan")


def best(
    calls: Mapping[str, Callable[[], object]], rounds: int, seconds: float
) -> dict[str, float]:
    """Seconds per call of each, in its best round; a round lasts about `seconds` for each."""
    repeats = {name: _repeats(call, seconds) for name, call in calls.items()}
    found = dict.fromkeys(calls, math.inf)
    for _ in range(rounds):
        for name, call in calls.items():
            repeat = repeats[name]
            started = perf_counter()
            for _ in range(repeat):
                call()
            found[name] = min(found[name], (perf_counter() - started) / repeat)
    return found


def _repeats(call: Callable[[], object], seconds: float) -> int:
    """How many calls take about so long. The first ones are warm-up."""
    repeat = 1
    while True:
        started = perf_counter()
        for _ in range(repeat):
            call()
        taken = perf_counter() - started
        if taken > seconds / 4 or repeat >= 100_000:
            return max(1, int(repeat * seconds / max(taken, 1e-9)))
        repeat *= 4


@contextmanager
def threads(count: int) -> Iterator[None]:
    """So many threads for PyTorch, and the compiled functions of others forgotten: torch.compile's
    code is made for one number of threads."""
    before = torch.get_num_threads()
    torch.set_num_threads(count)
    torch._dynamo.reset()
    pliant.reset()
    try:
        yield
    finally:
        torch.set_num_threads(before)


@dataclass(slots=True)
class Made:
    """What pliant made of a function: how many kernels, which operators are left to PyTorch, and
    how many graphs have no code at all."""

    kernels: int = 0
    called: Counter[str] | None = None
    without: int = 0

    def __call__(self, event: events.Event) -> None:
        if isinstance(event, events.CodeGenerated):
            self.kernels += len(event.kernels())
            self.called = (self.called or Counter()) + Counter(event.called)
        self.without += isinstance(event, events.NotGenerated | events.FellBack)

    def __str__(self) -> str:
        """Kernels and calls: 1, or 2+3; with ! where a graph runs as it was captured."""
        calls = (self.called or Counter()).total()
        return f"{self.kernels}{f'+{calls}' if calls else ''}{'!' if self.without else ''}"


def compiled(
    system: str, function: Function, args: Sequence[Any], dynamic: bool | None = False
) -> Callable[[], Any]:
    """A call of the function under a system, compiled already."""
    if system == EAGER:
        made = function
    elif system == STOCK:
        torch._dynamo.reset()
        made = torch.compile(function, dynamic=dynamic)
    else:
        made = pliant.compile(function, backend=BACKEND, dynamic=dynamic)
    made(*args)
    return lambda: made(*args)


def differs(result: Any, expected: Any) -> bool:
    """Beyond what the order of additions explains."""
    for a, b in zip(_tensors(result), _tensors(expected), strict=True):
        loose = 0.05 if a.dtype in (torch.bfloat16, torch.float16) else 1e-3
        if a.shape != b.shape or not torch.allclose(a, b, loose, loose, equal_nan=True):
            return True
    return False


def _tensors(result: Any) -> list[torch.Tensor]:
    if isinstance(result, torch.Tensor):
        return [result]
    items = result.values() if isinstance(result, Mapping) else result
    if isinstance(items, list | tuple) or isinstance(result, Mapping):
        return [tensor for item in items for tensor in _tensors(item)]
    return []


def geometric_mean(ratios: Sequence[float]) -> float:
    ratios = [ratio for ratio in ratios if ratio == ratio and ratio > 0]
    return math.exp(sum(map(math.log, ratios)) / len(ratios)) if ratios else FAILED


def ratio(a: float, b: float) -> str:
    """a to b, as a cell of a table."""
    return f"{a / b:.2f}" if b and a == a and b == b else "-"


def time_cell(seconds: float, unit: float = 1e6) -> str:
    return f"{seconds * unit:.1f}" if seconds == seconds else "failed"


@dataclass(frozen=True, slots=True)
class Goal:
    """A line to be met, and what was found."""

    text: str
    found: float
    limit: float
    at_least: bool = True
    digits: int = 2

    @property
    def met(self) -> bool:
        return self.found >= self.limit if self.at_least else self.found <= self.limit

    def __str__(self) -> str:
        word = "at least" if self.at_least else "at most"
        found, limit = (f"{n:.{self.digits}f}" for n in (self.found, self.limit))
        return f"- {self.text}: {found} ({word} {limit}): {'met' if self.met else '**not met**'}"


def report(goals: Sequence[Goal]) -> None:
    print("\nGoals\n")
    for goal in goals:
        print(goal)
