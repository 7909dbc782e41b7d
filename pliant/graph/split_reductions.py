"""Reductions of few results in two steps, for GPUs.

The one idea: a GPU wants work for thousands of programs, and the sum of the columns of a matrix has
only as many results as there are columns. So a dimension that is reduced is split in two: first
the inner part is reduced, for all of the outer part at once, then the few numbers that are left.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Final

import torch

from pliant.graph.ir import FunctionalBuilder, Node, Tensor
from pliant.loop.define import contiguous
from pliant.sym.expr import ZERO, integer

aten = torch.ops.aten

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
_SUMS_IN: Final = {torch.bfloat16: torch.float32, torch.float16: torch.float32}


def split_reductions(function: FunctionalBuilder) -> None:
    """Each reduction of much to little as two."""
    nodes: list[Node] = []
    for node in function.nodes:
        place = _place(node) if node.name in _REDUCTIONS and not node.effect else None
        nodes += [node] if place is None else _in_two_steps(node, *place)
    function.nodes[:] = nodes


def _place(node: Node) -> tuple[list[int], int, int] | None:
    """The dimensions that are reduced, which of them to split, and how much is the inner part."""
    x, (result,) = node.args[0], node.results
    sizes = [size.value for size in x.sizes]
    dims = _dims(node, len(sizes))
    plain = x.strides == contiguous(x.sizes) and x.dtype.is_floating_point
    if not plain or not dims or set(node.kwargs) - {"dtype"} or any(s is None for s in sizes):
        return None
    if node.kwargs.get("dtype") not in (None, result.dtype):
        return None
    reduced = math.prod([sizes[d] or 0 for d in dims])
    remaining = math.prod([size or 0 for d, size in enumerate(sizes) if d not in dims])
    along = len(sizes) - 1 in dims
    if reduced < (LONG if along else TALL) or not 0 < remaining < (
        FEW_ROWS if along else FEW_COLUMNS
    ):
        return None
    dim = len(sizes) - 1 if along else max(dims, key=lambda d: sizes[d] or 0)
    across = min(max(reduced * remaining // (64 * PROGRAMS), ACROSS), MOST_ACROSS)
    inner = _divisor(sizes[dim] or 0, ALONG if along else across)
    return None if inner is None else (dims, dim, inner)


def _dims(node: Node, rank: int) -> list[int]:
    listed: Any = node.args[1] if len(node.args) > 1 else None
    dims = list(range(rank)) if not listed else [d % rank for d in listed]
    return sorted(set(dims))


def _divisor(size: int, limit: int) -> int | None:
    """The largest that is not above the limit, if it is worth it."""
    divisors = [n for n in range(max(limit // 4, 2), min(limit, size // 2) + 1) if size % n == 0]
    return divisors[-1] if divisors else None


def _in_two_steps(node: Node, dims: Sequence[int], dim: int, inner: int) -> list[Node]:
    x, (result,) = node.args[0], node.results
    parts: list[Node] = []

    def call(func: Any, sizes: Sequence[Any], of: torch.dtype, *args: Any, **kwargs: Any) -> Any:
        t = Tensor(tuple(sizes), contiguous(tuple(sizes)), ZERO, of, device=x.device)
        view = func is aten.view.default
        t.node = Node(str(func), func, args, kwargs, (t,), view=view, recompute=node.recompute)
        t.node.stack = node.stack
        parts.append(t.node)
        return t

    split = [*x.sizes[:dim], x.sizes[dim] // inner, integer(inner), *x.sizes[dim + 1 :]]
    split_view = call(aten.view.default, split, x.dtype, x, split)
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
