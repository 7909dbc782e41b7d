"""Which loops of a kernel are the axes of a tile, and which are counted by programs.

The one idea: a program of the grid works on one tile, rows times columns. There are three forms:

- Pointwise: the loops hold nothing but values. The last loop is the columns, and one more is the
  rows: the next one, or, in a transpose, the one along which something is read in order.
- Row kernels: the loops over rows are the grid, and in them stand loops over the columns
  (*passes*): reductions, scans, and what uses their results. A tile has whole rows if they fit,
  else each pass goes through the columns in blocks.
- Products of matrices: the loops are the rows and columns of the result, and in them stands one
  loop that sums products of halves. What follows it is computed from elements in registers.

Whatever loops are left over are counted by programs, one iteration each.
"""

from __future__ import annotations

from typing import Final

from pliant.base.values import dataclass
from pliant.loop.collapse import stride
from pliant.loop.ir import (
    MEMORY,
    WEIGHT,
    Kernel,
    Loop,
    LoopKind,
    LoopValue,
    Op,
    Statement,
    values,
)
from pliant.loop.types import HALF
from pliant.sym.expr import ONE, ZERO, Expr, product_of, substitute, symbol
from pliant.targets.triton.scans import BlockScan, scans_of


@dataclass(frozen=True, slots=True, eq=False)
class Pass:
    """A loop over the columns of a row kernel (or several, directly inside one another), all values
    in it, and the scans among them."""

    loops: tuple[Loop, ...]
    body: tuple[LoopValue, ...]
    scans: tuple[BlockScan, ...] = ()

    @property
    def extent(self) -> Expr:
        return product_of([loop.extent for loop in self.loops])


@dataclass(frozen=True, slots=True, eq=False)
class Factor:
    """An operand of a product of matrices: what is loaded, and how far apart in memory its elements
    are along the axis of the tile that it has (rows or columns), and along the loop that is summed.
    One of these is 1."""

    load: LoopValue
    along: Expr
    inner: Expr
    first: Expr  # the place of its first element


@dataclass(frozen=True, slots=True, eq=False)
class MatrixProduct:
    """A loop that sums products of elements: of the row of `left` with the column of `right`."""

    loop: Loop
    left: Factor
    right: Factor
    result: LoopValue


@dataclass(frozen=True, slots=True, eq=False)
class Tiling:
    """A kernel as tiles. `columns` is the extent of the columns; of a row kernel, that of each of
    its passes. `body` is what a program computes."""

    outer: tuple[Loop, ...]  # one iteration for each program
    rows: Loop | None
    columns: Expr | None
    column_loop: Loop | None  # of a pointwise kernel
    body: tuple[LoopValue | Pass, ...]
    across: bool = False  # memory is read along the rows as well as along the columns
    product: MatrixProduct | None = None  # in front of the body, which computes with its elements

    @property
    def by_rows(self) -> bool:
        """Whether it is a row kernel."""
        return any(isinstance(item, Pass) for item in self.body)

    @property
    def values(self) -> tuple[LoopValue, ...]:
        """What is computed outside of passes."""
        return tuple([item for item in self.body if isinstance(item, LoopValue)])

    @property
    def shared_work(self) -> int:
        """Roughly how many instructions of a pointwise kernel compute what is the same in all rows
        of a tile: a tile of several rows runs them once for each column."""
        if self.rows is None or self.by_rows:
            return 0
        differing: set[LoopValue] = set()
        work = 0
        for value in self.body:
            assert isinstance(value, LoopValue)
            by_index = value.index is not None and self.rows.var in value.index.symbols
            if by_index or not differing.isdisjoint(value.args):
                differing.add(value)
            elif value.op not in MEMORY:
                work += WEIGHT.get(value.op, 1)
        return work

    @property
    def rank(self) -> int:
        return (self.rows is not None) + (self.columns is not None)


class NotTiled(Exception):
    """The kernel has loops for which there are no tiles."""


ONLY_ROW: Final = symbol("row")


def tiled(kernel: Kernel) -> Tiling:
    """The kernel as tiles; `NotTiled` says why it has none."""
    grid = kernel.grid
    body = grid[-1].body if grid else kernel.body
    if any(isinstance(item, Loop) for item in body):
        return _product_kernel(grid, body) or _row_kernel(grid, body)
    flat = tuple([item for item in body if isinstance(item, LoopValue)])
    if not grid:
        return Tiling((), None, None, None, flat)
    at, across = _second_axis(grid)
    rows = None if at is None else grid[at]
    outer = tuple([loop for loop in grid[:-1] if loop is not rows])
    return Tiling(outer, rows, grid[-1].extent, grid[-1], flat, across)


