"""The cheapest set of nodes whose removal separates a source from a sink: Dinic's algorithm."""

from __future__ import annotations

from collections import deque
from collections.abc import Hashable
from typing import Final

SOURCE: Final = ("source",)
SINK: Final = ("sink",)
UNLIMITED: Final = float("inf")


class FlowNetwork:
    """Nodes are known by a key. Each has a cost, edges cost nothing: `cut` removes nodes."""

    def __init__(self) -> None:
        self._index: dict[Hashable, int] = {}
        self._edges: list[list[int]] = []  # by node: the numbers of its edges
        self._to: list[int] = []
        self._left: list[float] = []  # capacity; an edge and the one back have numbers 2n, 2n + 1
        self._keys: list[Hashable] = []
        self._source = self._new()
        self._sink = self._new()

    def add(self, key: Hashable, cost: float) -> None:
        """A node; to remove it costs so much."""
        self._index[key] = self._new()
        self._keys.append(key)
        # A node is two, in and out, with an edge between them that costs what the node does.
        self._connect(self._index[key], self._new(), cost)

    def edge(self, start: Hashable, end: Hashable, cost: float = UNLIMITED) -> None:
        """A finite `cost` is paid if the cut leaves only the end on the side of the sink."""
        # The number after that of a node is its out side.
        first = self._source if start is SOURCE else self._index[start] + 1
        self._connect(first, self._sink if end is SINK else self._index[end], cost)

    def cut(self) -> list[Hashable]:
        """The keys of the cheapest separating nodes, those closest to the sink."""
        while True:
            levels = self._levels()
            if levels[self._sink] < 0:
                break
            self._fill(levels)
        # The cut nearest to the sink: of several that cost the same, it recomputes the least.
        behind = self._behind()
        return [
            key for key in self._keys if behind[self._index[key] + 1] > behind[self._index[key]]
        ]

    def _behind(self) -> list[bool]:
        """The nodes from which the sink can be reached by edges with room."""
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
        for a, b, room in ((start, end, capacity), (end, start, 0.0)):
            self._edges[a].append(len(self._to))
            self._to.append(b)
            self._left.append(room)

    def _levels(self) -> list[int]:
        """How many edges with room lead to each node; -1 for those that can't be reached."""
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
        """Send as much as possible along the shortest paths; iterative, since they may be long."""
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
        edges = self._edges[node]
        while tried[node] < len(edges):
            edge = edges[tried[node]]
            if self._left[edge] > 0 and levels[self._to[edge]] == levels[node] + 1:
                return edge
            tried[node] += 1
        return None

    def _send(self, path: list[int]) -> int:
        """Fill a path, and go back to where there is no room left."""
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
