"""Autocast where an operator that PyTorch composes of others is answered in parts.

The one idea: autocast casts the arguments of the operators that it has a rule for, and keeps away
from what they call. While a mode answers an operator it is kept away too. So for an operator
without a rule it is switched on again, as it is in the program, and casts what the parts are given.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any, Final

import torch

DEVICES: Final = ("cpu", "cuda")
KEYS: Final = {"cpu": "AutocastCPU", "cuda": "AutocastCUDA"}
State = tuple[Any, ...]


def enabled() -> bool:
    return bool(torch._C._is_any_autocast_enabled())


def state() -> State:
    per_device = [(torch.is_autocast_enabled(d), torch.get_autocast_dtype(d)) for d in DEVICES]
    return (*per_device, torch.is_autocast_cache_enabled())


def current() -> State | None:
    """The state, where autocast is on."""
    return state() if enabled() else None


def casts_parts(around: State | None, op: Any) -> bool:
    """Whether autocast, where it is on, casts the arguments of the parts of an operator. Where it
    casts those of the operator itself, it has done so when the operator arrives."""
    if around is None:
        return False
    has_kernel = torch._C._dispatch_has_kernel_for_dispatch_key
    keys = [KEYS[device] for device, (on, _) in zip(DEVICES, around[:-1], strict=True) if on]
    return not any(has_kernel(op.name(), key) for key in keys)


@contextlib.contextmanager
def resumed(around: State | None) -> Iterator[None]:
    """While an operator is answered, PyTorch keeps autocast away from what is called. Here it is on
    again, as it is in the program."""
    per_device = () if around is None else around[:-1]
    before = [torch.is_autocast_enabled(device) for device in DEVICES]
    try:
        for device, (on, _) in zip(DEVICES, per_device, strict=False):
            torch.set_autocast_enabled(device, on)
        yield
    finally:
        for device, on in zip(DEVICES, before, strict=True):
            torch.set_autocast_enabled(device, on)


@contextlib.contextmanager
def kept_off(world: Any) -> Iterator[None]:
    """In the parts of an operator whose own arguments were cast."""
    before, world.autocast = world.autocast, None
    try:
        yield
    finally:
        world.autocast = before


def in_parts(world: Any, op: Any) -> contextlib.AbstractContextManager[None]:
    """While the parts of an operator run, in a world that knows where the program is."""
    casts = casts_parts(world.autocast, op)
    return resumed(world.autocast) if casts else kept_off(world)
