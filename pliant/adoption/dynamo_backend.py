"""`torch.compile(model, backend="pliant")`: pliant's code generators for graphs that PyTorch's own
capture has made.

The one idea: such a graph is a Python function like any other. pliant compiles it on its first call
with the real arguments, training and mutation included; PyTorch's symbolic sizes arrive as plain
numbers and become pliant's symbols.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

from pliant import api
from pliant.adoption.install import settings_for


def pliant(
    gm: torch.fx.GraphModule,
    example_inputs: Sequence[Any],
    *,
    mode: str | None = None,
    options: Mapping[str, Any] | None = None,
) -> Callable[..., Any]:
    """Compile a graph with pliant. PyTorch's guards say for which sizes it is used: where they are
    constants they are here too, and where they may vary one compilation serves all."""
    settings = settings_for({"mode": mode, "options": options})
    symbolic = any(map(_is_symbolic, example_inputs))
    # PyTorch's graph module writes its code at its first call; this one has it, to be followed.
    graph = torch.fx.GraphModule(gm, gm.graph)
    compiled = api.compile(graph.forward, dynamic=symbolic, **settings)

    # PyTorch unwraps what is marked as hidden from its compiler, as compiled functions are, and
    # would call the original.
    def call(*args: Any) -> Any:
        return compiled(*args)

    return call


def _is_symbolic(value: Any) -> bool:
    if isinstance(value, torch.Tensor):
        return any(isinstance(size, torch.SymInt) for size in value.shape)
    return isinstance(value, torch.SymInt | torch.SymFloat | torch.SymBool)
