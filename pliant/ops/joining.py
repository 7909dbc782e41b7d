"""Tensors put together, extended, turned and repeated.

The one idea: each is a map from the index of the result to an index of an argument, and a condition
where there is a choice of arguments. Nothing is copied; what is outside of a piece isn't read.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from pliant.loop.define import Index, LoopBody
from pliant.loop.ir import LoopValue, Op
from pliant.loop.types import Type
from pliant.ops.indexed_tensor import IndexedTensor
from pliant.ops.indexing import as_index, unflattened
from pliant.ops.lowering import Lowering, NotLowered, Number, lowers, number
from pliant.ops.places import (
    all_of,
    compared,
    divisor,
    fitting,
    is_one,
    normal_dim,
    read_where,
    reading,
    worth_it,
    zero,
)
from pliant.sym.cond import and_, ge, le, lt
from pliant.sym.expr import ONE, ZERO, Expr, absolute, if_else, maximum, minimum

MOST_PIECES: Final = 8
"""Each element of the result asks for each piece whether it is in it."""

# --------------------------------------------------------------------------------------------------
# Put together


@lowers("aten.cat.default", "aten.concat.default", "aten.concatenate.default")
def cat(low: Lowering, tensors: Sequence[IndexedTensor], dim: int = 0) -> IndexedTensor:
    rank = len(low.result.sizes)
    # An empty tensor of one dimension goes with everything, and adds nothing.
    pieces = [x for x in tensors if len(x.sizes) == rank]
    if any(x.sizes != (ZERO,) for x in tensors if len(x.sizes) != rank):
        raise NotLowered("pieces that differ in rank")
    return _one_after_the_other(low, pieces, normal_dim(dim, rank), keeps=True)


@lowers("aten.stack.default")
def stack(low: Lowering, tensors: Sequence[IndexedTensor], dim: int = 0) -> IndexedTensor:
    dim = normal_dim(dim, len(low.result.sizes))
    return _one_after_the_other(low, tensors, dim, keeps=False)


def _one_after_the_other(
    low: Lowering, tensors: Sequence[IndexedTensor], dim: int, keeps: bool
) -> IndexedTensor:
    """The pieces along a dimension, which they have themselves if `keeps`; else each takes 1."""
    if not 0 < len(tensors) <= MOST_PIECES:
        raise NotLowered(f"{len(tensors)} pieces")
    t = low.result.type
    pieces = [low.cast(x, t) for x in tensors]
    starts = [ZERO]
    for x in tensors:
        starts.append(starts[-1] + (x.sizes[dim] if keeps else ONE))

    def piece(b: LoopBody, place: Index, k: int) -> LoopValue:
        """The element, if it is not in a piece before the k-th."""
        i = place[dim]
        mine = (i - starts[k],) if keeps else ()
        index = (*place[:dim], *mine, *place[dim + 1 :])
        conditions = [compared(b, Op.GE, i, starts[k])] if k else []
        if k == len(pieces) - 1:
            return read_where(b, pieces[k], index, all_of(b, conditions), lambda: zero(b, t))
        conditions.append(compared(b, Op.LT, i, starts[k + 1]))
        return read_where(
            b, pieces[k], index, all_of(b, conditions), lambda: piece(b, place, k + 1)
        )

    return reading(low, low.result.sizes, t, lambda b, place: piece(b, place, 0), *pieces)


# --------------------------------------------------------------------------------------------------
# Extended. `pad` has the number of elements before and after for each dimension, the last one
# first; below 0 it cuts off.


def _sides(pad: Sequence[Number], rank: int) -> list[tuple[Expr, Expr]]:
    numbers = [as_index(n) for n in pad]
    pairs = list(zip(numbers[::2], numbers[1::2], strict=True))
    return [(ZERO, ZERO)] * (rank - len(pairs)) + pairs[::-1]


@lowers("aten.constant_pad_nd.default")
def constant_pad(
    low: Lowering, x: IndexedTensor, pad: Sequence[Number], value: Number = 0
) -> IndexedTensor:
    sides, t = _sides(pad, len(x.sizes)), x.type
    value = fitting(value, t)

    def at(b: LoopBody, place: Index) -> LoopValue:
        index, conditions = [], []
        for i, (before, after), size in zip(place, sides, x.sizes, strict=True):
            index.append(i - before)
            if not low.known(le(before, 0)):
                conditions.append(compared(b, Op.GE, i, before))
            if not low.known(le(after, 0)):
                conditions.append(compared(b, Op.LT, i - before, size))
        inside = all_of(b, conditions)
        return read_where(b, x, tuple(index), inside, lambda: number(b, value, t))

    return reading(low, low.result.sizes, t, at, x)


Edge = Callable[[Expr, Expr], Expr]


def _padded(low: Lowering, x: IndexedTensor, pad: Sequence[Number], edge: Edge) -> IndexedTensor:
    """`edge(i, size)` is the index that stands for i, which may be outside."""
    sides = _sides(pad, len(x.sizes))
    if sides and any(side is not ZERO for side in sides[-1]):
        worth_it(low, x)
    if x.type is Type.BOOL and edge is not _around:
        raise NotLowered("padding with bools")

    def at(b: LoopBody, place: Index) -> LoopValue:
        index = []
        for i, (before, after), size in zip(place, sides, x.sizes, strict=True):
            plain = before is ZERO and after is ZERO
            index.append(i if plain else edge(i - before, size))
        return x.at(b, tuple(index))

    return reading(low, low.result.sizes, x.type, at, x)


def _wide_enough(low: Lowering, x: IndexedTensor, pad: Sequence[Number], more: int) -> None:
    """Each padded dimension has at least 1 element, and `more` than it is extended by if that is
    not None: nothing may be read outside."""
    for (before, after), size in zip(_sides(pad, len(x.sizes)), x.sizes, strict=True):
        if before is ZERO and after is ZERO:
            continue
        needs = [ge(size, 1)]
        if more >= 0:
            needs += [le(before + more, size), le(after + more, size)]
        if not low.known(and_(*needs)):
            raise NotLowered(f"padding a dimension of size {size}")


@lowers(*[f"aten.reflection_pad{n}d.default" for n in (1, 2, 3)])
def reflection_pad(low: Lowering, x: IndexedTensor, padding: Sequence[Number]) -> IndexedTensor:
    _wide_enough(low, x, padding, 1)
    return _padded(low, x, padding, lambda i, size: size - 1 - absolute(size - 1 - absolute(i)))


@lowers(*[f"aten.replication_pad{n}d.default" for n in (1, 2, 3)])
def replication_pad(low: Lowering, x: IndexedTensor, padding: Sequence[Number]) -> IndexedTensor:
    _wide_enough(low, x, padding, -1)
    return _padded(low, x, padding, lambda i, size: maximum(minimum(i, size - 1), ZERO))


def _around(i: Expr, size: Expr) -> Expr:
    return i % size


@lowers("aten._pad_circular.default")
def circular_pad(low: Lowering, x: IndexedTensor, pad: Sequence[Number]) -> IndexedTensor:
    if not all(low.known(ge(as_index(n), 0)) for n in pad):
        raise NotLowered("circular padding that cuts off")
    _wide_enough(low, x, pad, 0)
    return _padded(low, x, pad, _around)


@lowers("aten.pad.default")
def pad(
    low: Lowering,
    x: IndexedTensor,
    pad: Sequence[Number],
    mode: str = "constant",
    value: Number | None = None,
) -> IndexedTensor:
    if mode == "constant":
        return constant_pad(low, x, pad, 0.0 if value is None else value)
    rank = len(x.sizes)
    if len(pad) not in (2 * rank - 2, 2 * rank - 4) or value not in (None, 0, 0.0):
        raise NotLowered(f"padding {rank} dimensions")
    modes = {"reflect": reflection_pad, "replicate": replication_pad, "circular": circular_pad}
    found: IndexedTensor = modes[mode](low, x, pad)
    return found


# --------------------------------------------------------------------------------------------------
# Turned


@lowers("aten.flip.default")
def flip(low: Lowering, x: IndexedTensor, dims: Sequence[int]) -> IndexedTensor:
    turned = {normal_dim(d, len(x.sizes)) for d in dims}

    def at(b: LoopBody, place: Index) -> LoopValue:
        index = [x.sizes[d] - 1 - i if d in turned else i for d, i in enumerate(place)]
        return x.at(b, tuple(index))

    return reading(low, low.result.sizes, x.type, at, x)


@lowers("aten.rot90.default")
def rot90(
    low: Lowering, x: IndexedTensor, k: int = 1, dims: Sequence[int] = (0, 1)
) -> IndexedTensor:
    first, second = [normal_dim(d, len(x.sizes)) for d in dims]
    m, n = x.sizes[first] - 1, x.sizes[second] - 1
    turns: list[Callable[[Expr, Expr], tuple[Expr, Expr]]] = [
        lambda i, j: (i, j),
        lambda i, j: (j, n - i),
        lambda i, j: (m - i, n - j),
        lambda i, j: (m - j, i),
    ]

    def at(b: LoopBody, place: Index) -> LoopValue:
        index = list(place)
        index[first], index[second] = turns[k % 4](place[first], place[second])
        return x.at(b, tuple(index))

    return reading(low, low.result.sizes, x.type, at, x)


@lowers("aten.roll.default")
def roll(
    low: Lowering, x: IndexedTensor, shifts: Sequence[Number], dims: Sequence[int] = ()
) -> IndexedTensor:
    given = [as_index(n) for n in shifts]
    if len(given) != len(dims) or not x.sizes:
        raise NotLowered("rolling all elements as one row")
    by: dict[int, Expr] = {}
    for d, shift in zip(dims, given, strict=True):
        d = normal_dim(d, len(x.sizes))
        by[d] = by.get(d, ZERO) + shift
    by = {d: shift % divisor(x.sizes[d]) for d, shift in by.items()}
    last = len(x.sizes) - 1

    def at(b: LoopBody, place: Index) -> LoopValue:
        index = list(place)
        for d, shift in by.items():
            back = index[d] - shift
            index[d] = back if d == last else back + if_else(lt(back, 0), x.sizes[d], 0)
        if last not in by:
            return x.at(b, tuple(index))
        # Two rows of neighbours rather than one with a break in it.
        wrapped = (*index[:last], index[last] + x.sizes[last])
        first = compared(b, Op.LT, index[last], 0)
        rest = b(Op.NOT, first)
        return read_where(
            b,
            x,
            wrapped,
            first,
            lambda: read_where(b, x, tuple(index), rest, lambda: zero(b, x.type)),
        )

    return reading(low, low.result.sizes, x.type, at, x)


# --------------------------------------------------------------------------------------------------
# Repeated


@lowers("aten.repeat.default", "aten.tile.default")
def repeat(low: Lowering, x: IndexedTensor, repeats: Sequence[Number]) -> IndexedTensor:
    rank = max(len(repeats), len(x.sizes))
    times = [ONE] * (rank - len(repeats)) + [as_index(n) for n in repeats]
    first = rank - len(x.sizes)
    same = [is_one(low, n) for n in times[first:]]
    fixed = [is_one(low, size) for size in x.sizes]
    if x.sizes and not (same[-1] or fixed[-1]):
        worth_it(low, x)
        if x.sizes[-1].value is None:  # a division by a number that isn't known, for each element
            raise NotLowered("repeating rows of any length")

    def at(b: LoopBody, place: Index) -> LoopValue:
        index = []
        for i, size, whole, one in zip(place[first:], x.sizes, same, fixed, strict=True):
            index.append(ZERO if one else i if whole else i % divisor(size))
        return x.at(b, tuple(index))

    return reading(low, low.result.sizes, x.type, at, x)


@lowers("aten.repeat_interleave.self_int")
def repeat_interleave(
    low: Lowering,
    x: IndexedTensor,
    repeats: Number,
    dim: int | None = None,
    *,
    output_size: Number | None = None,
) -> IndexedTensor:
    times = as_index(repeats)
    if not low.known(ge(times, 1)):
        raise NotLowered("repeating maybe 0 times")
    along = None if dim is None else normal_dim(dim, len(x.sizes))

    def at(b: LoopBody, place: Index) -> LoopValue:
        if along is None:
            return x.at(b, unflattened(place[0] // times, x.sizes))
        index = (*place[:along], place[along] // times, *place[along + 1 :])
        return x.at(b, index if x.sizes else ())

    return reading(low, low.result.sizes, x.type, at, x)


# --------------------------------------------------------------------------------------------------
# Triangles and diagonals


def _triangle(op: Op) -> Callable[..., IndexedTensor]:
    def rule(low: Lowering, x: IndexedTensor, diagonal: Number = 0) -> IndexedTensor:
        k = as_index(diagonal)

        def at(b: LoopBody, place: Index) -> LoopValue:
            kept = compared(b, op, place[-1] - place[-2], k)
            return b(Op.SELECT, kept, x.at(b, place), zero(b, x.type))

        return reading(low, low.result.sizes, x.type, at, x)

    return rule


lowers("aten.tril.default")(_triangle(Op.LE))
lowers("aten.triu.default")(_triangle(Op.GE))


@lowers("aten.diag_embed.default")
def diag_embed(
    low: Lowering, x: IndexedTensor, offset: int = 0, dim1: int = -2, dim2: int = -1
) -> IndexedTensor:
    rank = len(x.sizes) + 1
    row, column = normal_dim(dim1, rank), normal_dim(dim2, rank)
    others = [d for d in range(rank) if d not in (row, column)]

    def at(b: LoopBody, place: Index) -> LoopValue:
        here = compared(b, Op.EQ, place[column] - place[row], offset)
        along = place[row] if offset >= 0 else place[column]
        index = (*[place[d] for d in others], along)
        return read_where(b, x, index, here, lambda: zero(b, x.type))

    return reading(low, low.result.sizes, x.type, at, x)


# --------------------------------------------------------------------------------------------------
# Shuffled


@lowers("aten.pixel_shuffle.default")
def pixel_shuffle(low: Lowering, x: IndexedTensor, upscale_factor: int) -> IndexedTensor:
    r = upscale_factor

    def at(b: LoopBody, place: Index) -> LoopValue:
        *rest, c, i, j = place
        return x.at(b, (*rest, (c * r + i % r) * r + j % r, i // r, j // r))

    return reading(low, low.result.sizes, x.type, at, x)


@lowers("aten.pixel_unshuffle.default")
def pixel_unshuffle(low: Lowering, x: IndexedTensor, downscale_factor: int) -> IndexedTensor:
    r = downscale_factor

    def at(b: LoopBody, place: Index) -> LoopValue:
        *rest, c, i, j = place
        return x.at(b, (*rest, c // (r * r), i * r + c // r % r, j * r + c % r))

    return reading(low, low.result.sizes, x.type, at, x)


@lowers("aten.channel_shuffle.default", "aten.native_channel_shuffle.default")
def channel_shuffle(low: Lowering, x: IndexedTensor, groups: Number) -> IndexedTensor:
    count = as_index(groups)

    def at(b: LoopBody, place: Index) -> LoopValue:
        batch, c, *rest = place
        each = x.sizes[1] // count
        return x.at(b, (batch, c % count * each + c // count, *rest))

    return reading(low, low.result.sizes, x.type, at, x)
