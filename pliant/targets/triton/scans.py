"""Serial loops that run in parts: what a pass over columns carries, as scans of blocks.

The one idea: the state after a single element, begun anew, is computed for all elements at once.
An associative scan of these states with the function that combines two (`Combine`) gives the state
after each element. For `cumsum`, the start is 0 everywhere, and an element adds itself:

    start0 = tl.full([], 0.0, tl.float32)
    add1 = start0 + load0
    scan2 = tl.associative_scan(add1, 1, combine0)

Rows that are longer than a block carry the state of the last element on to the next one.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from pliant.base.values import dataclass
from pliant.loop.ir import Combine, LoopValue, Op


@dataclass(frozen=True, slots=True, eq=False)
class BlockScan:
    """One state that a loop carries, which may be several values: `carried` are those before an
    element, `after` those behind it, and `combine` makes the state of two parts."""

    carried: tuple[LoopValue, ...]
    after: tuple[LoopValue, ...]
    combine: Combine


def scans_of(
    body: Sequence[LoopValue], combines: Sequence[Combine | None]
) -> tuple[BlockScan, ...] | None:
    """The scans of a serial loop; None if it has to run in order, because some state has no
    `Combine`, or something else is computed from the state before an element."""
    carried = [value for value in body if value.op is Op.CARRIED]
    after = {value.args[0]: value.args[1] for value in body if value.op is Op.CARRY}
    if not carried or len(after) < len(carried):
        return None
    scans: list[BlockScan] = []
    for combine in combines:
        if combine is None:
            return None
        state, carried = carried[: len(combine.left)], carried[len(combine.left) :]
        scans.append(BlockScan(tuple(state), tuple([after[one] for one in state]), combine))
    return None if carried or _looks_back(body, scans) else tuple(scans)


_LEAVES: Final = frozenset({Op.STORE, Op.AS_INDEX})  # uses of an index are not seen here


def _looks_back(body: Sequence[LoopValue], scans: Sequence[BlockScan]) -> bool:
    """Whether anything but the next state is computed from the state before an element. That state
    is never there in a block: every element begins with the start."""
    scan_of = {value: at for at, scan in enumerate(scans) for value in scan.carried}
    pending = {at: len(scan.carried) for at, scan in enumerate(scans)}
    made_of: dict[LoopValue, set[int]] = {}  # scans whose state before the element it is made of
    for value in body:
        sources = set[int]().union(*[made_of.get(arg, ()) for arg in value.args])
        if value.op is Op.CARRY:
            at = scan_of[value.args[0]]
            pending[at] -= 1
            if not pending[at]:
                for after in scans[at].after:
                    made_of.get(after, set()).discard(at)
        elif value.op is Op.CARRIED:
            made_of[value] = {scan_of[value]}
        elif any(not pending[at] for at in sources) or (sources and value.op in _LEAVES):
            return True
        else:
            made_of[value] = sources
    return False
