"""Which definitions share a kernel, and in which order kernels and calls run.

The one idea: a group has one iteration space, rows times columns. A definition fits if it has an
element for each (row, column), or for each row, or reduces columns to rows, and if what it reads of
the group is the element of the same iteration. Then its operands are in registers when it is
computed, and what is not read outside the group is never stored.

The cost model: to share a kernel saves the loads and stores of what is shared and never costs more
than registers. So a definition joins the last group it can, if it reads something that the group
makes or reads, up to `MOST_BUFFERS` buffers and `MOST_OPERATIONS`. Beyond that registers are full
anyway, and the time to compile a kernel grows faster than the kernel. The loop of a scan runs one
element at a time if it is over the last dimension: only what takes up to `SERIAL_COST` operations
shares that.

What is scattered has its own kernel: no element belongs to the iteration that made it.

Softmax over the rows of an [8, 16] matrix is one group, of rows [8] and columns [16]:

    member                level        loop over columns (its phase)
    t0 = max(in0)         reduction    0
    t1 = sum(exp(in0-t0)) reduction    1: it reads t0, which is there after loop 0
    t2 = exp(in0-t0)/t1   column       2

So the kernel has three loops over columns in one loop over rows, and only t2 is stored.

Groups are chosen greedily, in the order of the program: for each definition at most `MOST_TRIED`
groups are tried for each tensor that it touches, so the attempts are linear in the definitions.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from dataclasses import field
from enum import Enum
from types import MappingProxyType
from typing import Any, Final

from pliant.base.values import dataclass
from pliant.loop.build import Builder
from pliant.loop.define import Computed, Definition, Index, Reduced, Scanned, Scattered
from pliant.loop.ir import WEIGHT, LoopValue, Op
from pliant.loop.types import Type
from pliant.sym.expr import ONE, ZERO, Expr, symbol
from pliant.sym.floats import held_as

# Beyond these registers are full, and the time to compile grows faster than the kernel.
MOST_BUFFERS: Final = 24
MOST_OPERATIONS: Final = 1024
MOST_MEMBERS: Final = 64
MOST_TRIED: Final = 32
"""Of the groups that touch a definition, only the latest so many are tried."""
SERIAL_COST: Final = 12


class NotFused(Enum):
    """Why a definition isn't in the kernel of one that it reads."""

    SIZES = "the loops of the two have different sizes"
    DIMENSIONS = "it reduces or scans along dimensions that are not the inner loops of that kernel"
    OTHER_ELEMENT = "it reads other elements than the one of its own iteration"
    WHOLE_ROW = "it is computed once a row, and reads what is computed for each element of one"
    PRODUCT = "a product of matrices shares its kernel with what is computed from its elements only"
    SCATTERED = "a scatter has a kernel of its own: its elements belong to no iteration"
    SCANNED = "the loop of a scan is serial, and that of a reduction isn't"
    SERIAL = f"in the serial loop of a scan it would cost more than {SERIAL_COST} operations"
    OPERATIONS = (
        f"the kernel would have over {MOST_OPERATIONS} operations or {MOST_MEMBERS} results"
    )
    BUFFERS = f"the kernel would use more than {MOST_BUFFERS} tensors"
    DEVICE = "it is on another device"
    OVERWRITTEN = "memory would be overwritten while it is still read"
    WRITES = "one of the two writes to memory from outside, in the order of eager PyTorch"
    RAISES = "what makes it may raise, in the order of eager PyTorch"
    READ_BETWEEN = "something that runs between the two reads it, too"
    NOTHING_SHARED = "they have no tensor in common"


Refused = dict[tuple["Definition", "Definition"], NotFused]
"""The reasons by what is read, and the definition that reads it."""


@dataclass(frozen=True, slots=True, eq=False)
class ExternCall:
    """A call that PyTorch runs between kernels, with the definitions that it reads and makes.
    `what` is the caller's record of it, which nothing in this package looks into."""

    reads: tuple[Definition, ...]
    makes: tuple[Definition, ...]
    what: Any = None
    finds: tuple[Any, ...] = ()  # symbols whose value it computes, or constrains
    raises: bool = True  # it may raise, depending on data
    fresh: bool = False  # its results are in memory that nothing else refers to
    view: bool = False  # what it makes is in the memory of what it reads


