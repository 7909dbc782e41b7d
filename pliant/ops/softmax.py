"""Softmax and its kin: elements relative to the largest of their row.

The one idea: first the largest element and the sum of the exponentials as reductions, then each
element as a cheap function of itself and of them, which can be computed again wherever it is read.

    m = max(x);  s = sum(exp(x - m));  softmax(x) = exp(x - m) / s,  log_softmax(x) = x - m - log(s)
"""

from __future__ import annotations

import math
from typing import Final

import torch

from pliant.base.operators import aten_names, register
from pliant.fake.overload import Overload
from pliant.fake.raising import never
from pliant.fake.results import Recipe
from pliant.fake.rule import Args, Kwargs, dense
from pliant.loop.define import LoopBody
from pliant.loop.ir import LoopValue, Op
from pliant.ops.elementwise import finished
from pliant.ops.indexed_tensor import IndexedTensor
from pliant.ops.lowering import Lowering, NotLowered, computed_in, lowers, unsqueezed
from pliant.ops.reductions import Then, realize_if_costly, with_ones
from pliant.sym.expr import ONE

EXP_COST = 20


def _exp_of_distance(b: LoopBody, v: LoopValue, top: LoopValue) -> LoopValue:
    return b(Op.EXP, b(Op.SUB, v, top))


def _exponentials(
    low: Lowering, x: IndexedTensor, dim: int, then: Then
) -> tuple[IndexedTensor, IndexedTensor, IndexedTensor, IndexedTensor]:
    """x as it is computed with, its largest element along `dim`, the exponentials of the distances
    to it, and what `then` makes of their sum; all of them broadcast with x."""
    result = low.result.type
    if result.kind != "float":
        raise NotLowered(f"softmax of {result}")
    # With `dtype`, elements are that before anything is computed.
    x = realize_if_costly(low, low.cast(low.cast(x, result), computed_in(result)))
    if not x.sizes:
        x = unsqueezed(x, (ONE,))
    dims = low.dims(x, dim)
    # Relative to the maximum no exponential overflows, and the sum is at least 1.
    top = with_ones(low.reduce(Op.MAX, x, dims), x.sizes, dims)
    powers = low.map(_exp_of_distance, x.type, x, top, cost=EXP_COST)
    total = with_ones(low.reduce(Op.SUM, powers, dims, False, then), x.sizes, dims)
    return x, top, powers, total


def _reciprocal(b: LoopBody, v: LoopValue) -> LoopValue:
    """1 / v, for a sum of exponentials, which is at least 1 or nan, so that nothing overflows."""
    return b(Op.DIV, b.constant(1.0, v.type), v)


@lowers("aten.softmax.int", "aten.special_softmax.default")
def softmax(
    low: Lowering, x: IndexedTensor, dim: int, dtype: torch.dtype | None = None
) -> IndexedTensor:
    # One division for each row instead of one for each element.
    _, _, powers, inverse = _exponentials(low, x, dim, _reciprocal)
    return finished(low, lambda b, v, i: b(Op.MUL, v, i), powers, inverse)


def _softmax_shape(op: Overload, args: Args, kwargs: Kwargs, device: torch.device) -> Recipe | None:
    t, dim, to_float = (*args, False)[:3]
    if t.dim():
        t.size(dim)  # raises what the kernel would; the meta kernel does not look at the dimension
    if to_float or not t.is_floating_point() or not -max(t.dim(), 1) <= dim < max(t.dim(), 1):
        return None
    return dense(t.size(), t.dtype, device)


@lowers("aten._softmax.default", shape=_softmax_shape)
def softmax_as_is(low: Lowering, x: IndexedTensor, dim: int, half_to_float: bool) -> IndexedTensor:
    return softmax(low, x, dim)


def _safe_softmax_shape(
    op: Overload, args: Args, kwargs: Kwargs, device: torch.device
) -> Recipe | None:
    return _softmax_shape(op, args, kwargs, device) if len(args) == 2 and not kwargs else None


@lowers("aten._safe_softmax.default", shape=_safe_softmax_shape)
def safe_softmax(
    low: Lowering, x: IndexedTensor, dim: int, dtype: torch.dtype | None = None
) -> IndexedTensor:
    """Softmax, but 0 where all elements are -inf."""
    _, top, powers, inverse = _exponentials(low, x, dim, _reciprocal)

    def combine(b: LoopBody, v: LoopValue, i: LoopValue, m: LoopValue) -> LoopValue:
        all_masked = b(Op.EQ, m, b.constant(-math.inf, m.type))
        return b(Op.SELECT, all_masked, b.constant(0.0, v.type), b(Op.MUL, v, i))

    return finished(low, combine, powers, inverse, top)


@lowers("aten.log_softmax.int", "aten.special_log_softmax.default")
def log_softmax(
    low: Lowering, x: IndexedTensor, dim: int, dtype: torch.dtype | None = None
) -> IndexedTensor:
    x, top, _, log = _exponentials(low, x, dim, lambda b, v: b(Op.LOG, v))

    def combine(b: LoopBody, v: LoopValue, m: LoopValue, shift: LoopValue) -> LoopValue:
        # In this order: the sum of both may lose what the difference of the first two keeps.
        return b(Op.SUB, b(Op.SUB, v, m), shift)

    return finished(low, combine, x, top, log)


@lowers("aten._log_softmax.default", shape=_softmax_shape)
def log_softmax_as_is(
    low: Lowering, x: IndexedTensor, dim: int, half_to_float: bool
) -> IndexedTensor:
    return log_softmax(low, x, dim)


register(
    *("aten._softmax.default", "aten._log_softmax.default"),
    *("aten.softmax.int", "aten.log_softmax.int"),
    reads_whole=True,
)

_SAFE: Final = """
softmax log_softmax _softmax _log_softmax _safe_softmax special_softmax special_log_softmax
"""
register(*aten_names(_SAFE), raises=never)
