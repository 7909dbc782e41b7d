"""A kernel as LLVM IR: a function

    void name(ptr buffers, ptr sizes, i64 start, i64 stop)

where `buffers` and `sizes` are arrays in the order of the kernel, and `start <= i < stop` are the
iterations of its grid to run (0 and 1 if it has no grid).

The one idea: a body is written for some number of lanes, and again for what is left over: with a
mask where the machine has them, else one by one. In a loop that runs in lanes, what depends on its
variable is a vector, and everything else stays scalar.

Buffers are declared to LLVM as not overlapping. Floats are computed as written: no reassociation
but that of reductions, no contraction.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Final

from pliant.loop.ir import REDUCTIONS, Kernel, Loop, LoopKind, LoopValue, Op, Statement
from pliant.loop.types import FLOAT, Type
from pliant.sym.expr import Expr
from pliant.targets.cpu import llvm_access as access
from pliant.targets.cpu import llvm_blocks as blocks
from pliant.targets.cpu import llvm_pairs as pairs
from pliant.targets.cpu import llvm_reduce as reduce
from pliant.targets.cpu import llvm_serial as serial
from pliant.targets.cpu.llvm_halves import Halves
from pliant.targets.cpu.llvm_index import IndexWriter
from pliant.targets.cpu.llvm_lanes import Machine, plan
from pliant.targets.cpu.llvm_memory import BufferMemory
from pliant.targets.cpu.llvm_ops import NARROW, OPS, REGISTER, bitcast, cast
from pliant.targets.cpu.llvm_positions import compared
from pliant.targets.cpu.llvm_text import Code, Reg, literal

CHUNK: Final = 64
DEPTH: Final = 2
"""Pairwise summation: in each lane, `CHUNK` numbers are added up one after the other, `CHUNK` such
sums to another, and so on, `DEPTH` levels deep. The rounding error grows with the longest chain of
additions."""
COLUMN: Final = 16
COLUMN_DEPTH: Final = 4
"""The same where the lanes are not summed up at the end, as for the columns of a matrix: they don't
make chains shorter. If the size is known, this is the order of eager PyTorch."""

SYMBOL: Final = "kernel"
"""The name of the function: the same for all, so that equal kernels have equal text."""


def emit(kernel: Kernel, target: Machine) -> str:
    """The module with the kernel's function."""
    return Writer(kernel, target).module()