Step = Definition | ExternCall


@dataclass(frozen=True, slots=True)
class Reads:
    """What an element of a definition reads: each definition with the place in its memory, an
    expression over `variables` (the index of the element, and of what is reduced to it)."""

    places: tuple[tuple[Definition, Expr], ...]
    cost: int  # operations
    faults: bool  # the kernel may detect an error that eager would raise, such as a bad index
    symbols: frozenset[Any] = frozenset()  # in sizes and numbers

    @property
    def definitions(self) -> set[Definition]:
        return {owner(of) for of, _ in self.places}


# Operations that take many times as long one by one as in lanes.
SLOW: Final = frozenset({*WEIGHT, Op.TAN, Op.ERFC})


def owner(definition: Definition) -> Definition:
    """The definition whose memory this one is in: what it is written into, else itself."""
    return definition.into or definition


@dataclass(slots=True, eq=False)
class FusionGroup:
    """Definitions that share a kernel, in an order in which they can be computed. `rows` and
    `columns` are the sizes of its loops, without those that are 1; `columns` is None as long as
    nothing is reduced or scanned."""

    rows: tuple[Expr, ...]
    columns: tuple[Expr, ...] | None
    members: list[Definition] = field(default_factory=list)
    reads: dict[Definition, Reads] = field(default_factory=dict)
    scans: list[Definition] = field(default_factory=list)
    writers: list[Definition] = field(default_factory=list)  # to memory of others
    touched: set[Definition] = field(default_factory=set)  # whose memory is read or written
    cost: int = 0  # operations of the members
    rounds: int = 1  # loops over columns, one after the other
    _ready: dict[Definition, int] = field(default_factory=dict)  # the first loop that can use it

    @property
    def faults(self) -> bool:
        """Whether the kernel may detect that eager would raise."""
        return any(reads.faults for reads in self.reads.values())

    @property
    def space(self) -> tuple[Expr, ...]:
        return self.rows + (self.columns or ())

    @property
    def multiplies(self) -> bool:
        """Whether it computes a product of matrices, which is its first member then."""
        first = self.members[0].body if self.members else None
        return isinstance(first, Reduced) and first.is_product

    def add(self, new: Definition, reads: Reads) -> None:
        """Add a member. The caller has checked that it fits, and set `rows` and `columns`."""
        self.members.append(new)
        self.reads[new] = reads
        if isinstance(new.body, Scanned):
            self.scans.append(new)
        if new.into is not None:
            self.writers.append(new)
        self.touched |= reads.definitions
        self.touched.add(owner(new))
        self.cost += reads.cost
        # What reads a reduction needs the loop after it, and may itself be reduced there (softmax).
        phase = max([self._ready[of] for of, _ in reads.places if of in self._ready], default=0)
        self._ready[new] = phase + (self.level(new) == "reduction")
        self.rounds = max(self.rounds, phase + 1)

    def has_room(self, reads: Reads) -> bool:
        """Whether the kernel stays within bounds with one more member. Each loop over columns may
        compute the elements of all members again, so the cost is that of `rounds` loops."""
        operations = (self.cost + reads.cost) * self.rounds
        return len(self.members) < MOST_MEMBERS and operations <= MOST_OPERATIONS

    def level(self, member: Definition) -> str:
        """How often a member is computed: "row", once for each row; "column", for each (row,
        column); "reduction", accumulated over columns and known once for each row."""
        if isinstance(member.body, Reduced):
            return "reduction"
        if isinstance(member.body, Scanned):
            return "column"
        if self.columns is None or sized(member.sizes) == self.space:
            return "column"
        return "row"


def sized(sizes: Sequence[Expr]) -> tuple[Expr, ...]:
    """The sizes that need a loop: without those that are always 1."""
    return tuple([size for size in sizes if size is not ONE])


