"""Random generators that a compiled graph gets as inputs.

The one idea: code that gives up has drawn numbers, and the captured graph, which runs in its place,
draws them again. So the state of each generator from before the call is there to be put back. (The
launcher does the same for PyTorch's own generators.)
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Any

import torch

from pliant.base.values import dataclass

States = list[tuple[torch.Generator, torch.Tensor]]


class GeneratorStates(threading.local):
    """The states before the calls that are under way in this thread, innermost last."""

    def __init__(self) -> None:
        self.calls: list[States] = []


@dataclass(frozen=True, slots=True, eq=False)
class SavesStates:
    """Calls a launcher some of whose inputs, at `places`, are generators."""

    launcher: Callable[..., Any]
    places: Sequence[int]
    states: GeneratorStates

    def __call__(self, *args: Any) -> Any:
        calls = self.states.calls
        calls.append([(args[at], args[at].get_state()) for at in self.places])
        try:
            return self.launcher(*args)
        finally:
            calls.pop()


@dataclass(frozen=True, slots=True, eq=False)
class PutsStatesBack:
    """Runs the captured graph in place of such a launcher."""

    graph: Callable[..., Any]
    states: GeneratorStates

    def __call__(self, *args: Any) -> Any:
        for generator, state in self.states.calls[-1]:
            generator.set_state(state)
        return self.graph(*args)
