"""Row caching: a costly element is computed once, although several loops over a row use it.

The one idea: the first loop that computes it stores it in a buffer of the kernel's own, one row
long, and the later ones load it. The row stays in the nearest cache, so this costs an instruction
or two for each element.

The cost model: `COSTLY` operations and more are worth a store and a load, as long as the row has no
more than `LONGEST` elements. A longer one would not stay in a near cache, and may not fit on the
stack.

In softmax the exponentials are summed in one loop and divided in the next:

    reduction i2 < n                    reduction i2 < n
      v4 = exp (...)                      v4 = exp (...)
      v5 = sum v4                         store own0[i2] = v4
    parallel i3 < n                       v5 = sum v4
      v8 = exp (...)                    parallel i3 < n
      store b1[i3] = div v8, v5           v8 = load own0[i3]
                                          store b1[i3] = div v8, v5
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Final

from pliant.loop.collapse import stride
from pliant.loop.ir import (
    MEMORY,
    REDUCTIONS,
    STATEMENTS,
    WEIGHT,
    Access,
    Buffer,
    Kernel,
    Loop,
    LoopKind,
    LoopValue,
    Op,
    Statement,
)
from pliant.loop.types import FLOAT
from pliant.sym.expr import ONE, ZERO, Expr, substitute, symbol

COSTLY: Final = 16
LONGEST: Final = 1 << 15
_COLUMN: Final = symbol("column")

Hint = Callable[[Expr], int]
Key = Any


def cache_rows(kernel: Kernel, hint: Hint) -> Kernel:
    """The kernel with rows of its own (`Kernel.own`) for costly elements that several loops over
    the columns of a row compute; the kernel itself if there are none."""
    grid = kernel.grid
    row = grid[-1].body if grid else kernel.body
    # Only loops of the same length go over the same columns.
    by_extent: dict[Expr, list[Loop]] = {}
    for item in row:
        if isinstance(item, Loop) and _is_plain(item) and hint(item.extent) <= LONGEST:
            by_extent.setdefault(item.extent, []).append(item)
    own: list[Buffer] = []
    plans = [_Row(loops, own) for loops in by_extent.values()]
    if not own:
        return kernel
    replaced: dict[LoopValue, LoopValue] = {}
    body: tuple[Statement, ...] = tuple([_written(item, plans, replaced) for item in row])
    for loop in reversed(grid):
        body = (Loop(loop.var, loop.extent, loop.kind, body),)
    return Kernel(kernel.name, kernel.sizes, kernel.buffers, body, tuple(own))


def _written(item: Statement, plans: list[_Row], replaced: dict[LoopValue, LoopValue]) -> Statement:
    """The statement with its operands replaced; `replaced` maps old values to new ones."""
    if isinstance(item, LoopValue):
        return _with_args(item, replaced)
    for plan in plans:
        if item in plan.loops:
            return plan.write(item, replaced)
    body = tuple([_written(inner, [], replaced) for inner in item.body])
    return Loop(item.var, item.extent, item.kind, body)


def _with_args(old: LoopValue, replaced: dict[LoopValue, LoopValue]) -> LoopValue:
    if replaced.keys().isdisjoint(old.args):
        return old
    args = tuple([replaced.get(arg, arg) for arg in old.args])
    new = replaced[old] = LoopValue(old.op, old.type, args, old.index, old.buffer, old.constant)
    return new


def _is_plain(loop: Loop) -> bool:
    """Whether the loop is one over columns that are next to each other in memory, with nothing but
    values in it: one that will run in lanes, where a load from the row is a single instruction."""
    if loop.kind is LoopKind.SERIAL or loop.extent.value == 1:
        return False
    for value in loop.body:
        if isinstance(value, Loop):
            return False
        if value.op in MEMORY and not _is_near(value, loop.var):
            return False
    return True


def _is_near(value: LoopValue, var: Expr) -> bool:
    return value.index is not None and stride(value.index, var) in (ZERO, ONE)


class _Row:
    """The loops over the columns of one row, in order, and what is kept for later ones. Elements
    are equal if their keys are (`_keys`), whatever loop they are in."""

    def __init__(self, loops: list[Loop], own: list[Buffer]) -> None:
        self.loops = loops
        self.own = own
        numbers: dict[Key, int] = {}
        self.keys = [_keys(loop, numbers) for loop in loops]
        self.first: dict[Key, LoopValue] = {}  # the first value that computes it
        self.kept: dict[Key, Buffer] = {}  # the row that it is kept in
        for loop, keys in zip(loops, self.keys):
            self._choose(loop, keys)
            for value, key in keys.items():
                self.first.setdefault(key, value)

    def _choose(self, loop: Loop, keys: dict[LoopValue, Key]) -> None:
        """Choose what to keep of the elements of `loop` that an earlier loop computes, too."""
        # From the last one on: keeping it makes what it is computed from unnecessary.
        for value in reversed(loop.body):
            if not isinstance(value, LoopValue) or value.type not in FLOAT:
                continue
            key = keys[value]
            # A load is as cheap as the load from the row would be.
            recomputed = key in self.first and key not in self.kept and value.op not in MEMORY
            if recomputed and self._cost([value], keys, set()) >= COSTLY:
                name = f"own{len(self.own)}"
                row = Buffer(name, value.type, Access.READ_WRITE, ZERO, loop.extent)
                self.own.append(row)
                self.kept[key] = row

    def _cost(
        self, values: Iterable[LoopValue], keys: dict[LoopValue, Key], counted: set[LoopValue]
    ) -> int:
        """What it costs to compute the values, operands included, without what is kept already or
        comes from outside the loop. `counted` are those counted before, which a DAG may share."""
        total = 0
        for value in values:
            if value in keys and value not in counted and keys[value] not in self.kept:
                counted.add(value)
                total += WEIGHT.get(value.op, 0 if value.op is Op.CONSTANT else 1)
                total += self._cost(value.args, keys, counted)
        return total

    def write(self, loop: Loop, replaced: dict[LoopValue, LoopValue]) -> Loop:
        """The loop, with kept elements stored where they are computed first, else loaded."""
        keys = self.keys[self.loops.index(loop)]
        body: list[LoopValue] = []
        for old in loop.body:
            assert isinstance(old, LoopValue)
            row = self.kept.get(keys[old])
            if row is None:
                body.append(_with_args(old, replaced))
            elif self.first[keys[old]] is old:
                body.append(_with_args(old, replaced))
                body.append(LoopValue(Op.STORE, old.type, (body[-1],), loop.var, row))
            elif self.first[keys[old]] in keys:  # computed twice in one loop
                body.append(_with_args(old, replaced))
            else:
                replaced[old] = LoopValue(Op.LOAD, old.type, (), loop.var, row)
                body.append(replaced[old])
        return Loop(loop.var, loop.extent, loop.kind, _used(body))


def _used(body: list[LoopValue]) -> tuple[Statement, ...]:
    """The statements without dead ones."""
    needed: set[LoopValue] = set()
    statements: list[Statement] = []
    for value in reversed(body):
        always = value.op in REDUCTIONS or value.op in STATEMENTS or value.op is Op.AS_INDEX
        if always or value in needed:
            needed.update(value.args)
            statements.append(value)
    return tuple(reversed(statements))


def _keys(loop: Loop, numbers: dict[Key, int]) -> dict[LoopValue, Key]:
    """A number for each value of the loop, equal for values of different loops that compute the
    same (value numbering, with the loops' variables renamed to one). What must not be shared is its
    own key: reductions, stores, and loads of memory that the kernel writes to."""
    keys: dict[LoopValue, Key] = {}
    renamed = {loop.var: _COLUMN}
    for value in loop.body:
        assert isinstance(value, LoopValue)
        unlike = value.op in REDUCTIONS or value.op in STATEMENTS or value.op is Op.AS_INDEX
        # What is loaded from a buffer that the kernel writes to may differ from loop to loop.
        written = value.buffer is not None and value.buffer.access is not Access.READ
        if unlike or written:
            keys[value] = value
            continue
        index = None if value.index is None else substitute(value.index, renamed)
        args = tuple([keys.get(arg, arg) for arg in value.args])
        number = None if value.constant is None else repr(value.constant)  # 0.0 is not -0.0
        key = (value.op, value.type, args, index, value.buffer, number)
        keys[value] = numbers.setdefault(key, len(numbers))
    return keys
