"""What a capture assumed about the values it met: guards, one record for each narrowing.

A guard is data: a kind from a closed set (`kinds`), the source it speaks of, and what is expected.
It prints as the Python condition it checks. `plan` turns a set of guards into the native tree.
"""

from __future__ import annotations

from typing import Any

from pliant.base.external import CODE, PLAIN, STRUCTURES, External, Mapper
from pliant.base.position import Position
from pliant.base.values import dataclass
from pliant.guards.expected import MISSING, ExpectedTensor, Load, ShapeCondition
from pliant.guards.kinds import GuardKind
from pliant.guards.source import MODULE_TABLES, DictItem, Source

__all__ = ["MISSING", "ExpectedTensor", "Guard", "GuardKind", "Load", "ShapeCondition"]


@dataclass(frozen=True, slots=True, eq=False)
class Guard:
    """One assumption. `position` is the user's line that made it necessary."""

    kind: GuardKind
    source: Source | None
    expected: Any
    position: Position | None = None

    def __str__(self) -> str:
        record = self.kind.record
        expected = self.expected
        text = expected.text if type(expected) is External else record.show(expected)
        return record.text.format(self.source, text)

    @property
    def routine(self) -> bool:
        """Whether the guard only says that code, and the machinery of classes and modules, are as
        they were. Readers of a log take that for granted."""
        # The tables of hooks that every call of a module looks at, most of them empty.
        if self.kind.record.routine or "_hooks" in str(self.source):
            return True
        if self.kind is GuardKind.IS:
            expected = self.expected
            return expected.code if type(expected) is External else isinstance(expected, CODE)
        return isinstance(self.source, DictItem) and self.source.key in MODULE_TABLES


def _mapped(guard: Guard, mapper: Mapper) -> Guard:
    """The guard with its objects mapped: turned into data, or bound to objects again."""
    expected: Any = guard.expected
    parts = guard.kind.record.parts
    if parts is not None:
        expected = parts(expected, mapper)
    elif type(expected) not in PLAIN:
        expected = mapper.visit(expected)
    source = mapper.visit(guard.source)
    if source is guard.source and expected is guard.expected:
        return guard
    return Guard(guard.kind, source, expected, guard.position)


def guards_data(guards: tuple[Guard, ...], mapper: Mapper) -> tuple[Guard, ...]:
    """The guards of a capture as data."""
    return tuple([_mapped(guard, mapper) for guard in guards])


STRUCTURES[Guard] = _mapped