class Writer:
    """Writes the function of one kernel. `regs` has the register of each value, `symbols` that of
    each loop variable, size and index from data, `states` the accumulators of the reductions (and
    what serial loops carry) that the loops around are in."""

    def __init__(self, kernel: Kernel, target: Machine) -> None:
        self.kernel = kernel
        self.target = target
        self.plan = plan(kernel, target)
        self.code = Code(target.vector_bytes)
        self.regs: dict[LoopValue, Reg] = {}
        self.states: dict[LoopValue, reduce.State] = {}
        self.symbols: dict[Expr, Reg] = {}
        self.natural: set[Expr] = set(kernel.sizes) - kernel.signed  # known to be at least 0
        self.ended: dict[LoopValue, reduce.State] = {}  # the last states of reductions
        self.origins: dict[LoopValue, access.Origin] = {}
        self.outermost: Loop | None = None  # of the loops of a reduction
        self.before: set[LoopValue] = set()  # what stands before its loop
        self.memory = BufferMemory(self.code, kernel)
        self.halves = Halves()
        # Of the loop in lanes, if there is one around: its variable, the variable as a vector, how
        # many lanes, whether these are in pairs (`llvm_pairs`), where the loop ends if the last
        # lanes may be beyond that, and the mask of those that aren't.
        self.lane_var: Expr | None = None
        self.in_lanes: Reg | None = None
        self.lanes = 1
        self.in_pairs = False
        self.stop: Reg | None = None
        self.mask: Reg | None = None

    # The function

    def module(self) -> str:
        code = self.code
        for i, size in enumerate(self.kernel.sizes):
            self.symbols[size] = self._argument("%sizes", i, "i64")
        for i, buffer in enumerate(self.kernel.buffers):
            self.memory.pointers[buffer] = self._argument("%buffers", i, "ptr")
        for buffer in self.kernel.own:
            assert buffer.size is not None
            # At least one element: allocating 0 bytes may return null.
            self.memory.take(buffer, code.intrinsic("smax", self.index(buffer.size), 1))
        self._grid(Reg(code, "%start", "i64"), Reg(code, "%stop", "i64"))
        self.memory.give_back()
        head = f"define void @{SYMBOL}(ptr noalias nocapture readonly %buffers, "
        head += "ptr noalias nocapture readonly %sizes, i64 %start, i64 %stop) #0 {\nentry:"
        bits = 8 * self.target.vector_bytes
        # Without these LLVM splits vectors of 64 bytes on processors that it takes for slower with
        # them.
        width = f'"prefer-vector-width"="{bits}" "min-legal-vector-width"="{bits}"'
        parts = [head, *code.lines, "  ret void", "}", code.text()]
        return "\n".join(
            [*parts, f"attributes #0 = {{ nounwind {width} }}", *self.memory.metadata()]
        )

    def _argument(self, array: str, place: int, type: str) -> Reg:
        at = self.code.define(f"getelementptr inbounds {type}, ptr {array}, i64 {place}", "ptr", 1)
        return self.code.define(f"load {type}, {at}, align 8, !invariant.load !0", type, 1)

    def _grid(self, start: Reg, stop: Reg) -> None:
        """Write the loops of the grid, for the iterations from `start` to `stop`: a loop over rows
        (all loops but the last, counted together), and in it the last loop, which is shorter in the
        first row and in the last."""
        grid = self.kernel.grid
        if len(grid) <= 1:
            if grid:
                self.loop(grid[0], start, stop)
            else:
                self.block(self.kernel.body, None)
            return
        # `start` and `stop` are elements, wherever threads divide the work: the first row and the
        # last may be parts of rows. A width of 0 has no elements, but would be divided by.
        width = self.extent(grid[-1])
        safe = self.code.select(width.compare("eq", 0), 1, width)
        first, end = self.code.binary("udiv", start, safe), (stop + safe) - 1
        last = self.code.binary("udiv", end, safe)
        # Rounded up, no elements at all would still be a row.
        last = self.code.select(start.compare("lt", stop), last, first)

        outer = grid[:-1]
        extents = [self.extent(loop) for loop in outer]
        fixed = access.fixed(grid[-1])  # the same in all of a row: once, before its loop
        self.before.update(fixed)

        def row(number: Reg, *place: Reg) -> Sequence[Reg]:
            before = number * width
            low = self.code.intrinsic("smax", start - before, 0)
            high = self.code.intrinsic("smin", stop - before, width)
            for loop, at in zip(outer, place):
                self.bind(loop.var, at)
            for value in fixed:
                self.statement(value)
            self.loop(grid[-1], low, high)
            return _next_row(self.code, extents, place)

        self.count(first, last, 1, row, self._place(extents, first))

    def _place(self, extents: Sequence[Reg], number: Reg) -> list[Reg]:
        """The variables of the outer loops in the row with this number: its digits in the mixed
        radix of their extents."""
        regs: list[Reg] = []
        for extent in reversed(extents[1:]):
            # Division by 0 is undefined in LLVM, even where no iteration uses the result.
            safe = self.code.select(extent.compare("eq", 0), 1, extent)
            regs.append(self.code.binary("urem", number, safe))
            number = self.code.binary("udiv", number, safe)
        return [number, *reversed(regs)]

    # Loops

    def count(
        self,
        low: Reg,
        high: Reg,
        by: int | Reg,
        body: Callable[..., Sequence[Reg] | None],
        also: Sequence[Reg] = (),
    ) -> None:
        """Write a loop from `low` to `high` in steps of `by`, in SSA form: the states of reductions
        are phis at its head, and so are the registers `also`. `body(at, *also)` writes an iteration
        and returns what `also` is in the next one."""
        code = self.code
        # Tested at the head, so that a loop of no iterations has none.
        head, inside, after, before = code.label(), code.label(), code.label(), code.block
        carried = list(self.states.items())
        code.do(f"br label %{head}")
        code.start(head)
        place = len(code.lines)  # of the phis: what comes from the end of the body is not known yet
        entering = [low, *also] + [reg for _, state in carried for reg in state]
        # Placeholders for the phis, filled in below.
        at, *looped = [code.define("", reg.type, reg.lanes) for reg in entering]
        rest = iter(looped[len(also) :])
        self.states = {value: tuple([next(rest) for _ in state]) for value, state in carried}
        inner = dict(self.states)  # after the loop: what its head has when the condition fails
        code.do(f"br {at.compare('lt', high)}, label %{inside}, label %{after}")
        code.start(inside)
        with self.scope():
            then = body(at, *looped[: len(also)]) or ()
        leaving = [at + by, *then] + [reg for value, _ in carried for reg in self.states[value]]
        end = code.block  # where the body ends, which may have loops of its own
        code.do(f"br label %{head}")
        for i, (reg, first, next_value) in enumerate(zip([at, *looped], entering, leaving)):
            choices = f"[ {first.text}, %{before} ], [ {next_value.text}, %{end} ]"
            code.lines[place + i] = f"  {reg.text} = phi {reg.full_type} {choices}"
        code.start(after)
        self.states = inner

    @contextmanager
    def scope(self) -> Iterator[None]:
        """Registers that are defined inside aren't known afterwards: they don't dominate what
        follows, as a loop may have no iterations."""
        regs, symbols, origins = dict(self.regs), dict(self.symbols), dict(self.origins)
        yield
        self.regs, self.symbols, self.origins = regs, symbols, origins

    def extent(self, loop: Loop) -> Reg:
        return self.code.intrinsic("smax", self.index(loop.extent), 0)

    def block(self, body: tuple[Statement, ...], kind: LoopKind | None) -> None:
        for item in body:
            if not isinstance(item, Loop):
                if item not in self.before:
                    self.statement(item)
            elif item.kind is LoopKind.REDUCTION and kind is not LoopKind.REDUCTION:
                self.reduction(item)
            elif item.kind is LoopKind.SERIAL:
                serial.write(self, item)
            else:
                self.loop(item, self.code.number(0, "i64"), self.extent(item))

    def reduction(self, loop: Loop) -> None:
        """Write the outermost loop of reductions: their states begin before it, and become results
        after it."""
        # A reduction inside another loop has states of its own; those around it go on afterwards.
        around = self.states
        accumulators = _accumulators(loop, self.lanes, self.plan)
        # Inner loops of the same reduction add to these states; only other reductions begin anew.
        self.states = {v: reduce.initial(self.code, v, lanes) for v, lanes in accumulators.items()}
        self.outermost = loop
        self.loop(loop, self.code.number(0, "i64"), self.extent(loop))
        ended, self.states = self.states, around
        for value, state in ended.items():
            if state[0].lanes > self.lanes:
                state = reduce.fold(self.code, value, state)
            self.regs[value] = reduce.result(self.code, value, state)
            self.ended[value] = state

    def loop(self, loop: Loop, low: Reg, high: Reg) -> None:
        """Write a loop in the form that fits it: as blocks of a transposed access, as rows that are
        scanned side by side, or plainly."""
        turned = blocks.across(self, loop)
        if turned:
            blocks.write(self, loop, turned, low, high)
        elif serial.is_nest(self, loop):
            serial.side_by_side(self, loop, low, high)
        else:
            self.plain_loop(loop, low, high)

    def plain_loop(self, loop: Loop, low: Reg, high: Reg) -> None:
        """Write a loop: as many iterations in lanes as fill a vector, then the rest, masked or one
        by one."""
        access.start(self, loop)
        lanes = self.plan.get(loop, 1)
        sums = []
        chunk = _levels(loop, lanes)[0]
        # A row that fits into one chunk is one chain in any case.
        if loop.kind is LoopKind.REDUCTION and (loop.extent.value or math.inf) > chunk * lanes:
            statements = [v for v in loop.body if isinstance(v, LoopValue)]
            sums = [v for v in statements if v.op is Op.SUM and v.type in FLOAT]
        if lanes == 1:
            self._sums(loop, low, high, 1, sums)
            return
        # Lanes are a power of two.
        in_lanes = (high - low) & -lanes
        middle = low + self.code.intrinsic("smax", in_lanes, 0)
        self.in_pairs = pairs.in_pairs(loop)
        ordered = _ordered(loop, lanes)
        with self.vector(loop.var, lanes), self._folded(ordered, lanes):
            self._sums(loop, low, middle, lanes, sums)
        # Masked lanes compute something that is never stored. Where the order of additions counts
        # the rest is added one by one, as eager PyTorch does.
        if self.target.masks and not ordered:
            with self.vector(loop.var, lanes, high):
                self.count(middle, high, lanes, lambda at: self.iteration(loop, at))
        else:
            self._one_by_one(loop, middle, high)
        self.in_pairs = False

    def _sums(self, loop: Loop, low: Reg, high: Reg, lanes: int, sums: list[LoopValue]) -> None:
        """Write the loop, in pieces if there are `sums` of floats. If its size isn't known, the
        first piece needs no sum of its own, so that a short row costs no more than one chain."""
        chunk, depth = _levels(loop, lanes)
        if loop.extent.value is not None:  # without levels that it doesn't fill
            while depth > 1 and chunk**depth * lanes >= loop.extent.value:
                depth -= 1
        elif sums and loop is self.outermost:
            first = self.code.intrinsic("smin", low + chunk * lanes, high)
            self._pieces(loop, low, first, lanes, [], 0)
            low = first
        self._pieces(loop, low, high, lanes, sums, depth)

    def _pieces(
        self, loop: Loop, low: Reg, high: Reg, lanes: int, sums: list[LoopValue], depth: int
    ) -> None:
        """Write the loop in pieces of `depth` levels, each with sums of its own that are added to
        those around it when it ends; without `sums`, as a plain loop."""
        if not sums or depth == 0:
            self.count(low, high, lanes, lambda at: self.iteration(loop, at))
            return
        size = _levels(loop, lanes)[0] ** depth * lanes

        def piece(at: Reg) -> None:
            end = self.code.intrinsic("smin", at + size, high)
            # Pairwise summation: the error grows with the depth of the tree instead of the length
            # of the row.
            before = {value: self.states[value] for value in sums}
            for value, state in before.items():
                self.states[value] = reduce.initial(self.code, value, state[0].lanes)
            self._pieces(loop, at, end, lanes, sums, depth - 1)
            for value, state in before.items():
                self.states[value] = reduce.join(self.code, value, state, self.states[value])

        self.count(low, high, size, piece)

    @contextmanager
    def _folded(self, ordered: list[LoopValue], lanes: int) -> Iterator[None]:
        """Inside, the reductions `ordered` have states of their own in lanes. These are folded in
        eager's order at the end, before the rest of the loop is added one by one."""
        before = {value: self.states[value] for value in ordered}
        for value in ordered:
            self.states[value] = reduce.initial(self.code, value, lanes)
        yield
        for value, state in before.items():
            folded = reduce.fold_in_eager_order(self.code, value, self.states[value])
            self.states[value] = reduce.join(self.code, value, state, folded)

    def _one_by_one(self, loop: Loop, low: Reg, high: Reg) -> None:
        """Write iterations without lanes. Reductions in lanes go on in their first lane alone."""
        accumulators = _accumulators(loop, 1, {}) if loop.kind is LoopKind.REDUCTION else {}
        wide = {value: self.states[value] for value in accumulators}
        for value, state in wide.items():
            # The other lanes are joined with it when the whole loop has ended.
            self.states[value] = tuple([self.code.lane(reg, 0) for reg in state])
        self.count(low, high, 1, lambda at: self.iteration(loop, at))
        for value, state in wide.items():
            narrow = self.states[value]
            pairs = [self.code.with_lane(reg, 0, scalar) for reg, scalar in zip(state, narrow)]
            self.states[value] = tuple(pairs)

    @contextmanager
    def vector(self, var: Expr, lanes: int, stop: Reg | None = None) -> Iterator[None]:
        """Inside, `var` differs from lane to lane; with `stop`, lanes from there on are masked."""
        self.lane_var, self.lanes, self.stop = var, lanes, stop
        yield
        self.lane_var, self.lanes, self.stop, self.mask = None, 1, None, None
        self.in_lanes = None

    def iteration(self, loop: Loop, at: Reg) -> None:
        """Write the body of a loop once, with `at` as its variable (that of the first lane)."""
        self.bind(loop.var, at)
        if loop.var is self.lane_var:
            self.in_lanes = at + self.code.numbers(self.lanes)
            self.mask = None
            if self.stop is not None:  # fewer than there are lanes: in the narrow type of most
                left = self.code.convert("trunc", self.stop - at, "i32")
                self.mask = self.code.numbers(self.lanes, "i32").compare("lt", left)
        self.block(loop.body, loop.kind)

    def bind(self, var: Expr, at: Reg) -> None:
        self.symbols[var] = at
        self.natural.add(var)

    # Values

    def statement(self, value: LoopValue) -> None:
        self.halves.note(value)
        if value.op in REDUCTIONS:
            self._accumulate(value)
            return
        special = _SPECIAL.get(value.op)
        if special is not None:
            special(self, value)
            return
        args = [self.regs[arg] for arg in value.args]
        comparison = compared(self, value)
        self.regs[value] = comparison or OPS[value.op](self.code, value.args[-1].type, *args)

    def _accumulate(self, value: LoopValue) -> None:
        state = self.states[value]
        args = tuple([self.regs[arg] for arg in value.args])
        new = reduce.step(self.code, value, state, args)
        if self.mask is not None and state[0].lanes > 1:  # lanes past the end don't count
            pairs = zip(new, state)
            new = tuple([self.code.select(self.mask, after, before) for after, before in pairs])
        self.states[value] = new

    def index(self, expr: Expr, in_lanes: bool = False) -> Reg:
        """The expression; in lanes, or at the first lane."""
        symbols = self.symbols
        if in_lanes and self.lane_var is not None and self.in_lanes is not None:
            symbols = {**symbols, self.lane_var: self.in_lanes}
        return IndexWriter(self.code, symbols, self.natural).write(expr)

    def constant(self, value: LoopValue) -> None:
        number, t = value.constant, value.type
        assert number is not None
        if t in NARROW:
            single = Reg(self.code, literal(number, "float"), "float", 1, True)
            self.regs[value] = cast(self.code, Type.F32, t, single)
        else:
            self.regs[value] = self.code.number(number, REGISTER[t])

    def iota(self, value: LoopValue) -> None:
        assert value.index is not None
        self.regs[value] = self.index(value.index, in_lanes=True)

    def as_index(self, value: LoopValue) -> None:
        assert value.index is not None
        self.regs[value] = self.symbols[value.index] = self.regs[value.args[0]]

    def cast(self, value: LoopValue) -> None:
        (arg,) = value.args
        # Rounding is most of what bfloat16 costs: `Halves` knows where less will do.
        if value.type is Type.BF16 and arg.type is Type.F32:
            self.regs[value] = self.halves.rounded(self.code, arg, self.regs[arg])
            return
        # A bfloat16 cast back to float: if rounding changed nothing, the float is there already.
        unrounded = self.halves.before_rounding(arg)
        if unrounded is not None and value.type is Type.F32:
            self.regs[value] = self.regs[unrounded]
            return
        if self.in_pairs and arg.op is Op.LOAD and self.regs[arg].lanes > 1:
            self.regs[value] = pairs.apart(self.code, self.regs[arg])
            return
        self.regs[value] = cast(self.code, arg.type, value.type, self.regs[arg])

    def carried(self, value: LoopValue) -> None:
        self.regs[value] = self.states[value][0]

    def carry(self, value: LoopValue) -> None:
        to, new = value.args
        self.states[to] = (self.code.spread(self.regs[new], self.lanes),)