def _product_kernel(grid: tuple[Loop, ...], body: tuple[Statement, ...]) -> Tiling | None:
    """The tiling of a product of matrices; None for any other kernel."""
    inner = [item for item in body if isinstance(item, Loop)]
    if len(inner) != 1 or len(grid) != 2:
        return None
    product = _matrix_product(inner[0], *grid)
    if product is None:
        return None
    rest = tuple([item for item in body if isinstance(item, LoopValue)])
    return Tiling((), grid[0], grid[1].extent, grid[1], rest, product=product)


def _matrix_product(loop: Loop, rows: Loop, columns: Loop) -> MatrixProduct | None:
    """What the loop sums, if that is a product of halves, one of which depends on the rows only and
    the other one on the columns."""
    flat = [item for item in loop.body if isinstance(item, LoopValue)]
    total = flat[-1] if flat else None
    if loop.kind is not LoopKind.REDUCTION or total is None or total.op is not Op.SUM:
        return None
    (term,) = total.args
    if term.op is not Op.MUL or any(arg.op is not Op.CAST for arg in term.args):
        return None
    loads = [arg.args[0] for arg in term.args]
    if len(flat) != 6 or any(v.op is not Op.LOAD or v.args or v.type not in HALF for v in loads):
        return None
    by_axis = [[_factor(load, axis, loop, (rows, columns)) for load in loads] for axis in (0, 1)]
    for at in (0, 1):  # whichever is the left one
        left, right = by_axis[0][at], by_axis[1][1 - at]
        if left is not None and right is not None:
            return MatrixProduct(loop, left, right, total)
    return None


def _factor(load: LoopValue, axis: int, loop: Loop, grid: tuple[Loop, Loop]) -> Factor | None:
    """The operand that is loaded, if it depends on this axis of the grid alone."""
    assert load.index is not None and load.buffer is not None
    index = load.index + load.buffer.base
    along, inner = stride(index, grid[axis].var), stride(index, loop.var)
    if along is None or inner is None or grid[1 - axis].var in index.symbols:
        return None
    first = substitute(index, {grid[axis].var: ZERO, loop.var: ZERO})
    return Factor(load, along, inner, first) if ONE in (along, inner) else None


def _second_axis(grid: tuple[Loop, ...]) -> tuple[int | None, bool]:
    """The number of the loop that is the rows of a pointwise tile (None if there is one loop only),
    and whether some access is close along it and scattered along the columns."""
    inner = grid[-1]
    for value in values(inner.body):
        if value.op not in MEMORY or value.index is None:
            continue
        if stride(value.index, inner.var) in (None, ZERO, ONE):
            continue
        for at, loop in enumerate(grid[:-1]):
            if stride(value.index, loop.var) is ONE:
                return at, True
    return (len(grid) - 2 if len(grid) > 1 else None), False


def _row_kernel(grid: tuple[Loop, ...], body: tuple[Statement, ...]) -> Tiling:
    rows = grid[-1] if grid else Loop(ONLY_ROW, ONE, LoopKind.PARALLEL, ())
    items = tuple([_pass(item) if isinstance(item, Loop) else item for item in body])
    # A tile has one number of columns, so all passes have to agree on it.
    extents = {item.extent for item in items if isinstance(item, Pass)}
    if len(extents) != 1:
        raise NotTiled("loops over rows of several lengths")
    across = any(_along_rows(item, rows) for item in items if isinstance(item, Pass))
    return Tiling(grid[:-1], rows, extents.pop(), None, items, across)


def _along_rows(item: Pass, rows: Loop) -> bool:
    """Whether some access of the pass is close along the rows and scattered along the columns."""
    for value in item.body:
        if value.op in MEMORY and value.index is not None:
            if stride(value.index, item.loops[-1].var) in (None, ZERO, ONE):
                continue
            if stride(value.index, rows.var) is ONE:
                return True
    return False


def _pass(loop: Loop) -> Pass:
    """A nest of loops as a pass. Raises `NotTiled` for one with loops beside one another, or with a
    serial loop that isn't a scan."""
    # Down the nest: values may stand before an inner loop, which has to come last.
    loops, flat, body = [loop], [], loop.body
    while True:
        inner = [item for item in body if isinstance(item, Loop)]
        flat += [item for item in body if isinstance(item, LoopValue)]
        if not inner:
            break
        if len(inner) > 1 or body[-1] is not inner[0]:
            raise NotTiled("loops beside one another in a loop")
        loops.append(inner[0])
        body = inner[0].body
    if len({item.kind for item in loops}) > 1:
        raise NotTiled("a loop that runs in order")
    if loop.kind is not LoopKind.SERIAL:
        return Pass(tuple(loops), tuple(flat))
    scans = scans_of(flat, loop.combines) if len(loops) == 1 else None
    if scans is None:
        raise NotTiled("a loop that runs in order")
    return Pass(tuple(loops), tuple(flat), scans)
