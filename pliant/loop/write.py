"""A fusion group becomes a kernel.

The one idea: rows are the outer loops; inside, one loop over the columns for each round of
reductions, and what belongs to a row as a whole between them. Elements are recomputed in each loop
that uses them, and only what is read outside of the group is stored. Softmax of [8, 16] becomes,
with nested operations for short,

    parallel i0 < 8
      reduction i1 < 16          phase 0
        v0 = load b0[16*i0 + i1]
        v1 = max v0
      reduction i2 < 16          phase 1
        v2 = load b0[16*i0 + i2]
        v4 = exp (sub v2, v1)
        v5 = sum v4
      parallel i3 < 16           phase 2: v4 is recomputed
        store b1[16*i0 + i3] = div (exp (sub (load b0[16*i0 + i3]), v1)), v5

(`targets.cpu.row_cache` then has the exponentials kept from phase 1 to phase 2.)
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import ExitStack
from types import MappingProxyType
from typing import Any, Final

from pliant.base.values import dataclass
from pliant.loop.body import KernelBody
from pliant.loop.collapse import collapse, stride
from pliant.loop.define import Computed, Definition, Index, Reduced, Scanned, Scattered
from pliant.loop.fuse import (
    FusionGroup,
    index_of,
    last_uses,
    own_place,
    owner,
    phases_of,
    placed,
    reduced_type,
    variables,
)
from pliant.loop.ir import Access, Kernel, LoopKind, LoopValue, Op, values
from pliant.loop.types import Type
from pliant.sym.expr import ONE, ZERO, Expr, ceildiv, minimum

Hint = Callable[[Expr], int]
Arrange = Callable[[Kernel, Hint], Kernel]
"""How a target orders and blocks the loops of a kernel."""


def as_written(kernel: Kernel, hint: Hint) -> Kernel:
    return kernel


@dataclass(frozen=True, slots=True, eq=False)
class WrittenKernel:
    """A kernel, and for each of its buffers the definition whose memory it is."""

    kernel: Kernel
    memory: tuple[Definition, ...]


def write_kernel(
    group: FusionGroup,
    stored: Collection[Definition],
    name: str,
    hint: Hint,
    reuse: Mapping[Definition, Definition] = MappingProxyType({}),
    arrange: Arrange = as_written,
    at_once: bool = False,
) -> WrittenKernel:
    """The kernel that computes the members of a group and stores those in `stored`; `reuse` maps
    some of them to definitions whose memory they are stored in (`loop.buffer_reuse`). `arrange`
    orders and tiles the loops for the target. `at_once`: the updates of a scatter are made in
    parallel where their order makes no difference."""
    return _Writer(group, stored, name, hint, reuse).written(arrange, at_once)


class _Writer:
    def __init__(
        self,
        group: FusionGroup,
        stored: Collection[Definition],
        name: str,
        hint: Hint,
        reuse: Mapping[Definition, Definition],
    ) -> None:
        self.group = group
        self.stored = [member for member in group.members if member in stored]
        self.kept = frozenset(stored)
        # Eager raises for an index out of range even if nothing reads the result, so these are
        # computed for their test alone.
        tested = only_for_faults(group, stored)
        self.computed = [m for m in group.members if m in stored or m in tested]
        self.hint = hint
        self.reuse = reuse
        self.body = KernelBody(name, self._access(), self._element, reuse)
        self.rows: tuple[Expr, ...] = ()
        self.columns: tuple[Expr, ...] | None = None  # None between loops over columns
        self.results: dict[
            Definition, LoopValue
        ] = {}  # of reductions and rows, once they are there

    def written(self, arrange: Arrange, at_once: bool = False) -> WrittenKernel:
        group = self.group
        (first, *_) = group.members
        if isinstance(first.body, Scattered):
            # A trial body, which is thrown away: to see what an update is made of.
            probe = KernelBody("probe", self._access(), self._element, self.reuse)
            if at_once and in_any_order(probe, first, first.body):
                scatter_at_once(self.body, first, first.body)
            else:
                scatter(self.body, first, first.body)
            return WrittenKernel(collapse(self.body.kernel()), tuple(self.body.memory))
        with ExitStack() as stack:
            # What only depends on rows may be moved out of loops over columns, not out of these:
            # they become the grid that threads share.
            self.rows = self._open(stack, group.rows, 0, LoopKind.PARALLEL)
            self.body.floor = len(self.rows)
            if group.columns is None:
                self.columns = ()
                self._prepare(self.computed)
                self._store_columns(self.computed)
            else:
                self._rounds()
        kernel = arrange(collapse(self.body.kernel()), self.hint)
        return WrittenKernel(kernel, tuple(self.body.memory))

    def _access(self) -> dict[Definition, Access]:
        """What the kernel does with each memory. A member that is stored is never read back, so its
        memory is only written, unless the kernel reads the old contents as well."""
        access: dict[Definition, Access] = {}
        for reads in self.group.reads.values():
            access.update(dict.fromkeys(reads.definitions, Access.READ))
        for member in self.stored:
            memory = self.reuse.get(member) or owner(member)
            read_back = memory is not member and memory in access
            access[memory] = Access.READ_WRITE if read_back else Access.WRITE
        return access

    # ---- loops

    def _rounds(self) -> None:
        """Write the loops over columns, phase by phase: what is computed once a row before them,
        then the reductions of the phase, and the elements whose last use it is."""
        group, phases, last_use = self.group, phases_of(self.group), last_uses(self.group)
        # Softmax has three phases: the maximum, the sum of exponentials, and the quotient.
        last = max([p for m, p in phases.items()], default=0)
        for phase in range(last + 1):
            members = [m for m in group.members if phases[m] == phase]
            for member in members:
                if group.level(member) == "row":
                    self._row(member)
            reductions = [m for m in members if group.level(m) == "reduction"]
            columns = [m for m in self.computed if group.level(m) == "column"]
            # An element is stored in the last loop that computes it; earlier ones only read it.
            columns = [m for m in columns if last_use[m] == phase]
            # A scan runs one element after the other, so reductions get a loop of their own.
            if reductions and any(m in group.scans for m in members):
                self._round(reductions, [])
                self._round([], columns, LoopKind.SERIAL)
            elif any(m in group.scans for m in members):
                self._round([], columns, LoopKind.SERIAL)
            elif reductions or columns:
                self._round(reductions, columns)
            for member in reductions:
                self._finish(member)

    def _round(
        self,
        reductions: list[Definition],
        columns: list[Definition],
        kind: LoopKind = LoopKind.PARALLEL,
    ) -> None:
        kind = LoopKind.REDUCTION if reductions else kind
        sizes = self.group.columns or ()
        with ExitStack() as stack:
            if not sizes and reductions:  # of one element: still a loop
                stack.enter_context(self.body.loop(ONE, kind))
            self.columns = self._open(stack, sizes, len(self.rows), kind)
            self._prepare([*reductions, *columns])
            for member in reductions:
                self._accumulate(member)
            self._store_columns(columns)
        self.columns = None

    def _open(
        self, stack: ExitStack, sizes: Sequence[Expr], first: int, kind: LoopKind
    ) -> tuple[Expr, ...]:
        """Open a loop for each size, the one with the largest steps through memory outermost.
        Returns their variables in the order of `sizes`. `first`: the number of the first loop among
        the group's `variables`."""
        places = variables(len(sizes), first)
        steps = [self._steps(var) for var in places]
        # The innermost loop gets the smallest step: it runs over lanes, which want neighbours.
        order = sorted(range(len(sizes)), key=lambda i: steps[i], reverse=True)
        if len(order) > 2:
            order[:-1] = self._as_read(order[:-1], places)
        loop_vars: dict[int, Expr] = {}
        for i in order:
            loop_vars[i] = stack.enter_context(self.body.loop(sizes[i], kind))
        return tuple([loop_vars[i] for i in range(len(sizes))])

    def _as_read(self, order: list[int], places: Sequence[Expr]) -> list[int]:
        """The loops around the innermost one in the order in which memory is read, if all reads
        agree on one. Reads count more than writes: the processor waits for what it reads, and not
        for what it stores."""
        loop_vars = {places[i] for i in order}
        orders = set()
        for reads in self.group.reads.values():
            for of, place in reads.places:
                if of in self.group.reads:  # in registers
                    continue
                steps = {i: stride(place, places[i]) for i in order}
                if loop_vars <= place.symbols and None not in steps.values():
                    far = {i: self.hint(by) for i, by in steps.items() if by is not None}
                    orders.add(tuple(sorted(order, key=lambda i: far[i], reverse=True)))
        return list(orders.pop()) if len(orders) == 1 else order

    def _steps(self, var: Expr) -> tuple[int, ...]:
        """The step through memory of a loop, as a tuple of one number or none: in the first of what
        is stored, or of what is read if nothing that is stored depends on the loop."""
        places = [own_place(member) for member in self.stored]
        # A loop that is reduced is in nothing that is stored.
        if not any(var in place.symbols for place in places):
            places = [p for reads in self.group.reads.values() for _, p in reads.places]
        steps = [stride(place, var) for place in places if var in place.symbols]
        return tuple([self.hint(s) for s in steps if s is not None][:1])

    # ---- elements

    def _index(self, member: Definition) -> Index:
        """The index of the element of a member that the current iteration computes."""
        level = self.group.level(member)
        vars = self.rows + (self.columns or ()) if level == "column" else self.rows
        return index_of(member, vars)

    def _element(self, of: Definition, place: Expr) -> LoopValue | None:
        """The element of a member that the current iteration computes; None if `of` is no member.
        It is written here if it isn't there yet."""
        if of not in self.group.reads:
            return None
        if of in self.results:
            return self.results[of]
        index = self._index(of)
        assert place is of.place(index)
        if isinstance(of.body, Scanned):
            return self._scanned(of, of.body, index)
        assert isinstance(of.body, Computed)
        # Once per iteration, however many members read it.
        at = of.body.at
        return self.body.once(of, index, lambda: at(self.body, index))

    def _scanned(self, of: Definition, by: Scanned, index: Index) -> LoopValue:
        body = self.body

        def advance() -> tuple[LoopValue, ...]:
            old = body.carried(by.scan)
            new = by.scan.step(body, old, index)
            for before, after in zip(old, new, strict=True):
                body(Op.CARRY, before, after)
            return new

        state: Any = body.once(by.scan, index, advance)  # type: ignore[arg-type]
        return body.once(of, index, lambda: by.then(body, state, index))

    def _prepare(self, members: Collection[Definition]) -> None:
        """Write the elements that these members need of others, in order. Each then finds its
        operands, so that a chain of a thousand members is no recursion of that depth."""
        # Backwards over the members, which are in the order of their reads: one pass finds all
        # operands.
        needed = set(members)
        for member in reversed(self.group.members):
            if member in needed and member not in self.results:
                needed.update([of for of, _ in self.group.reads[member].places])
        for member in self.group.members:
            if member in needed and self.group.level(member) == "column":
                self._element(member, member.place(self._index(member)))

    def _store_columns(self, members: list[Definition]) -> None:
        # All are computed before the first is stored: one may overwrite what another reads.
        values = [self._element(m, m.place(self._index(m))) for m in members]
        for member, value in zip(members, values):
            assert value is not None
            if member in self.kept:
                self.body.write(member, member.place(self._index(member)), value)

    def _row(self, member: Definition) -> None:
        """Write a member that has one element for each row, between loops over columns."""
        value = self._element(member, member.place(self._index(member)))
        assert value is not None
        self._keep(member, value)

    def _accumulate(self, member: Definition) -> None:
        """Write the step of a reduction, inside of its loop."""
        assert isinstance(member.body, Reduced) and self.columns is not None
        over = member.body
        inner = placed(over.over, self.columns)
        args = over.at(self.body, self._index(member), inner)
        value = LoopValue(over.op, reduced_type(over.op, args), args)
        self.results[member] = self.body.add(value)

    def _finish(self, member: Definition) -> None:
        """Write what follows the loop of a reduction, such as the division of a mean."""
        assert isinstance(member.body, Reduced)
        raw = self.results[member]
        self._keep(member, member.body.then(self.body, raw, self._index(member)))

    def _keep(self, member: Definition, value: LoopValue) -> None:
        self.results[member] = value
        if member in self.stored:
            self.body.write(member, member.place(self._index(member)), value)


