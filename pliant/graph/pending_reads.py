"""Pending reads: which values that are not yet stored depend on which memory.

The one idea: a value that isn't stored is computed where it is used, from memory that may have been
overwritten by then (a write-after-read hazard). So each value records the memory that it depends
on, and before memory is written, the dependent values that are still needed are realized. Eager
PyTorch stores all of them, so this never costs more.

    y = x + 1         an expression over the memory of x
    x.mul_(2)         y is stored first, or `return` would compute it from the new x
    return y
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from typing import Final

from pliant.graph.ir import Functional, MemoryWrite, Node, Tensor, returned_tensors, tensors_in
from pliant.loop.define import Computed, Definition, contiguous
from pliant.loop.fuse import own_place, owner, probe
from pliant.ops.indexed_tensor import IndexedTensor
from pliant.ops.lowering import Lowering
from pliant.sym.expr import ZERO, Expr

NOTHING: Final[frozenset[Definition]] = frozenset()


class PendingReads:
    """Which values depend on which memory. `position` is that of the node being lowered."""

    def __init__(self, function: Functional, nodes: Sequence[Node]) -> None:
        self.position = 0
        self.stores: dict[Tensor, Node] = {}  # the write that each new value is put in memory by
        self._last: dict[Tensor, float] = {}  # the position of each value's last reader
        for at, node in enumerate(nodes):
            self._last.update(dict.fromkeys(tensors_in((node.args, node.kwargs)), at))
            if node.put is not None:
                self.stores[node.args[-1]] = node
        returned = returned_tensors(function.outputs)
        # The end of the graph reads what is returned or written.
        self._last.update(dict.fromkeys([*returned, *function.writes.values()], math.inf))
        # Most graphs write nothing, and can do without the sets.
        self._followed = bool(self.stores)
        self._looks_at: dict[Tensor, frozenset[Definition]] = {}
        self._lookers: dict[Definition, dict[Tensor, None]] = {}

    def note(self, tensor: Tensor, indexed: IndexedTensor, made_of: Iterable[Tensor]) -> None:
        """Note the memory that a value depends on: the memory that it is in, or that which the
        values `made_of` depend on."""
        if not self._followed:
            return
        if indexed.memory is not None:
            memories = frozenset((owner(indexed.memory.of),))
        else:
            memories = NOTHING.union(*[self._looks_at.get(t, NOTHING) for t in made_of])
        self._looks_at[tensor] = memories
        for memory in memories:
            self._lookers.setdefault(memory, {})[tensor] = None

    def looks_at(self, tensor: Tensor, memory: Definition) -> bool:
        return memory in self._looks_at.get(tensor, NOTHING)

    def needed(self, memory: Definition, after: int) -> list[Tensor]:
        """The values that depend on `memory` and are read by the node `after` nodes behind this
        one, or by a later one."""
        first = self.position + after
        # Those that are no longer needed are dropped for good, so that each is looked at a few
        # times only.
        lookers = self._lookers.pop(memory, {})
        left = [
            t for t in lookers if memory in self._looks_at[t] and self._last.get(t, -1) >= first
        ]
        self._lookers[memory] = dict.fromkeys(left)
        return left

    def still_needed(self, tensors: Iterable[Tensor]) -> list[Tensor]:
        """Those of the tensors that this node or a later one needs."""
        return [t for t in tensors if self._last.get(t, -1) >= self.position]


def written(
    low: Lowering,
    memory: Definition,
    indexed: IndexedTensor,
    sizes: tuple[Expr, ...],
    strides: tuple[Expr, ...],
    offset: Expr = ZERO,
) -> Definition:
    """Define a write of a value to a part of some memory. A value that reads other places of the
    same memory, as in `x.copy_(x.flip(0))`, or that may have to raise, is stored elsewhere first.
    """
    new = Definition("", sizes, strides, memory.type, Computed(indexed.at), memory, offset)
    reads = probe(new)
    own = own_place(new)
    moved = any(owner(of) is memory and place is not own for of, place in reads.places)
    # Iterations run in any order, so one may have overwritten what another has yet to read. And a
    # fault must be known before anything is overwritten.
    if moved or reads.faults:
        indexed = low.realize(indexed, contiguous(indexed.sizes))
    return low.define(sizes, memory.type, Computed(indexed.at), strides, memory, offset)


def write_last(
    low: Lowering,
    values: dict[Definition, IndexedTensor],
    take: Callable[[Definition], None],
) -> None:
    """Write the last `values` of inputs to their memory, by target. One that reads the memory of
    another target is written before that one. In a cycle, as when two inputs are swapped, one value
    is stored elsewhere first, and so is one that may have to raise. `take` is called with each
    target after its definitions are made."""
    reads: dict[Definition, set[Definition]] = {}
    readers: dict[Definition, int] = dict.fromkeys(values, 0)

    def store_first(target: Definition) -> None:
        values[target] = low.realize(values[target], contiguous(values[target].sizes))
        take(target)
        reads[target] = set()

    for target, indexed in values.items():
        write = Definition("", target.sizes, target.strides, target.type, Computed(indexed.at))
        need, own = probe(write), own_place(write)
        reads[target] = {owner(of) for of, _ in need.places} & values.keys() - {target}
        moved = any(owner(of) is target and place is not own for of, place in need.places)
        if moved or need.faults:
            store_first(target)
    for others in reads.values():
        for memory in others:
            readers[memory] += 1
    ready = [target for target in values if not readers[target]]
    # Kahn's algorithm, on the graph in which a target points to those whose memory it reads.
    left = dict.fromkeys(values)
    # A topological order of the writes: a target is ready when no value that is still to be
    # computed reads its memory. In a cycle, one value is stored aside first.
    while left:
        if not ready:  # a cycle
            target = next(t for t in left if reads[t])
            ready = _released(reads[target], readers, left)
            store_first(target)
            continue
        target = ready.pop(0)
        del left[target]
        at = Computed(values[target].at)
        low.define(target.sizes, target.type, at, target.strides, target)
        take(target)
        ready += _released(reads[target], readers, left)


def _released(
    memories: Iterable[Definition],
    readers: dict[Definition, int],
    left: dict[Definition, None],
) -> list[Definition]:
    """Remove one reader from each of the memories. Returns those that have no reader left."""
    released = []
    for memory in sorted(memories, key=lambda m: m.name):
        readers[memory] -= 1
        if not readers[memory] and memory in left:
            released.append(memory)
    return released


def is_view_of(tensor: Tensor, base: Tensor) -> bool:
    while tensor is not base and tensor.node is not None and tensor.node.view:
        tensor = tensor.node.args[0]
    return tensor is base


def is_overwritten(x: Tensor, put: MemoryWrite) -> bool:
    """Whether a write is to the place of this tensor."""
    old = put.old
    layout = (x.sizes, x.strides, x.offset - old.offset)
    window = (put.window.sizes, put.window.strides, put.window.offset)
    return layout == window and x.dtype is old.dtype and is_view_of(x, old)
