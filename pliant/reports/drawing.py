"""A captured graph as data to be drawn: nodes, what they read, and the calls that led to them.

The one idea: a node belongs to the calls on its stack. Layers of a network are called from one
line, one after the other, so a call is over when something happens in it that has happened before.
"""

from __future__ import annotations

import os.path
from collections import Counter
from collections.abc import Mapping
from itertools import takewhile
from typing import Any

from torch import fx

from pliant.base.position import lines_of
from pliant.stages import Captured

Frame = tuple[Any, ...]


def draw(graph: fx.GraphModule, captured: Captured) -> list[Mapping[str, object]]:
    """A value of JSON for each node: its `path` are the names of the calls around it, numbered
    where a call is made several times."""
    sources = [] if captured.graph is None else [str(source) for source in captured.graph.inputs]
    inputs = iter(sources)
    calls = _Calls()
    drawing: list[Mapping[str, object]] = []
    modules: dict[str, str] = {}  # by placeholder: the module whose parameter it is
    for node in graph.graph.nodes:
        stack = node.meta.get("stack", ())
        label = next(inputs, node.name) if node.op == "placeholder" else _target(node)
        if node.op == "placeholder":
            modules[node.name] = _module(label)
        read = [source.name for source in node.all_input_nodes]
        owner = next((modules[name] for name in read if modules.get(name)), "")
        path = calls.path(stack, label)
        parts = owner.split(".")
        for depth in range(len(path)):  # each call within it is one of a module within it
            inner = len(path) - depth - 1
            calls.owned(tuple(path[: depth + 1]), ".".join(parts[: max(len(parts) - inner, 0)]))
        line = f"{os.path.basename(stack[-1].file)}:{stack[-1].line}" if stack else ""
        drawing.append(
            {"name": node.name, "op": node.op, "label": label, "reads": read, "path": path,
             "line": line, "lines": lines_of(stack), "module": modules.get(node.name, "")}
        )  # fmt: skip
    return [{**box, "path": calls.names(box["path"])} for box in drawing]


class _Calls:
    """Which call of a function each node is in."""

    def __init__(self) -> None:
        self._numbers: dict[Frame, int] = {}  # of the current call of a frame
        self._calls: Counter[Frame] = Counter()  # of a function, from anywhere in another call
        self._seen: dict[Frame, set[Frame]] = {}  # what happened in the current call
        self._owners: dict[tuple[str, ...], list[str]] = {}

    def path(self, stack: Any, label: str) -> list[str]:
        path: list[str] = []
        around: Frame = ()
        for depth in range(1, len(stack)):
            caller, function = stack[depth - 1], stack[depth].function
            frame = (*around, caller.line, caller.column, function)
            happens = (label, *[(p.line, p.column) for p in stack[depth:]])
            if happens in self._seen.get(frame, {happens}):  # once more: this is the next call
                self._seen[frame] = set()
                self._numbers[frame] = self._calls[(*around, function)]
                self._calls[(*around, function)] += 1
            self._seen[frame].add(happens)
            number = self._numbers[frame]
            path.append(f"{function}#{number}")
            around = (*frame, number)
        return path

    def owned(self, path: tuple[str, ...], owner: str) -> None:
        if owner:
            self._owners.setdefault(path, []).append(owner)

    def names(self, path: Any) -> list[str]:
        """The function, and the module that its parameters have in common."""
        names = []
        for depth in range(len(path)):
            function, _, number = path[depth].rpartition("#")
            owners = self._owners.get(tuple(path[: depth + 1]), [])
            module = _common(owners)
            after = module or (f"call {int(number) + 1}" if number != "0" else "")
            names.append(f"{function} · {after}" if after else function)
        return names


def _common(modules: list[str]) -> str:
    """The innermost module that all are in."""
    common = list(takewhile(_is_one, zip(*[module.split(".") for module in modules], strict=False)))
    return ".".join(names[0] for names in common)


def _is_one(names: tuple[str, ...]) -> bool:
    return len(set(names)) == 1


def _module(source: str) -> str:
    """`layers.0.norm` of `L['self'].layers[0].norm.weight`, and `model.layers.0.norm` if the module
    is a variable of that name."""
    start, _, path = source.partition("].")
    parts = path.replace("[", ".").replace("]", "").split(".")
    variable = start.partition("[")[2].strip("'")
    return ".".join(parts[:-1] if variable == "self" else [variable, *parts[:-1]] if path else [])


def _target(node: fx.Node) -> str:
    if node.op == "output":
        return "output"
    return (
        node.target
        if isinstance(node.target, str)
        else getattr(node.target, "__name__", str(node.target))
    )
