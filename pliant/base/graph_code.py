"""The code of captured graphs, and where its lines come from in the user's program."""

from __future__ import annotations

import linecache
from collections.abc import Callable
from functools import partial
from typing import Any, Final

from torch import fx

from pliant.base import tracebacks
from pliant.base.position import Position


class CapturedModule(fx.GraphModule):
    """A captured graph. Its code is written when somebody reads or runs it, which nobody does while
    generated code runs in its place. Tracebacks through the code show the user's lines."""

    def recompile(self) -> Any:
        if "meta" not in vars(self):  # by `__init__`
            type(self).forward = _Unwritten()  # type: ignore[assignment]
            return None
        first = "_code" not in vars(self)
        code = super().recompile()
        if first:  # later the graph may be another than the one that was captured
            _register(self)
        return code

    def __getattr__(self, name: str) -> Any:
        if name in WRITTEN and "meta" in vars(self):
            self.recompile()
            return vars(self)[name]
        return super().__getattr__(name)

    def __reduce__(self) -> Any:
        self.recompile()  # which PyTorch does when it has copied the attributes
        return super().__reduce__()


WRITTEN: Final = frozenset({"_code", "_lineno_map", "_prologue_start"})
"""Attributes of a graph that come with its code."""


class _Unwritten:
    """Stands for the method `forward` of a class until it is written."""

    def __get__(self, graph: fx.GraphModule | None, owner: type) -> Any:
        if graph is None:
            return self
        graph.recompile()
        return graph.forward


def _register(graph: fx.GraphModule) -> None:
    """Let tracebacks through the code of `graph`, as it is now, show the user's lines."""
    stacks = [node.meta.get("stack", ()) for node in graph.graph.nodes]
    node_at = nodes_by_line(graph)

    def lines(line: int) -> tuple[Position, ...]:
        index = node_at(line)
        return stacks[index] if index is not None and index < len(stacks) else ()

    code = code_of(graph)
    if code is not None:
        tracebacks.register(code, lines, partial(_forget_source, code.co_filename))


def code_of(graph: fx.GraphModule) -> Any:
    """The code object of the graph's code; None before it is written."""
    return getattr(type(graph).forward, "__code__", None)


def nodes_by_line(graph: fx.GraphModule) -> Callable[[int], int | None]:
    """From a line of the graph's code to the index of the node on it."""
    numbers: dict[int, int | None] = getattr(graph, "_lineno_map", None) or {}
    first: int = getattr(graph, "_prologue_start", 0)
    return lambda line: numbers.get(line - first)


def _forget_source(file: str) -> None:
    """PyTorch keeps the source of every graph it has made; ours go with their graphs."""
    linecache.cache.pop(file, None)
    loader = getattr(fx.graph_module, "_loader", None)
    getattr(loader, "eval_cache", {}).pop(file, None)