def variables(count: int, first: int = 0) -> tuple[Expr, ...]:
    """The variables of a group's loops, rows first, while it is planned."""
    return tuple([symbol(f"x{i}") for i in range(first, first + count)])


def placed(sizes: Sequence[Expr], vars: Sequence[Expr]) -> Index:
    """The index in a tensor of these sizes, with `vars` for its dimensions that aren't 1."""
    remaining = iter(vars)
    return tuple([ZERO if size is ONE else next(remaining) for size in sizes])


def index_of(of: Definition, vars: Sequence[Expr]) -> Index:
    """The index of the element of `of` that belongs to the iteration `vars`. Loops are in the order
    of dimensions, but for that which is scanned along: it is the innermost one."""
    if isinstance(of.body, Scanned):
        at = len(sized(of.sizes[: of.body.dim]))
        # The loops of a scan are its other dimensions, then the one it goes along.
        vars = [*vars[:at], vars[-1], *vars[at:-1]]
    return placed(of.sizes, vars)


def schedule(
    steps: Sequence[Step],
    numbers: Mapping[Any, Any] = MappingProxyType({}),
    refused: Refused | None = None,
) -> list[FusionGroup | ExternCall]:
    """Fuse definitions into groups, greedily in the order of the program. Returns groups and calls
    in an order in which they can run. `numbers`: the expressions that symbols of floats stand for.
    `refused`, if given, collects why what is read isn't in the group of its reader."""
    return _Scheduler(numbers, refused).run(steps)


