"""Loops over blocks of columns in which no access needs a mask.

The one idea: a load under a mask waits for the one before it: Triton's machine code then has one
load at a time in flight, where it has five without masks. So a sum of columns has two loops, of
which a program runs one. The one without masks is for tiles that end where the tensor does, and for
parts that don't reach into what a tensor was filled up with (see `graph.split_reductions`).

Rows along memory have two loops, too, if they end within a vector: one for whole blocks, in which
nothing is masked, and one for what is left.

A pointwise kernel whose tensors were put together or filled up within a vector has its values twice
as well: for tiles that lie before that place, in which loads need no mask for it, and for the rest.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from pliant.loop.ir import REDUCTIONS, LoopValue, Op, Statement
from pliant.sym.expr import Expr, substitute, symbol
from pliant.targets.triton.index_text import IndexText
from pliant.targets.triton.reductions import SIMPLE
from pliant.targets.triton.tiling import Pass, Tiling

VECTOR: Final = 16
"""A mask over so many elements, or a multiple, is the same for all of any vector that is loaded."""
SEVERAL: Final = 2048
"""Columns that are several tiles."""
LAST: Final = symbol("last")
"""The last column of a tile."""
_MASKS: Final = frozenset((Op.LOAD, Op.SELECT))
"""Operations that a condition is no argument of any more when it is known to hold."""
_GROWING: Final = frozenset(("int", "symbol", "add", "mul"))
"""Expressions without minus signs that are made of these are largest at the end of a loop."""


def can_be_unmasked(item: Statement | Pass, tiling: Tiling) -> bool:
    """Whether a loop without masks is worth its code: rows along memory are loaded by many threads
    at the same time as it is."""
    if not isinstance(item, Pass) or not tiling.across or len(item.loops) > 1:
        return False
    ops = {value.op for value in item.body}
    writes = ops & {Op.STORE, Op.ATOMIC_ADD, Op.CARRY}
    return Op.LOAD in ops and not writes and bool(ops & SIMPLE) and ops & REDUCTIONS <= SIMPLE


def ends_within_a_vector(item: Pass, tiling: Tiling) -> bool:
    """Whether rows along memory end within a vector of `VECTOR` elements. Where it isn't known, the
    rows aren't known to begin with one either."""
    length = item.extent.value
    simple = {value.op for value in item.body} & REDUCTIONS <= SIMPLE and not item.scans
    # A tile that is read along memory has one row.
    return not tiling.across and simple and length is not None and length % VECTOR != 0


def conditions_at_the_end(item: Pass, tiling: Tiling, index: IndexText) -> dict[LoopValue, str]:
    """The conditions of a pass that hold for all columns if they hold for the last one, each with
    the text of that test."""
    end = (item.loops[-1].var, item.extent - 1)
    return _tests(end, item.body, item.body, tiling, index)


def cutting(tiling: Tiling) -> list[LoopValue]:
    """The masks of a pointwise kernel that begin or end within a vector of what is loaded."""
    loop, body = tiling.column_loop, tiling.values
    if loop is None or (loop.extent.value or SEVERAL) < SEVERAL:
        return []
    ends = [v for v in body if v.op is Op.LT and not _is_multiple(v.args[1].index)]
    return [v for v in ends if any(user.op is Op.LOAD for user in _users(v, body))]


def _is_multiple(place: Expr | None) -> bool:
    return place is None or (place.value is not None and place.value % VECTOR == 0)


def conditions_of_a_tile(
    masks: Sequence[LoopValue], tiling: Tiling, index: IndexText
) -> dict[LoopValue, str]:
    """Those of the masks that hold in a whole tile if they hold for its last column (`LAST`), each
    with the text of that test."""
    if not masks:
        return {}
    assert tiling.column_loop is not None
    return _tests((tiling.column_loop.var, LAST), masks, tiling.values, tiling, index)


def with_conjunctions(sure: Iterable[LoopValue], body: Sequence[LoopValue]) -> frozenset[LoopValue]:
    """The conditions, and those that hold where these do."""
    known = set(sure)
    for value in body:
        if value.op is Op.AND and known.issuperset(value.args):
            known.add(value)
    return frozenset(known)


def _tests(
    end: tuple[Expr, Expr],
    values: Sequence[LoopValue],
    body: Sequence[LoopValue],
    tiling: Tiling,
    index: IndexText,
) -> dict[LoopValue, str]:
    tests = {value: _at(end, value, body, tiling, index) for value in values}
    return {value: test for value, test in tests.items() if test is not None}


def _at(
    end: tuple[Expr, Expr],
    value: LoopValue,
    body: Sequence[LoopValue],
    tiling: Tiling,
    index: IndexText,
) -> str | None:
    """The text of a comparison at the end of the columns (a variable, and its value there), if it
    is a mask that then holds in the whole tile."""
    if value.op is not Op.LT or not _is_mask(value, body):
        return None
    low, high = value.args
    if low.op is not Op.IOTA or high.op is not Op.IOTA:
        return None
    assert low.index is not None and high.index is not None
    column, last = end
    rows = set() if tiling.rows is None else {tiling.rows.var}
    if low.index.symbols & rows or high.index.symbols & (rows | {column}):
        return None
    if not _grows(low.index) or not index.is_natural(low.index):
        return None
    there = substitute(low.index, {column: last})
    return f"({index.write(there, wide=True).text} < {index.write(high.index, wide=True).text})"


def _grows(node: Expr) -> bool:
    if node.op not in _GROWING:
        return False
    parts = [part for part, _ in node.terms] if node.op == "add" else []
    parts = [part for part, _ in node.factors] if node.op == "mul" else parts
    return all(map(_grows, parts))


def _is_mask(value: LoopValue, body: Sequence[LoopValue]) -> bool:
    """Whether it decides what is loaded or taken, alone or with others, and nothing else."""
    users = _users(value, body)
    choices = [user.args[1:] for user in users if user.op is Op.SELECT]
    return all(user.op in _MASKS for user in users) and not any(value in c for c in choices)


def _users(value: LoopValue, body: Sequence[LoopValue]) -> list[LoopValue]:
    """What uses it; for a conjunction with others, what uses that."""
    known, users = {value}, []
    for user in body:
        if not known.isdisjoint(user.args):
            if user.op is Op.AND:
                known.add(user)
            else:
                users.append(user)
    return users
