"""A tensor as a function of its index: what rules take and give.

The one idea: nothing is computed by writing `a + b`; the result is an `IndexedTensor` whose
elements will be computed wherever somebody reads them. So views cost nothing, broadcasts are never
stored, and chains of operators become one loop body without anybody fusing them.
"""

from __future__ import annotations

from collections.abc import Callable

from pliant.base.values import dataclass
from pliant.loop.define import Definition, Index, LoopBody, address
from pliant.loop.ir import LoopValue
from pliant.loop.types import Type
from pliant.sym.expr import ZERO, Expr

At = Callable[[LoopBody, Index], LoopValue]


@dataclass(frozen=True, slots=True, eq=False)
class MemoryLayout:
    """Where an indexed tensor stands in memory as it is: element (i, j, ..) of it at `offset` + i *
    strides[0] + ... of the definition."""

    of: Definition
    strides: tuple[Expr, ...]
    offset: Expr


@dataclass(frozen=True, slots=True, eq=False)
class IndexedTensor:
    """A tensor as a function of its index. `cost` is roughly how many operations an element takes,
    `reads` how many loads; those in memory take one load."""

    sizes: tuple[Expr, ...]
    type: Type
    at: At
    cost: int = 1
    reads: int = 0
    memory: MemoryLayout | None = None
    zero_dim: bool = False  # a number rather than a tensor: ranks low in type promotion


def in_memory(
    of: Definition,
    sizes: tuple[Expr, ...] | None = None,
    strides: tuple[Expr, ...] | None = None,
    offset: Expr = ZERO,
) -> IndexedTensor:
    """The tensor with this layout in the memory of a definition; by default, the whole of it."""
    sizes = of.sizes if sizes is None else sizes
    strides = of.strides if strides is None else strides

    def at(body: LoopBody, index: Index) -> LoopValue:
        return body.read(of, address(index, strides, offset))

    return IndexedTensor(sizes, of.type, at, 0, 1, MemoryLayout(of, strides, offset))
