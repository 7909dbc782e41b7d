"""A group of definitions as a kernel.

The one idea: rows are the outer loops; inside, one loop over the columns for each round of
reductions, and what belongs to a row as a whole between them. What an element needs is computed
where it is needed, again in each loop if it must: only what somebody outside reads is stored.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from contextlib import ExitStack
from dataclasses import dataclass

from pliant.loop.body import KernelBody
from pliant.loop.collapse import collapse, step
from pliant.loop.define import Computed, Definition, Index, Reduced
from pliant.loop.fuse import Group, own_place, owner, phases_of, placed, reduced_type, variables
from pliant.loop.ir import Access, Kernel, Kind, Value
from pliant.loop.tile import tile
from pliant.sym.expr import ONE, Expr

Hint = Callable[[Expr], int]


@dataclass(frozen=True, slots=True, eq=False)
class Written:
    """A kernel and the definitions whose memory its buffers are, in order."""

    kernel: Kernel
    memory: tuple[Definition, ...]


def write(group: Group, stored: Collection[Definition], name: str, hint: Hint) -> Written:
    """The kernel that computes the members of a group and stores some of them."""
    return _Writer(group, stored, name, hint).written()


class _Writer:
    def __init__(self, group: Group, stored: Collection[Definition], name: str, hint: Hint) -> None:
        self.group = group
        self.stored = [member for member in group.members if member in stored]
        self.hint = hint
        self.body = KernelBody(name, self._access(), self._element)
        self.rows: tuple[Expr, ...] = ()
        self.columns: tuple[Expr, ...] | None = None  # None between loops over columns
        self.results: dict[Definition, Value] = {}  # of reductions and rows, once they are there

    def written(self) -> Written:
        group = self.group
        with ExitStack() as stack:
            self.rows = self._open(stack, group.rows, 0, Kind.PARALLEL)
            self.body.floor = len(self.rows)
            if group.columns is None:
                self.columns = ()
                self._store_columns(self.stored)
            else:
                self._rounds()
        return Written(tile(collapse(self.body.kernel())), tuple(self.body.memory))

    def _access(self) -> dict[Definition, Access]:
        """A member that is stored is never read back, unless it overwrites something."""
        found: dict[Definition, Access] = {}
        for reads in self.group.reads.values():
            found.update(dict.fromkeys(reads.definitions, Access.READ))
        for member in self.stored:
            memory = owner(member)
            both = memory is not member and memory in found
            found[memory] = Access.READ_WRITE if both else Access.WRITE
        return found

    # ---- loops

    def _rounds(self) -> None:
        group, phases = self.group, phases_of(self.group)
        last = max([p for m, p in phases.items()], default=0)
        for phase in range(last + 1):
            here = [m for m in group.members if phases[m] == phase]
            for member in here:
                if group.level(member) == "row":
                    self._row(member)
            reductions = [m for m in here if group.level(m) == "reduction"]
            columns = [m for m in here if group.level(m) == "column" and m in self.stored]
            if reductions or columns:
                self._round(reductions, columns)
            for member in reductions:
                self._finish(member)

    def _round(self, reductions: list[Definition], columns: list[Definition]) -> None:
        kind = Kind.REDUCTION if reductions else Kind.PARALLEL
        sizes = self.group.columns or ()
        with ExitStack() as stack:
            if not sizes and reductions:  # of one element: still a loop
                stack.enter_context(self.body.loop(ONE, kind))
            self.columns = self._open(stack, sizes, len(self.rows), kind)
            for member in reductions:
                self._accumulate(member)
            self._store_columns(columns)
        self.columns = None

    def _open(
        self, stack: ExitStack, sizes: Sequence[Expr], first: int, kind: Kind
    ) -> tuple[Expr, ...]:
        """Loops, the one that goes through memory in the largest steps outside."""
        places = variables(len(sizes), first)
        steps = [self._steps(var) for var in places]
        order = sorted(range(len(sizes)), key=lambda i: steps[i], reverse=True)
        found: dict[int, Expr] = {}
        for i in order:
            found[i] = stack.enter_context(self.body.loop(sizes[i], kind))
        return tuple([found[i] for i in range(len(sizes))])

    def _steps(self, var: Expr) -> tuple[int, ...]:
        """How far apart in memory neighbours are: in what is stored, else in what is read."""
        places = [own_place(member) for member in self.stored]
        if not any(var in place.symbols for place in places):
            places = [p for reads in self.group.reads.values() for _, p in reads.places]
        steps = [step(place, var) for place in places if var in place.symbols]
        return tuple([self.hint(s) for s in steps if s is not None][:1])

    # ---- elements

    def _index(self, member: Definition) -> Index:
        level = self.group.level(member)
        vars = self.rows + (self.columns or ()) if level == "column" else self.rows
        return placed(member.sizes, vars)

    def _element(self, of: Definition, place: Expr) -> Value | None:
        """The element of a member at this iteration."""
        if of not in self.group.reads:
            return None
        if of in self.results:
            return self.results[of]
        index = self._index(of)
        assert isinstance(of.body, Computed) and place is of.place(index)
        at = of.body.at
        return self.body.once(of, index, lambda: at(self.body, index))

    def _store_columns(self, members: list[Definition]) -> None:
        # All are computed before the first is stored: one may overwrite what another reads.
        values = [self._element(m, m.place(self._index(m))) for m in members]
        for member, value in zip(members, values):
            assert value is not None
            self.body.write(member, member.place(self._index(member)), value)

    def _row(self, member: Definition) -> None:
        value = self._element(member, member.place(self._index(member)))
        assert value is not None
        self._keep(member, value)

    def _accumulate(self, member: Definition) -> None:
        assert isinstance(member.body, Reduced) and self.columns is not None
        over = member.body
        inner = placed(over.over, self.columns)
        args = over.at(self.body, self._index(member), inner)
        value = Value(over.op, reduced_type(over.op, args), args)
        self.results[member] = self.body.add(value)

    def _finish(self, member: Definition) -> None:
        assert isinstance(member.body, Reduced)
        raw = self.results[member]
        self._keep(member, member.body.then(self.body, raw, self._index(member)))

    def _keep(self, member: Definition, value: Value) -> None:
        self.results[member] = value
        if member in self.stored:
            self.body.write(member, member.place(self._index(member)), value)
