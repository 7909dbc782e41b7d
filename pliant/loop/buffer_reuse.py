"""Buffer reuse: a kernel may store a result in the buffer of an operand.

The one idea: a buffer that is read for the last time can be overwritten element by element, if each
iteration reads no other element of it than the one it stores. Then it does not matter in which
order iterations run, in lanes, in blocks or in threads.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from pliant.loop.define import Computed, Definition, Reduced
from pliant.loop.fuse import ExternCall, FusionGroup, overwrites_last, users
from pliant.sym.expr import ONE, Expr, product_of


class Lifetimes:
    """Which definitions are needed in memory, and until which position in the plan. `kept` are
    those that the caller gets."""

    def __init__(
        self, plan: Sequence[FusionGroup | ExternCall], kept: Collection[Definition]
    ) -> None:
        self.kept = kept
        self._readers = users(plan)
        members = [m for item in plan if isinstance(item, FusionGroup) for m in item.members]
        # Memory with several names (it, and what is written into it) is left alone.
        results = [
            results for item in plan if isinstance(item, ExternCall) for results in item.makes
        ]
        self._overwritten = {member.into for member in (*members, *results)}
        # Memory that the caller gets, or that is written more than once, never ends here.
        lasting = self._overwritten | set(kept)
        self._ending: dict[int, set[Definition]] = {}
        for definition, readers in self._readers.items():
            if definition.into is None and definition not in lasting:
                self._ending.setdefault(max(readers), set()).add(definition)

    def stored(self, at: int, group: FusionGroup) -> set[Definition]:
        """The members of a group, at position `at`, that have to be stored: those that the caller
        or other items read, and writes into memory."""
        return {
            member
            for member in group.members
            if member in self.kept
            or member.into is not None
            or member in self._overwritten
            or self._readers.get(member, set()) - {at}
        }

    def ending(self, at: int) -> set[Definition]:
        """The definitions that are read for the last time by the item at position `at`."""
        return self._ending.get(at, set())


def reused_buffers(
    group: FusionGroup, stored: Collection[Definition], free: Collection[Definition]
) -> dict[Definition, Definition]:
    """By member, the buffer that it can be stored in. `free` are the buffers that nothing needs
    after the group. Only definitions that the group reads are considered: their elements are being
    loaded anyway."""
    if not free or not all(isinstance(m.body, (Computed, Reduced)) for m in group.members):
        # Each iteration has to store the element whose operands it reads. A scatter doesn't, and
        # scans are left out.
        return {}
    read = dict.fromkeys([of for m in group.members for of, _ in group.reads[m].places])
    # Without gaps on either side, equal counts of elements mean equal sizes in bytes.
    left = [d for d in read if d in free and d not in group.reads and is_dense(d)]
    buffers: dict[Definition, Definition] = {}
    for member in group.members:
        if member not in stored or member.into is not None or not isinstance(member.body, Computed):
            continue
        buffer = next((d for d in left if _fits(group, member, d)), None)
        if buffer is not None:
            left.remove(buffer)  # one result for each buffer
            buffers[member] = buffer
    return buffers


def _fits(group: FusionGroup, member: Definition, buffer: Definition) -> bool:
    if (
        member.type is not buffer.type
        or not is_dense(member)
        or _count(member) is not _count(buffer)
    ):
        return False
    return overwrites_last(group, member, buffer)


def _count(definition: Definition) -> Expr:
    return product_of(definition.sizes)


def is_dense(definition: Definition) -> bool:
    """Whether the elements fill their memory exactly: no gaps, no overlap, in any order of
    dimensions."""
    # The stride of a dimension of size 1 doesn't matter.
    left = [(n, s) for n, s in zip(definition.sizes, definition.strides) if n is not ONE]
    step = ONE
    while left:
        # Dimensions in the order of their strides, innermost first, whatever order they are
        # declared in.
        innermost = next((pair for pair in left if pair[1] is step), None)
        if innermost is None:
            return False
        left.remove(innermost)
        step = step * innermost[0]
    return True
