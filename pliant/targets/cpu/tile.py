"""Tiling, for kernels that read one tensor along its rows and another along its columns.

The one idea: in `y[i, j] = x[j, i]` each row of y touches every row of x. In tiles of `SIDE` times
`SIDE` elements, the cache lines that were loaded for one row are still there for the next. `MANY`
tiles follow each other along the rows of x, so that memory is read in pieces that are long enough
for the hardware prefetcher, which does not look across rows.

    parallel i < m            parallel im < ceil(m / 256)           256 = SIDE * MANY
      parallel j < n            parallel jb < ceil(n / 16)
        y[i, j] = x[j, i]         serial ib < min(16, what is left)     blocks of i
                                    serial ie < min(16, ...)            rows of a block
                                      parallel je < min(16, ...)        columns of a block
                                        y[i, j] = x[j, i]   with i = (16*im + ib)*16 + ie,
                                                                 j = 16*jb + je
"""

from __future__ import annotations

from typing import Final

from pliant.loop.body import free_symbols
from pliant.loop.collapse import stride
from pliant.loop.ir import MEMORY, Kernel, Loop, LoopKind, LoopValue, Op, Statement, values
from pliant.sym.expr import ONE, ZERO, Expr, ceildiv, minimum, substitute, symbol

SIDE: Final = 16
"""Elements on each side of a block: the lanes of the widest registers."""
MANY: Final = 16  # blocks one after the other


def tile(kernel: Kernel) -> Kernel:
    """The kernel with two of its loops in blocks, if some access is close in one and scattered in
    the other, and both are large."""
    grid = kernel.grid
    if len(grid) < 2 or any(isinstance(item, Loop) for item in grid[-1].body):
        return kernel
    across = _across(grid)
    if across is None or not _large(grid[across]) or not _large(grid[-1]):
        return kernel
    outer = [loop for i, loop in enumerate(grid[:-1]) if i != across]
    nest = _nest(outer, _blocks(grid[across], grid[-1]))
    tiled = Kernel(kernel.name, kernel.sizes, kernel.buffers, (nest,))
    return Kernel(tiled.name, free_symbols(tiled), tiled.buffers, tiled.body)


def _across(grid: tuple[Loop, ...]) -> int | None:
    """The number of the loop to tile together with the innermost one: some access that is scattered
    in the innermost loop has stride 1 in it. None if there is none."""
    for value in values(grid[-1].body):
        if value.op not in MEMORY or value.index is None:
            continue
        # Only what is scattered in the innermost loop gains from tiles.
        inner = stride(value.index, grid[-1].var)
        if inner is None or inner is ZERO or inner is ONE:
            continue
        for i, loop in enumerate(grid[:-1]):
            if stride(value.index, loop.var) is ONE:
                return i
    return None


def _large(loop: Loop) -> bool:
    return loop.extent.value is None or loop.extent.value > SIDE


def _blocks(outer: Loop, inner: Loop) -> list[Loop]:
    """The loops of the tiled nest, as the module's docstring shows them. Returns the two parallel
    ones around everything, the outer one still empty (`_nest` fills it)."""
    group, block = symbol(f"{outer.var}m"), symbol(f"{outer.var}b")
    first, second = group * MANY + block, symbol(f"{inner.var}b")
    row, column = symbol(f"{outer.var}e"), symbol(f"{inner.var}e")
    new_indices = {outer.var: first * SIDE + row, inner.var: second * SIDE + column}
    body = _moved(inner.body, new_indices)
    columns = Loop(column, minimum(inner.extent - second * SIDE, SIDE), LoopKind.PARALLEL, body)
    # Serial, so that they stay inside of a thread: `llvm_blocks` turns a whole block in registers.
    rows = Loop(row, minimum(outer.extent - first * SIDE, SIDE), LoopKind.SERIAL, (columns,))
    # The last group may have fewer blocks, and the last block fewer rows and columns.
    left = ceildiv(outer.extent, SIDE) - group * MANY
    blocks = Loop(block, minimum(left, MANY), LoopKind.SERIAL, (rows,))
    return [
        Loop(group, ceildiv(outer.extent, SIDE * MANY), LoopKind.PARALLEL, ()),
        Loop(second, ceildiv(inner.extent, SIDE), LoopKind.PARALLEL, (blocks,)),
    ]


def _moved(body: tuple[Statement, ...], new_indices: dict[Expr, Expr]) -> tuple[Statement, ...]:
    """The values of a body, copied with new expressions for the variables in their indices."""
    moved: dict[LoopValue, LoopValue] = {}
    for old in body:
        assert isinstance(old, LoopValue)
        args = tuple([moved[arg] for arg in old.args])
        index = old.index
        if index is not None and old.op is not Op.AS_INDEX:
            index = substitute(index, new_indices)
        moved[old] = LoopValue(old.op, old.type, args, index, old.buffer, old.constant)
    return tuple(moved.values())


def _nest(outer: list[Loop], blocks: list[Loop]) -> Loop:
    first, second = blocks
    nest = Loop(first.var, first.extent, first.kind, (second,))
    for loop in reversed(outer):
        nest = Loop(loop.var, loop.extent, loop.kind, (nest,))
    return nest
