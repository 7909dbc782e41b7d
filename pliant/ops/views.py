"""Views of tensors that are not in memory: the same elements, found at other indices.

The one idea: a view is a function from its index to the index in what it is a view of. (A tensor
that is in memory needs none of this: its views are other strides.)
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

from pliant.loop.define import Index, LoopBody
from pliant.loop.ir import LoopValue
from pliant.ops.indexed_tensor import IndexedTensor
from pliant.ops.lowering import NotLowered
from pliant.ops.places import divisor
from pliant.sym.expr import ONE, ZERO, Expr, as_expr, floordiv, mod, product_of

Map = Callable[[Index], Index]
Rule = Callable[..., Map]


def view_of(
    name: str, x: IndexedTensor, sizes: tuple[Expr, ...], *args: Any, **kwargs: Any
) -> IndexedTensor:
    """The view with these sizes. `op[2]` is the third of those that `op` returns."""
    name, _, position = name.removesuffix("]").partition("[")
    rule = VIEWS.get(name)
    if name in PARTS:
        where = PARTS[name](int(position or 0), x, sizes, *args, **kwargs)
    elif rule is None or position:
        raise NotLowered(f"{name} of what is not in memory")
    else:
        where = rule(x, sizes, *args, **kwargs)

    def at(b: LoopBody, index: Index) -> LoopValue:
        return x.at(b, where(index))

    return IndexedTensor(sizes, x.type, at, x.cost, x.reads)


def _permute(x: IndexedTensor, sizes: tuple[Expr, ...], dims: Sequence[int]) -> Map:
    rank = len(sizes)
    place = {d % rank: i for i, d in enumerate(dims)}
    return lambda index: tuple([index[place[d]] for d in range(rank)])


def _transpose(x: IndexedTensor, sizes: tuple[Expr, ...], a: int, b: int) -> Map:
    dims = list(range(len(sizes)))
    if dims:
        dims[a], dims[b] = dims[b], dims[a]
    return _permute(x, sizes, dims) if dims else lambda index: index


def _t(x: IndexedTensor, sizes: tuple[Expr, ...]) -> Map:
    return lambda index: index[::-1]


def _expand(x: IndexedTensor, sizes: tuple[Expr, ...], wanted: Any, implicit: bool = False) -> Map:
    """A size that may or may not be 1 is a matter of strides, which tensors in memory have."""
    first = len(sizes) - len(x.sizes)
    if any(s is not ONE and s is not sizes[first + d] for d, s in enumerate(x.sizes)):
        raise NotLowered("expand of a size that may be 1")
    fixed = [size is ONE and sizes[first + d] is not ONE for d, size in enumerate(x.sizes)]
    return lambda index: tuple([ZERO if one else index[first + d] for d, one in enumerate(fixed)])


def _unsqueeze(x: IndexedTensor, sizes: tuple[Expr, ...], dim: int) -> Map:
    dim %= len(sizes)
    return lambda index: index[:dim] + index[dim + 1 :]


def _squeeze(x: IndexedTensor, sizes: tuple[Expr, ...], *dims: Any) -> Map:
    """Dimensions of size 1 are gone; which ones, the sizes tell."""
    rank = len(x.sizes)
    given = dims[0] if dims else range(rank)
    among = [d % rank for d in ([given] if isinstance(given, int) else given)] if rank else []
    gone = {d for d in among if x.sizes[d] is ONE}
    if rank - len(gone) != len(sizes):
        raise NotLowered("squeeze of a size that may be 1")

    def where(index: Index) -> Index:
        rest = iter(index)
        return tuple([ZERO if d in gone else next(rest) for d in range(rank)])

    return where


def _select(x: IndexedTensor, sizes: tuple[Expr, ...], dim: int, at: Any) -> Map:
    rank = len(x.sizes)
    dim %= rank
    place = as_expr(at)
    if place.value is None:
        raise NotLowered("select at a symbolic index")
    if place.value < 0:
        place = place + x.sizes[dim]
    return lambda index: (*index[:dim], place, *index[dim:])


def _slice(
    x: IndexedTensor,
    sizes: tuple[Expr, ...],
    dim: int = 0,
    start: Any = None,
    end: Any = None,
    step: int = 1,
) -> Map:
    dim %= len(x.sizes)
    first = as_expr(0 if start is None else start)
    if first.value is None:
        raise NotLowered("a slice from a symbolic index")
    if first.value < 0:
        raise NotLowered("a slice from the end")
    by = as_expr(step)
    return lambda index: (*index[:dim], first + index[dim] * by, *index[dim + 1 :])


def _unbind(position: int, x: IndexedTensor, sizes: tuple[Expr, ...], dim: int = 0) -> Map:
    return _select(x, sizes, dim, position)


def _split(
    position: int, x: IndexedTensor, sizes: tuple[Expr, ...], size: Any, dim: int = 0
) -> Map:
    return _slice(x, sizes, dim, as_expr(size) * position)


def _split_sizes(
    position: int, x: IndexedTensor, sizes: tuple[Expr, ...], parts: Any, dim: int = 0
) -> Map:
    return _slice(x, sizes, dim, sum([as_expr(part) for part in parts[:position]], ZERO))


def _reshape(x: IndexedTensor, sizes: tuple[Expr, ...], *wanted: Any) -> Map:
    """Dimensions are cut into the shortest pieces that have as many elements on both sides."""
    pieces = matched(x.sizes, sizes)

    def where(index: Index) -> Index:
        found: dict[int, Expr] = {}
        for theirs, mine in pieces:
            flat = ZERO
            for d in mine:
                flat = flat * sizes[d] + index[d]
            for d in reversed(theirs[1:]):
                size = divisor(x.sizes[d])
                found[d] = mod(flat, size)
                flat = floordiv(flat, size)
            if theirs:
                found[theirs[0]] = flat
        return tuple([found.get(d, ZERO) for d in range(len(x.sizes))])

    return where


def matched(theirs: tuple[Expr, ...], mine: tuple[Expr, ...]) -> list[tuple[list[int], list[int]]]:
    """Pieces of dimensions of two shapes, in order, with equally many elements. Dimensions of size
    1 are in none."""
    a = [d for d, size in enumerate(theirs) if size is not ONE]
    b = [d for d, size in enumerate(mine) if size is not ONE]
    pieces: list[tuple[list[int], list[int]]] = []
    while a or b:
        left, right = a[:1], b[:1]
        while True:
            n, m = product_of([theirs[d] for d in left]), product_of([mine[d] for d in right])
            if n is m and left and right:
                break
            left, right = _longer(theirs, mine, a, b, left, right, n, m)
        pieces.append((left, right))
        a, b = a[len(left) :], b[len(right) :]
    return pieces


def _longer(
    theirs: tuple[Expr, ...],
    mine: tuple[Expr, ...],
    a: list[int],
    b: list[int],
    left: list[int],
    right: list[int],
    n: Expr,
    m: Expr,
) -> tuple[list[int], list[int]]:
    """One dimension more on the side that has fewer elements (or all of both, if nobody knows)."""
    more_left, more_right = len(left) < len(a), len(right) < len(b)
    if n.value is not None and m.value is not None:
        grow_left = n.value < m.value
    else:
        grow_left = len(n.symbols) + len(n.factors) < len(m.symbols) + len(m.factors)
    if grow_left and more_left:
        return a[: len(left) + 1], right
    if more_right and (not grow_left or not more_left):
        return left, b[: len(right) + 1]
    if more_left:
        return a[: len(left) + 1], right
    raise NotLowered("a reshape whose sizes don't match")


def _same(x: IndexedTensor, sizes: tuple[Expr, ...], *args: Any) -> Map:
    return lambda index: index


VIEWS: Final[dict[str, Rule]] = {
    "aten.permute.default": _permute,
    "aten.transpose.int": _transpose,
    "aten.t.default": _t,
    "aten.expand.default": _expand,
    "aten.unsqueeze.default": _unsqueeze,
    "aten.squeeze.default": _squeeze,
    "aten.squeeze.dim": _squeeze,
    "aten.squeeze.dims": _squeeze,
    "aten.select.int": _select,
    "aten.slice.Tensor": _slice,
    "aten.view.default": _reshape,
    "aten._unsafe_view.default": _reshape,
    "aten._reshape_alias.default": _reshape,
    "aten.alias.default": _same,
    "aten.detach.default": _same,
    "aten.lift_fresh.default": _same,
}

PARTS: Final[dict[str, Rule]] = {
    "aten.unbind.int": _unbind,
    "aten.split.Tensor": _split,
    "aten.split_with_sizes.default": _split_sizes,
}