def _levels(loop: Loop, lanes: int) -> tuple[int, int]:
    """How many numbers are added up in a row in a sum over this loop, and in how many levels."""
    if lanes > 1:
        return CHUNK, DEPTH
    if loop.extent.value is None:
        return COLUMN, COLUMN_DEPTH
    # The chunk is the size's root of degree `COLUMN_DEPTH`, so that all levels are about as long,
    # as in eager PyTorch's sum of columns.
    bits = (loop.extent.value - 1).bit_length()
    return max(COLUMN, 1 << bits // COLUMN_DEPTH), COLUMN_DEPTH - 1


def _next_row(code: Code, extents: Sequence[Reg], place: Sequence[Reg]) -> list[Reg]:
    """The variables of the outer loops in the next row: they count like an odometer, since the
    divisions of `_place` take longer than a short row."""
    regs: list[Reg] = []
    carry: Reg | int = 1
    for extent, at in zip(reversed(extents[1:]), reversed(place[1:])):
        after = at + carry
        wraps = after.compare("eq", extent)
        regs.append(code.select(wraps, 0, after))
        # A loop that wraps advances the one around it.
        carry = code.convert("zext", wraps, "i64")
    return [place[0] + carry, *reversed(regs)]


def _accumulators(loop: Loop, lanes: int, plan: Mapping[Loop, int]) -> dict[LoopValue, int]:
    """The reductions over the loop, and how many lanes their states have."""
    # A reduction in eager's order has lanes of its own in the vector loop (`_folded`); between, its
    # state is that of the loops around.
    around, lanes = lanes, plan.get(loop, lanes)
    ordered = _ordered(loop, lanes) if loop in plan else []
    counts: dict[LoopValue, int] = {}
    for item in loop.body:
        if isinstance(item, LoopValue):
            counts |= {item: around if item in ordered else lanes} if item.op in REDUCTIONS else {}
        elif item.kind is LoopKind.REDUCTION:
            counts |= _accumulators(item, lanes, plan)
    return counts


def _ordered(loop: Loop, lanes: int) -> list[LoopValue]:
    """The reductions of a loop in lanes that are computed in eager's order."""
    if loop.kind is not LoopKind.REDUCTION:
        return []
    reductions = [v for v in loop.body if isinstance(v, LoopValue) and reduce.in_eager_order(v)]
    return [v for v in reductions if reduce.lanes_in_eager(v.type) == lanes]


def _bitcast(writer: Writer, value: LoopValue) -> None:
    writer.regs[value] = bitcast(writer.code, value.type, writer.regs[value.args[0]])


def _second_moment(writer: Writer, value: LoopValue) -> None:
    writer.regs[value] = writer.ended[value.args[0]][1]


_SPECIAL: Final[dict[Op, Callable[[Writer, LoopValue], None]]] = {
    Op.LOAD: access.load,
    Op.STORE: access.store,
    Op.CONSTANT: Writer.constant,
    Op.IOTA: Writer.iota,
    Op.AS_INDEX: Writer.as_index,
    Op.CAST: Writer.cast,
    Op.BITCAST: _bitcast,
    Op.WELFORD_M2: _second_moment,
    Op.CARRIED: Writer.carried,
    Op.CARRY: Writer.carry,
}