class _Scheduler:
    def __init__(self, numbers: Mapping[Any, Any], refused: Refused | None) -> None:
        self.numbers = numbers
        self.refused = refused
        self.plan: list[FusionGroup | ExternCall | None] = []  # None: absorbed by a later one
        # Positions in the plan:
        self.made_at: dict[Definition, int] = {}
        self.readers_at: dict[Definition, set[int]] = {}  # of those that read its memory
        self.written_at: dict[Definition, int] = {}  # of the last write into its memory
        self.defined_at: dict[Any, int] = {}  # of the calls that give symbols their values
        self.last_fault = -1  # of the last item that may raise
        # Groups by what they touch and the sizes of a member that they could take.
        self.touching: dict[tuple[Definition, tuple[Expr, ...]], deque[int]] = {}

    def run(self, steps: Sequence[Step]) -> list[FusionGroup | ExternCall]:
        for step in steps:
            if isinstance(step, ExternCall):
                # Calls stay in the order of the program: they may raise, draw random numbers or
                # write.
                self._note(len(self.plan), step.makes, {owner(d) for d in step.reads})
                self.defined_at.update(dict.fromkeys(step.finds, len(self.plan)))
                self.last_fault = len(self.plan) if step.raises else self.last_fault
                self.plan.append(step)
            elif step.body is not None:
                self._place(step)
        return [item for item in self.plan if item is not None]

    def _defined_at(self, symbol: Any) -> int:
        """The position of the call that determines a symbol; -1 if it is known from the start."""
        if symbol not in self.numbers:
            return self.defined_at.get(symbol, -1)
        # A number of the program may be computed from several symbols; the last one to get its
        # value counts.
        parts = self.numbers[symbol].symbols
        return max([self.defined_at.get(held_as(part), -1) for part in parts], default=-1)

    def _note(self, at: int, makes: Sequence[Definition], reads: set[Definition]) -> None:
        """Record that the item at a position makes and reads these."""
        for definition in makes:
            self.made_at[definition] = at
            if definition.into is not None:
                self.written_at[definition.into] = at
        for definition in reads:
            self.readers_at.setdefault(definition, set()).add(at)

    def _place(self, new: Definition) -> None:
        """Put a definition into the latest group that takes it, or into a group of its own; then
        let that group absorb the groups of its operands (`_absorb`)."""
        # Its own group tells what it reads and which loops it has; it is used if no other group
        # takes it.
        alone = group_of(new)
        reads = alone.reads[new]
        # Places in the plan that have to come first: makers of operands, writers of their memory,
        # calls that give the sizes.
        needed = [self.made_at.get(d, -1) for d in {of for of, _ in reads.places}]
        needed += [self.written_at.get(d, -1) for d in reads.definitions]
        needed += [self._defined_at(s) for s in reads.symbols]
        if new.into is not None:  # nothing is overwritten before everybody had a chance to raise
            needed += [*self.readers_at.get(new.into, ()), self.last_fault + 1]
            needed += [self.made_at.get(new.into, -1), self.written_at.get(new.into, -1)]
        first = max(needed, default=-1)
        # Never before `first`: what it reads has to be there. The last group is tried first, where
        # operands are most likely to be in registers or caches.
        for at in self._candidates(alone, max(first, 0)):
            group = self.plan[at]
            assert isinstance(group, FusionGroup)
            reason = join(group, new, reads)
            if reason is None:
                break
            self._refuse(at, new, reads, reason)
        else:
            at, group = len(self.plan), alone
            self.plan.append(alone)
        self._index(at, group, alone.touched)
        self._note(at, [new], reads.definitions)
        if reads.faults:
            self.last_fault = max(self.last_fault, at)
        # Groups that write to memory of others stay where they are in the order.
        if not group.writers:
            self._absorb(at, new)
        elif self.refused is not None:
            for before in {self.made_at.get(of, at) for of in _sources(new, reads)} - {at}:
                self._refuse(before, new, reads, NotFused.WRITES)

    def _refuse(self, at: int, new: Definition, reads: Reads, reason: NotFused) -> None:
        """Record, for reports, why `new` isn't in the group at this position, which it reads."""
        group = self.plan[at] if self.refused is not None and at >= 0 else None
        if not isinstance(group, FusionGroup) or self.refused is None:
            return
        # What holds for any order tells more than what this order is about.
        split = _split_with(group, new)
        reason = split if isinstance(split, NotFused) else reason
        for of in _sources(new, reads):
            if of in group.reads:
                self.refused.setdefault((of, new), reason)

    def _absorb(self, at: int, new: Definition) -> None:
        """Merge groups that make operands of the new member into the group at `at`. In `a = f(x);
        b = g(y); c = a * b` the first two have nothing in common; `c` joins the group of `b`, which
        then absorbs that of `a`. What is absorbed runs later than before: nothing in between may
        read what it makes, or overwrite what it reads."""
        group = self.plan[at]
        assert isinstance(group, FusionGroup)
        makers = {self.made_at.get(of, at) for of, _ in group.reads[new].places}
        # The nearest maker first: groups that are absorbed move to `at`, past fewer others.
        for before in sorted(makers, reverse=True):
            maker = self.plan[before] if 0 <= before < at else None
            if not isinstance(maker, FusionGroup):
                continue
            fused = self._cannot_wait(before, at, maker) or merged(maker, group)
            if isinstance(fused, NotFused):
                self._refuse(before, new, group.reads[new], fused)
                continue
            # The place stays, empty: other tables refer to the plan by position.
            self.plan[before], self.plan[at] = None, fused
            group = fused
            for member in maker.members:
                for definition in maker.reads[member].definitions:
                    self.readers_at[definition].discard(before)
                self._note(at, [member], maker.reads[member].definitions)
            self._index(at, fused, maker.touched)

    def _cannot_wait(self, before: int, at: int, group: FusionGroup) -> NotFused | None:
        """Why a group can't be moved from `before` to `at`; None if it can, as nothing in between
        reads what it makes or writes to what it touches."""
        # The order of writes and of errors is that of eager PyTorch.
        if group.writers:
            return NotFused.WRITES
        if _may_fail(group):
            return NotFused.RAISES
        if any(self.written_at.get(definition, -1) > before for definition in group.touched):
            return NotFused.OVERWRITTEN
        readers = [self.readers_at.get(member, ()) for member in group.members]
        between = any(before < reader < at for places in readers for reader in places)
        return NotFused.READ_BETWEEN if between else None

    def _candidates(self, alone: FusionGroup, first: int) -> list[int]:
        """The positions, from `first` on, of groups with loops of these sizes that touch a tensor
        that the new one touches. The last one comes first."""
        near: set[int] = set()
        for definition in alone.touched:
            near.update(self.touching.get((definition, alone.space), ()))
        # A group that was taken into another one is still listed where it was.
        listed = [at for at in near if at >= first and self.plan[at] is not None]
        return sorted(listed, reverse=True)

    def _index(self, at: int, group: FusionGroup, touched: set[Definition]) -> None:
        """Have `_candidates` find the group by these tensors."""
        # Under both sizes: a member may have an element for each iteration, or for each row.
        for sizes in {group.space, group.rows}:
            for definition in touched:
                # Bounded, or a tensor that thousands of operators read would make scheduling
                # quadratic.
                groups = self.touching.setdefault((definition, sizes), deque(maxlen=MOST_TRIED))
                if at not in groups:
                    groups.append(at)