def only_for_faults(group: FusionGroup, stored: Collection[Definition]) -> set[Definition]:
    """The members that nothing reads, and that are computed because they may have to raise."""
    needed = set(stored)
    tested: set[Definition] = set()
    for member in reversed(group.members):
        if member not in needed and group.reads[member].faults:
            tested.add(member)
            needed.add(member)
        if member in needed:
            needed.update(of for of, _ in group.reads[member].places)
    return tested


CHUNK: Final = 2048
"""How many elements of a row make a piece, where threads share a single row."""


def scatter(body: KernelBody, of: Definition, by: Scattered) -> None:
    """Write the kernel of a scatter: outside, in the grid, the rows that are far apart in memory;
    then a serial loop over the updates of a row; inside, the rows that are close together."""
    outer, inner = by.rows[: len(by.rows) - by.inner], by.rows[len(by.rows) - by.inner :]
    with ExitStack() as stack:
        rows = [stack.enter_context(body.loop(size)) for size in outer]
        first: Expr = ZERO
        # If all rows are close together, the first of them is cut into pieces: without a grid one
        # thread would do everything.
        if inner and not outer:
            size, *others = inner
            first = stack.enter_context(body.loop(ceildiv(size, CHUNK))) * CHUNK
            inner = (minimum(size - first, CHUNK), *others)
        body.floor = len(outer)
        over = [stack.enter_context(body.loop(size, LoopKind.SERIAL)) for size in by.over]
        close = [stack.enter_context(body.loop(size)) for size in inner]
        if close:
            close[0] = close[0] + first
        new = by.at(body, (*rows, *close), tuple(over))
        body.update(of, of.place(new.index), new.value, new.when, by.combine)


