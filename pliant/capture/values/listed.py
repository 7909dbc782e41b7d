"""Items of the lists that the graph makes with `tolist()`.

The one idea: an item costs nothing until the program looks at it. Then it becomes a symbol with a
node of the graph; an item that is only passed along is taken from the list itself.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from torch import fx

from pliant.capture.value import Lazy, Value
from pliant.capture.values.containers import Sequence
from pliant.fake.unbacked import Listed

if TYPE_CHECKING:
    from pliant.capture.residual import Emitter
    from pliant.capture.trace import Trace


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
    return Sequence(list, [], load=lambda: [Item(node, items, i) for i in range(len(items))])


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
