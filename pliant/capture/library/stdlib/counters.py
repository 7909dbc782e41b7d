"""`itertools.count` and iterators of ranges and tuples from outside: residual code advances them,
and what they give is a number that is not known. So a counter that each call advances is one
compilation."""

from __future__ import annotations

import gc
import itertools
from typing import TYPE_CHECKING, Any

from pliant.base.values import dataclass
from pliant.bytecode.tables import Role, opcodes_with
from pliant.capture.host_randomness import DrawnNumber, RandomDraw
from pliant.capture.library.stdlib.random_numbers import drawn_number
from pliant.capture.value import Break, Value
from pliant.capture.values.objects import Opaque
from pliant.capture.wrap import BUILDERS
from pliant.guards.guard import GuardKind
from pliant.guards.source import HANDED_OVER, Fixed, Local, Source

if TYPE_CHECKING:
    from pliant.capture.trace import Trace

ITERATES = opcodes_with(Role.ITERATES)


RangeIterator = type(iter(range(0)))
TupleIterator = type(iter(()))


@dataclass(frozen=True, slots=True)
class Left:
    """The predicate of how many items an iterator has left, or at least has."""

    count: int
    exactly: bool

    def __call__(self, iterator: Any) -> bool:
        left = iterator.__length_hint__()
        return bool(left == self.count if self.exactly else left >= self.count)


@dataclass(frozen=True, slots=True)
class IntegerAhead:
    """The predicate that an iterator over a tuple has an integer after so many items."""

    offset: int

    def __call__(self, iterator: Any) -> bool:
        _, (items,), *index = iterator.__reduce__()  # without an index, it is at the end
        place = sum(index, self.offset)
        if place >= len(items) or type(items[place]) is not int:
            return False
        return -(2**63) <= items[place] < 2**63  # as the graph can take it


class OutsideNumbers(Value):
    """An iterator over integers from outside. `left` is None where it has no end."""

    __slots__ = ("left", "real", "taken")

    def __init__(self, real: Any, source: Source, left: int | None) -> None:
        super().__init__(source)
        self.real = real
        self.left = left
        self.taken = 0

    def python_type(self) -> type:
        return type(self.real)

    def advance(self, trace: Trace) -> Value | None:
        if trace.frames[-1].instruction.op in ITERATES:
            # The body of a loop is compiled once for all numbers, behind a break.
            raise Break("outside-iterator", f"{type(self.real).__name__}.__next__")
        if trace.watch is not None:
            raise Break("outside-iterator", "a counter that a body advances")
        if self.left is not None:
            ends = self.taken == self.left
            trace.guard(GuardKind.PREDICATE, self.source, Left(self.taken + (not ends), ends))
            if ends:
                return None
            self._assume_integer(trace)
            self.taken += 1
        number = sum(len(draw.targets) for draw in trace.random_draws)
        target = DrawnNumber(number, "count")
        trace.changes += 1
        trace.graph_effects.other = True  # it can't be put back
        trace.random_draws.append(RandomDraw((target,), self, "next({})", None))
        return drawn_number(trace, target, 0)

    def _assume_integer(self, trace: Trace) -> None:
        """Of the next item."""
        if type(self.real) is not TupleIterator:
            return
        is_integer = IntegerAhead(self.taken)
        if not is_integer(self.real):
            raise Break("outside-iterator", "tuple_iterator.__next__ of what is no integer")
        trace.guard(GuardKind.PREDICATE, self.source, is_integer)


def counts_integers(counter: Any) -> bool:
    """The predicate that a counter gives integers."""
    # The step, and the number to come unless a C integer holds it. (3.14 has no `__reduce__`.)
    parts = [part for part in gc.get_referents(counter) if part is not itertools.count]
    return all(type(part) is int for part in parts)


def numbers_from_outside(trace: Trace, real: Any, source: Source) -> Value:
    """One that a loop hands over to the rest of a function is left to Python (decision 0006)."""
    if not isinstance(source, Fixed):
        trace.guard(GuardKind.TYPE, source, type(real))
    handed_over = isinstance(source, Local) and source.name.startswith(HANDED_OVER)
    endless = type(real) is itertools.count
    if handed_over or (endless and not counts_integers(real)):
        return Opaque(real, source)
    if endless:
        trace.guard(GuardKind.PREDICATE, source, counts_integers)
    return OutsideNumbers(real, source, None if endless else real.__length_hint__())


for _cls in (itertools.count, RangeIterator, TupleIterator):
    BUILDERS[_cls] = numbers_from_outside
