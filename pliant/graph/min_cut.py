"""The cheapest set of nodes whose removal separates a source from a sink: Dinic's algorithm.

The one idea: a vertex cut is an edge cut after each vertex is split in two, with an edge of the
vertex's cost from its in side to its out side:

    a -> b, removing b costs 3     a.in -a-> a.out -unlimited-> b.in -3-> b.out

By max-flow min-cut, the cheapest cut consists of edges that a maximum flow saturates. Dinic's
algorithm repeats two steps until the sink is out of reach: number the nodes by their distance from
the source (`_levels`), and send a blocking flow along the shortest paths only (`_fill`). Each round
makes the shortest path longer, so there are at most as many rounds as nodes, and all of it takes
O(nodes**2 * edges) at worst.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Hashable
from typing import Final

SOURCE: Final = ("source",)
SINK: Final = ("sink",)
UNLIMITED: Final = float("inf")


class FlowNetwork:
    """A graph whose nodes are known by a key and have a cost. `cut` removes nodes; edges only say
    what is connected, except those that are added with a cost."""

    def __init__(self) -> None:
        self._index: dict[Hashable, int] = {}
        self._edges: list[list[int]] = []  # by node: the numbers of its edges
        self._to: list[int] = []
        # Residual capacity, by edge. An edge and its reverse have the numbers 2n and 2n + 1, so
        # that `edge ^ 1` is the reverse of either.
        self._left: list[float] = []
        self._keys: list[Hashable] = []
        self._source = self._new()
        self._sink = self._new()

    def add(self, key: Hashable, cost: float) -> None:
        """Add a node, which `cut` removes at this cost."""
        self._index[key] = self._new()
        self._keys.append(key)
        # A node is two, in and out, with an edge between them that costs what the node does.
        self._connect(self._index[key], self._new(), cost)

    def edge(self, start: Hashable, end: Hashable, cost: float = UNLIMITED) -> None:
        """Add an edge. If its cost is finite, it may be cut instead of a node: the cost is paid if
        `start` ends up on the source's side of the cut and `end` on the sink's."""
        # The number after that of a node is its out side.
        first = self._source if start is SOURCE else self._index[start] + 1
        self._connect(first, self._sink if end is SINK else self._index[end], cost)

    def cut(self) -> list[Hashable]:
        """The keys of the cheapest nodes that separate source and sink, in the order in which they
        were added. Raises ValueError if no finite cost does."""
        while True:
            levels = self._levels()
            if levels[self._sink] < 0:
                break
            self._fill(levels)
        # The cut nearest to the sink: of several that cost the same, it recomputes the least. A
        # node is cut if its out side is on the sink's side and its in side isn't.
        behind = self._behind()
        return [
            key for key in self._keys if behind[self._index[key] + 1] > behind[self._index[key]]
        ]

    def _behind(self) -> list[bool]:
        """By node: whether the sink can be reached from it along edges with residual capacity."""
        behind = [False] * len(self._edges)
        behind[self._sink] = True
        waiting = [self._sink]
        while waiting:
            node = waiting.pop()
            for edge in self._edges[node]:
                start = self._to[edge]
                if self._left[edge ^ 1] > 0 and not behind[start]:
                    behind[start] = True
                    waiting.append(start)
        return behind

    def _new(self) -> int:
        self._edges.append([])
        return len(self._edges) - 1

    def _connect(self, start: int, end: int, capacity: float) -> None:
        # The reverse edge starts empty; flow along the edge gives it room, so that a later path can
        # take that flow back.
        for a, b, room in ((start, end, capacity), (end, start, 0.0)):
            self._edges[a].append(len(self._to))
            self._to.append(b)
            self._left.append(room)

    def _levels(self) -> list[int]:
        """By node: its distance from the source, along edges with residual capacity; -1 if it can't
        be reached. A breadth-first search."""
        levels = [-1] * len(self._edges)
        levels[self._source] = 0
        waiting = deque([self._source])
        while waiting:
            node = waiting.popleft()
            for edge in self._edges[node]:
                end = self._to[edge]
                if self._left[edge] > 0 and levels[end] < 0:
                    levels[end] = levels[node] + 1
                    waiting.append(end)
        return levels

    def _fill(self, levels: list[int]) -> None:
        """Send a blocking flow: augment paths on which each edge leads one level further, until
        none is left. A depth-first search, iterative since paths may be thousands of nodes long."""
        # By node: how many of its edges are known to lead nowhere in this round ("current arc").
        tried = [0] * len(self._edges)
        path: list[int] = []
        node = self._source
        while True:
            if node == self._sink:
                node = self._send(path)
                continue
            edge = self._next(node, tried, levels)
            if edge is not None:
                path.append(edge)
                node = self._to[edge]
            elif path:  # a dead end
                # No path from here reaches the sink in this round, so it isn't entered again.
                tried[node] = len(self._edges[node])
                node = self._to[path.pop() ^ 1]
                tried[node] += 1
            else:
                return

    def _next(self, node: int, tried: list[int], levels: list[int]) -> int | None:
        """The next edge of `node` that has room and leads one level further, or None."""
        edges = self._edges[node]
        while tried[node] < len(edges):
            edge = edges[tried[node]]
            if self._left[edge] > 0 and levels[self._to[edge]] == levels[node] + 1:
                return edge
            tried[node] += 1
        return None

    def _send(self, path: list[int]) -> int:
        """Send as much along the augmenting path as it can take. Shortens `path` to what comes
        before its first saturated edge, and returns the node where that edge begins: the search
        goes on from there."""
        amount = min(self._left[edge] for edge in path)
        # Every path has to have a node that may be removed.
        if amount == UNLIMITED:
            raise ValueError("nothing can be removed between the source and the sink")
        full = 0
        for at, edge in reversed(list(enumerate(path))):
            self._left[edge] -= amount
            self._left[edge ^ 1] += amount
            if self._left[edge] <= 0:
                full = at
        node = self._to[path[full] ^ 1]
        del path[full:]
        return node
