"""Loop collapsing: two nested loops become one where memory has no gap between rows.

The one idea: two loops directly inside one another, over i < m and j < n, are one over k < m*n if
every index grows with i by n times as much as with j: then it depends on i*n + j only.

    parallel i0 < m                   parallel i1 < m*n
      parallel i1 < n                   v0 = load x[i1]
        v0 = load x[i0*n + i1]

The outer variable becomes 0 and the inner one runs over both, so indices only have to drop the
outer one. One long loop is easier to share among threads, and has fewer ends that don't fill the
lanes of a vector.
"""

from __future__ import annotations

from pliant.loop.body import free_symbols
from pliant.loop.ir import INDEXED, Kernel, Loop, LoopKind, LoopValue, Op, Statement, loops, values
from pliant.sym.expr import ZERO, Expr, substitute


def collapse(kernel: Kernel) -> Kernel:
    """The same kernel with as few loops as possible."""
    plan = _Plan()
    for item in kernel.body:
        if isinstance(item, Loop):
            plan.visit(item)
    if not plan.gone:
        return kernel
    collapsed = Kernel(kernel.name, kernel.sizes, kernel.buffers, plan.block(kernel.body, {}))
    return Kernel(collapsed.name, free_symbols(collapsed), collapsed.buffers, collapsed.body)


class _Plan:
    """Which loops are gone, and the extents that the loops in them get instead."""

    def __init__(self) -> None:
        self.gone: dict[Loop, Expr] = {}  # what their variable is
        self.extents: dict[Loop, Expr] = {}

    def visit(self, loop: Loop) -> None:
        """Join loops of a nest from the inside, and those of the nests in its body."""
        # Loops that stand directly inside one another, with nothing beside them.
        nest = [loop]
        while len(nest[-1].body) == 1 and isinstance(nest[-1].body[0], Loop):
            nest.append(nest[-1].body[0])
        for item in nest[-1].body:
            if isinstance(item, Loop):
                self.visit(item)
        inner = nest.pop()
        while nest:
            outer = nest.pop()
            if self._can_join(outer, inner):
                self.extents[inner] = self.extent(outer) * self.extent(inner)
                self.gone[outer] = ZERO
            else:
                inner = outer

    def extent(self, loop: Loop) -> Expr:
        return self.extents.get(loop, loop.extent)

    def _can_join(self, outer: Loop, inner: Loop) -> bool:
        """Whether all that is inside depends on `outer.var * extent(inner) + inner.var` alone. With
        a transposed access it doesn't: `x[i0 + i1*m]` grows by 1 and by m."""
        pair = {outer.var, inner.var}
        if inner.kind is not outer.kind or not pair.isdisjoint(self.extent(inner).symbols):
            return False
        if any(not pair.isdisjoint(loop.extent.symbols) for loop in loops(inner.body)):
            return False
        dropped = {loop.var: ZERO for loop in self.gone}
        for value in values(inner.body):
            # It begins anew in each iteration of the outer loop.
            if value.op is Op.CARRIED and inner.kind is LoopKind.SERIAL:
                return False
            if value.op not in INDEXED or value.op is Op.AS_INDEX or value.index is None:
                continue
            index = substitute(value.index, dropped)
            by_outer, by_inner = stride(index, outer.var), stride(index, inner.var)
            if by_outer is None or by_inner is None:
                return False
            # Expressions are interned: they are equal for all sizes, or not at all.
            if by_outer is not by_inner * self.extent(inner):
                return False
        return True

    def block(
        self, items: tuple[Statement, ...], new_values: dict[LoopValue, LoopValue]
    ) -> tuple[Statement, ...]:
        """The statements without the loops that are gone. `new_values` maps values to those that
        replace them."""
        dropped = {loop.var: ZERO for loop in self.gone}
        statements: list[Statement] = []
        for item in items:
            if isinstance(item, Loop) and item in self.gone:
                statements += self.block(item.body, new_values)
            elif isinstance(item, Loop):
                body = self.block(item.body, new_values)
                statements.append(Loop(item.var, self.extent(item), item.kind, body, item.combines))
            else:
                statements.append(_with_index(item, dropped, new_values))
        return tuple(statements)


def _with_index(
    old: LoopValue, dropped: dict[Expr, Expr], new_values: dict[LoopValue, LoopValue]
) -> LoopValue:
    args = tuple([new_values[arg] for arg in old.args])
    index = old.index
    if index is not None and old.op is not Op.AS_INDEX:
        index = substitute(index, dropped)
    new = new_values[old] = LoopValue(old.op, old.type, args, index, old.buffer, old.constant)
    return new


def stride(index: Expr, var: Expr) -> Expr | None:
    """The coefficient of `var` in an index that is linear in it, else None. It may be symbolic,
    and is 0 if the index doesn't depend on the variable."""
    if var not in index.symbols:
        return ZERO
    growth: Expr = substitute(index, {var: var + 1}) - index
    return None if var in growth.symbols else growth
