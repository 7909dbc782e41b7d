"""The backend that hands the graph to PyTorch's own code generator, for those who want to compare.

The one module of pliant that may import PyTorch's compiler, and imported only when it is asked for
(`backend="inductor"`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch._inductor import list_mode_options
from torch._inductor.compile_fx import compile_fx


def inductor(
    gm: torch.fx.GraphModule,
    example_inputs: Sequence[Any],
    *,
    mode: str | None = None,
    options: Mapping[str, Any] | None = None,
) -> Callable[..., Any]:
    """Compile the graph with TorchInductor. `mode` and `options` are those of torch.compile."""
    if any(node.target is torch.autograd.backward for node in gm.graph.nodes):
        return gm.forward  # PyTorch's compilers have no way to write gradients of leaves
    patches = dict(list_mode_options(mode) if mode else {}) | dict(options or {})
    compiled: Callable[..., Any] = compile_fx(gm, list(example_inputs), config_patches=patches)
    return compiled
