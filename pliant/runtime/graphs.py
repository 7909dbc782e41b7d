"""Where the lines of a graph's code come from in the user's program."""

from __future__ import annotations

import linecache
import weakref
from typing import Any

from torch import fx

from pliant.base import tracebacks
from pliant.base.position import Position


def register(graph: fx.GraphModule) -> None:
    """Let tracebacks through the code of `graph`, as it is now, show the user's lines."""
    code: Any = getattr(type(graph).forward, "__code__", None)
    numbers: dict[int, int | None] | None = getattr(graph, "_lineno_map", None)
    if code is None or not numbers:
        return
    first: int = getattr(graph, "_prologue_start", 0)
    stacks = [node.meta.get("stack", ()) for node in graph.graph.nodes]

    def lines(line: int) -> tuple[Position, ...]:
        node = numbers.get(line - first)
        return stacks[node] if node is not None and node < len(stacks) else ()

    tracebacks.register(code, lines)
    weakref.finalize(code, _forget_source, code.co_filename)


def _forget_source(file: str) -> None:
    """PyTorch keeps the source of every graph it has made; ours go with their graphs."""
    linecache.cache.pop(file, None)
    loader = getattr(fx.graph_module, "_loader", None)
    getattr(loader, "eval_cache", {}).pop(file, None)
