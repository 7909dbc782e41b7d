"""Horizontal fusion: kernels that have nothing to do with each other are launched together.

The one idea: an optimizer updates many small tensors, each with a kernel of its own. One by one,
none of them is worth a second thread, and launching them takes as long as they do. Kernels none of
which touches what another one writes are one step: a table of functions and addresses, whose work
is shared among threads as if it were one loop.

A kernel is launched as early as what it touches allows, but not before a call, or a kernel that
takes long or may find an error. What a batch allocates is there before it runs, and what it reads
is freed behind it. So that this costs no memory, all but its first kernel may allocate `MOST_BYTES`
together.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import torch

from pliant.fake.overload import OverloadKind, describe
from pliant.launch.kernels import GroupKernel, Kernels
from pliant.loop.body import FLAG
from pliant.loop.define import Definition, bytes_of
from pliant.loop.fuse import ExternCall
from pliant.loop.ir import Access
from pliant.loop.scheduled import Scheduled, ScheduledCall, ScheduledGroup
from pliant.sym.expr import Expr
from pliant.targets.target import Hint, Target

MOST_BYTES: Final = 1 << 20
MOST_NS: Final = 200_000
"""A kernel that takes longer keeps all threads busy by itself, so it is launched alone."""

Batch = tuple[int, ...]
"""Positions in the schedule: of one call, or of groups that are launched together."""


def plan_batches(scheduled: Scheduled, kernels: Kernels, target: Target, hint: Hint) -> list[Batch]:
    """All items of the schedule as batches, in an order in which they can run."""
    # A GPU runs launches back to back by itself, so there is nothing to gain.
    if target.overlaps_launches:
        return [(at,) for at in range(len(scheduled.items))]
    memory = _memory_of(scheduled)
    batches: list[Batch] = []
    run = _Run(memory, hint)
    for at, item in enumerate(scheduled.items):
        kernel = kernels.groups.get(at)
        if isinstance(item, ScheduledGroup) and _is_small(kernel, hint):
            run.add(at, item, kernel)
            continue
        # Nothing moves across a call, or a kernel that runs alone.
        batches += [*run.batches(), (at,)]
        run = _Run(memory, hint)
    return [*batches, *run.batches()]


def _is_small(kernel: GroupKernel | None, hint: Hint) -> bool:
    """Whether a kernel may share a batch. One that may raise runs alone, since what comes after it
    may overwrite inputs that the fallback needs."""
    if kernel is None:
        return True
    extent, cost = kernel.launch
    assert isinstance(cost, float)
    count = hint(extent) if isinstance(extent, Expr) else 1
    return FLAG not in kernel.memory and count * cost <= MOST_NS


class _Run:
    """Groups that follow each other without a call between them. Each goes into the first batch
    after those that it has to wait for (list scheduling by data dependences)."""

    def __init__(self, memory: Mapping[Definition, Memory], hint: Hint) -> None:
        self.memory = memory
        self.hint = hint
        self.members: list[list[int]] = []
        self.bytes: list[int] = []
        self.read_in: dict[Any, int] = {}  # by memory: the last batch that reads it
        self.written_in: dict[Any, int] = {}  # by memory: the last batch that writes to it

    def batches(self) -> list[Batch]:
        return [tuple(members) for members in self.members]

    def add(self, at: int, item: ScheduledGroup, kernel: GroupKernel | None) -> None:
        read, written = self._touched(kernel)
        # Behind every batch that writes what this one touches, or reads what it writes.
        waits = [self.written_in.get(memory, -1) for memory in read | written]
        waits += [self.read_in.get(memory, -1) for memory in written]
        # What the kernel allocates, which would be in memory for the time of the whole batch.
        new = [m for m in item.stored if m.into is None and m not in item.reuse]
        # Kernels of one batch run at the same time, so the batch after those is the first possible
        # one.
        number = self._with_room(max(waits, default=-1) + 1, sum(map(self._size, new)))
        self.members[number].append(at)
        for last, touched in ((self.read_in, read), (self.written_in, written)):
            for memory in touched:
                last[memory] = max(number, last.get(memory, -1))

    def _with_room(self, first: int, size: int) -> int:
        """The number of a batch from `first` on that can allocate so much more."""
        # The earliest one that is possible, or else the last, where there is room if anywhere.
        for number in (first, len(self.members) - 1):
            if first <= number < len(self.members) and self.bytes[number] + size <= MOST_BYTES:
                self.bytes[number] += size
                return number
        self.members.append([])
        self.bytes.append(0)  # what its first kernel allocates would be there anyway
        return len(self.members) - 1

    def _touched(self, kernel: GroupKernel | None) -> tuple[set[Any], set[Any]]:
        """The memory that a kernel only reads, and that which it writes to."""
        read: set[Any] = set()
        written: set[Any] = set()
        for buffer, memory in (
            zip(kernel.kernel.buffers, kernel.memory) if kernel is not None else ()
        ):
            touched = read if buffer.access is Access.READ else written
            touched |= self.memory.get(memory, {memory})
        return read, written

    def _size(self, definition: Definition) -> int:
        return bytes_of(definition, self.hint)


Memory = frozenset[Any]
"""The definitions whose memory a definition may be in, itself among them: two that share one may
overlap."""


def _memory_of(scheduled: Scheduled) -> dict[Definition, Memory]:
    """The memory that each computed definition may be in. (Inputs that are written to share memory
    with no others, or else the program doesn't run.)"""
    memory: dict[Definition, Memory] = {}
    # Memory that functions in Python keep themselves. One object for all of them, since two such
    # functions may return the same memory.
    elsewhere = frozenset((object(),))

    def of(definition: Definition) -> Memory:
        return memory.get(definition) or frozenset((definition,))

    for item in scheduled.items:
        shared: Memory = frozenset()
        if isinstance(item, ScheduledCall) and not _is_fresh(item.call):
            is_operator = isinstance(item.call.what.node.func, torch._ops.OpOverload)
            shared = frozenset().union(*map(of, item.call.reads), () if is_operator else elsewhere)
        for result in item.call.makes if isinstance(item, ScheduledCall) else item.group.members:
            buffer = item.reuse.get(result) if isinstance(item, ScheduledGroup) else None
            others = [of(owner) for owner in (result.into, buffer) if owner is not None]
            memory[result] = of(result).union(shared, *others)
    return memory


def _is_fresh(call: ExternCall) -> bool:
    """Whether the results of a call are in memory that nothing else refers to. The schema of an
    operator with kernels of its own says so; a composite one may return an argument (`reshape`)."""
    func = call.what.node.func
    if call.fresh or call.view or not isinstance(func, torch._ops.OpOverload):
        return call.fresh
    return func.namespace == "aten" and describe(func).kind is OverloadKind.FUNCTIONAL
