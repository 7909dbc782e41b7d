"""A code object as data: instructions with resolved arguments, jump targets, handlers, liveness.

The one idea: everything is counted in instructions, not in bytes. Prefixes and cache entries are
folded away, so the instruction after ``i`` is ``i + 1``, a jump names the index it goes to, and an
exception handler covers a range of indices.

``Instruction.value`` is the argument, resolved (see ``opinfo.Operand``): the constant, the name of
the variable, ``(name, push_null)`` for ``LOAD_GLOBAL``, the operator as text, the index of a jump's
target. From Python 3.12 on the value of ``LOAD_ATTR`` is ``(name, as_method)``; on 3.11, where
``LOAD_METHOD`` is an opcode of its own, it is the name.

Instructions that stand for others (``OpInfo.parts``), such as two loads in one, are decoded as
those, at the same offset.

For ``if x: return 1`` on Python 3.11::

    0  RESUME                     value 0
    1  LOAD_FAST                  value 'x'
    2  POP_JUMP_FORWARD_IF_FALSE  value 5, target 5
    3  LOAD_CONST                 value 1
    4  RETURN_VALUE
"""

from __future__ import annotations

import dis
import types
import weakref
from collections.abc import Callable, Sequence
from dataclasses import field
from itertools import pairwise
from typing import Any, NamedTuple

from pliant.base.position import Position
from pliant.base.values import dataclass
from pliant.base.weak import ByIdentity
from pliant.bytecode import flow
from pliant.bytecode.opinfo import Part
from pliant.bytecode.tables import (
    BINARY_OPERATORS,
    COMMON_CONSTANTS,
    COMPARE_OPERATORS,
    COMPARE_SHIFT,
    INTRINSICS_1,
    INTRINSICS_2,
    OPCODES,
    SPECIAL_METHODS,
    Operand,
    Role,
    opcodes_with,
)

Positions = tuple[int | None, int | None, int | None, int | None]
"""First line, last line, first column, column after the last."""


class Instruction(NamedTuple):
    """One instruction. (A named tuple because it is made five times as fast as a dataclass.)"""

    index: int  # type: ignore[assignment]  # hides tuple.index, which is not needed here
    offset: int
    op: str
    arg: int | None
    value: Any
    target: int | None
    line: int | None
    positions: Positions


@dataclass(frozen=True, slots=True)
class ExceptionEntry:
    """Instructions ``start`` to ``end`` (exclusive) are covered by the handler at ``target``.

    On an exception the stack is cut to ``depth`` entries, then the position of the failed
    instruction is pushed if ``lasti`` says so, then the exception.
    """

    start: int
    end: int
    target: int
    depth: int
    lasti: bool

    @property
    def entry_depth(self) -> int:
        """The number of stack entries when the handler starts."""
        return self.depth + 1 + self.lasti


@dataclass(slots=True, eq=False)
class Decoded:
    """A code object and what is known about it. Do not modify."""

    _code: Callable[[], types.CodeType | None]  # weak: this lives as long as the code does
    instructions: tuple[Instruction, ...]
    exceptions: tuple[ExceptionEntry, ...]
    variables: tuple[str, ...]
    """The name of each slot of the frame: locals, then cells, then free variables (unique)."""
    _handlers: list[ExceptionEntry | None]
    _live: list[frozenset[str] | int] = field(default_factory=list)
    _depths: list[int | None] = field(default_factory=list)
    _super_calls: frozenset[int] | None = None
    _positions: dict[int, Position] = field(default_factory=dict)

    @property
    def code(self) -> types.CodeType:
        code = self._code()
        assert code is not None, "the code object is gone"
        return code

    def position(self, index: int) -> Position:
        """The user's line of this instruction."""
        position = self._positions.get(index)
        if position is None:
            line, end_line, column, end_column = self.instructions[index].positions
            code = self.code
            name = code.co_qualname
            if line is None:  # made up by the compiler: belongs to the whole function
                position = Position(code.co_filename, code.co_firstlineno, name)
            else:
                position = Position(code.co_filename, line, name, column, end_column, end_line)
            self._positions[index] = position
        return position

    def handler(self, index: int) -> ExceptionEntry | None:
        """The handler that an exception in this instruction goes to."""
        return self._handlers[index]

    def live_before(self, index: int) -> frozenset[str]:
        """Variables whose content before this instruction may still be needed.

        They may be unbound there. A cell counts as needed where the frame itself still reads or
        writes the variable. That an inner function holds the cell is not counted.
        """
        bit = {name: 1 << number for number, name in enumerate(self.variables)}
        if not self._live:
            self._live.extend(flow.live_masks(self, bit))
        live = self._live[index]
        # Masks become sets of names only where they are needed, at a few graph breaks.
        if isinstance(live, int):
            mask = live
            live = frozenset(name for name, flag in bit.items() if mask & flag)
            self._live[index] = live
        return live

    def depth_before(self, index: int) -> int | None:
        """The number of stack entries before this instruction; None if control never comes."""
        if not self._depths:
            self._depths.extend(flow.stack_depths(self))
        return self._depths[index]

    @property
    def super_calls(self) -> frozenset[int]:
        """The indices of calls of ``super()`` without arguments, which finds them in the frame by
        itself: of the ``PRECALL``, where there is one, and of the ``CALL``."""
        if self._super_calls is None:
            self._super_calls = _super_calls(self.code, self.instructions)
        return self._super_calls


