"""Kernels that let go of memory run before calls that need more of it.

The one idea: of two neighbours in the plan that have nothing to do with each other, that one goes
first with which the peak of both is lower. Calls stay in their order; kernels between two calls
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
    """The plan in another order. `donated` are inputs that the plan may let go of."""
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
        self.released = fresh - set(kept) - written
        self.order: list[Item] = []
        self.done: set[Item] = set()

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
        """Groups that follow a call, those first that had better run before it."""
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
        # Peak memory of either order: of the first alone, or what it leaves plus what the second
        # allocates.
        return max(new, change + call_new) < max(call_new, call_change + new)

    def _memory(self, items: Sequence[Item]) -> tuple[int, int]:
        """Bytes that these allocate, and what is left of them, less what they free, behind."""
        new: Counter[int] = Counter()
        for item in items:
            stored = [result for result in _results(item) if self._is_stored(result, item)]
            new.update([self.size(result) for result in stored])
        read = {of for item in items for of in read_by(item)} & self.released
        freed = Counter([self.size(of) for of in read if self._ends(of, items)])
        total, gone = sum(new.elements()), sum(freed.elements())
        # Kernels store results in buffers that they read for the last time.
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
    """Those that can run before the call: they compute nothing from what it makes, write to no
    memory of others, and may not find an error."""
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
