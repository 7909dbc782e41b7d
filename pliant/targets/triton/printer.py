"""A kernel of the loop IR as Triton source.

The one idea: the text is what a person would write. A value is a line; what is computed twice is a
name the second time. What varies along neither axis of the tile stays a scalar, what varies along
one is a row or a column of blocks, and Triton's broadcasting does the rest:

    @triton.jit
    def kernel_whole(b0, b1, s0, s1, ROWS: tl.constexpr, COLUMNS: tl.constexpr, ...):
        program = tl.program_id(0)
        i0 = program.to(INDEX) * ROWS + tl.arange(0, ROWS)[:, None]
        in_rows = i0 < s0
        column = tl.arange(0, COLUMNS)[None, :].to(INDEX)
        in_columns = column < s1
        load0 = tl.load(b0 + (i0 * s1 + column), mask=in_rows & in_columns)
        max1 = max_along(tl.where(in_columns, load0, float("-inf")))

A row kernel is two functions, for rows that fit into a tile (`_whole`) and for those that don't
(`_looped`), of which a launch chooses one by the number of columns. All functions of a source have
the same parameters. ROWS and COLUMNS, the shape of the tile, are constants for Triton's compiler;
INDEX is the type of indices, 32 bits wide if all of them are surely that small.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Final

from pliant.loop.body import FLAG
from pliant.loop.ir import REDUCTIONS, Access, Combine, Kernel, Loop, LoopValue, Op
from pliant.loop.types import FLOAT
from pliant.sym.expr import Expr
from pliant.targets.triton.blocks import MOST_ROWS
from pliant.targets.triton.expressions import (
    DTYPES,
    OPS,
    cast,
    is_negative_zero,
    literal,
    takes_literals,
    typed,
)
from pliant.targets.triton.index_text import (
    NONE,
    Axes,
    IndexText,
    KernelArguments,
    Text,
)
from pliant.targets.triton.random_bits import FOURS, drawn_elements, random_bits
from pliant.targets.triton.reductions import ACCUMULATORS
from pliant.targets.triton.scans import BlockScan
from pliant.targets.triton.tiling import Pass, Tiling
from pliant.targets.triton.unmasked import (
    LAST,
    can_be_unmasked,
    conditions_at_the_end,
    conditions_of_a_tile,
    cutting,
    ends_within_a_vector,
    with_conjunctions,
)

ROWS: Final[Axes] = frozenset({"rows"})
COLUMNS: Final[Axes] = frozenset({"columns"})
NAME: Final = "kernel"  # of the function; equal kernels have equal sources
OUT_OF_RANGE: Final = "an index or a value is out of range"


class KernelPrinter:
    """Prints a pointwise kernel: every value once, for one tile."""

    suffix = ""
    constants: Sequence[str] = ("ROWS", "COLUMNS", "INDEX")

    def __init__(self, kernel: Kernel, tiling: Tiling, arguments: KernelArguments) -> None:
        self.kernel = kernel
        self.tiling = tiling
        self.index = IndexText(arguments, kernel.signed)
        self.lines: list[str] = []
        self.indent = "    "
        self.names: dict[LoopValue, Text] = {}
        self.known: dict[str, Text] = {}  # what was computed, by its text
        self.inside = ""  # a condition that holds where there are columns
        self.masked = True  # whether a tile may reach beyond the end of a tensor
        self.sure: frozenset[LoopValue] = frozenset()  # conditions that hold in the whole tile
        self.cutting = cutting(tiling)  # masks that most programs do without
        self.drawn = drawn_elements(tiling.body)
        self.column_loop = tiling.column_loop  # whose iterations the columns are, if it is one loop
        self._count = 0

    # ---- the function

    def function(self, parameters: Sequence[str]) -> str:
        constants = [f"{name}: tl.constexpr" for name in self.constants]
        head = f"@triton.jit\ndef {NAME}{self.suffix}("
        return "\n".join([f"{head}{', '.join([*parameters, *constants])}):", *self.lines])

    def body(self) -> None:
        """Write what a program computes; twice if masks that few programs need would cut what all
        of them load in pieces."""
        self._place()
        self.index.names[LAST] = Text(LAST.name)
        unmasked = conditions_of_a_tile(self.cutting, self.tiling, self.index)
        if unmasked:
            self.line(f"if {' & '.join(unmasked.values())}:")
            sure = with_conjunctions(unmasked, self.tiling.values)
            self._indented(lambda: self._values(sure))
            self.line("else:")
            self._indented(self._values)
        else:
            self._values()

    def _values(self, sure: frozenset[LoopValue] = frozenset()) -> None:
        """Write all values, where some conditions hold."""
        before, self.sure = dict(self.known), sure
        for item in self.tiling.body:
            if isinstance(item, Pass):
                self.columns(item)
            elif item not in sure:
                self.value(item)
        self.known, self.sure = before, frozenset()

    def _place(self) -> None:
        """Write where the tile of a program is. Programs are numbered with the blocks of columns
        fastest, then the blocks of rows, then the outer loops."""
        tiling = self.tiling
        # How to bind the variables of an axis, and how many programs it has, fastest first.
        steps: list[tuple[Callable[[str], None], str]] = []
        if tiling.column_loop is not None:
            steps.append((self._columns_at, self._blocks(tiling.column_loop.extent, "COLUMNS")))
        if tiling.rows is not None:
            steps.append((self._rows_at, self._blocks(tiling.rows.extent, "ROWS")))
        for loop in reversed(tiling.outer):
            steps.append((partial(_bind_outer, self, loop), self._number(loop.extent)))
        if steps:
            self.line("program = tl.program_id(0)")
        for number, (bind, count) in enumerate(steps):
            # The slowest one takes what is left: a remainder would change nothing.
            last = number == len(steps) - 1
            bind("program" if last else f"(program % ({count}))")
            if not last:
                self.line(f"program = program // ({count})")

    def _blocks(self, extent: Expr, size: str) -> str:
        return f"({self._number(extent)} + {size} - 1) // {size}"

    def _number(self, extent: Expr) -> str:
        return self.index.write(extent).text

    def _columns_at(self, at: str) -> None:
        loop = self.tiling.column_loop
        assert loop is not None
        row = "[None, :]" if self.tiling.rank > 1 else ""
        first = f"{at}.to(INDEX) * COLUMNS"
        if self.drawn:
            self.line(f"fours = {first} + {FOURS}{row} * 4")
        if self.cutting:
            self.line(f"{LAST.name} = {first} + COLUMNS - 1")
        self._axis(loop, f"{first} + tl.arange(0, COLUMNS){row}", COLUMNS, "in_columns")

    def _rows_at(self, at: str) -> None:
        loop = self.tiling.rows
        assert loop is not None
        text = f"{at}.to(INDEX) * ROWS + tl.arange(0, ROWS)[:, None]"
        self._axis(loop, text, ROWS, "in_rows")

    def _axis(self, loop: Loop, text: str, axes: Axes, mask: str) -> None:
        self.bind(loop, text, axes)
        self.line(f"{mask} = {loop.var.name} < {self._number(loop.extent)}")

    def bind(self, loop: Loop, text: str, axes: Axes) -> None:
        """Define the variable of a loop as `text`, which varies along `axes`."""
        name = loop.var.name
        if text != name:
            self.line(f"{name} = {text}")
        self.index.names[loop.var] = Text(name, axes)
        self.index.extents[loop.var] = loop.extent

    def columns(self, item: Pass) -> None:
        raise NotImplementedError("a pointwise kernel has no passes")

    # ---- values

    def line(self, text: str) -> None:
        self.lines.append(self.indent + text)

    def _indented(self, write: Callable[[], None]) -> None:
        before, self.indent = self.indent, self.indent + "    "
        write()
        self.indent = before

    def new_name(self, value: LoopValue) -> str:
        self._count += 1
        return f"{_NAMES.get(value.op, value.op.text)}{self._count - 1}"

    def value(self, value: LoopValue) -> None:
        if value.op is Op.STORE:
            self._store(value)
        elif value.op is Op.ATOMIC_ADD:
            self._add_to(value)
        elif value.op is not Op.CONSTANT and not self.drawn.get(value):
            text = _TEXTS.get(value.op, KernelPrinter.operation)(self, value)
            self.names[value] = self.assign(value, text)
            if value.op is Op.AS_INDEX:
                self.index.names[value.index] = self.names[value]

    def assign(self, value: LoopValue, text: Text) -> Text:
        """Assign the text to a new name, unless the same text has one already (CSE)."""
        if text.text.isidentifier():
            return text
        variable = self.known.get(text.text)
        if variable is None:
            name = self.new_name(value)
            self.line(f"{name} = {text.text}")
            variable = self.known[text.text] = Text(name, text.axes)
        return variable

    def text(self, value: LoopValue, plain: bool = False) -> Text:
        """A value as an operand: its name, or a constant. `plain`: a literal may be written without
        its type, as another operand has it."""
        if value.op is not Op.CONSTANT:
            return self.names[value]
        assert value.constant is not None
        if plain and not is_negative_zero(value.constant):
            return Text(literal(value.constant))
        return Text(typed(value.constant, value.type))

    def operation(self, value: LoopValue) -> Text:
        plain = takes_literals(value)
        args = [self.text(arg, plain) for arg in value.args]
        axes = NONE.union(*[arg.axes for arg in args])
        return Text(OPS[value.op](value.args[-1].type, *[arg.text for arg in args]), axes)

    def select(self, value: LoopValue) -> Text:
        condition, *choices = value.args
        if condition in self.sure:
            return self.text(choices[0])
        plain = takes_literals(value)
        args = [self.text(condition), *[self.text(choice, plain) for choice in choices]]
        axes = NONE.union(*[arg.axes for arg in args])
        return Text(f"tl.where({', '.join([arg.text for arg in args])})", axes)

    def cast(self, value: LoopValue) -> Text:
        source = self.text(value.args[0])
        return Text(cast(value.args[0].type, value.type, source.text), source.axes)

    def bitcast(self, value: LoopValue) -> Text:
        source = self.text(value.args[0])
        return Text(f"{source.text}.to({DTYPES[value.type]}, bitcast=True)", source.axes)

    def iota(self, value: LoopValue) -> Text:
        assert value.index is not None
        if value.index.value is not None:
            return Text(typed(value.index.value, value.type))
        text = self.index.write(value.index, wide=True)
        operand = text.text if text.text.isidentifier() else f"({text.text})"
        return Text(f"{operand}.to(tl.int64)", text.axes)

    def as_index(self, value: LoopValue) -> Text:
        source = self.text(value.args[0])
        return Text(f"{source.text}.to(INDEX)", source.axes)

    # ---- memory

    def load(self, value: LoopValue) -> Text:
        mask = [self.text(arg) for arg in value.args if arg not in self.sure]
        place = self._place_of(value, *[text.axes for text in mask])
        conditions = [text.text for text in mask] + self._masks(place.axes)
        if self.inside and not place.axes >= COLUMNS:
            # A load that is the same for all columns still must not happen if there are none.
            conditions.append(self.inside)
        other = ", other=0" if mask else ""
        condition = f", mask={' & '.join(conditions)}{other}" if conditions else ""
        return Text(f"tl.load({place.text}{condition})", place.axes)

    def _store(self, value: LoopValue) -> None:
        assert value.buffer is not None
        stored, *mask = [self.text(arg) for arg in value.args]
        if value.buffer.name == FLAG.name:
            self._assert(mask)
            return
        place = self._place_of(value, stored.axes, *[text.axes for text in mask])
        conditions = [text.text for text in mask] + self._masks(place.axes)
        condition = f", mask={' & '.join(conditions)}" if conditions else ""
        shared = self.tiling.by_rows or self.tiling.product is not None
        if value.buffer.access is Access.READ_WRITE and shared:
            self.line("tl.debug_barrier()")  # other threads may have to read it first
        self.line(f"tl.store({place.text}, {stored.text}{condition})")
        # What was loaded from the buffer before may be something else now.
        for text in [
            text for text in self.known if text.startswith(f"tl.load({value.buffer.name}")
        ]:
            del self.known[text]

    def _add_to(self, value: LoopValue) -> None:
        """Write an atomic addition for each element of the tile, even along axes on which neither
        place nor value depend: each iteration adds once."""
        added, *mask = [self.text(arg) for arg in value.args]
        rows = ROWS if self.tiling.rows is not None else NONE
        columns = COLUMNS if self.tiling.columns is not None else NONE
        place = self._place_of(value, rows, columns)
        conditions = [text.text for text in mask] + self._masks(place.axes)
        condition = f", mask={' & '.join(conditions)}" if conditions else ""
        self.line(f'tl.atomic_add({place.text}, {added.text}{condition}, sem="relaxed")')

    def _assert(self, mask: Sequence[Text]) -> None:
        conditions = [text.text for text in mask]
        conditions += self._masks(NONE.union(*[text.axes for text in mask]))
        if self.inside:
            conditions.append(self.inside)
        wrong = " & ".join(conditions) or "True"
        self.line(f'tl.device_assert(({wrong}) == 0, "{OUT_OF_RANGE}")')

    def _place_of(self, value: LoopValue, *others: Axes) -> Text:
        """The pointers of an access, as blocks along the axes of its index and `others`. Triton
        stores a block only through a block of pointers of the same shape."""
        assert value.index is not None and value.buffer is not None
        index = self.index.write(value.index + value.buffer.base)
        missing = NONE.union(*others) - index.axes
        parts = [value.buffer.name] + ([] if index.text == "0" else [index.text])
        if missing:
            axes = index.axes | missing
            shape = [name.upper() if name in missing else "1" for name in _AXES if name in axes]
            if self.tiling.rank == 2:
                # Triton broadcasts blocks of equal rank only.
                shape = [name.upper() if name in missing else "1" for name in _AXES]
            parts.append(f"tl.full([{', '.join(shape)}], 0, INDEX)")
        return Text(" + ".join(parts), index.axes | missing)

    def _masks(self, axes: Axes) -> list[str]:
        return [f"in_{axis}" for axis in _AXES if axis in axes] if self.masked else []


def _conjunction(printer: KernelPrinter, value: LoopValue) -> Text:
    unsure = [arg for arg in value.args if arg not in printer.sure]
    return printer.text(unsure[0]) if len(unsure) == 1 else printer.operation(value)


def _second_moment(printer: KernelPrinter, value: LoopValue) -> Text:
    mean = printer.text(value.args[0])
    return Text(f"{mean.text}_m2", mean.axes)


def _bind_outer(printer: KernelPrinter, loop: Loop, at: str) -> None:
    """A loop of which a program computes one iteration."""
    printer.bind(loop, f"{at}.to(INDEX)", NONE)


class CombinePrinter(KernelPrinter):
    """Prints the function that combines the states of two parts of a scan."""

    def __init__(
        self,
        kernel: Kernel,
        tiling: Tiling,
        arguments: KernelArguments,
        number: int,
        combine: Combine,
    ) -> None:
        super().__init__(kernel, tiling, arguments)
        self.number = number
        self.combine = combine

    def body(self) -> None:
        for name, state in (("a", self.combine.left), ("b", self.combine.right)):
            self.names |= {value: Text(f"{name}{at}") for at, value in enumerate(state)}
        for value in self.combine.body:
            self.value(value)
        results = [self.text(value).text for value in self.combine.result]
        self.line(f"return {', '.join(results)}")

    def function(self, parameters: Sequence[str]) -> str:
        own = [self.names[value].text for value in (*self.combine.left, *self.combine.right)]
        head = f"@triton.jit\ndef combine{self.number}({', '.join(own)}):"
        return "\n".join([head, *self.lines])


class RowPrinter(KernelPrinter):
    """Prints a row kernel."""

    def __init__(self, kernel: Kernel, tiling: Tiling, arguments: KernelArguments) -> None:
        super().__init__(kernel, tiling, arguments)
        passes = [item for item in tiling.body if isinstance(item, Pass)]
        self.scans = {scan: at for at, scan in enumerate([s for p in passes for s in p.scans])}
        self.scan_of = {after: scan for scan in self.scans for after in scan.after}
        self.carried: set[LoopValue] = set()  # what of the pass has its value for the next column

    def value(self, value: LoopValue) -> None:
        if value.op is Op.CARRY:
            self._carry(value)
        else:
            super().value(value)

    def _carry(self, value: LoopValue) -> None:
        """Behind the last one of a scan: what is carried, for each column."""
        scan = self.scan_of[value.args[1]]
        self.carried.add(value.args[0])
        if self.carried.issuperset(scan.carried):
            names = [self.new_name(value) for _ in scan.after]
            self._scan(scan, names)
            for after, name in zip(scan.after, names, strict=True):
                self.names[after] = Text(name, ROWS | COLUMNS)

    def _scan(self, scan: BlockScan, names: Sequence[str]) -> None:
        shape = "[ROWS, COLUMNS]"
        # `tl.associative_scan` wants all parts of a state as blocks of the same shape.
        blocks: list[str] = []
        for after in scan.after:
            text = self.text(after)
            spread = f"tl.broadcast_to({text.text}, {shape})"
            blocks.append(text.text if text.axes >= ROWS | COLUMNS else spread)
        given = blocks[0] if len(blocks) == 1 else f"({', '.join(blocks)})"
        self.line(
            f"{', '.join(names)} = tl.associative_scan({given}, 1, combine{self.scans[scan]})"
        )

    def bind_columns(self, item: Pass) -> None:
        """Define the variables of the loops of a pass, which are one axis of the tile: by divisions
        of the number of the column, unless there is one loop alone."""
        last = item.loops[-1]
        self.column_loop = last if len(item.loops) == 1 else None
        if len(item.loops) == 1:
            self.index.names[last.var] = Text("column", COLUMNS)
            self.index.extents[last.var] = last.extent
            return
        rest = "column"
        for loop in reversed(item.loops[1:]):
            extent = self._number(loop.extent)
            self.bind(loop, f"({rest} % {extent})", COLUMNS)
            rest = f"({rest} // {extent})"
        self.bind(item.loops[0], rest, COLUMNS)

    def _arguments(self, value: LoopValue) -> list[Text]:
        return [self.text(arg) for arg in value.args]

    def _results(self, value: LoopValue, name: str, results: Sequence[tuple[str, str]]) -> None:
        for suffix, text in results:
            self.line(f"{name}{suffix} = {text.replace('{}', name)}")
        self.names[value] = Text(name, ROWS)


class WholeRows(RowPrinter):
    """Prints a row kernel for tiles that hold all columns of their rows: what one pass has loaded
    is there for the next, and a reduction is one call."""

    suffix = "_whole"

    def _place(self) -> None:
        super()._place()
        assert self.tiling.columns is not None
        self.line("column = tl.arange(0, COLUMNS)[None, :].to(INDEX)")
        if self.drawn:
            self.line(f"fours = ({FOURS}[None, :] * 4).to(INDEX)")
        self.line(f"in_columns = column < {self._number(self.tiling.columns)}")

    def columns(self, item: Pass) -> None:
        self.bind_columns(item)
        if not (item.extent.value or 0) > 0:
            self.inside = f"({self._number(item.extent)} > 0)"
        for value in item.body:
            if value.op in REDUCTIONS:
                self._reduce(value, item)
            else:
                self.value(value)
        self.inside = ""

    def _reduce(self, value: LoopValue, item: Pass) -> None:
        args = [text.text for text in self._arguments(value)]
        count = item.extent.value
        # A mean divides by this; of no columns nothing is divided by 0.
        counted = f"tl.maximum({self._number(item.extent)}, 1)"
        if count is not None:
            counted = f"tl.full([], {max(count, 1)}, tl.int32)"
        results = ACCUMULATORS[value.op].whole(value.args[0].type, args, "in_columns", counted)
        self._results(value, self.new_name(value), results)


class LoopedRows(RowPrinter):
    """Prints a row kernel whose passes go through the columns in blocks. Reductions accumulate a
    block element by element, and reduce it to one number for each row after the loop."""

    suffix = "_looped"

    def __init__(self, kernel: Kernel, tiling: Tiling, arguments: KernelArguments) -> None:
        super().__init__(kernel, tiling, arguments)
        self.carry_names: dict[LoopValue, str] = {}  # from block to block

    def _rows_at(self, at: str) -> None:
        super()._rows_at(at)
        if any(can_be_unmasked(item, self.tiling) for item in self.tiling.body):
            assert self.tiling.rows is not None
            rows = self.tiling.rows.extent
            known = rows.value is not None and rows.value % MOST_ROWS == 0
            each = f"({at} + 1).to(INDEX) * ROWS <= {self._number(rows)}"
            self.line(f"all_rows = {'True' if known else each}")

    def columns(self, item: Pass) -> None:
        states = self._start(item)
        if ends_within_a_vector(item, self.tiling):
            # All loads would be cut in pieces by a mask that the last block alone needs.
            whole = f"{self._number(item.extent)} // COLUMNS * COLUMNS"
            self._loop(item, states, frozenset(), end=whole)
            self._loop(item, states, start=whole)
        elif not can_be_unmasked(item, self.tiling):
            self._loop(item, states)
        else:
            unmasked = conditions_at_the_end(item, self.tiling, self.index)
            conditions = ["all_rows", f"({self._number(item.extent)} % COLUMNS == 0)"]
            self.line(f"if {' & '.join([*conditions, *unmasked.values()])}:")
            sure = with_conjunctions(unmasked, item.body)
            self._indented(lambda: self._loop(item, states, sure))
            self.line("else:")
            self._indented(lambda: self._loop(item, states))
        for value, state in states.items():
            results = ACCUMULATORS[value.op].end(value.args[0].type, state)
            self._results(value, state[0].rpartition("_")[0], results)

    def _loop(
        self,
        item: Pass,
        states: dict[LoopValue, list[str]],
        sure: frozenset[LoopValue] | None = None,
        start: str = "0",
        end: str | None = None,
    ) -> None:
        """Write the loop over blocks of columns, from `start` to `end`. `sure`: the conditions that
        hold everywhere, as do all masks; None if masks are needed."""
        extent = self._number(item.extent)
        self.line(f"for first in range({start}, {end or extent}, COLUMNS):")
        # Names from inside of the loop aren't used after it, as it may have no iterations.
        variables = dict(self.known)
        self.masked, self.sure = sure is None, sure or frozenset()
        self._indented(lambda: self._block(item, states, extent))
        self.masked, self.sure = True, frozenset()
        self.known = variables

    def _block(self, item: Pass, states: dict[LoopValue, list[str]], extent: str) -> None:
        self.line("column = (first + tl.arange(0, COLUMNS)[None, :]).to(INDEX)")
        if self.drawn:
            self.line(f"fours = (first + {FOURS}[None, :] * 4).to(INDEX)")
        if self.masked:
            self.line(f"in_columns = column < {extent}")
        self.bind_columns(item)
        for value in item.body:
            if value in states:
                self._step(value, states[value])
            elif value not in self.sure:
                self.value(value)

    def _start(self, item: Pass) -> dict[LoopValue, list[str]]:
        states: dict[LoopValue, list[str]] = {}
        for value in item.body:
            if value.op is Op.CARRIED:
                start = self.text(value.args[0])
                name = self.carry_names[value] = f"{self.new_name(value)}_before"
                self.line(f"{name} = tl.broadcast_to({start.text}, [ROWS, 1])")
            if value.op not in REDUCTIONS:
                continue
            name = self.new_name(value)
            states[value] = []
            starts = ACCUMULATORS[value.op].start(value.args[0].type)
            for at, (number, t) in enumerate(starts):
                states[value].append(f"{name}_{at}")
                self.line(f"{name}_{at} = tl.full([ROWS, COLUMNS], {number}, {DTYPES[t]})")
        return states

    def _scan(self, scan: BlockScan, names: Sequence[str]) -> None:
        super()._scan(scan, names)
        carries = [self.carry_names[value] for value in scan.carried]
        states, before = ", ".join(names), ", ".join([*carries, *names])
        self.line(f"{states} = combine{self.scans[scan]}({before})")
        for carry, name, value in zip(carries, names, scan.carried, strict=True):
            bits = f"tl.int{value.type.bits}" if value.type in FLOAT else DTYPES[value.type]
            self.line(f"{carry} = last_along({name}, {bits})")

    def _step(self, value: LoopValue, state: Sequence[str]) -> None:
        name = state[0].rpartition("_")[0]
        args = [text.text for text in self._arguments(value)]
        mask = "in_columns" if self.masked else ""
        steps = ACCUMULATORS[value.op].step(value.args[0].type, state, args, mask)
        for target, text in steps:
            self.line(f"{target.replace('{}', name)} = {text.replace('{}', name)}")


_AXES: Final = ("rows", "columns")
_NAMES: Final = {Op.CARRIED: "start", Op.CARRY: "scan"}
_TEXTS: Final[dict[Op, Callable[[KernelPrinter, LoopValue], Text]]] = {
    Op.LOAD: KernelPrinter.load,
    Op.IOTA: KernelPrinter.iota,
    Op.AS_INDEX: KernelPrinter.as_index,
    Op.SELECT: KernelPrinter.select,
    Op.AND: _conjunction,
    Op.CAST: KernelPrinter.cast,
    Op.BITCAST: KernelPrinter.bitcast,
    Op.PHILOX: lambda printer, value: random_bits(printer, value, printer.column_loop),
    Op.WELFORD_M2: _second_moment,
    Op.CARRIED: lambda printer, value: printer.text(value.args[0]),  # in each column: see `scans`
}
