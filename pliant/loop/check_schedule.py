"""What makes a schedule well formed: nothing is read before it is there, or after it is gone.

Run between stages in tests; off in production.
"""

from __future__ import annotations

from collections.abc import Iterator

from pliant.base.malformed import MalformedStageError
from pliant.loop.define import Definition
from pliant.loop.fuse import owner
from pliant.loop.scheduled import Scheduled, ScheduledCall, ScheduledGroup


def check_scheduled(scheduled: Scheduled) -> Scheduled:
    """The schedule itself, or an error that lists what is wrong with it."""
    problems = list(_Checker(scheduled).problems())
    if problems:
        raise MalformedStageError("\n".join([*problems, "in", str(scheduled)]))
    return scheduled


class _Checker:
    def __init__(self, scheduled: Scheduled) -> None:
        self.scheduled = scheduled
        there_from_the_start = (*scheduled.inputs, *scheduled.constants)
        self.stored = {definition for definition in there_from_the_start if definition is not None}
        self.gone: dict[Definition, Definition] = {}  # with what took its memory

    def problems(self) -> Iterator[str]:
        for item in self.scheduled.items:
            if isinstance(item, ScheduledCall):
                yield from self._call(item)
            else:
                yield from self._group(item)
        for definition in self.scheduled.kept:
            yield from self._read(definition, "the caller")

    def _read(self, definition: Definition, reader: str) -> Iterator[str]:
        memory = owner(definition)
        if definition not in self.stored:
            yield f"{reader} reads {definition} before it is stored"
        elif memory in self.gone:
            yield f"{reader} reads {definition}, whose memory {self.gone[memory]} has taken"

    def _make(self, definition: Definition) -> Iterator[str]:
        if definition in self.stored:
            yield f"{definition} is stored twice"
        if definition.into is not None:
            yield from self._read(definition.into, f"the write of {definition}")
        self.stored.add(definition)

    def _call(self, item: ScheduledCall) -> Iterator[str]:
        # An `out` argument is among what the operator is called with and not among `reads`.
        for definition in item.call.reads:
            yield from self._read(definition, str(item.call.what))
        for definition in item.call.makes:
            yield from self._make(definition)

    def _group(self, item: ScheduledGroup) -> Iterator[str]:
        group = item.group
        seen: set[Definition] = set()
        for member in group.members:
            if member in seen:
                yield f"{member} is in its group twice"
            for of, _ in group.reads[member].places:
                if of not in seen:
                    yield from self._read(of, str(member))
            seen.add(member)
            if member.device != group.members[0].device:
                yield f"{member} is on {member.device}, unlike its group"
        for member in item.stored - seen:
            yield f"{member} is stored by a group that does not compute it"
        for member in [member for member in group.members if member in item.stored]:
            yield from self._make(member)
        yield from self._reuse(item)

    def _reuse(self, item: ScheduledGroup) -> Iterator[str]:
        for member, buffer in item.reuse.items():
            if member not in item.stored:
                yield f"{member} is not stored, and has the memory of {buffer}"
            if buffer.type is not member.type:
                yield f"{member} has the memory of {buffer}, of another type"
            lent = set(self.scheduled.inputs) - self.scheduled.donated
            if buffer in self.scheduled.kept or buffer in lent:
                yield f"{member} takes the memory of {buffer}, which belongs to the caller"
            yield from self._read(buffer, f"the reuse by {member}")
            self.gone[buffer] = member