def group_of(new: Definition) -> FusionGroup:
    """The group of one definition alone."""
    group = FusionGroup(*_own_split(new))
    group.add(new, probe(new))
    return group


def _own_split(new: Definition) -> Split:
    """Rows and columns of a definition alone. The sum of [m, n] over its last dimension has rows
    [m] and columns [n]; what is computed for each element has rows alone."""
    sizes = sized(new.sizes)
    if isinstance(new.body, Reduced):
        return sizes, sized(new.body.over)
    if isinstance(new.body, Scanned):
        dim = new.body.dim
        return sized(new.sizes[:dim] + new.sizes[dim + 1 :]), (new.sizes[dim],)
    return sizes, None


def _sources(new: Definition, reads: Reads) -> set[Definition]:
    """What a definition reads or overwrites."""
    return {of for of, _ in reads.places} | ({new.into} if new.into is not None else set())


def join(group: FusionGroup, new: Definition, reads: Reads) -> NotFused | None:
    """Add `new` to the group if it fits and they have a tensor in common. Returns why not, or None
    if it was added."""
    if group.touched.isdisjoint(reads.definitions | {owner(new)}):
        return NotFused.NOTHING_SHARED
    return _take(group, new, reads)


def merged(first: FusionGroup, second: FusionGroup) -> FusionGroup | NotFused:
    """A group of the members of both, those of the first before those of the second; or why they
    don't fit into one kernel."""
    if not {first.space, first.rows}.intersection((second.space, second.rows)):
        return NotFused.SIZES
    group = FusionGroup(first.rows, first.columns)
    for member in first.members:
        group.add(member, first.reads[member])
    # The reads of each member are checked anew: what was memory between the groups is a register in
    # one.
    for member in second.members:
        if (reason := _take(group, member, second.reads[member])) is not None:
            return reason
    return group


def _take(group: FusionGroup, new: Definition, reads: Reads) -> NotFused | None:
    """Add `new` to the group if the loops, the bounds and what it reads allow. Returns why not."""
    split = _split_with(group, new)
    if isinstance(split, NotFused):
        return split
    # The cheap checks come first: this is called for each pair of a definition and a group nearby.
    if not group.has_room(reads):
        return NotFused.OPERATIONS
    if new.device != group.members[0].device:
        return NotFused.DEVICE
    if len(group.touched | reads.definitions) > MOST_BUFFERS:
        return NotFused.BUFFERS
    # The checks below look at levels, which depend on the split that the group would have.
    before = group.rows, group.columns
    group.rows, group.columns = split
    reason = _misaligned(group, new, reads) or _out_of_order(group, new, reads)
    if reason is None:
        group.add(new, reads)
    else:
        group.rows, group.columns = before
    return reason


Split = tuple[tuple[Expr, ...], tuple[Expr, ...] | None]