def decode(code: types.CodeType) -> Decoded:
    """The code object as data, computed once per code object."""
    decoded = _cache.get(code)
    if decoded is None:
        decoded = _decode(code)
        _cache.put(code, decoded)
    return decoded


_cache: ByIdentity[Decoded] = ByIdentity()

_LOADS_GLOBAL = opcodes_with(Role.LOADS_GLOBAL)
_PREPARES_CALL = opcodes_with(Role.PREPARES_CALL)
_CALLS = _PREPARES_CALL | opcodes_with(Role.CALLS)
_EXTENDED_ARG = dis.opmap["EXTENDED_ARG"]


class _Row(NamedTuple):
    """What decoding needs to know about an opcode, by its number."""

    name: str
    has_arg: bool
    units: int
    direction: int
    """Of a jump: 1 forwards, -1 backwards; 0 otherwise."""
    operand: int
    """The number of its ``Operand``. (Looking an enum member up in a dict calls Python code.)"""
    parts: Callable[[int], tuple[Part, ...]] | None


_NUMBER = {operand: number for number, operand in enumerate(Operand)}

_ROWS: dict[int, _Row] = {
    dis.opmap[name]: _Row(
        name,
        info.operand is not Operand.NONE,
        1 + info.caches,
        0 if info.jumps is None else -1 if info.backward else 1,
        _NUMBER[info.operand],
        info.parts,
    )
    for name, info in OPCODES.items()
}

_ROW_OF = {row.name: row for row in _ROWS.values()}

# Operands that are looked up in a sequence that is the same for every code object ...
_FIXED: dict[Operand, Sequence[Any]] = {
    Operand.COMPARE: tuple(op for op in COMPARE_OPERATORS for _ in range(1 << COMPARE_SHIFT)),
    Operand.BINARY: BINARY_OPERATORS,
    Operand.IS: ("is", "is not"),
    Operand.IN: ("in", "not in"),
    Operand.CONVERSION: (None, str, repr, ascii),
    Operand.COMMON_CONSTANT: COMMON_CONSTANTS,
    Operand.SPECIAL: SPECIAL_METHODS,
    Operand.FORMAT: tuple(
        (conversion, spec) for spec in (False, True) for conversion in (None, str, repr, ascii)
    ),
    Operand.INTRINSIC_1: INTRINSICS_1,
    Operand.INTRINSIC_2: INTRINSICS_2,
}
_LOOKUP = [_FIXED.get(operand) for operand in Operand]

# ... and operands made from a name and flags in the lowest bits.
_FLAGGED: dict[int, Callable[[Sequence[str], int], Any]] = {
    _NUMBER[Operand.GLOBAL]: lambda names, arg: (names[arg >> 1], bool(arg & 1)),
    _NUMBER[Operand.ATTR]: lambda names, arg: (names[arg >> 1], bool(arg & 1)),
    _NUMBER[Operand.SUPER_ATTR]: lambda names, arg: (
        names[arg >> 2],
        bool(arg & 1),
        bool(arg & 2),
    ),
}


def slot_names(code: types.CodeType) -> tuple[str, ...]:
    """The name of each slot of a frame of this code, in order; no two are the same."""
    own = code.co_varnames
    own += tuple(name for name in code.co_cellvars if name not in own)
    return tuple(own_name(code, name) for name in own) + code.co_freevars


def own_name(code: types.CodeType, name: str) -> str:
    """The name of a function's own variable; with a dot, where a free variable has the same name.

    From Python 3.12 on that can be: ``[x for x in y]`` in a function whose ``x`` is a free variable
    has both. A dot is how Python itself makes names that cannot be written.
    """
    return f".{name}" if name in code.co_freevars else name


