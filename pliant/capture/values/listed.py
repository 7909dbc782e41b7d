"""The lists that `tolist()` gives, and their items.

The one idea: neither costs anything until the program looks at it. A list that is only passed along
is made by residual code, of the tensor. In one that the program looks into, an item that it looks
at becomes a symbol with a node of the graph; the others are taken from the list of the graph.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from torch import fx

from pliant.capture.value import Break, Lazy, Value
from pliant.capture.values.containers import Sequence
from pliant.fake.unbacked import Listed
from pliant.fake.unbacked import listed as listed_items

if TYPE_CHECKING:
    from pliant.capture.residual import Emitter
    from pliant.capture.trace import Trace
    from pliant.capture.values.tensors import TensorValue


class Item(Lazy):
    """A number or a list, at an index of the list that `node` returns."""

    __slots__ = ("index", "items", "node")

    def __init__(self, node: fx.Node, items: Listed, index: int) -> None:
        super().__init__()
        self.node = node
        self.items = items
        self.index = index

    def look(self, trace: Trace) -> Value:
        content = self.items.item(trace.sizes.env, self.index)
        node = trace.graph.item(self.node, self.index)
        if isinstance(content, Listed):
            return listed(node, content)
        trace.sizes.nodes.settle(content, node)
        return trace.sizes.value(content)

    @property
    def known(self) -> Value | None:
        """What stands for the item from now on: the list that the program has looked at, and maybe
        changed. None while the item is as it came, and always for a number."""
        return None if self.items.of_numbers else self.seen

    def rebuild(self, emit: Emitter) -> str:
        return f"{emit.result(self.node)}[{self.index}]"

    def follows(self, other: Value) -> bool:
        """Whether this is the item behind `other` in the same list, both unchanged."""
        return (
            isinstance(other, Item)
            and self.node is other.node
            and self.index == other.index + 1
            and self.known is other.known is None
        )


def listed(node: fx.Node, items: Listed) -> Sequence:
    """The list that `node` returns."""
    return Sequence(list, [], load=lambda: _items(node, items))


def _items(node: fx.Node, items: Listed) -> list[Value]:
    return [Item(node, items, index) for index in range(len(items))]


class ListMaker:
    """Makes the list of a tensor that the program does not look into. `node` makes it in the graph:
    it is dead, unless the tensor is written to later (`is_stale`)."""

    __slots__ = ("is_stale", "node", "sizes", "tensor")

    def __init__(self, tensor: TensorValue, node: fx.Node) -> None:
        self.tensor = tensor
        self.node = node
        self.sizes = tuple(tensor.fake.size())  # which it may not keep
        self.is_stale = False

    def items(self, trace: Trace) -> list[Value]:
        """The items, once somebody looks; the sizes of the tensor become constants."""
        items = listed_items(trace.sizes.env, self.sizes, self.tensor.fake.dtype, "tolist()")
        trace.sizes.emit_checks()
        if items is None:
            raise Break("data-dependent", "tolist")
        return _items(self.node, items)

    def children(self) -> list[Value]:
        return [self.tensor]

    def rebuild(self, emit: Emitter) -> str:
        if self.is_stale:
            return emit.result(self.node)
        # A line of its own, before an operation that may write to the tensor.
        name = emit.fresh("items")
        emit.line(f"{name} = {emit.expression(self.tensor)}.tolist()")
        return name


def tensor_list(trace: Trace, maker: ListMaker) -> Sequence:
    """The list that `tolist()` gives."""
    sequence = Sequence(list, [], load=lambda: maker.items(trace))
    sequence.maker = maker
    return sequence


def runs(values: list[Value]) -> list[list[Value]]:
    """The values in order, grouped: items that are neighbours in a list of the graph are one group,
    which residual code writes as a slice."""
    groups: list[list[Value]] = []
    for value in values:
        if groups and type(value) is Item and value.follows(groups[-1][-1]):
            groups[-1].append(value)
        else:
            groups.append([value])
    return groups