def _split_with(group: FusionGroup, new: Definition) -> Split | NotFused:
    """The rows and columns that the group would have with `new` in it; or why these don't fit."""
    if isinstance(new.body, Scattered) or isinstance(group.members[0].body, Scattered):
        return NotFused.SCATTERED
    if isinstance(new.body, Reduced) and new.body.is_product:
        return NotFused.PRODUCT
    if group.multiplies:
        # Behind the loop, an iteration has one element of the product.
        fits = isinstance(new.body, Computed) and sized(new.sizes) == group.rows
        return (group.rows, group.columns) if fits else NotFused.PRODUCT
    if isinstance(new.body, Reduced) and group.scans:
        return NotFused.SCANNED  # the loop of a scan is serial, that of a reduction runs in lanes
    if isinstance(new.body, Reduced | Scanned):
        # A group without columns may become one with columns, if its rows end in what is reduced:
        # then its members are the elements that the reduction reads.
        rows, over = own = _own_split(new)
        if group.columns is None:
            return own if over and rows + over == group.rows else NotFused.DIMENSIONS
        return own if own == (group.rows, group.columns) else NotFused.DIMENSIONS
    sizes = sized(new.sizes)
    fits = sizes == group.space or (group.columns is not None and sizes == group.rows)
    return (group.rows, group.columns) if fits else NotFused.SIZES


def own_place(member: Definition) -> Expr:
    """The place in memory of the element that an iteration computes, over `variables`."""
    return member.place(index_of(member, variables(len(sized(member.sizes)))))


def _misaligned(group: FusionGroup, new: Definition, reads: Reads) -> NotFused | None:
    """Why `new` can't read what it reads of members, if so: only the element of the same iteration
    is in registers. One that is read transposed, say, belongs to another iteration."""
    for of, place in reads.places:
        if of in group.reads:
            # Expressions are interned: `is` means that the two places are equal for all sizes.
            if place is not own_place(of):
                return NotFused.OTHER_ELEMENT
            if group.level(of) == "column" and group.level(new) == "row":
                return NotFused.WHOLE_ROW  # a row is finished between loops over columns
    return None


def _out_of_order(group: FusionGroup, new: Definition, reads: Reads) -> NotFused | None:
    """Why `new` can't join because of order, if so: a scan would be read outside of its loop, or
    memory would be overwritten that a later iteration reads."""
    if not (group.scans or group.writers or new.into or isinstance(new.body, Scanned)):
        return None
    # Phases depend on all members, so they are worked out for the group as it would be.
    wider = FusionGroup(group.rows, group.columns)
    for member in group.members:
        wider.add(member, group.reads[member])
    wider.add(new, reads)
    if not all(_in_one_loop(wider, scan) for scan in wider.scans):
        return NotFused.SERIAL
    in_order = all(_stored_in_order(wider, m) for m in wider.writers) and all(
        m.into is None or overwrites_last(wider, m, m.into) for m in wider.writers
    )
    return None if in_order else NotFused.OVERWRITTEN


def _stored_in_order(group: FusionGroup, new: Definition) -> bool:
    """Whether all earlier writes of the group to the same memory as `new` are stored before it, and
    at the same place: if two writes meet at different iterations, which one comes last would depend
    on the order of iterations."""
    before = group.members[: group.members.index(new)]
    stores = [m for m in before if owner(m) is owner(new)]
    if not stores:
        return True
    # From the last member back, so that a member's own last use is final before it counts for its
    # operands.
    phases, last = phases_of(group), last_uses(group)

    def time(member: Definition) -> tuple[int, int]:
        """When it is stored: in which phase, and whether before, in or after its loop."""
        order = {"row": 0, "column": 1, "reduction": 2}[group.level(member)]
        return (last if order == 1 else phases)[member], order

    same_place = all(own_place(m) is own_place(new) for m in stores)
    return same_place and max(map(time, stores)) <= time(new)


def _in_one_loop(group: FusionGroup, scan: Definition) -> bool:
    """Whether all members that read the scan do so in its own loop, and don't take too much there
    if the loop runs one element at a time."""
    phase, last = phases_of(group)[scan], last_uses(group)
    if last[scan] > phase:
        return False
    assert isinstance(scan.body, Scanned)
    if sized(scan.sizes[scan.body.dim + 1 :]) or scan.device != "cpu":
        return True  # other dimensions run over lanes, or all elements do
    # All elements that are computed in the loop of the scan run one by one with it.
    shared = [m for m in group.members if last[m] == phase and group.level(m) == "column"]
    return sum([group.reads[m].cost for m in shared if m is not scan]) <= SERIAL_COST


