"""Kernels that let go of memory run before calls that need more of it.

The one idea: a kernel that stands behind a call and doesn't depend on it is moved in front of it,
if the peak of memory is lower in that order. Calls stay in their order; kernels between two calls
stay together as far as they can, because such kernels are launched together.

In a backward this is the gradient of an activation, computed in the buffer of the gradient that
arrives, before the matrix product that makes the gradient of a weight.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Sequence
from typing import Final

from pliant.loop.define import Definition
from pliant.loop.fuse import ExternCall, FusionGroup, read_by

Item = FusionGroup | ExternCall
Size = Callable[[Definition], int]

MOST_CALLS: Final = 8
"""How many calls a kernel may pass: it should not end up far from what it reads."""


def release_early(
    plan: Sequence[Item], kept: Collection[Definition], donated: Collection[Definition], size: Size
) -> list[Item]:
    """The plan in an order that needs less memory. `kept` are definitions that the caller gets,
    `donated` inputs that the plan may free, `size` the bytes of a definition."""
    return _Order(plan, kept, donated, size).run(plan)


class _Order:
    def __init__(
        self,
        plan: Sequence[Item],
        kept: Collection[Definition],
        donated: Collection[Definition],
        size: Size,
    ) -> None:
        self.size = size
        self.kept = kept
        self.readers: dict[Definition, set[Item]] = {}
        # Memory that is freed after its last reader: nothing else refers to it.
        fresh = set(donated)
        for item in plan:
            for definition in read_by(item):
                self.readers.setdefault(definition, set()).add(item)
            if isinstance(item, FusionGroup) or item.fresh:
                fresh.update([result for result in _results(item) if result.into is None])
            elif item.view:
                # A view keeps its base alive, so reading the base for the last time frees nothing.
                fresh.difference_update(item.reads)
        written = {result.into for item in plan for result in _results(item)}
        self.released = fresh - set(kept) - written  # what is freed after its last reader
        self.order: list[Item] = []
        self.done: set[Item] = set()  # the items in `order`, less those being compared

    def run(self, plan: Sequence[Item]) -> list[Item]:
        groups: list[FusionGroup] = []
        for item in plan:
            if isinstance(item, FusionGroup):
                groups.append(item)
                continue
            self._place(groups)
            groups = []
            self._add([item])
        self._place(groups)
        return self.order

    def _add(self, items: Sequence[Item]) -> None:
        self.order += items
        self.done.update(items)

    def _place(self, groups: list[FusionGroup]) -> None:
        """Append groups that follow a call in the plan: those that gain from it go in front of the
        call, and from there in front of the call before it, for up to `MOST_CALLS` calls. It is a
        greedy search: each step compares two neighbours."""
        # What is put back behind the groups that move on, call by call.
        behind: list[Sequence[Item]] = []
        for _ in range(MOST_CALLS):
            call = self.order[-1] if self.order else None
            if not isinstance(call, ExternCall):
                break
            moved = _independent(groups, call)
            self.done.discard(call)
            if not moved or not self._is_better_first(moved, call):
                self.done.add(call)
                break
            self.order.pop()
            behind.append([call, *[group for group in groups if group not in moved]])
            groups = moved
        self._add(groups)
        for items in reversed(behind):
            self._add(items)

    def _is_better_first(self, groups: Sequence[FusionGroup], call: ExternCall) -> bool:
        call_new, call_change = self._memory([call])
        new, change = self._memory(groups)
        # Peak memory of either order, in bytes more than before: that of the first alone, or what
        # it leaves behind plus what the second allocates. (A kernel that allocates 0 and frees 4
        # goes before a call that allocates 4: a peak of 0 instead of 4.)
        return max(new, change + call_new) < max(call_new, call_change + new)

    def _memory(self, items: Sequence[Item]) -> tuple[int, int]:
        """The bytes that these items allocate, and by how many bytes memory in use has grown after
        them: less than 0 if they free more."""
        new: Counter[int] = Counter()
        for item in items:
            stored = [result for result in _results(item) if self._is_stored(result, item)]
            new.update([self.size(result) for result in stored])
        read = {of for item in items for of in read_by(item)} & self.released
        freed = Counter([self.size(of) for of in read if self._ends(of, items)])
        total, gone = sum(new.elements()), sum(freed.elements())
        # Kernels store results in buffers that they read for the last time (`buffer_reuse`), if
        # these have the same size.
        reused = new & freed if isinstance(items[0], FusionGroup) else Counter()
        return total - sum(reused.elements()), total - gone

    def _is_stored(self, result: Definition, item: Item) -> bool:
        if result.into is not None or (isinstance(item, ExternCall) and item.view):
            return False
        return result in self.kept or bool(self.readers.get(result, set()) - {item})

    def _ends(self, definition: Definition, items: Collection[Item]) -> bool:
        return self.readers[definition] <= self.done.union(items)


def _results(item: Item) -> Sequence[Definition]:
    return item.members if isinstance(item, FusionGroup) else item.makes


def _independent(groups: Sequence[FusionGroup], call: ExternCall) -> list[FusionGroup]:
    """The groups that can run before the call: they read nothing that it makes, directly or by way
    of groups that stay, write to no memory of others, and can't raise."""
    # Later kernels may need a size that the call computes.
    if call.finds:
        return []
    waiting = set(call.makes)
    moved: list[FusionGroup] = []
    for group in groups:
        if group.writers or group.faults or not waiting.isdisjoint(read_by(group)):
            # What reads the group has to stay behind it.
            waiting.update(group.members)
        else:
            moved.append(group)
    return moved
