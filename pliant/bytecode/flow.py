"""Data flow in a code object: reachability, liveness of variables, and stack depths.

The one idea: every question is a small fixed point over instruction indices. Exceptions are edges
like any other: wherever a handler covers an instruction, control may go from before that
instruction to the handler, with the stack cut to the handler's depth.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from pliant.bytecode.tables import OPCODES, Role, opcodes_with

if TYPE_CHECKING:
    from pliant.bytecode.decode import Decoded

_READS = opcodes_with(Role.READS_LOCAL)
_WRITES = opcodes_with(Role.WRITES_LOCAL)
_LOADS_GLOBAL = opcodes_with(Role.LOADS_GLOBAL)

# Functions that look at the variables of the frame that calls them.
_FRAME_READERS = frozenset({"locals", "vars", "dir", "eval", "exec"})


def successors(decoded: Decoded) -> list[tuple[int, ...]]:
    """For each instruction, the instructions that can follow it without an exception."""
    result: list[tuple[int, ...]] = []
    for instruction in decoded.instructions:
        info = OPCODES[instruction.op]
        # Not after a return, a raise or an unconditional jump.
        following = (instruction.index + 1,) if info.falls_through else ()
        if instruction.target is not None:
            following = (*following, instruction.target)
        result.append(following)
    return result


def reachable(decoded: Decoded, starts: Sequence[int]) -> set[int]:
    """The instructions that can run once control is at one of ``starts``."""
    following = successors(decoded)
    reached: set[int] = set()
    pending = list(starts)
    while pending:
        index = pending.pop()
        if index in reached:
            continue
        reached.add(index)
        pending.extend(following[index])
        handler = decoded.handler(index)
        if handler is not None:
            pending.append(handler.target)
    return reached


def live_masks(decoded: Decoded, bit: dict[str, int]) -> list[int]:
    """For each instruction, the variables whose present value may be needed, as a bit set: the
    classic backward liveness analysis.

    `bit` gives each variable its bit. A handler may run before or after the effect of an
    instruction it covers, so whatever it needs is needed before that instruction too.
    """
    count = len(decoded.instructions)
    uses, preserved = _uses_and_preserved(decoded, bit)
    following = successors(decoded)
    handler_target = [
        None if (entry := decoded.handler(index)) is None else entry.target
        for index in range(count)
    ]
    live = [0] * count
    changed = True
    while changed:
        changed = False
        # Backwards, as liveness flows: without loops one round is enough.
        for index in range(count - 1, -1, -1):
            after = 0
            for successor in following[index]:
                after |= live[successor]
            before = uses[index] | (after & preserved[index])
            target = handler_target[index]
            if target is not None:
                before |= live[target]
            if before != live[index]:
                live[index] = before
                changed = True
    return live


def _uses_and_preserved(decoded: Decoded, bit: dict[str, int]) -> tuple[list[int], list[int]]:
    """For each instruction two bit sets: the variables it reads, and those it does not overwrite
    (the *gen* set and the complement of the *kill* set)."""
    all_variables = 0
    for mask in bit.values():
        all_variables |= mask
    uses = [0] * len(decoded.instructions)
    preserved = [all_variables] * len(decoded.instructions)
    for index, instruction in enumerate(decoded.instructions):
        op = instruction.op
        if op in _READS:
            uses[index] = bit[instruction.value]
        if op in _WRITES:
            preserved[index] = all_variables & ~bit[instruction.value]
        # By name, so that an alias of `locals` is not noticed.
        elif op in _LOADS_GLOBAL and instruction.value[0] in _FRAME_READERS:
            uses[index] = all_variables
    # `super()` reads the first parameter and this cell from the frame, without an instruction for
    # it.
    for index in decoded.super_calls:
        uses[index] = bit["__class__"] | bit[decoded.variables[0]]
    return uses, preserved


def stack_depths(decoded: Decoded) -> list[int | None]:
    """The number of stack entries before each instruction; None for instructions that can't be
    reached from the start."""
    depths: list[int | None] = [None] * len(decoded.instructions)
    pending: list[tuple[int, int]] = [(0, 0)]
    while pending:
        index, depth = pending.pop()
        # The compiler sees to it that all ways to a place have the same depth there.
        if depths[index] is not None:
            continue
        depths[index] = depth
        instruction = decoded.instructions[index]
        info = OPCODES[instruction.op]
        if info.falls_through:
            pending.append((index + 1, depth + info.effect(instruction.arg)))
        if instruction.target is not None:
            pending.append((instruction.target, depth + info.effect(instruction.arg, jump=True)))
        entry = decoded.handler(index)
        if entry is not None:
            # A handler's depth is in the exception table, whatever the depth where the exception
            # occurs.
            pending.append((entry.target, entry.entry_depth))
    return depths
