"""Which loops run in vector lanes, and in how many.

The one idea: of the loops around a statement at most one is spread over lanes, the one in which
most loads and stores are next to each other. That may be an outer one: the sum over the rows of a
matrix has one column per lane.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Final

from pliant.base.values import dataclass
from pliant.loop.collapse import stride
from pliant.loop.ir import (
    MEMORY,
    REDUCTIONS,
    WEIGHT,
    Kernel,
    Loop,
    LoopKind,
    LoopValue,
    Op,
    loops,
    values,
)
from pliant.loop.types import Type
from pliant.sym.expr import ONE, ZERO, Expr
from pliant.targets.cpu.llvm_pairs import in_pairs
from pliant.targets.cpu.llvm_reduce import in_eager_order, lanes_in_eager


@dataclass(frozen=True, slots=True)
class Machine:
    """What matters of a machine: the bytes of a vector register, and whether it has masks, to load
    and store vectors of every type in part."""

    vector_bytes: int
    masks: bool


SCALAR: Final = Machine(1, False)


def machine_of(features: Mapping[str, bool]) -> Machine:
    """From the features that LLVM reports for a processor."""
    # Without BW there are no masks for 8 and 16 bits, without VL none for shorter vectors.
    if features.get("avx512bw") and features.get("avx512vl"):
        return Machine(64, True)
    return Machine(32 if features.get("avx2") else 16, False)


def plan(kernel: Kernel, target: Machine) -> dict[Loop, int]:
    """The lanes of each loop that gets several."""
    grid = kernel.grid
    body = (grid[-1],) if grid else kernel.body
    chosen = [inner for item in body if isinstance(item, Loop) for inner in _choose(item)]
    lanes_of = {loop: _lanes(loop, target) for loop in chosen}
    return {loop: lanes for loop, lanes in lanes_of.items() if lanes > 1}


def _choose(loop: Loop) -> list[Loop]:
    """The loops to run in lanes, of a loop and those in it: the loop itself, or what is chosen of
    the loops in it, whichever has fewer scattered accesses (and more close ones, if equal)."""
    # Innermost loops first: each is a candidate, and the loop around them competes with all of
    # them.
    inner = [nested for item in loop.body if isinstance(item, Loop) for nested in _choose(item)]
    if not _can_have_lanes(loop):
        return inner
    if not inner:
        return [loop]
    outside, inside = _cost(loop), [_cost(nested) for nested in inner]
    # Short inner loops run one by one; the outer one has enough iterations for lanes.
    if not outside[0] and all((nested.extent.value or math.inf) <= FEW for nested in inner):
        return [loop]
    scattered, close = sum([s for s, _ in inside]), sum([c for _, c in inside])
    return [loop] if (outside[0], -outside[1]) < (scattered, -close) else inner


def _can_have_lanes(loop: Loop) -> bool:
    """Whether a loop may run in lanes at all, and would gain from it. Loops inside of it have to
    run as often in every lane."""
    if loop.kind is LoopKind.SERIAL or loop.extent is ONE:
        return False
    computed = {v.index for v in values(loop.body) if v.op is Op.AS_INDEX}
    # An extent that differs from lane to lane would need a mask for every iteration.
    varying = computed | {loop.var}
    if not all(varying.isdisjoint(inner.extent.symbols) for inner in loops(loop.body)):
        return False
    if any(_shares(value, loop.var) for value in values(loop.body)):
        return False
    return _worth_it(loop) and not _one_after_the_other(loop)


def _one_after_the_other(loop: Loop) -> bool:
    """Whether it is a product of elements that aren't close in memory: eager PyTorch multiplies
    these one after the other."""
    if loop.kind is not LoopKind.REDUCTION or not any(map(in_eager_order, values(loop.body))):
        return False
    read = [v for v in values(loop.body) if v.op is Op.LOAD and v.index is not None]
    return any(stride(v.index, loop.var) not in (ONE, ZERO) for v in read if v.index is not None)


def _shares(value: LoopValue, var: Expr) -> bool:
    """Whether a value accesses memory of the kernel's own at a place that doesn't depend on `var`:
    lanes would overwrite each other's elements."""
    if value.buffer is None or value.buffer.size is None or value.index is None:
        return False
    return var not in value.index.symbols


def _worth_it(loop: Loop) -> bool:
    """Whether lanes gain anything. Around a serial loop with scattered accesses, which are made one
    by one in any case, they do so only if there is enough to compute."""
    if not any(inner.kind is LoopKind.SERIAL for inner in loops(loop.body)) or not _cost(loop)[0]:
        return True
    return sum([_weight(value) for value in values(loop.body)]) > WORTH_LANES


def _cost(loop: Loop) -> tuple[int, int]:
    """How many accesses in the loop would be scattered in its lanes, and how many close."""
    # Accesses with stride 0 are uniform, and cost nothing in lanes.
    strides = [
        stride(value.index, loop.var)
        for value in values(loop.body)
        if value.op in MEMORY and value.index is not None
    ]
    close = len([s for s in strides if s is ONE])
    return len([s for s in strides if s not in (ONE, ZERO) and not near(s)]), close


FEW: Final = 4  # iterations, too few for lanes

# Steps other than 1 with which a vector is loaded whole and its lanes picked out.
STEPS: Final = frozenset({-1, 2, 3, 4})


def near(step: Expr | None) -> bool:
    return step is not None and step.value in STEPS


CHEAP: Final = 8  # operations, of a body that waits for memory or for chains of additions
WORTH_LANES: Final = 40  # operations, see `_worth_it`


def _lanes(loop: Loop, target: Machine) -> int:
    """How many lanes a loop gets: as many elements as fill a register, and several registers in two
    cases. In a reduction over lanes with a short body each addition waits for the one before it, so
    four chains are computed at once. With a reduction inside of the loop (lanes are columns), a
    piece of each row is read at a time, which should be long, as long as there are registers."""
    body = list(values(loop.body))
    ordered = [v for v in body if in_eager_order(v)]
    if ordered and loop.kind is LoopKind.REDUCTION:
        return min([lanes_in_eager(v.type) for v in ordered])
    # What is the same in all lanes takes no vector registers.
    differ = _differing(loop, body)
    widths = {v.type.bits // 8 for v in differ or body if v.op is not Op.IOTA}
    # Most data are floats of 32 bits. A single double among them takes two registers instead.
    width = 4 if 4 in widths else max(widths, default=1)
    lanes = target.vector_bytes // width
    if not any(v.op in REDUCTIONS or v.op is Op.CARRIED for v in body):
        return 2 * lanes if in_pairs(loop) else lanes
    cheap = sum([_weight(v) for v in body]) <= CHEAP
    if loop.kind is LoopKind.REDUCTION:
        return lanes * 4 if cheap else lanes
    registers = 8 if cheap else 4 if target.masks else 2
    extent = loop.extent.value
    while extent is not None and registers > 1 and lanes * registers > extent:
        registers //= 2
    return lanes * registers


def _differing(loop: Loop, body: list[LoopValue]) -> set[LoopValue]:
    """The values that are not the same in all lanes: only these need vectors."""
    variables, differing = {loop.var}, set()
    for value in body:
        index = value.index
        if value.op is Op.AS_INDEX:
            if value.args[0] in differing and index is not None:
                variables.add(index)
        elif (index is not None and not variables.isdisjoint(index.symbols)) or any(
            arg in differing for arg in value.args
        ):
            differing.add(value)
    return differing


def _weight(value: LoopValue) -> int:
    wide = 2 if value.type in (Type.I64, Type.F64) else 1
    return WEIGHT.get(value.op, 0 if value.op is Op.CONSTANT else wide)