def overwrites_last(group: FusionGroup, new: Definition, memory: Definition) -> bool:
    """Whether `new` may be stored in `memory`: no member reads an element of it after `new` has
    overwritten that, neither in another iteration (another place) nor in a later loop."""
    last = last_uses(group)
    for member in group.members:
        for of, place in group.reads[member].places:
            # Another place is another iteration, which may run after this one; a later loop runs
            # after it.
            late = place is not own_place(new) or last[member] > last[new]
            if owner(of) is memory and of is not new and late:
                return False
    return group.columns is None or group.level(new) == "column"


def last_uses(group: FusionGroup) -> dict[Definition, int]:
    """By member: the last loop over columns that computes it. An element of a column lives in
    registers for one iteration, so it is computed again in each loop that reads it. It is stored in
    the last one."""
    last = phases_of(group)
    for member in reversed(group.members):
        for of, _ in group.reads[member].places:
            # Rows and reductions are kept in registers; an element of a column lives in one
            # iteration.
            if of in last and group.level(of) == "column":
                last[of] = max(last[of], last[member])
    return last


def phases_of(group: FusionGroup) -> dict[Definition, int]:
    """By member: the number of the loop over columns in which it is first computed; of a row, the
    loop that it is computed before. What reads a reduction has to wait for the next loop."""
    loop: dict[Definition, int] = {}
    ready: dict[Definition, int] = {}  # the first loop that can use it
    for member in group.members:
        # Members are in topological order: what this one reads of them has been given its loop.
        needs = [ready[of] for of, _ in group.reads[member].places if of in ready]
        loop[member] = max(needs, default=0)
        ready[member] = loop[member] + (1 if group.level(member) == "reduction" else 0)
    return loop


# --------------------------------------------------------------------------------------------------
# What a definition reads


class _Probe(Builder):
    """A body that records what is read: definitions are run on it symbolically, and the loop values
    that come out are thrown away."""

    def __init__(self) -> None:
        super().__init__("probe")
        self.places: list[tuple[Definition, Expr]] = []
        self._shared: dict[Any, LoopValue] = {}
        self.cost = 0
        self.faults = False
        self.symbols: set[Any] = set()

    def read(self, of: Definition, place: Expr, mask: LoopValue | None = None) -> LoopValue:
        self.symbols |= place.symbols
        if (of, place) not in self.places:
            self.places.append((of, place))
        return self.once(
            ("read", of), (place,), lambda: LoopValue(Op.CONSTANT, of.type, constant=0)
        )

    def fault(self, when: LoopValue) -> None:
        self.faults = True

    def once(self, key: object, index: Index, make: Callable[[], LoopValue]) -> LoopValue:
        element = (key, index)
        if element not in self._shared:
            self._shared[element] = make()
        return self._shared[element]

    def as_index(self, value: LoopValue) -> Expr:
        if value.op is Op.IOTA and value.index is not None:
            return value.index
        return super().as_index(value)

    def add(self, value: LoopValue) -> LoopValue:
        # In additions. What is slow one by one must not join the serial loop of a scan.
        self.cost += 20 if value.op in SLOW else value.op is not Op.CONSTANT
        if value.index is not None:
            self.symbols |= value.index.symbols
        return value