ATOMIC: Final = frozenset({Type.F32, Type.F64, Type.I32, Type.I64})


def in_any_order(probe: KernelBody, of: Definition, by: Scattered) -> bool:
    """Whether the order of the updates makes no difference, but for the rounding of sums: they are
    added, or all updates of a row write the same value. `probe` is a body to write one update in,
    whose value is then searched for what differs from update to update."""
    if by.combine is not None:
        return by.adds and of.type in ATOMIC
    rows = variables(len(by.rows))
    over = variables(len(by.over), len(rows))
    new = by.at(probe, rows, over)
    body = probe.kernel().body
    # An index that is data may be another one for each update.
    varying = {*over, *[value.index for value in values(body) if value.op is Op.AS_INDEX]}
    needed = [new.value]
    for value in needed:
        if value.index is not None and not varying.isdisjoint(value.index.symbols):
            return False
        needed += value.args
    return True


def scatter_at_once(body: KernelBody, of: Definition, by: Scattered) -> None:
    """Write the kernel of a scatter with all updates in parallel, by atomic additions or by stores
    of equal values."""
    at = len(by.rows) - by.inner
    with ExitStack() as stack:
        sizes = (*by.rows[:at], *by.over, *by.rows[at:])
        places = [stack.enter_context(body.loop(size)) for size in sizes]
        body.floor = len(places)
        over = places[at : at + len(by.over)]
        rows = places[:at] + places[at + len(by.over) :]
        new = by.at(body, tuple(rows), tuple(over))
        if by.combine is None:
            body.update(of, of.place(new.index), new.value, new.when, None)
        else:
            body.add_to(of, of.place(new.index), new.value, new.when)
