"""Tensors made from numbers: fills, ranges, the identity.

The one idea: the sizes and the dtype are those of the result as eager PyTorch gives them; a rule
only says what stands at an index. `empty` is zeros: nobody can tell, and what is overwritten is
never computed.
"""

from __future__ import annotations

from typing import Any

from pliant.loop.define import Index, LoopBody
from pliant.loop.ir import LoopValue, Op
from pliant.loop.types import FLOAT, INTEGER, Type
from pliant.ops.copies import check_usual
from pliant.ops.indexed_tensor import IndexedTensor
from pliant.ops.lowering import Lowering, NotLowered, Number, lowers, number
from pliant.ops.places import compared, fitting, index_tensor, reading, usual
from pliant.sym.cond import and_, le
from pliant.sym.expr import Expr, as_expr
from pliant.sym.floats import FloatExpr

# --------------------------------------------------------------------------------------------------
# Fills


def filled(low: Lowering, value: Number, options: dict[str, Any]) -> IndexedTensor:
    """The result, with one number everywhere."""
    check_usual(**options)
    t = low.result.type
    value = fitting(value, t)
    return low.generate(low.result.sizes, t, lambda b, index: number(b, value, t), 0)


@lowers("aten.full.default")
def full(low: Lowering, size: Any, fill_value: Number, **options: Any) -> IndexedTensor:
    return filled(low, fill_value, options)


@lowers("aten.new_full.default")
def new_full(
    low: Lowering, x: IndexedTensor, size: Any, fill_value: Number, **options: Any
) -> IndexedTensor:
    return filled(low, fill_value, options)


@lowers("aten.full_like.default")
def full_like(low: Lowering, x: IndexedTensor, fill_value: Number, **options: Any) -> IndexedTensor:
    return filled(low, fill_value, options)


@lowers("aten.scalar_tensor.default")
def scalar_tensor(low: Lowering, s: Number, **options: Any) -> IndexedTensor:
    return filled(low, s, options)


@lowers(
    "aten.zeros.default",
    "aten.new_zeros.default",
    "aten.zeros_like.default",
    "aten.empty.memory_format",
    "aten.empty_strided.default",
    "aten.empty_permuted.default",
    "aten.empty_like.default",
    "aten.new_empty.default",
    "aten.new_empty_strided.default",
)
def zeros(low: Lowering, *args: Any, **options: Any) -> IndexedTensor:
    return filled(low, 0, options)


@lowers("aten.ones.default", "aten.new_ones.default", "aten.ones_like.default")
def ones(low: Lowering, *args: Any, **options: Any) -> IndexedTensor:
    return filled(low, 1, options)


# --------------------------------------------------------------------------------------------------
# Ranges. Integers are start + i*step. Floats are computed by eager in vectors: the first of each is
# rounded, and the others are added to it. That is the same where every number is an integer that
# the type has; other ranges are left to PyTorch.

_EXACT = {Type.F16: 1 << 11, Type.BF16: 1 << 8}
"""Up to here a half has all integers."""


@lowers("aten.arange.start_step")
def arange(
    low: Lowering, start: Number, end: Number, step: Number = 1, **options: Any
) -> IndexedTensor:
    check_usual(**options)
    return counted(low, _integral(start), _integral(step))


@lowers("aten.arange.start")
def arange_from(low: Lowering, start: Number, end: Number, **options: Any) -> IndexedTensor:
    return arange(low, start, end, 1, **options)


@lowers("aten.arange.default")
def arange_to(low: Lowering, end: Number, **options: Any) -> IndexedTensor:
    return arange(low, 0, end, 1, **options)


@lowers("prims.iota.default")
def iota(
    low: Lowering, length: Number, *, start: Number, step: Number, **options: Any
) -> IndexedTensor:
    check_usual(**options)
    return counted(low, _integral(start), _integral(step))


def counted(low: Lowering, start: Expr, step: Expr) -> IndexedTensor:
    """start, start + step, ..."""
    t, sizes = usual(low.result.type), low.result.sizes
    if t not in INTEGER and t not in FLOAT:
        limit = _EXACT.get(t)
        last = start + step * sizes[0]
        ends = [le(x, limit) for x in (start, -start, last, -last)] if limit else []
        if not ends or not low.known(and_(*ends)):
            raise NotLowered(f"a range of {t}")
    return low.generate(sizes, t, lambda b, index: b.cast(b.iota(start + index[0] * step), t), 0)


def _integral(x: Number) -> Expr:
    """A number without fraction."""
    if isinstance(x, FloatExpr) and x.value is not None:
        x = x.value
    if isinstance(x, int | Expr):
        return as_expr(x)
    if isinstance(x, float) and x.is_integer():
        return as_expr(int(x))
    raise NotLowered(f"a range with {x}")


# --------------------------------------------------------------------------------------------------
# Made from comparisons of indices


@lowers("aten.eye.default", "aten.eye.m")
def eye(low: Lowering, n: Number, m: Number | None = None, **options: Any) -> IndexedTensor:
    check_usual(**options)
    t = usual(low.result.type)

    def at(b: LoopBody, index: Index) -> LoopValue:
        return b.cast(compared(b, Op.EQ, *index), t)

    return low.generate(low.result.sizes, t, at, 2)


@lowers("aten.one_hot.default")
def one_hot(low: Lowering, x: IndexedTensor, num_classes: int | Expr = -1) -> IndexedTensor:
    classes = as_expr(num_classes)
    if not low.known(le(1, classes)) or x.type is not Type.I64:
        raise NotLowered("a number of classes that follows from the data")
    index_tensor(x)

    def at(b: LoopBody, index: Index) -> LoopValue:
        chosen, nothing = x.at(b, index[:-1]), b.constant(0, Type.I64)
        b.fault(b(Op.OR, b(Op.LT, chosen, nothing), b(Op.GE, chosen, b.iota(classes))))
        return b.cast(b(Op.EQ, chosen, b.iota(index[-1])), Type.I64)

    return reading(low, low.result.sizes, Type.I64, at, x)
