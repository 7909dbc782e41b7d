"""Autocast while a graph is recorded.

The one idea: PyTorch's own autocast works above what is recorded, so with the program's state
switched on for real its casts arrive like any other operator. Nothing is left to do when the code
runs; the launcher keeps a caller's autocast away from the operators it calls.
"""

from __future__ import annotations

from typing import Any, Final

import torch

from pliant.fake.autocast import DEVICES, casts_parts, current, enabled, in_parts, state
from pliant.graph.aliases import NotFunctionalized

__all__ = ["casts_parts", "current", "enabled", "in_parts", "nesting", "state", "switch", "undone"]

SWITCHES: Final = (
    torch.set_autocast_enabled,
    torch.set_autocast_dtype,
    torch.set_autocast_cache_enabled,
    torch.autocast_increment_nesting,
    torch.autocast_decrement_nesting,
    torch.clear_autocast_cache,
)
"""What `with torch.autocast(...)` is in a captured graph."""


def nesting() -> int:
    """How many blocks of autocast are around."""
    torch.autocast_increment_nesting()
    return torch.autocast_decrement_nesting()


class undone:
    """A context that restores the autocast state which the recorded graph switches. PyTorch's cache
    of casts is cleared, since it would have fakes of this recording for the next one."""

    def __enter__(self) -> None:
        self._before, self._nesting = state(), nesting()

    def __exit__(self, *error: object) -> None:
        *per_device, caching = self._before
        for device, (on, dtype) in zip(DEVICES, per_device, strict=True):
            torch.set_autocast_enabled(device, on)
            torch.set_autocast_dtype(device, dtype)
        torch.set_autocast_cache_enabled(caching)
        deeper = nesting() - self._nesting
        for _ in range(abs(deeper)):
            (torch.autocast_decrement_nesting if deeper > 0 else torch.autocast_increment_nesting)()
        torch.clear_autocast_cache()


def switch(target: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    if args and isinstance(args[0], str) and args[0] not in DEVICES:
        raise NotFunctionalized(f"autocast on {args[0]}")
    target(*args, **kwargs)
