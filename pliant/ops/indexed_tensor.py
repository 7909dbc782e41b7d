"""A tensor as a function of its index: what rules take and give.

The one idea: nothing is computed by writing `a + b`; the result is an `IndexedTensor` whose
elements are computed wherever they are read. So views cost nothing, broadcasts are never stored,
and chains of operators become one loop body. With `x` in memory of strides (n, 1),

    y = x.t() + 1     y.at(b, (i, j)) = ADD(x.at(b, (j, i)), 1) = ADD(load x[j*n + i], 1)
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
    """Where a tensor is in memory: element (i, j, ...) is at `offset + i*strides[0] + j*strides[1]
    + ...` of the definition `of`."""

    of: Definition
    strides: tuple[Expr, ...]
    offset: Expr


@dataclass(frozen=True, slots=True, eq=False)
class IndexedTensor:
    """A tensor as a function of its index: `at(body, index)` writes the computation of an element.
    `cost` is roughly how many operations that takes, `reads` how many loads. `memory` is None
    unless all elements are in memory already, so that `at` is one load."""

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