def _decode(code: types.CodeType) -> Decoded:
    variables = slot_names(code)
    raw, index_of_unit = _unpack(code.co_code)
    # Indexed by operand kind: decoding is on the path of the first call, and enum members hash
    # slowly.
    lookup: list[Sequence[Any] | None] = _LOOKUP.copy()
    lookup[_NUMBER[Operand.CONST]] = code.co_consts
    lookup[_NUMBER[Operand.NAME]] = code.co_names
    lookup[_NUMBER[Operand.LOCAL]] = variables
    # One for each two-byte unit, caches and prefixes included.
    positions = list(code.co_positions())
    names = code.co_names
    make = Instruction._make
    instructions: list[Instruction] = []
    for index, (unit, (op, _, units, direction, operand, _), arg) in enumerate(raw):
        target: int | None = None
        value: Any = arg
        if arg is not None:
            sequence = lookup[operand]
            if sequence is not None:
                value = sequence[arg]
            elif direction:
                value = target = index_of_unit[unit + units + direction * arg]
            elif operand in _FLAGGED:
                value = _FLAGGED[operand](names, arg)
        position = positions[unit]
        instructions.append(make((index, unit * 2, op, arg, value, target, position[0], position)))
    exceptions = _exception_entries(code.co_exceptiontable, index_of_unit)
    handlers: list[ExceptionEntry | None] = [None] * len(instructions)
    for entry in exceptions:
        # The compiler writes entries that don't overlap, the innermost handler for each
        # instruction.
        handlers[entry.start : entry.end] = [entry] * (entry.end - entry.start)
    reference = weakref.ref(code)
    return Decoded(reference, tuple(instructions), exceptions, variables, handlers)


def _unpack(co_code: bytes) -> tuple[list[tuple[int, _Row, int | None]], list[int]]:
    """The instructions as (unit, row, argument), and the instruction each two-byte unit is in."""
    raw: list[tuple[int, _Row, int | None]] = []
    index_of_unit: list[int] = []
    rows = _ROWS
    unit, prefix, count = 0, 0, len(co_code) // 2
    while unit < count:
        op = co_code[2 * unit]
        arg = co_code[2 * unit + 1] | prefix
        if op == _EXTENDED_ARG:
            # A jump may aim at the prefix: it belongs to the instruction that follows.
            index_of_unit.append(len(raw))
            # Each prefix adds eight bits above those of the instruction's own argument.
            prefix = arg << 8
            unit += 1
            continue
        row = rows[op]
        index_of_unit.extend([len(raw)] * row.units)
        if row.parts is None:
            raw.append((unit, row, arg if row.has_arg else None))
        else:
            raw.extend([(unit, _ROW_OF[op], part) for op, part in row.parts(arg)])
        prefix = 0
        unit += row.units
    # The end of a range of instructions may be the end of the code.
    index_of_unit.append(len(raw))
    return raw, index_of_unit


def _exception_entries(table: bytes, index_of_unit: list[int]) -> tuple[ExceptionEntry, ...]:
    """The exception table: per entry four numbers in groups of six bits, highest group first."""
    numbers: list[int] = []
    number = 0
    for byte in table:
        # 0x40 says that more groups follow; 0x80, which marks the first byte of an entry, is not
        # needed to read the table from its start.
        number = number << 6 | byte & 0x3F
        if not byte & 0x40:
            numbers.append(number)
            number = 0
    entries = []
    for place in range(0, len(numbers), 4):
        start, length, target, depth_lasti = numbers[place : place + 4]
        entries.append(
            ExceptionEntry(
                index_of_unit[start],
                index_of_unit[start + length],
                index_of_unit[target],
                depth_lasti >> 1,
                bool(depth_lasti & 1),
            )
        )
    return tuple(entries)


def _super_calls(code: types.CodeType, instructions: Sequence[Instruction]) -> frozenset[int]:
    """The indices of calls without arguments of a global ``super``. Only a function with a
    ``__class__`` cell and a first parameter can make one."""
    if "__class__" not in code.co_freevars or "super" not in code.co_names or not code.co_argcount:
        return frozenset()
    calls: set[int] = set()
    for before, after in pairwise(instructions):
        ready = before.op in _LOADS_GLOBAL and before.value == ("super", True)
        ready = ready or (before.op in _PREPARES_CALL and before.index in calls)
        if ready and after.op in _CALLS and after.arg == 0:
            calls.add(after.index)
    return frozenset(calls)
