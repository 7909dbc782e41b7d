"""How a loop nest is arranged for a CPU: for vector lanes, and for its caches.

The one idea: `loop.write` says which loops there are; in which order and in which blocks they run
is a matter of the machine.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from pliant.loop.ir import Kernel, Loop, Statement
from pliant.sym.expr import Expr
from pliant.targets.cpu.row_cache import cache_rows
from pliant.targets.cpu.tile import tile

SHORT: Final = 8  # iterations, too few for lanes


def arrange(kernel: Kernel, hint: Callable[[Expr], int]) -> Kernel:
    """The kernel with its loops as a CPU runs them best; `hint` returns expected sizes."""
    # Interchange first: tiles depend on which loop is the innermost. Rows are cached in kernels
    # with loops over columns in the grid's last loop, which `tile` leaves alone.
    return cache_rows(tile(interchange(kernel)), hint)


def interchange(kernel: Kernel) -> Kernel:
    """The kernel with its last two loops exchanged, if the inner one is too short for lanes and the
    outer one is not: lanes that access every third element, say, cost less than loops of three
    iterations. Loops of the grid are parallel, so their order is free."""
    grid = kernel.grid
    if len(grid) < 2 or any(isinstance(item, Loop) for item in grid[-1].body):
        return kernel
    outer, inner = grid[-2:]
    if not _is_short(inner) or _is_short(outer) or outer.var in inner.extent.symbols:
        return kernel
    body: tuple[Statement, ...] = inner.body
    for loop in (outer, inner, *reversed(grid[:-2])):
        body = (Loop(loop.var, loop.extent, loop.kind, body),)
    return Kernel(kernel.name, kernel.sizes, kernel.buffers, body)


def _is_short(loop: Loop) -> bool:
    return loop.extent.value is not None and loop.extent.value <= SHORT
