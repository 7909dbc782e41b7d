"""`torch.amp.GradScaler`, which leaves a step of the optimizer out if a gradient is not finite.

The one idea: that is rare, so the step is followed, and the graph tests that gradients are finite.
Where they are not, the function is run again by Python, which leaves the step out.
"""

from __future__ import annotations

from typing import Any

import torch

from pliant.capture.assertion_branches import add_test, is_test
from pliant.capture.model import call, get_attribute
from pliant.capture.native import SHORTCUTS
from pliant.capture.trace import Trace
from pliant.capture.value import Value
from pliant.capture.values.containers import Mapping

TEXT = "a GradScaler that found only finite gradients"


def step_if_finite(
    trace: Trace, args: list[Value], kwargs: dict[str, Value], direct: bool
) -> Value | None:
    """The optimizer's step, in a graph that has nothing to undo but what `backward` did. Otherwise
    PyTorch's own code is followed, which asks Python."""
    effects = trace.graph_effects
    if len(args) < 3 or not effects.backward or effects.final or effects.other:
        return None
    _, optimizer, state, *rest = args
    flags = _flags(trace, state)
    if not flags or not all(is_test(trace, flag) for flag in flags):
        return None
    for flag in flags:
        add_test(trace, trace.frames[-1], flag, False, TEXT)
    return call(trace, get_attribute(trace, optimizer, "step"), rest, kwargs)


def _flags(trace: Trace, state: Value) -> list[Value]:
    """By device: whether a gradient there is not finite, as a number."""
    mapping = trace.read(state)
    found = mapping.get(trace, "found_inf_per_device") if isinstance(mapping, Mapping) else None
    by_device = None if found is None else trace.read(found)
    if not isinstance(by_device, Mapping):
        return []
    return [trace.read(flag) for flag in by_device.read_all(trace).values()]


_maybe_step: Any = torch.amp.GradScaler._maybe_opt_step
SHORTCUTS[_maybe_step] = step_if_finite