def probe(of: Definition) -> Reads:
    """What computing an element of `of` reads and costs. The index is `variables`, rows first; for
    a reduction, columns follow, and one step is counted."""
    body = _Probe()
    rows = sized(of.sizes)
    index = placed(of.sizes, variables(len(rows)))
    if isinstance(of.body, Computed):
        of.body.at(body, index)
    elif isinstance(of.body, Reduced):
        columns = variables(len(sized(of.body.over)), len(rows))
        # The bodies of definitions are run without a kernel, only to see what they read.
        args = of.body.at(body, index, placed(of.body.over, columns))
        of.body.then(body, LoopValue(of.body.op, reduced_type(of.body.op, args), args), index)
    elif isinstance(of.body, Scanned):
        index = index_of(of, variables(len(rows)))
        start = of.body.scan.start(body)
        state = tuple([LoopValue(Op.CARRIED, initial.type, (initial,)) for initial in start])
        of.body.then(body, of.body.scan.step(body, state, index), index)
    elif isinstance(of.body, Scattered):
        _probe_updates(of, of.body, body)
    numbers = (*of.sizes, *of.strides, *getattr(of.body, "over", ()))
    symbols = body.symbols.union(*[number.symbols for number in numbers])
    return Reads(tuple(body.places), body.cost, body.faults, frozenset(symbols))


def _probe_updates(of: Definition, scattered: Scattered, body: _Probe) -> None:
    assert of.into is not None
    rows = variables(len(scattered.rows))
    over = variables(len(scattered.over), len(rows))
    new = scattered.at(body, rows, over)
    if scattered.combine is not None:
        body.read(of.into, ZERO)
        scattered.combine(body, LoopValue(Op.CONSTANT, of.type, constant=0), new.value)


def reduced_type(op: Op, args: tuple[LoopValue, ...]) -> Type:
    return Type.I64 if op in (Op.ARG_MAX, Op.ARG_MIN) else args[0].type


@dataclass(frozen=True, slots=True)
class InputWrites:
    """Where a plan overwrites inputs that it has read, so that the captured graph can't be run
    instead if something fails later: positions from which on a failure is `final`; by position, the
    members whose parts of inputs are `saved` first, so that they can be put back; and inputs that
    are written to `too_early`, which have to be written at the end."""

    final: set[int] = field(default_factory=set)
    saved: dict[int, list[Definition]] = field(default_factory=dict)
    too_early: set[Definition] = field(default_factory=set)


def written_after_reading(
    plan: Sequence[FusionGroup | ExternCall], inputs: Set[Definition]
) -> InputWrites:
    """Find the writes of a plan to memory of `inputs` that it has read before."""
    # A failure is answered by running the captured graph from the start, which needs its inputs
    # unchanged up to the last place that can fail.
    last = max([at for at, item in enumerate(plan) if _may_fail(item)], default=-1)
    read: set[Definition] = set()
    once = InputWrites()
    for at, item in enumerate(plan):
        if isinstance(item, ExternCall):
            read |= {owner(of) for of in item.reads}
            written = {owner(result) for result in item.makes} & inputs
            once.too_early.update(written if last > at else ())
            once.final.update({at} if written else ())
            continue
        for reads in item.reads.values():
            read |= reads.definitions
        for member in item.members:
            into = member.into
            if into is None or into not in inputs or into not in read:
                continue
            part = isinstance(member.body, Computed) and member.sizes != into.sizes
            # A part is small, most of the time, and can be copied before it is overwritten. For all
            # of an input it is cheaper to write at the end.
            if part and last >= at:
                once.saved.setdefault(at, []).append(member)
            elif last >= at:
                once.too_early.add(into)
            else:
                once.final.add(at)
    return once


def _may_fail(item: FusionGroup | ExternCall) -> bool:
    return item.raises if isinstance(item, ExternCall) else item.faults


def users(plan: Sequence[FusionGroup | ExternCall]) -> dict[Definition, set[int]]:
    """By definition: the positions in the plan of the groups and calls that read it."""
    readers: dict[Definition, set[int]] = {}
    for at, item in enumerate(plan):
        for of in read_by(item):
            readers.setdefault(of, set()).add(at)
    return readers


def read_by(item: FusionGroup | ExternCall) -> Iterator[Definition]:
    """The definitions that a group or call reads, or writes into (the rest of that memory is read
    by others afterwards)."""
    if isinstance(item, ExternCall):
        yield from item.reads
    else:
        for member, reads in item.reads.items():
            if member.into is not None:
                yield member.into
            for of, _ in reads.places:
                yield of
