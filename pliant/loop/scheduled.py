"""`Scheduled`: kernels and calls in order, and everything that is decided about their memory.

The one idea: lifetimes are known once the order is. So this is where it is said which members of a
group are stored at all, which of them in the buffer of an operand that is not read afterwards, and
what of the caller's memory has to be saved before it is overwritten. Kernels and the launch
sequence only carry it out.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

from pliant.base.values import dataclass
from pliant.loop.buffer_reuse import Lifetimes, reused_buffers
from pliant.loop.define import Definition
from pliant.loop.early_release import Size, release_early
from pliant.loop.fuse import (
    ExternCall,
    FusionGroup,
    NotFused,
    Refused,
    Step,
    owner,
    schedule,
    written_after_reading,
)


class WrittenTooEarly(Exception):
    """Raised for a schedule that overwrites these inputs while a later item may still fail, after
    which the captured graph is run and needs them as they were."""

    def __init__(self, inputs: set[int]) -> None:
        super().__init__(inputs)
        self.inputs = inputs


@dataclass(frozen=True, slots=True, eq=False)
class ScheduledGroup:
    """Definitions that become one kernel. Of its members, `stored` go to memory, since others read
    them; `reuse` maps some of these to the buffer of another definition that they go to. `saved`
    are parts of inputs that are copied first, and put back if the program fails later. `final`: it
    overwrites an input that was read, so that after it the captured graph can't be run instead."""

    group: FusionGroup
    stored: frozenset[Definition]
    reuse: Mapping[Definition, Definition]
    saved: tuple[Definition, ...]
    final: bool


@dataclass(frozen=True, slots=True, eq=False)
class ScheduledCall:
    """What PyTorch runs; `final` as in `ScheduledGroup`."""

    call: ExternCall
    final: bool


@dataclass(frozen=True, slots=True, eq=False)
class Scheduled:
    """Groups and calls in the order in which they run. `inputs` and `constants` are there from the
    start, `kept` is what the caller gets; `numbers` are the expressions that symbols stand for.
    `donated` are inputs whose memory the program gets. `refused` has the reasons why what is
    read isn't in the group of its reader, if they were collected."""

    items: tuple[ScheduledGroup | ScheduledCall, ...]
    inputs: tuple[Definition | None, ...]
    constants: tuple[Definition, ...]
    kept: frozenset[Definition]
    numbers: Mapping[Any, Any]
    donated: frozenset[Definition]
    refused: Mapping[tuple[Definition, Definition], NotFused] | None = None

    def __str__(self) -> str:
        return "\n".join(_lines(self))


def plan_schedule(
    steps: Sequence[Step],
    inputs: Sequence[Definition | None],
    constants: Sequence[Definition],
    kept: Collection[Definition],
    numbers: Mapping[Any, Any],
    donated: Collection[Definition] = (),
    size: Size = lambda definition: 0,
    refused: Refused | None = None,
) -> Scheduled:
    """Fuse the definitions, order groups and calls, and plan their memory. `size`: bytes. `refused`
    collects why definitions were not fused."""
    # The order is settled before any lifetime is computed from it.
    plan = release_early(schedule(steps, numbers, refused), kept, donated, size)
    writes = written_after_reading(plan, {memory for memory in inputs if memory is not None})
    # `CodeGenerator` lowers once more, with these written at the end only.
    early = {at for at, memory in enumerate(inputs) if memory in writes.too_early}
    if early:
        raise WrittenTooEarly(early)
    lifetimes = Lifetimes(plan, kept)
    fresh = set(donated)  # memory that nothing else refers to
    items: list[ScheduledGroup | ScheduledCall] = []
    for at, item in enumerate(plan):
        final = at in writes.final
        if isinstance(item, ExternCall):
            items.append(ScheduledCall(item, final))
            if item.fresh:  # PyTorch's own memory may be reused too, if nothing aliases it
                fresh.update(item.makes)
            if item.view:  # one memory under two names
                fresh.difference_update(map(owner, item.reads))
            continue
        stored = lifetimes.stored(at, item)
        # Inputs (unless they are donated), constants and views are never fresh: their memory
        # belongs to others.
        reuse = reused_buffers(item, stored, lifetimes.ending(at) & fresh)
        fresh.update([m for m in item.members if m in stored and m.into is None])
        saved = tuple(writes.saved.get(at, ()))
        items.append(ScheduledGroup(item, frozenset(stored), reuse, saved, final))
    return Scheduled(
        *(tuple(items), tuple(inputs), tuple(constants), frozenset(kept), numbers),
        *(frozenset(donated), refused),
    )


# --------------------------------------------------------------------------------------------------
# As text


def _lines(scheduled: Scheduled) -> list[str]:
    declared = [_declared(d) for d in (*scheduled.inputs, *scheduled.constants) if d is not None]
    lines = [f"scheduled({', '.join(declared)})"]
    for item in scheduled.items:
        final = "  # final" if item.final else ""
        if isinstance(item, ScheduledCall):
            lines.append(f"  {_call(item.call)}{final}")
            continue
        group = item.group
        columns = "" if group.columns is None else f" x {_sizes(group.columns)}"
        lines.append(f"  group {_sizes(group.rows)}{columns}{final}")
        lines += [f"    save {part}" for part in item.saved]
        lines += [f"    {_member(item, member)}" for member in group.members]
    lines.append(f"  keep {', '.join(sorted(map(str, scheduled.kept)))}")
    return lines


def _sizes(sizes: Sequence[Any]) -> str:
    return f"[{', '.join(map(str, sizes))}]"


def _declared(definition: Definition) -> str:
    return f"{definition}: {definition.type}{_sizes(definition.sizes)}"


def _call(call: ExternCall) -> str:
    makes, reads = ", ".join(map(str, call.makes)), ", ".join(map(str, call.reads))
    return f"{makes + ' = ' if makes else ''}call {call.what}({reads})"


def _member(item: ScheduledGroup, member: Definition) -> str:
    reads = dict.fromkeys([of for of, _ in item.group.reads[member].places])
    memory = "registers"
    if member in item.stored:
        buffer = item.reuse.get(member) or member.into
        memory = "memory" if buffer is None else f"the memory of {buffer}"
    how = type(member.body).__name__.lower()
    return f"{_declared(member)} = {how} from {', '.join(map(str, reads)) or 'nothing'} in {memory}"
