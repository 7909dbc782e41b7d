"""Tensors of the captured program: a node of the graph and a fake that knows shape and type."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import fx

from pliant.capture.value import Break, Const, Value
from pliant.capture.values.containers import Mapping, instance_dict
from pliant.fake import Fake
from pliant.guards.source import Source

if TYPE_CHECKING:
    from pliant.capture.residual import Emitter
    from pliant.capture.trace import Trace


PLAIN = (bool, int, float, str, type(None), torch.dtype)


class TensorValue(Value):
    """A tensor. `real` is the tensor itself where it came from outside.

    `plain` says that the graph has a plain tensor in the place of one of a subclass: graphs know
    nothing of classes that have a say in what PyTorch's functions do.
    """

    __slots__ = ("attributes", "cls", "fake", "node", "plain", "real", "slots", "written")

    def __init__(
        self,
        node: fx.Node,
        fake: Fake,
        cls: type = torch.Tensor,
        real: torch.Tensor | None = None,
        source: Source | None = None,
    ) -> None:
        super().__init__(source)
        self.node = node
        self.fake = fake
        self.cls = cls
        self.real = real
        self.plain = False
        self.attributes: Mapping | None = None
        self.slots: dict[str, Value] = {}  # attributes written that are not in the __dict__: grad
        self.written: dict[str, None] = {}

    def python_type(self) -> type:
        return self.cls

    def children(self) -> list[Value]:
        extra = [] if self.attributes is None else self.attributes.contents()
        return [*self.slots.values(), *extra]

    def instance_attribute(self, trace: Trace, name: str) -> Value | None:
        if self.real is None and type(self.fake) is not Fake and name in vars(self.fake):
            return self._own_attribute(trace, name)
        return instance_dict(trace, self).get(trace, name)

    def _own_attribute(self, trace: Trace, name: str) -> Value:
        """Of a wrapper that the graph makes: a tensor inside of it, or plain data."""
        attribute = vars(self.fake)[name]
        if isinstance(attribute, PLAIN):
            return Const(attribute)
        if type(attribute) is not Fake:
            raise Break("tensor-attribute", f"{self.cls.__name__}.{name} of a result")
        if id(attribute) not in trace.tensors:
            node = trace.graph.operation(getattr, (self.node, name), {}, trace.stack(), False)
            trace.tensors[id(attribute)] = TensorValue(node, attribute)
            if attribute._has_symbolic_sizes_strides:
                trace.sizes.nodes.settle_sizes(attribute, node)
        tensor: TensorValue = trace.tensors[id(attribute)]
        return tensor

    def store_attribute(self, trace: Trace, name: str, value: Value | None) -> None:
        table = instance_dict(trace, self)
        trace.mutate_always(table)
        table.store(trace, name, value)

    def rebuild(self, emit: Emitter) -> str:
        return emit.tensor(self)

    def snapshot(self) -> None:
        return None

    def replay(self, emit: Emitter, before: None) -> None:
        name = emit.expression(self)
        for key in self.written:
            emit.line(f"{name}.{key} = {emit.expression(self.slots[key])}")

    def __repr__(self) -> str:
        return f"<TensorValue {self.node} {tuple(self.fake.shape)}>"
