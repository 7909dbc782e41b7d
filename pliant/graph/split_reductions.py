"""Reductions of few results in two steps, for GPUs.

The one idea: a GPU wants work for thousands of programs, and the sum of the columns of a matrix has
only as many results as there are columns. So a dimension that is reduced is split in two: first
the inner part is reduced, for all of the outer part at once, then the few numbers that are left.
The sum of the columns of x, of sizes [65536, 64], is two:

    view(x, [256, 256, 64]) -> sum over 1 -> [256, 64] -> sum over 0 -> [64]

A dimension of symbolic size is filled up to a multiple of the inner part first, with numbers that
change nothing; the first step computes them on the way, without memory for them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, Final

import torch

from pliant.base.values import dataclass
from pliant.graph.ir import FunctionalBuilder, Node, Tensor
from pliant.loop.define import contiguous
from pliant.sym.expr import ZERO, Expr, ceildiv, integer

aten = torch.ops.aten
Hint = Callable[[Expr], int]

FEW_ROWS: Final = 128  # results of sums along memory
LONG: Final = 1 << 15  # numbers in each of them
ALONG: Final = 4096  # of them that one program of the first step sums
FEW_COLUMNS: Final = 8192  # results of sums across memory
TALL: Final = 1024
ACROSS: Final = 256  # of them that one program of the first step sums at least
MOST_ACROSS: Final = 2048
PROGRAMS: Final = 512  # that keep a GPU busy, each with 64 columns

_REDUCTIONS: Final = frozenset(
    ("aten.sum.dim_IntList", "aten.sum.default", "aten.amax.default", "aten.amin.default")
)
_NEUTRAL: Final = {"aten.amax.default": -math.inf, "aten.amin.default": math.inf}
_SUMS_IN: Final = {torch.bfloat16: torch.float32, torch.float16: torch.float32}


def split_reductions(function: FunctionalBuilder, hint: Hint) -> None:
    """Replace each reduction of many numbers to few results by two. `hint` tells sizes that were
    seen."""
    nodes: list[Node] = []
    for node in function.nodes:
        place = _place(node, hint) if node.name in _REDUCTIONS and not node.effect else None
        nodes += [node] if place is None else _in_two_steps(node, place)
    function.nodes[:] = nodes


@dataclass(frozen=True, slots=True)
class _Split:
    """How to split a reduction: the dimensions `dims` that it reduces, the one to split, and the
    size of its inner part. If `padded`, that needn't divide the dimension."""

    dims: tuple[int, ...]
    dim: int
    inner: int
    padded: bool = False


def _place(node: Node, hint: Hint) -> _Split | None:
    """How to split a reduction; None if that gains nothing, or isn't possible."""
    x, (result,) = node.args[0], node.results
    sizes = [hint(size) for size in x.sizes]
    dims = _dims(node, len(sizes))
    # Splitting a dimension is a view only if strides allow it.
    plain = x.strides == contiguous(x.sizes) and x.dtype.is_floating_point
    if not plain or not dims or set(node.kwargs) - {"dtype"}:
        return None
    if node.kwargs.get("dtype") not in (None, result.dtype):
        return None
    reduced = math.prod([sizes[d] for d in dims])
    remaining = math.prod([size for d, size in enumerate(sizes) if d not in dims])
    # Whether the rows that are summed lie along memory, or across it.
    along = len(sizes) - 1 in dims
    if reduced < (LONG if along else TALL) or not 0 < remaining < (
        FEW_ROWS if along else FEW_COLUMNS
    ):
        return None
    dim = len(sizes) - 1 if along else max(dims, key=lambda d: sizes[d])
    across = min(max(reduced * remaining // (64 * PROGRAMS), ACROSS), MOST_ACROSS)
    limit = ALONG if along else across
    if all(size.value is not None for size in x.sizes):
        inner = _divisor(sizes[dim], limit)
        return None if inner is None else _Split(tuple(dims), dim, inner)
    return _padded(dims, dim, sizes[dim], limit)


def _padded(dims: list[int], dim: int, size: int, limit: int) -> _Split | None:
    """The split of a dimension of symbolic size, by a power of two."""
    inner = 1 << (limit.bit_length() - 1)
    return None if size < 2 * inner else _Split(tuple(dims), dim, inner, padded=True)


def _dims(node: Node, rank: int) -> list[int]:
    listed: Any = node.args[1] if len(node.args) > 1 else None
    dims = list(range(rank)) if not listed else [d % rank for d in listed]
    return sorted(set(dims))


def _divisor(size: int, limit: int) -> int | None:
    """The largest divisor of the size up to the limit; None if it is much smaller."""
    divisors = [n for n in range(max(limit // 4, 2), min(limit, size // 2) + 1) if size % n == 0]
    return divisors[-1] if divisors else None


def _in_two_steps(node: Node, place: _Split) -> list[Node]:
    """The nodes that replace a reduction; the last of them has its result."""
    x, (result,) = node.args[0], node.results
    dims, dim, inner = place.dims, place.dim, place.inner
    parts: list[Node] = []

    def call(func: Any, sizes: Sequence[Any], of: torch.dtype, *args: Any, **kwargs: Any) -> Any:
        t = Tensor(tuple(sizes), contiguous(tuple(sizes)), ZERO, of, device=x.device)
        view = func is aten.view.default
        t.node = Node(str(func), func, args, kwargs, (t,), view=view, recompute=node.recompute)
        t.node.stack = node.stack
        parts.append(t.node)
        return t

    outer, whole = ceildiv(x.sizes[dim], inner), x
    if place.padded:
        filled = [*x.sizes[:dim], outer * inner, *x.sizes[dim + 1 :]]
        # `constant_pad_nd` counts dimensions from the last one; what is added is at the end.
        pads = [ZERO, ZERO] * (len(filled) - 1 - dim) + [ZERO, outer * inner - x.sizes[dim]]
        number = _NEUTRAL.get(node.name, 0.0)
        whole = call(aten.constant_pad_nd.default, filled, x.dtype, x, pads, number)
    split = [*x.sizes[:dim], outer, integer(inner), *x.sizes[dim + 1 :]]
    split_view = call(aten.view.default, split, x.dtype, whole, split)
    partial = [*split[: dim + 1], *split[dim + 2 :]]
    keeps = len(node.args) > 2 and node.args[2]
    if node.name.startswith("aten.sum"):
        # Not rounded to halves in between.
        wide = _SUMS_IN.get(result.dtype, result.dtype)
        func, typed = aten.sum.dim_IntList, {"dtype": wide}
    else:
        wide, func, typed = x.dtype, node.func, {}
    first = call(func, partial, wide, split_view, [dim + 1], False, **typed)
    last = call(func, result.sizes, wide, first, list(dims), keeps, **typed)
    if wide is not result.dtype:
        call(aten._to_copy.default, result.sizes, result.dtype, last, dtype=result.dtype)
    parts[-1].results = (result,)
    result.node = parts[-1]
    return parts
