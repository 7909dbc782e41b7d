"""How many bytes are in use at each step of a schedule: the memory of a program, over time."""

from __future__ import annotations

from collections.abc import Callable

from pliant.loop.buffer_reuse import Lifetimes
from pliant.loop.define import Definition, bytes_of
from pliant.loop.fuse import ExternCall, FusionGroup
from pliant.loop.scheduled import Scheduled, ScheduledCall, ScheduledGroup
from pliant.sym.expr import Expr

Item = ScheduledGroup | ScheduledCall


def bytes_in_use(scheduled: Scheduled, hint: Callable[[Expr], int]) -> list[tuple[str, int]]:
    """The name of each step and the bytes that the program has allocated while it runs, at the
    sizes that were seen; before the first step, what was handed over to the program. Other inputs
    belong to the caller and are not counted."""

    def size(definition: Definition) -> int:
        return bytes_of(definition, hint)

    plan: list[FusionGroup | ExternCall] = [
        item.call if isinstance(item, ScheduledCall) else item.group for item in scheduled.items
    ]
    lifetimes = Lifetimes(plan, scheduled.kept)
    live = {definition: size(definition) for definition in scheduled.donated}
    curve = [("start", sum(live.values()))]
    for at, item in enumerate(scheduled.items):
        live.update({result: size(result) for result in _allocated(item)})
        reused = item.reuse if isinstance(item, ScheduledGroup) else {}
        curve.append((_name(item), sum(live.values())))
        for definition in lifetimes.ending(at):
            live.pop(definition, None)
        for result, buffer in reused.items():  # one memory, from now on under another name
            live.pop(buffer, None)
            live[result] = size(result)
    return curve


def _allocated(item: Item) -> list[Definition]:
    if isinstance(item, ScheduledCall):
        return [] if item.call.view else [m for m in item.call.makes if m.into is None]
    members = [m for m in item.group.members if m in item.stored]
    return [m for m in members if m.into is None and m not in item.reuse]


def _name(item: Item) -> str:
    if isinstance(item, ScheduledCall):
        return str(item.call.what)
    names = dict.fromkeys(type(member.body).__name__.lower() for member in item.group.members)
    return f"kernel ({', '.join(names)})"
