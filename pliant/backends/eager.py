"""The backend that runs the captured graph as it is, operation by operation: what was captured,
without a code generator between it and the result."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch


def eager(gm: torch.fx.GraphModule, example_inputs: Sequence[Any]) -> Callable[..., Any]:
    """Run the graph with PyTorch itself."""
    # The function made from the graph; calling `gm` would add nn.Module's call with its hooks.
    return gm.forward
