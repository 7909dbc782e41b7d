"""How a tensor with symbolic sizes lies in memory, found out with as few questions as possible.

The one idea: strides were made from sizes, so which dimension lies inside which follows from how
they are written (`s1*s2, s2, 1`), for all sizes at once. Where a size is 0 the strides do not
matter, and where it is 1 that one does not; so neither has to be asked for. What does not follow is
asked in a form that holds for every tensor without overlap: an outer stride spans the inner
dimension.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import torch

from pliant.sym import node_layout
from pliant.sym.cond import TRUE
from pliant.sym.expr import as_expr

Tensor = torch.Tensor


def sure(condition: Any) -> bool:
    """Whether a condition follows from what is known. Asking leaves no guard."""
    if isinstance(condition, bool):
        return condition
    return bool(condition.node.statically_known_true("", 0))


def need(condition: Any, message: str = "") -> None:
    """Demand a condition without which the operation fails: a guard, or for unbacked sizes a test
    when the code runs. (`torch._check` does the same, but imports a large part of PyTorch's
    compiler.)"""
    if not fits(condition):
        raise RuntimeError(message or "the sizes do not fit")


def fits(condition: Any) -> bool:
    """Whether a condition holds without which the operation fails, found out in the same way."""
    return bool(condition if isinstance(condition, bool) else condition.node.expect_true("", 0))


def is_one(size: Any) -> bool:
    """Whether a size is 1. An unbacked one is assumed not to be."""
    question = size == 1
    return question if isinstance(question, bool) else question.node.guard_size_oblivious("", 0)


def is_contiguous(t: Tensor) -> bool:
    """Whether the tensor is known to be contiguous: False if it is so for some sizes only."""
    if not t._has_symbolic_sizes_strides:
        return t.is_contiguous()
    numbers = (*t.size(), *t.stride())
    exprs = tuple(as_expr(n) if type(n) is int else n.node.expr for n in numbers)
    cond = node_layout.is_contiguous(exprs[: t.dim()], exprs[t.dim() :])
    env = next((n.node.env for n in numbers if type(n) is not int), None)
    return cond is TRUE or (env is not None and env.known(cond) is True)


def nesting(sizes: Sequence[Any], strides: Sequence[Any]) -> list[int] | None:
    """The dimensions from the innermost to the outermost, or None if they overlap or it can't be
    told. Dimensions of size 1 come last, unless all are in row-major order."""
    left = [d for d in reversed(range(len(sizes))) if not sure(sizes[d] == 1)]
    # Their strides say nothing.
    ones = [d for d in reversed(range(len(sizes))) if d not in left]
    order = _known_order(sizes, strides, left) or _asked_order(sizes, strides, left)
    if order is None or _is_still(strides, order):
        return None
    return list(reversed(range(len(sizes)))) if order == left else order + ones


def _is_still(strides: Sequence[Any], order: list[int]) -> bool:
    """Whether the innermost of several strides is 0: such a tensor overlaps, though the questions
    about spans don't show it."""
    inner = strides[order[0]] if len(order) > 1 else 1
    return hint(inner) is not None and bool(inner == 0)


def _spans(outer: Any, stride: Any, size: Any) -> Any:
    return outer >= stride * size


def _known_order(sizes: Sequence[Any], strides: Sequence[Any], dims: list[int]) -> list[int] | None:
    """An order in which each dimension is known to span the one before it; None if there is
    none."""
    if any(sure(strides[d] == 0) for d in dims):
        return None
    fitting: dict[tuple[int, int], bool] = {}

    def fits(inner: int, outer: int) -> bool:
        if (inner, outer) not in fitting:
            fitting[inner, outer] = sure(_spans(strides[outer], strides[inner], sizes[inner]))
        return fitting[inner, outer]

    def extended(order: list[int], left: list[int]) -> list[int] | None:
        if not left:
            return order
        # Few dimensions, and most orders are ruled out at once: trying them all is cheap.
        ways = (
            extended([*order, d], [e for e in left if e != d])
            for d in left
            if not order or fits(order[-1], d)
        )
        return next((way for way in ways if way is not None), None)

    return extended([], dims)


def _asked_order(sizes: Sequence[Any], strides: Sequence[Any], dims: list[int]) -> list[int] | None:
    """The order that the strides have in this call, with guards that it is this one; None if they
    overlap."""
    hints = {d: (hint(strides[d]), hint(sizes[d])) for d in dims}
    # Unbacked, or a stride of 0: the dimension is expanded.
    if any(None in pair or not pair[0] for pair in hints.values()):
        return None
    order = sorted(dims, key=lambda d: hints[d])
    steps = list(pairwise(order))
    # It overlaps, or strides are interleaved: no order says how it lies.
    if any(hints[e][0] < hints[d][0] * hints[d][1] for d, e in steps):
        return None
    for d, e in steps:
        bool(_spans(strides[e], strides[d], sizes[d]))
    return order


def hint(number: Any) -> Any:
    return number if type(number) is int else number.node.hint


def broadcast_order(tensors: Sequence[Tensor], sizes: Sequence[Any]) -> list[int] | None:
    """The order in memory of the dimensions of a pointwise result, the innermost first; None if
    finding it out needs more guards.

    It is that of the first operand that has all dimensions, if those before it agree as far as they
    have an order. Dimensions of size 1 have to agree as well: their strides matter to nothing else,
    but where the result has size 1 there too, PyTorch sorts by them.
    """
    inner = list(reversed(range(len(sizes))))
    before: list[Tensor] = []
    for t in tensors:
        before.append(t)
        if t.dim() == len(sizes) and not any(map(_is_spread, t.size(), t.stride(), sizes)):
            order = nesting(t.size(), t.stride())
            if order is None:
                return None
            inner = order
            break
    return inner if all(_agrees(t, inner) for t in before) else None


def _is_spread(size: Any, stride: Any, wide: Any) -> bool:
    """Whether one element serves for all."""
    return sure(stride == 0) or (sure(size == 1) and not sure(wide == 1))


def _agrees(t: Tensor, order: list[int]) -> bool:
    shift = len(order) - t.dim()
    sizes, strides = t.size(), t.stride()
    # Expanded dimensions have no place in an order.
    own = [d - shift for d in order if d >= shift and not sure(strides[d - shift] == 0)]
    return all(sure(_spans(strides[e], strides[d], sizes[d])) for d, e in pairwise(own))


def known_same(a: Any, b: Any) -> bool:
    return a is b or bool(a == b)
