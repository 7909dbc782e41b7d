"""Objects that live in the graph without being tensors: generators, handles, modes of PyTorch."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from torch import fx

from pliant.capture.value import Break, Value
from pliant.guards.source import Source

if TYPE_CHECKING:
    from pliant.capture.residual import Emitter
    from pliant.capture.trace import Trace


class GraphObject(Value):
    """An object that a node of the graph makes, or an input of the graph that is no tensor.

    `example` is one like it, for the run on fakes; where it came from outside, it is the object.
    """

    __slots__ = ("example", "node")

    def __init__(self, node: fx.Node, example: Any, source: Source | None = None) -> None:
        super().__init__(source)
        self.node = node
        self.example = example
        node.meta["object"] = example

    def python_type(self) -> type:
        return type(self.example)

    def instance_attribute(self, trace: Trace, name: str) -> Value | None:
        raise Break("unsupported-attribute", f"{type(self.example).__name__}.{name}")

    def rebuild(self, emit: Emitter) -> str:
        return emit.result(self.node)


class GraphMethod(Value):
    """A method of a graph object: `handler(trace, obj, *args, **kwargs)` calls it."""

    __slots__ = ("handler", "name", "obj")

    def __init__(self, obj: GraphObject, name: str, handler: Callable[..., Value]) -> None:
        super().__init__()
        self.obj = obj
        self.name = name
        self.handler = handler

    def python_type(self) -> type:
        return type(getattr(self.obj.example, self.name))

    def children(self) -> list[Value]:
        return [self.obj]

    def rebuild(self, emit: Emitter) -> str:
        return f"{emit.operand(self.obj)}.{self.name}"
