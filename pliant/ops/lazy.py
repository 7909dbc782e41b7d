"""A tensor as a function of its index: what rules take and give.

The one idea: nothing is computed by writing `a + b`; the result is a `Lazy` whose elements will be
computed wherever somebody reads them. So views cost nothing, broadcasts are never stored, and
chains of operators become one loop body without anybody fusing them.
"""

from __future__ import annotations

from collections.abc import Callable

from pliant.base.values import dataclass
from pliant.loop.define import Body, Definition, Index, address
from pliant.loop.ir import Value
from pliant.loop.types import Type
from pliant.sym.expr import ZERO, Expr

At = Callable[[Body, Index], Value]


@dataclass(frozen=True, slots=True, eq=False)
class Memory:
    """Where a lazy tensor stands in memory as it is: element (i, j, ..) of it at `offset` + i *
    strides[0] + ... of the definition."""

    of: Definition
    strides: tuple[Expr, ...]
    offset: Expr


@dataclass(frozen=True, slots=True, eq=False)
class Lazy:
    """A tensor as a function of its index. `cost` is roughly how many operations an element takes,
    `reads` how many loads; those in memory take one load."""

    sizes: tuple[Expr, ...]
    type: Type
    at: At
    cost: int = 1
    reads: int = 0
    memory: Memory | None = None
    zero_dim: bool = False  # a number rather than a tensor: ranks low in type promotion


def in_memory(
    of: Definition,
    sizes: tuple[Expr, ...] | None = None,
    strides: tuple[Expr, ...] | None = None,
    offset: Expr = ZERO,
) -> Lazy:
    """The tensor with this layout in the memory of a definition; by default, the whole of it."""
    sizes = of.sizes if sizes is None else sizes
    strides = of.strides if strides is None else strides

    def at(body: Body, index: Index) -> Value:
        return body.read(of, address(index, strides, offset))

    return Lazy(sizes, of.type, at, 0, 1, Memory(of, strides, offset))
