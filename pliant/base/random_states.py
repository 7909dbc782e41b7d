"""The states of PyTorch's own random generators, of all devices.

The one idea: a seed before CUDA is initialised waits in a queue, so the queue is part of the state.
"""

from __future__ import annotations

from typing import Any

import torch


class RandomStates:
    """The states as they are now, to be put back after something that draws or seeds."""

    __slots__ = ("_cpu", "_cuda", "_queue")

    def __init__(self) -> None:
        self._cpu = torch.get_rng_state()
        in_use = torch.cuda.is_initialized()
        self._cuda = torch.cuda.get_rng_state_all() if in_use else None
        self._queue = None if in_use else vars(_queued_seeds()).copy()

    def put_back(self) -> None:
        torch.set_rng_state(self._cpu)
        if self._cuda is not None:
            torch.cuda.set_rng_state_all(self._cuda)
        elif self._queue is not None:
            vars(_queued_seeds()).update(self._queue)

    def __enter__(self) -> None:
        pass

    def __exit__(self, *error: object) -> None:
        self.put_back()


def _queued_seeds() -> Any:
    return torch.cuda._lazy_seed_tracker
