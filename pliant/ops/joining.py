"""Tensors put together, extended, turned and repeated.

The one idea: each is a map from the index of the result to an index of an argument, and a condition
where there is a choice of arguments. Nothing is copied; what is outside of a piece isn't read.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

import torch

from pliant.base.devices import META
from pliant.base.operators import aten_names, register
from pliant.base.values import replace
from pliant.fake import meta, shapes
from pliant.fake.images import has_pixels, image, plain_image
from pliant.fake.layout import (
    channels_last_strides,
    contiguous_strides,
    is_like_channels_last,
    like_strides,
    promoted,
)
from pliant.fake.order import hint, is_contiguous, need, sure
from pliant.fake.overload import Overload
from pliant.fake.raising import never
from pliant.fake.results import Recipe
from pliant.fake.rule import Args, Kwargs, ShapeRule, dense, new
from pliant.fake.tensor import Fake
from pliant.fake.traced import as_first, by_marks, first_of, in_rows
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
    require_gain_over_copy,
    zero,
)
from pliant.sym.cond import and_, ge, le, lt
from pliant.sym.expr import ONE, ZERO, Expr, absolute, if_else, maximum, minimum

MOST_PIECES: Final = 8
"""How many pieces `cat` may have: each element of the result is tested against each of them."""

# --------------------------------------------------------------------------------------------------
# Put together


def _cat_shape(op: Overload, args: Args, kwargs: Kwargs, device: torch.device) -> Recipe | None:
    tensors, dim = (*args, 0)[:2]
    values = shapes.operands(tensors)
    first = tensors[0]
    rank = first.dim()
    # Whatever is unusual is left to PyTorch's meta kernel.
    if values is None or values[1] or not rank or not -rank <= dim < rank:
        return None
    dim %= rank
    others = [[s for d, s in enumerate(t.size()) if d != dim] for t in tensors]
    if any(t.dim() != rank for t in tensors) or any(o != others[0] for o in others):
        return None
    total = sum(t.size(dim) for t in tensors)
    sizes = [total if d == dim else s for d, s in enumerate(first.size())]
    # Only if all pieces are channels-last is the result.
    channels_last = [is_like_channels_last(t) for t in tensors]
    strides = (channels_last_strides if all(channels_last) else contiguous_strides)(sizes)
    return new(sizes, strides, promoted(tensors, ()), device)


@lowers("aten.cat.default", "aten.concat.default", "aten.concatenate.default", moves=True)
def cat(low: Lowering, tensors: Sequence[IndexedTensor], dim: int = 0) -> IndexedTensor:
    rank = len(low.result.sizes)
    # An empty tensor of one dimension goes with everything, and adds nothing.
    pieces = [x for x in tensors if len(x.sizes) == rank]
    if any(x.sizes != (ZERO,) for x in tensors if len(x.sizes) != rank):
        raise NotLowered("pieces that differ in rank")
    return _one_after_the_other(low, pieces, normal_dim(dim, rank), keeps=True)


def _stack_shape(op: Overload, args: Args, kwargs: Kwargs, device: torch.device) -> Recipe | None:
    tensors, dim = (*args, 0)[:2]
    values = shapes.operands(tensors)
    rank = tensors[0].dim() + 1
    if values is None or values[1] or not -rank <= dim < rank:
        return None
    first = tensors[0].size()
    if not all(is_contiguous(t) and shapes.same(t.size(), first) for t in tensors):
        return None
    # With a size of 1, strides may be those of channels-last memory, too: PyTorch's kernel decides.
    known = rank in (4, 5) and not any(t._has_symbolic_sizes_strides for t in tensors)
    if known and any(t.stride() != contiguous_strides(t.size()) for t in tensors):
        return None
    sizes = [*first]
    sizes.insert(dim % rank, len(tensors))
    return dense(sizes, promoted(tensors, ()), device)


@lowers("aten.stack.default", moves=True, shape=_stack_shape)
def stack(low: Lowering, tensors: Sequence[IndexedTensor], dim: int = 0) -> IndexedTensor:
    dim = normal_dim(dim, len(low.result.sizes))
    return _one_after_the_other(low, tensors, dim, keeps=False)


def _one_after_the_other(
    low: Lowering, tensors: Sequence[IndexedTensor], dim: int, keeps: bool
) -> IndexedTensor:
    """The tensors one after the other along `dim`. If `keeps`, they have that dimension (`cat`),
    else each is one element of it (`stack`). A chain of choices: the first piece that the index is
    in."""
    if not 0 < len(tensors) <= MOST_PIECES:
        raise NotLowered(f"{len(tensors)} pieces")
    t = low.result.type
    # `cat` promotes its arguments to one dtype.
    pieces = [low.cast(x, t) for x in tensors]
    # Where each piece begins along the dimension: sums of the sizes before it.
    starts = [ZERO]
    for x in tensors:
        starts.append(starts[-1] + (x.sizes[dim] if keeps else ONE))

    def piece(b: LoopBody, place: Index, k: int) -> LoopValue:
        """The element at a place that is in the k-th piece or a later one."""
        i = place[dim]
        index_in_piece = (i - starts[k],) if keeps else ()
        index = (*place[:dim], *index_in_piece, *place[dim + 1 :])
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
    # `pad` begins with the last dimension; the pairs are returned in the order of dimensions.
    numbers = [as_index(n) for n in pad]
    pairs = list(zip(numbers[::2], numbers[1::2], strict=True))
    return [(ZERO, ZERO)] * (rank - len(pairs)) + pairs[::-1]


def _constant_pad_shape(
    op: Overload, args: Args, kwargs: Kwargs, device: torch.device
) -> Recipe | None:
    """The shape rule of `constant_pad_nd`. Negative pads cut pieces off; if none is positive, the
    result has the layout of what is left."""
    t, pads = args[:2]
    if kwargs or len(pads) % 2 or len(pads) > 2 * t.dim() or t.is_conj() or t.is_neg():
        return None
    sizes, cuts = list(t.size()), True
    # A contiguous tensor gives a contiguous one either way, so data needn't be asked.
    unread = is_contiguous(t) and any(hint(pad) is None for pad in pads)
    for i in range(len(pads) // 2):
        left = sizes[-1 - i]
        for pad in pads[2 * i : 2 * i + 2]:
            sizes[-1 - i] = sizes[-1 - i] + pad
            if unread and hint(pad) is None:
                cut = 0 if sure(pad >= 0) else torch.sym_min(pad, 0)
            else:
                cut = pad if pad <= 0 else 0
                cuts &= pad <= 0
            left = left + cut
            need(left >= 0, "more is cut off than there is")
    if unread:
        return dense(sizes, t.dtype, device)
    if not cuts:
        if is_like_channels_last(t) and any(size == 0 for size in t.size()):
            return plain_image(t, sizes, device)
        return image(t, sizes, device)
    strides = like_strides(torch.empty_strided(sizes, t.stride(), device=META))
    return None if strides is None else new(sizes, strides, t.dtype, device)


@lowers("aten.constant_pad_nd.default", shape=_constant_pad_shape)
def constant_pad(
    low: Lowering, x: IndexedTensor, pad: Sequence[Number], value: Number = 0
) -> IndexedTensor:
    sides, t = _sides(pad, len(x.sizes)), x.type
    value = fitting(value, t)

    def at(b: LoopBody, place: Index) -> LoopValue:
        # The element of x, and whether there is one: no condition where nothing is added.
        index, conditions = [], []
        for i, (before, after), size in zip(place, sides, x.sizes, strict=True):
            index.append(i - before)
            if not low.known(le(before, 0)):
                conditions.append(compared(b, Op.GE, i, before))
            if not low.known(le(after, 0)):
                conditions.append(compared(b, Op.LT, i - before, size))
        inside = all_of(b, conditions)
        return read_where(b, x, tuple(index), inside, lambda: number(b, value, t))

    padded = reading(low, low.result.sizes, t, at, x)
    # What is only cut off costs nothing to compute again.
    cuts = all(low.known(le(pad, 0)) for sizes in sides for pad in sizes)
    return replace(padded, cost=x.cost) if cuts else padded


Edge = Callable[[Expr, Expr], Expr]


def _padded(low: Lowering, x: IndexedTensor, pad: Sequence[Number], edge: Edge) -> IndexedTensor:
    """x padded with its own elements: `edge(i, size)` is the index of the element that is repeated
    at i, which may be outside of the dimension."""
    sides = _sides(pad, len(x.sizes))
    if sides and any(side is not ZERO for side in sides[-1]):
        require_gain_over_copy(low, x)
    if x.type is Type.BOOL and edge is not _around:
        raise NotLowered("padding with bools")

    def at(b: LoopBody, place: Index) -> LoopValue:
        index = []
        for i, (before, after), size in zip(place, sides, x.sizes, strict=True):
            # Dimensions without padding keep their index, which a kernel can read in order.
            plain = before is ZERO and after is ZERO
            index.append(i if plain else edge(i - before, size))
        return x.at(b, tuple(index))

    return reading(low, low.result.sizes, x.type, at, x)


def _wide_enough(low: Lowering, x: IndexedTensor, pad: Sequence[Number], more: int) -> None:
    """Give up unless it is known that each padded dimension has an element, and at least `more`
    elements more than it is extended by on either side, if that isn't negative: so nothing is read
    outside."""
    for (before, after), size in zip(_sides(pad, len(x.sizes)), x.sizes, strict=True):
        if before is ZERO and after is ZERO:
            continue
        # Sizes that aren't known to be large enough are left to PyTorch, which raises if they
        # aren't.
        needs = [ge(size, 1)]
        if more >= 0:
            needs += [le(before + more, size), le(after + more, size)]
        if not low.known(and_(*needs)):
            raise NotLowered(f"padding a dimension of size {size}")


def _pad_shape(rank: int, *, mirrored: bool) -> ShapeRule:
    """The shape rule of padding with the image's own pixels, in the last `rank` dimensions. If they
    are `mirrored`, there have to be as many, without the border itself."""

    def rule(op: Overload, args: Args, kwargs: Kwargs, device: torch.device) -> Recipe | None:
        t, pads = args
        dims = (rank + 1, rank + 2)
        if kwargs or len(pads) != 2 * rank or t.dim() not in dims or not has_pixels(t, rank):
            return None
        if any(type(n) is not int or n < 0 for n in pads) or not t.is_floating_point():
            return None
        sizes = list(t.size())
        for i in range(rank):
            before, after = pads[2 * i : 2 * i + 2]
            if mirrored and not max(before, after) < sizes[-1 - i]:
                return None
            sizes[-1 - i] = sizes[-1 - i] + before + after
        return (image if rank == 2 else plain_image)(t, sizes, device)

    return rule


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
    padded: IndexedTensor = modes[mode](low, x, pad)
    return padded


# --------------------------------------------------------------------------------------------------
# Turned


@lowers("aten.flip.default", shape=by_marks(as_first))
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
    # By quarter turns: which element of x comes to (i, j).
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


def _roll_shape(op: Overload, args: Args, kwargs: Kwargs, device: torch.device) -> Recipe | None:
    t, shifts, dims = (*args, ())[:3]
    usual = is_contiguous(t) and all(-t.dim() <= d < t.dim() for d in dims)
    fits = len(dims) == len(shifts) if dims else len(shifts) == 1
    return dense(t.size(), t.dtype, device) if usual and fits else None


def _roll_meta(
    func: Any, t: torch.Tensor, shifts: list[int], dims: Sequence[int] = ()
) -> torch.Tensor:
    if not dims or t.numel() == 0:
        return func(t, shifts, dims)
    for shift, dim in zip(shifts, dims, strict=True):
        size = t.size(dim)
        start = (size - shift) % size
        t = torch.cat([t.narrow(dim, start, size - start), t.narrow(dim, 0, start)], dim)
    return t


@lowers("aten.roll.default", shape=_roll_shape, cpu_meta=_roll_meta)
def roll(
    low: Lowering, x: IndexedTensor, shifts: Sequence[Number], dims: Sequence[int] = ()
) -> IndexedTensor:
    amounts = [as_index(n) for n in shifts]
    if len(amounts) != len(dims) or not x.sizes:
        raise NotLowered("rolling all elements as one row")
    by: dict[int, Expr] = {}
    for d, shift in zip(dims, amounts, strict=True):
        d = normal_dim(d, len(x.sizes))
        by[d] = by.get(d, ZERO) + shift
    # Shifts by whole rounds, or backwards, become those by less than a round forwards.
    by = {d: shift % divisor(x.sizes[d]) for d, shift in by.items()}
    last = len(x.sizes) - 1

    def at(b: LoopBody, place: Index) -> LoopValue:
        index = list(place)
        for d, shift in by.items():
            back = index[d] - shift
            # Outer dimensions wrap in the index; the last one below, by two reads.
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
    # Repeats are aligned to the last dimension, as in broadcasting.
    times = [ONE] * (rank - len(repeats)) + [as_index(n) for n in repeats]
    first = rank - len(x.sizes)
    unrepeated = [is_one(low, n) for n in times[first:]]
    fixed = [is_one(low, size) for size in x.sizes]
    if x.sizes and not (unrepeated[-1] or fixed[-1]):
        require_gain_over_copy(low, x)
        if x.sizes[-1].value is None:  # a division by a number that isn't known, for each element
            raise NotLowered("repeating rows of any length")

    def at(b: LoopBody, place: Index) -> LoopValue:
        index = []
        for i, size, is_same, is_fixed in zip(
            place[first:], x.sizes, unrepeated, fixed, strict=True
        ):
            index.append(ZERO if is_fixed else i if is_same else i % divisor(size))
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
            # Column minus row is 0 on the diagonal, and `k` on the one that bounds the triangle.
            inside = compared(b, op, place[-1] - place[-2], k)
            return b(Op.SELECT, inside, x.at(b, place), zero(b, x.type))

        return reading(low, low.result.sizes, x.type, at, x)

    return rule


def _triangle_shape(
    op: Overload, args: Args, kwargs: Kwargs, device: torch.device
) -> Recipe | None:
    t = args[0]
    return dense(t.size(), t.dtype, device) if t.dim() >= 2 and is_contiguous(t) else None


_TRIANGLE: Final = first_of(_triangle_shape, by_marks(in_rows))
lowers("aten.tril.default", shape=_TRIANGLE)(_triangle(Op.LE))
lowers("aten.triu.default", shape=_TRIANGLE)(_triangle(Op.GE))


def _diag_embed_shape(
    op: Overload, args: Args, kwargs: Kwargs, device: torch.device
) -> Recipe | None:
    t: Fake = args[0]
    offset, dim1, dim2 = args[1:] + (0, -2, -1)[len(args) - 1 :]
    rank = t.dim() + 1
    if kwargs or not t.dim() or any(not -rank <= d < rank for d in (dim1, dim2)):
        return None
    places = sorted((dim1 % rank, dim2 % rank))
    if places[0] == places[1]:
        return None
    sizes = list(t.size())
    side = sizes.pop() + abs(offset)
    for place in places:
        sizes.insert(place, side)
    return dense(tuple(sizes), t.dtype, device)


@lowers("aten.diag_embed.default", shape=_diag_embed_shape)
def diag_embed(
    low: Lowering, x: IndexedTensor, offset: int = 0, dim1: int = -2, dim2: int = -1
) -> IndexedTensor:
    rank = len(x.sizes) + 1
    row, column = normal_dim(dim1, rank), normal_dim(dim2, rank)
    others = [d for d in range(rank) if d not in (row, column)]

    def at(b: LoopBody, place: Index) -> LoopValue:
        on_diagonal = compared(b, Op.EQ, place[column] - place[row], offset)
        along = place[row] if offset >= 0 else place[column]
        index = (*[place[d] for d in others], along)
        return read_where(b, x, index, on_diagonal, lambda: zero(b, x.type))

    return reading(low, low.result.sizes, x.type, at, x)


# --------------------------------------------------------------------------------------------------
# Shuffled


def _pixel_shuffle_shape(
    op: Overload, args: Args, kwargs: Kwargs, device: torch.device
) -> Recipe | None:
    t, factor = args
    if t.dim() < 3 or type(factor) is not int or factor <= 0 or not is_contiguous(t):
        return None
    *batch, channels, height, width = t.size()
    if channels % (factor * factor) != 0:
        return None
    sizes = (*batch, channels // (factor * factor), height * factor, width * factor)
    return dense(sizes, t.dtype, device)


@lowers("aten.pixel_shuffle.default", shape=_pixel_shuffle_shape, cpu_meta=meta.like_input)
def pixel_shuffle(low: Lowering, x: IndexedTensor, upscale_factor: int) -> IndexedTensor:
    r = upscale_factor

    def at(b: LoopBody, place: Index) -> LoopValue:
        *rest, c, i, j = place
        return x.at(b, (*rest, (c * r + i % r) * r + j % r, i // r, j // r))

    return reading(low, low.result.sizes, x.type, at, x)


def _pixel_unshuffle_shape(
    op: Overload, args: Args, kwargs: Kwargs, device: torch.device
) -> Recipe | None:
    t, factor = args
    if t.dim() < 3 or type(factor) is not int or factor <= 0 or not is_contiguous(t):
        return None
    *batch, channels, height, width = t.size()
    if height % factor != 0 or width % factor != 0 or t.numel() == 0:
        return None  # nothing stays as it is
    sizes = (*batch, channels * factor * factor, height // factor, width // factor)
    return dense(sizes, t.dtype, device)


def _pixel_unshuffle_meta(func: Any, t: torch.Tensor, factor: int) -> torch.Tensor:
    return torch.clone(t) if t.numel() == 0 else func(t, factor)  # nothing stays as it is


@lowers(
    "aten.pixel_unshuffle.default", shape=_pixel_unshuffle_shape, cpu_meta=_pixel_unshuffle_meta
)
def pixel_unshuffle(low: Lowering, x: IndexedTensor, downscale_factor: int) -> IndexedTensor:
    r = downscale_factor

    def at(b: LoopBody, place: Index) -> LoopValue:
        *rest, c, i, j = place
        return x.at(b, (*rest, c // (r * r), i * r + c // r % r, j * r + c % r))

    return reading(low, low.result.sizes, x.type, at, x)


@lowers(
    "aten.channel_shuffle.default", "aten.native_channel_shuffle.default", cpu_meta=meta.like_input
)
def channel_shuffle(low: Lowering, x: IndexedTensor, groups: Number) -> IndexedTensor:
    count = as_index(groups)

    def at(b: LoopBody, place: Index) -> LoopValue:
        batch, c, *rest = place
        # Channel c of the result is that of group c % groups, the (c // groups)-th in it: a
        # transposition of groups and what is in them.
        per_group = x.sizes[1] // count
        return x.at(b, (batch, c % count * per_group + c // count, *rest))

    return reading(low, low.result.sizes, x.type, at, x)


register("aten.cat.default", shape=_cat_shape)
for _rank in (1, 2, 3):
    register(f"aten.reflection_pad{_rank}d.default", shape=_pad_shape(_rank, mirrored=True))
    register(f"aten.replication_pad{_rank}d.default", shape=_pad_shape(_rank, mirrored=False))
register(
    "aten.reflection_pad2d.default", "aten.replication_pad2d.default", cpu_meta=meta.like_input
)


def _block_diag_meta(func: Any, tensors: Any) -> Any:
    """Where PyTorch's kernel doesn't count 0-dim tensors, its shape function does."""
    result = func(tensors)
    return result.to(promoted(tensors, ())) if tensors else result


register("aten.block_diag.default", cpu_meta=_block_diag_meta)

_SAFE: Final = """
pad constant_pad_nd _pad_circular reflection_pad1d reflection_pad2d reflection_pad3d
replication_pad1d replication_pad2d replication_pad3d cat concat concatenate stack flip roll
rot90 repeat tile tril triu diag_embed block_diag pixel_shuffle pixel_unshuffle
channel_shuffle native_channel_shuffle
"""
register(*aten_names(_SAFE), raises=never)
