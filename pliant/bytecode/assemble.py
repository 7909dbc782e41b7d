"""From a list of instructions back to a code object.

The one idea: the pieces of a code object stay symbolic until the very end. An item names the
instruction it jumps to and the handler that covers it; only here do these become distances and a
table. Line table, exception table and the code object itself are written by the ``bytecode``
library, at its lowest level. Its higher levels name variables instead of slots, and on Python 3.12
one slot can be a local variable at one time and a cell at another; and they merge and split the
ranges of handlers, and compute their depth, anew.
"""

from __future__ import annotations

import types
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from pliant.base.late import Late
from pliant.base.values import dataclass
from pliant.bytecode.decode import ExceptionEntry, Positions
from pliant.bytecode.tables import OPCODES, Operand

if TYPE_CHECKING:
    import bytecode
else:
    bytecode = Late("bytecode")  # for programs that break

NOWHERE: Positions = (None, None, None, None)


@dataclass(frozen=True, slots=True)
class AssemblyItem:
    """One instruction to assemble.

    ``source`` is the index of the instruction of the original code that this one stands for:
    continuing here is continuing there. ``target`` (of a jump) and the target of ``handler`` are
    such indices too.
    """

    op: str
    arg: int = 0
    source: int | None = None
    target: int | None = None
    handler: ExceptionEntry | None = None
    positions: Positions = NOWHERE


@dataclass(frozen=True, slots=True)
class Header:
    """Everything of a code object that is not made from its instructions."""

    name: str
    qualname: str
    filename: str
    first_line: int
    flags: int
    argument_count: int
    varnames: tuple[str, ...]
    cellvars: tuple[str, ...]
    freevars: tuple[str, ...]
    names: tuple[str, ...]
    consts: tuple[object, ...]
    stack_size: int


def assemble(
    header: Header, items: Sequence[AssemblyItem], place: Mapping[int, int]
) -> types.CodeType:
    """The code object of these items. ``place`` maps an instruction of the original to the item
    that stands for it."""
    linked = _link(items, place)
    concrete = bytecode.ConcreteBytecode(
        _concrete_instructions(items, linked),
        consts=header.consts,
        names=header.names,
        varnames=header.varnames,
        exception_table=_exception_table(items, linked, place),
    )
    concrete.name = header.name
    concrete.qualname = header.qualname
    concrete.filename = header.filename
    concrete.first_lineno = header.first_line
    concrete.flags = bytecode.CompilerFlags(header.flags)
    concrete.argcount = header.argument_count
    concrete.cellvars = list(header.cellvars)
    concrete.freevars = list(header.freevars)
    return concrete.to_code(stacksize=header.stack_size, compute_exception_stack_depths=False)


@dataclass(frozen=True, slots=True)
class _Linked:
    """Final arguments, and where each item starts, in two-byte units. One more start ends it."""

    args: list[int]
    prefixes: list[int]
    starts: list[int]


def _prefix_count(arg: int) -> int:
    """How many EXTENDED_ARG an argument needs."""
    return max(0, (arg.bit_length() - 1) // 8)


def _link(items: Sequence[AssemblyItem], place: Mapping[int, int]) -> _Linked:
    """Resolve jump targets to distances, by iterating to a fixed point: a longer distance may need
    an EXTENDED_ARG, which lengthens others."""
    args = [item.arg for item in items]
    prefixes = [_prefix_count(arg) for arg in args]
    # Inline caches follow an instruction, and jumps count them.
    lengths = [1 + OPCODES[item.op].caches for item in items]
    jumps = [
        (number, place[item.target], -1 if OPCODES[item.op].backward else 1)
        for number, item in enumerate(items)
        if item.target is not None
    ]
    # Prefixes are only added, so this ends; one too many does no harm.
    while True:
        starts = [0]
        for prefix, length in zip(prefixes, lengths, strict=True):
            starts.append(starts[-1] + prefix + length)
        grown = False
        for number, target, direction in jumps:
            # Jumps are relative to the instruction behind them.
            args[number] = direction * (starts[target] - starts[number + 1])
            needed = _prefix_count(args[number])
            if needed > prefixes[number]:
                prefixes[number] = needed
                grown = True
        if not grown:
            return _Linked(args, prefixes, starts)


def _concrete_instructions(
    items: Sequence[AssemblyItem], linked: _Linked
) -> list[bytecode.ConcreteInstr]:
    result: list[bytecode.ConcreteInstr] = []
    locations: dict[Positions, bytecode.instr.InstrLocation] = {}
    for item, arg, prefixes in zip(items, linked.args, linked.prefixes, strict=True):
        location = locations.get(item.positions)
        if location is None:
            location = locations[item.positions] = _location(item.positions)
        info = OPCODES[item.op]
        if info.operand is Operand.NONE:
            result.append(bytecode.ConcreteInstr(item.op, location=location))
        else:
            instruction = bytecode.ConcreteInstr(
                item.op, arg, location=location, extended_args=prefixes
            )
            result.append(instruction)
        if info.caches:
            result.extend([bytecode.ConcreteInstr("CACHE", 0, location=location)] * info.caches)
    return result


def _location(positions: Positions) -> bytecode.instr.InstrLocation:
    try:
        return bytecode.instr.InstrLocation(*positions)
    except ValueError:
        # Code generated from a modified syntax tree can claim to end before it starts.
        return bytecode.instr.InstrLocation(positions[0], None, None, None)


def _exception_table(
    items: Sequence[AssemblyItem], linked: _Linked, place: Mapping[int, int]
) -> list[bytecode.concrete.ExceptionTableEntry]:
    """The exception table: one entry per run of neighbouring items that share a handler."""
    table: list[bytecode.concrete.ExceptionTableEntry] = []
    current: ExceptionEntry | None = None
    for number, item in enumerate(items):
        # The library counts in units, and its ranges include their last one.
        last_unit = linked.starts[number + 1] - 1
        entry = item.handler
        if entry is None:
            current = None
        elif entry is current:
            table[-1].stop_offset = last_unit
        else:
            first_unit, target = linked.starts[number], linked.starts[place[entry.target]]
            table.append(
                bytecode.concrete.ExceptionTableEntry(
                    first_unit, last_unit, target, entry.depth, entry.lasti
                )
            )
            current = entry
    return table
