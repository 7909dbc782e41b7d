"""What was fused and why not more, as data: for logs and the report.

The one idea: the scheduler said why when it decided (`Scheduled.refused`). Here each reason is put
with its kernels.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from pliant.loop.define import Definition
from pliant.loop.fuse import FusionGroup
from pliant.loop.scheduled import Scheduled, ScheduledCall, ScheduledGroup

BY_PYTORCH = "PyTorch runs it"
Names = Callable[[Iterable[Definition]], list[str]]


def fusion(
    scheduled: Scheduled,
    kernels: Mapping[int, str],
    operators: Names,
    made_by: Names,
    lines: Names,
) -> list[dict[str, Any]]:
    """Each kernel with the operators that it holds, and what it reads from other kernels and calls
    of PyTorch: `what` made it in a kernel, which operators it is read `by`, and why they are not in
    one kernel. `kernels` are names by place in the schedule; `operators` names those that became
    definitions, `made_by` the last of them alone; `lines` are those of the program that they are
    from."""
    groups = {at: item.group for at, item in _groups(scheduled) if at in kernels}
    maker = {member: kernels[at] for at, group in groups.items() for member in group.members}
    for item in scheduled.items:
        if isinstance(item, ScheduledCall):
            maker.update(dict.fromkeys(item.call.makes, str(item.call.what)))
    # One row for each kernel: what it reads from others, with the reason for each edge.
    rows = []
    for at, group in groups.items():
        reads = [
            {"from": before, "what": made_by(sources), "by": made_by(readers), "why": why}
            for (before, why), (sources, readers) in _edges(scheduled, group, maker).items()
        ]
        row = {"kernel": kernels[at], "operators": operators(group.members), "reads": reads}
        rows.append({**row, "lines": lines(group.members)})
    return rows


def _groups(scheduled: Scheduled) -> Iterable[tuple[int, ScheduledGroup]]:
    return [
        (at, item) for at, item in enumerate(scheduled.items) if isinstance(item, ScheduledGroup)
    ]


def _edges(
    scheduled: Scheduled, group: FusionGroup, maker: Mapping[Definition, str]
) -> dict[tuple[str, str], tuple[set[Definition], set[Definition]]]:
    """The edges to a group from other kernels and calls, by the name of those and the reason why
    they aren't fused: the definitions that are read or overwritten, and the members that do it."""
    edges: dict[tuple[str, str], tuple[set[Definition], set[Definition]]] = {}
    refused = scheduled.refused
    if refused is None:  # reasons were not collected when the program was scheduled
        return {}
    for member, reads in group.reads.items():
        sources = [of for of, _ in reads.places]
        for of in [*sources, *([member.into] if member.into is not None else [])]:
            if of in maker and of not in group.reads:
                # What PyTorch makes has no body, and was never to be fused.
                reason = refused.get((of, member)) if of.body is not None else None
                why = reason.value if reason is not None else BY_PYTORCH * (of.body is None)
                read, readers = edges.setdefault((maker[of], why), (set(), set()))
                read.add(of)
                readers.add(member)
    return edges
