"""Programs that change the world between calls, run once eagerly and once compiled.

A probe is a generator function: it takes `compile`, makes what it needs, and yields whatever can be
seen from outside after each step. It is run with a `compile` that does nothing and with pliant's,
and what the two yield must be the same.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch

import pliant
from pliant.base import events
from tests.support.against_eager import same

Probe = Callable[[Callable[..., Any]], Iterator[Any]]


def observe(probe: Probe, compile: Callable[..., Any]) -> list[Any]:
    """Everything that the probe yields. An exception is what it raises."""
    torch.manual_seed(0)
    return list(probe(compile))


def outcome(function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """The result of a call, or the type and message of what it raised."""
    try:
        return function(*args, **kwargs)
    except pliant.errors.PliantError:
        raise
    except Exception as error:
        return type(error), str(error)


def side_by_side(
    probe: Probe, compilations: int | None = None, breaks: int | None = 0, **options: Any
) -> None:
    """Compare; `compilations` and `breaks` are how many there must be (None: any number)."""
    options.setdefault("fullgraph", breaks == 0)
    expected = observe(probe, lambda function: function)
    events.counters.reset()
    actual = observe(probe, lambda function: pliant.compile(function, **options))
    same(actual, expected)
    assert events.counters["fallbacks"] == 0
    if breaks is not None:
        assert events.counters["graph_breaks"] == breaks, events.counters.breaks
    if compilations is not None:
        assert events.counters["compilations"] == compilations, dict(events.counters)


class Probes:
    """Collects the probes of a test file, with what is expected of each."""

    def __init__(self) -> None:
        self.params: list[Any] = []

    def __call__(
        self, compilations: int | None = None, breaks: int | None = 0, **options: Any
    ) -> Any:
        def register(probe: Probe) -> Probe:
            expected = {"compilations": compilations, "breaks": breaks, **options}
            name = probe.__name__.strip("_")  # type: ignore[attr-defined]
            self.params.append(pytest.param(probe, expected, id=name))
            return probe

        return register
