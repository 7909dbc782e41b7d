"""Tensors of the captured program: a node of the graph and a fake that knows shape and type."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch import fx

from pliant.capture.value import Break, Unread, Value
from pliant.capture.values.containers import Mapping, instance_dict
from pliant.capture.values.conversion import from_real
from pliant.fake import Fake
from pliant.fake.wrappers import RECIPE, has_own_sizes, is_made_of_fakes, recipe_of
from pliant.guards.guard import GuardKind
from pliant.guards.predicates import LacksAttribute
from pliant.guards.source import Attr, Source

if TYPE_CHECKING:
    from pliant.capture.residual import Emitter
    from pliant.capture.trace import Trace


PLAIN = (bool, int, float, str, type(None), torch.dtype, torch.device, torch.layout, type)


def _is_plain(attribute: Any) -> bool:
    if isinstance(attribute, tuple):
        return all(map(_is_plain, attribute))
    return isinstance(attribute, PLAIN)


class TensorValue(Value):
    """A tensor: a node of the graph, and a fake that knows its metadata. `real` is the tensor
    itself, if it came from outside.

    `plain` says that the graph has a plain tensor in place of one of a subclass. The class of such
    a tensor decides what PyTorch's functions do, and that is followed; the graph knows nothing of
    it.
    """

    __slots__ = (
        "attributes", "cls", "early", "fake", "node", "parts", "plain", "real", "slots", "written",
    )  # fmt: skip

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
        self.early: Source | None = None  # what stands for it, if residual code makes it
        self.parts: Any = None  # attributes of a wrapper that the program makes
        self.attributes: Mapping | None = None
        self.slots: dict[str, Value] = {}  # attributes written that are not in the __dict__: grad
        self.written: dict[str, None] = {}

    def python_type(self) -> type:
        return self.cls

    def children(self) -> list[Value]:
        extra = [] if self.attributes is None else self.attributes.contents()
        return [*self.slots.values(), *extra]

    def slot(self, trace: Trace, name: str) -> Value | None:
        """The value of a `__slots__` member of its class, or None where it is unset."""
        # A wrapper that the program is making.
        if self.parts is not None:
            part: Value | None = self.parts.get(name)
            return part
        if not hasattr(self.fake if self.real is None else self.real, name):
            if self.source is not None:
                trace.guard(GuardKind.PREDICATE, self.source, LacksAttribute(name))
            return None
        if self.real is None:
            return self._own_attribute(trace, name)
        if self.source is None:
            raise Break("unsupported-attribute", f"{self.cls.__name__}.{name}")
        return Unread(getattr(self.real, name), Attr(self.source, name))

    def store_slot(self, trace: Trace, name: str, value: Value | None) -> None:
        if self.parts is None:
            raise Break("attribute-write", f"{self.cls.__name__}.{name}")
        self.parts.store(trace, name, value)

    def instance_attribute(self, trace: Trace, name: str) -> Value | None:
        if self.parts is not None and (part := self.parts.get(name)) is not None:
            return part
        if self.real is None and type(self.fake) is not Fake and name in vars(self.fake):
            return self._own_attribute(trace, name)
        return instance_dict(trace, self).get(trace, name)

    def _own_attribute(self, trace: Trace, name: str) -> Value:
        """An attribute of a wrapper that the graph makes: a tensor inside of it, read by a node, or
        plain data."""
        attribute = getattr(self.fake, name)
        if _is_plain(attribute):
            return from_real(trace, attribute)
        if type(attribute) is not Fake and not is_made_of_fakes(attribute):
            raise Break("tensor-attribute", f"{self.cls.__name__}.{name} of a result")
        if id(attribute) not in trace.tensors:
            node = trace.graph.operation(getattr, (self.node, name), {}, trace.stack(), False)
            cls = torch.Tensor if type(attribute) is Fake else type(attribute)
            trace.tensors[id(attribute)] = TensorValue(node, attribute, cls)
            if cls is not torch.Tensor:
                node.meta[RECIPE] = recipe_of(attribute)
            if attribute._has_symbolic_sizes_strides and not has_own_sizes(attribute):
                trace.sizes.nodes.settle_sizes(attribute, node)
        tensor: TensorValue = trace.tensors[id(attribute)]
        return tensor

    def store_attribute(self, trace: Trace, name: str, value: Value | None) -> None:
        if self.parts is not None:
            self.parts.store(trace, name, value)
            return
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
