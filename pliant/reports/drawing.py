"""A captured graph as data to be drawn: nodes, what they read, and the calls that led to them.

The one idea: a node belongs to the calls on its stack. Capture has numbered them, so layers of a
network are apart though one line calls them all. Decorators of libraries are left out.
"""

from __future__ import annotations

import os.path
from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import takewhile
from typing import Any

from torch import fx

from pliant.base.position import Position, lines_of
from pliant.stages import Captured


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
        path = calls.path(stack, node.meta.get("calls", ()))
        for depth in range(len(path)):
            calls.owned(tuple(path[: depth + 1]), _module_of(path[depth:], owner))
        line = f"{os.path.basename(stack[-1].file)}:{stack[-1].line}" if stack else ""
        drawing.append(
            {"name": node.name, "op": node.op, "label": label, "reads": read, "path": path,
             "line": line, "lines": lines_of(stack), "module": modules.get(node.name, "")}
        )  # fmt: skip
    return [{**box, "path": calls.names(box["path"])} for box in drawing]


class _Calls:
    """Which call of a function each node is in."""

    def __init__(self) -> None:
        self._numbers: dict[int, int] = {}  # of a call, among those of its function
        self._made: Counter[tuple[str, ...]] = Counter()  # of a function, in another call
        self._owners: dict[tuple[str, ...], list[str]] = {}
        self._named: dict[tuple[str, ...], str] = {}

    def path(self, stack: Sequence[Position], calls: Sequence[int]) -> list[str]:
        path: list[str] = []
        for position, call in list(zip(stack, calls, strict=False))[1:]:
            if position.library and _is_around(position.function):
                continue
            if call not in self._numbers:
                self._numbers[call] = self._made[*path, position.function]
                self._made[*path, position.function] += 1
            path.append(f"{position.function}#{self._numbers[call]}")
        return path

    def owned(self, path: tuple[str, ...], owner: str) -> None:
        if owner:
            self._owners.setdefault(path, []).append(owner)

    def names(self, path: Any) -> list[str]:
        """The function, and the module that its parameters have in common."""
        names: list[str] = []
        for depth in range(len(path)):
            function, _, number = path[depth].rpartition("#")
            owners = self._owners.get(tuple(path[: depth + 1]), [])
            module = _common(owners)
            after = module or (f"call {int(number) + 1}" if number != "0" else "")
            name = f"{function} · {after}" if after else function
            # Calls of one module are calls of their own.
            first = self._named.setdefault((*names, name), path[depth])
            names.append(name if first == path[depth] else f"{name}, call {int(number) + 1}")
        return names


def _common(modules: list[str]) -> str:
    """The innermost module that all are in."""
    common = list(takewhile(_is_one, zip(*[module.split(".") for module in modules], strict=False)))
    return ".".join(names[0] for names in common)


def _is_around(function: str) -> bool:
    """A decorator, or the call of a module around its `forward`."""
    return "<locals>" in function or function.endswith(".__call__")


def _module_of(path: Sequence[str], owner: str) -> str:
    """The module that the first call is of, if the last one is of `owner`: each `forward` is of a
    module within another."""
    calls = [call.rpartition("#")[0] for call in path]
    inner = [at for at in range(1, len(calls)) if calls[at].endswith(".forward")]
    if calls[0].endswith(".__call__"):  # of the same module as the first `forward` in it
        inner = inner[1:]
    parts = owner.split(".")
    for at in reversed(inner):
        # A list of modules is no call, unless it is a `Sequential`.
        if parts and parts.pop().isdigit() and not calls[at - 1].startswith("Sequential."):
            del parts[-1:]
    return ".".join(parts)


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
