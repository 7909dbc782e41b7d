"""Operators that compute nothing: casts, copies, constants, and choices between elements.

The one idea: what they give is what they are given, seen differently, so they cost no memory of
their own. A copy is a tensor that isn't in memory yet: its first reader that needs memory stores
it.
"""

from __future__ import annotations

import functools
import math
from typing import Any, Final

import torch

from pliant.base.operators import aten_names, register
from pliant.fake import shapes
from pliant.fake.layout import (
    broadcast,
    is_plain,
    promoted,
)
from pliant.fake.overload import Overload
from pliant.fake.promotion import as_computed
from pliant.fake.raising import converts, never, overflows
from pliant.fake.results import Recipe, Same
from pliant.fake.rule import Args, Kwargs, dense, new
from pliant.loop.define import LoopBody
from pliant.loop.ir import LoopValue, Op
from pliant.loop.types import INTEGER, Type, largest, smallest
from pliant.ops.elementwise import (
    COMPUTABLE,
    Promotion,
    check_always_fits,
    check_fits,
    working_type,
)
from pliant.ops.indexed_tensor import IndexedTensor
from pliant.ops.lowering import Lowering, NotLowered, Number, constant, lowers


def copied(low: Lowering, x: IndexedTensor) -> IndexedTensor:
    """x as an expression of the result's type that is in no memory yet, so that it is stored anew
    where it is needed."""
    target = low.result.type
    if target is Type.U64 and x.type.kind == "float":
        raise NotLowered("floats below 0 as u64")
    x = low.cast(x, target)
    # Without `memory`: a write to the original must not show in the copy.
    return IndexedTensor(x.sizes, x.type, x.at, x.cost, x.reads)


@lowers(
    *("aten.clone.default", "aten.contiguous.default", "aten.lift_fresh_copy.default"), moves=True
)
def clone(low: Lowering, self: IndexedTensor, *, memory_format: Any = None) -> IndexedTensor:
    return copied(low, self)


@lowers(
    "aten._to_copy.default",
    "aten.to.dtype",
    "aten.to.dtype_layout",
    "aten.to.device",
    "aten.to.other",
    "aten.type_as.default",
    moves=True,
)
def to(low: Lowering, self: IndexedTensor | Number, *how: Any, **more: Any) -> IndexedTensor:
    """A conversion. The dtype is that of the result, whichever argument says it."""
    check_usual(*how, **more)
    # `vmap` converts numbers, which are tensors where it sees them.
    return copied(low, self) if isinstance(self, IndexedTensor) else filled(low, self)


def check_usual(*how: Any, **more: Any) -> None:
    """Give up on arguments of a creation or conversion that loops have no use for: sparse layouts,
    pinned memory. (Devices are tested for every operator.)"""
    for setting in (*how, *more.values()):
        if isinstance(setting, torch.layout) and setting is not torch.strided:
            raise NotLowered(f"as {setting}")
    if more.get("pin_memory"):
        raise NotLowered("in pinned memory")


@lowers("aten.copy.default", moves=True)
def copy(
    low: Lowering, self: IndexedTensor, src: IndexedTensor, non_blocking: bool = False
) -> IndexedTensor:
    return filled(low, src)


# --------------------------------------------------------------------------------------------------
# Constants


def filled(low: Lowering, value: IndexedTensor | Number) -> IndexedTensor:
    """The result filled with a number, or with a tensor that is broadcast to it."""
    sizes, t = low.result.sizes, low.result.type
    if not isinstance(value, IndexedTensor):
        check_always_fits(value, t)
    scalar = low.indexed(value, t)
    # A tensor of the result's sizes, only to broadcast the value to.
    blank = IndexedTensor(sizes, t, lambda b, index: constant(b, 0, t), 0)
    spread = low.map(lambda b, _, v: v, t, blank, scalar, cost=0)
    return IndexedTensor(sizes, t, spread.at, scalar.cost, scalar.reads)


@lowers("aten.fill.Scalar", "aten.fill.Tensor")
def fill(low: Lowering, self: IndexedTensor, value: IndexedTensor | Number) -> IndexedTensor:
    if isinstance(value, IndexedTensor) and value.sizes:
        raise NotLowered("a value of several elements, which is an error")
    return filled(low, value)


# --------------------------------------------------------------------------------------------------
# Choices

_ALWAYS_FITS: Final = frozenset(
    [(t, kind) for t in (Type.F32, Type.F64, Type.BF16) for kind in ("signed", "unsigned")]
    + [(Type.F64, "float"), (Type.I64, "signed")]
)
"""Types, and kinds of types whose numbers are all in their range."""


def _chosen(b: LoopBody, condition: LoopValue, x: LoopValue, y: LoopValue) -> LoopValue:
    return b(Op.SELECT, condition, x, y)


def _where_shape(op: Overload, args: Args, kwargs: Kwargs, device: torch.device) -> Recipe | None:
    values, choices = shapes.operands(args), shapes.operands(args[1:])
    if values is None or choices is None or args[0].dtype is not torch.bool:
        return None
    tensors, numbers = values
    sizes = broadcast([t.size() for t in tensors])
    if sizes is None:
        return None
    dtype = promoted(*choices)
    strides = shapes.strides_of([args[0], *as_computed(choices[0], dtype)], bool(numbers), sizes)
    return new(sizes, strides, dtype, device)


@lowers("aten.where.self", "aten.where.ScalarSelf", "aten.where.ScalarOther", "aten.where.Scalar")
def where(
    low: Lowering,
    condition: IndexedTensor,
    self: IndexedTensor | Number,
    other: IndexedTensor | Number,
) -> IndexedTensor:
    if condition.type is not Type.BOOL:
        raise NotLowered(f"a condition of {condition.type}")
    common = working_type(low, [self, other], Promotion.COMMON)
    if common not in COMPUTABLE and not _eager_selects(common.dtype):
        raise NotLowered(f"a choice between {common}")
    for x in (self, other):
        if not isinstance(x, IndexedTensor):
            check_fits(x, common)
    indexed_tensors = [low.indexed(x, common) for x in (self, other)]
    result = low.map(_chosen, common, condition, *indexed_tensors)
    return low.cast(result, low.result.type)


@functools.cache
def _eager_selects(dtype: torch.dtype) -> bool:
    """Whether eager PyTorch has `where` for a dtype. For unsigned ones that depends on its version,
    so it is tried."""
    probe = torch.zeros((), dtype=dtype)
    try:
        torch.where(torch.zeros((), dtype=torch.bool), probe, probe)
    except NotImplementedError:
        return False
    return True


def _masked_fill_shape(
    op: Overload, args: Args, kwargs: Kwargs, device: torch.device
) -> Recipe | None:
    t, mask, _ = args
    if mask.dtype is not torch.bool or t.dtype.is_complex:
        return None
    sizes = broadcast([t.size(), mask.size()])
    return None if sizes is None else dense(sizes, t.dtype, device)


@lowers("aten.masked_fill.Scalar", "aten.masked_fill.Tensor")
def masked_fill(
    low: Lowering, self: IndexedTensor, mask: IndexedTensor, value: IndexedTensor | Number
) -> IndexedTensor:
    if mask.type is not Type.BOOL or self.type not in COMPUTABLE:
        raise NotLowered(f"{self.type} with a mask of {mask.type}")
    if isinstance(value, IndexedTensor):
        value = _fitting(low, value, self.type)
    else:
        check_fits(value, self.type)
    return low.map(_chosen, self.type, mask, low.indexed(value, self.type), self)


def _fitting(low: Lowering, x: IndexedTensor, t: Type) -> IndexedTensor:
    """The tensor as this type. A number out of its range is a fault: `check_fits` at run time."""
    if t is Type.BOOL or x.type is t or x.type is Type.BOOL or (t, x.type.kind) in _ALWAYS_FITS:
        return low.cast(x, t)

    def compute(b: LoopBody, value: LoopValue) -> LoopValue:
        # Every integer up to 2**53, and every float, is exact in f64.
        wide = b.cast(value, Type.F64)
        if t in INTEGER:
            above = b(Op.GE, wide, b.constant(float(smallest(t)), Type.F64))
            below = b(Op.LE, wide, b.constant(float(largest(t)), Type.F64))
            b.fault(b(Op.NOT, b(Op.AND, above, below)))
        else:
            size = b(Op.ABS, wide)
            beyond = b(Op.GT, size, b.constant(torch.finfo(t.dtype).max, Type.F64))
            b.fault(b(Op.AND, beyond, b(Op.LT, size, b.constant(math.inf, Type.F64))))
        return b.cast(value, t)

    return low.map(compute, t, x)


# --------------------------------------------------------------------------------------------------
# Writes, and copies


def _copy_in_place_shape(
    op: Overload, args: Args, kwargs: Kwargs, device: torch.device
) -> Recipe | None:
    target, source = args[:2]
    if type(source) in shapes.NUMBERS:  # `x.copy_(1)`
        return Same(op.written[0]) if is_plain(target) else None
    values = shapes.operands((target, source))
    if values is None or not shapes.same(broadcast([target.size(), source.size()]), target.size()):
        return None
    return Same(op.written[0]) if is_plain(target) else None


def _filled_shape(op: Overload, args: Args, kwargs: Kwargs, device: torch.device) -> Recipe | None:
    """The shape rule of an operator that fills its first argument from numbers."""
    numbers_only = all(type(a) in shapes.NUMBERS for a in args[1:])
    return Same(op.written[0]) if numbers_only and is_plain(args[0]) else None


register("aten.clone.default", "aten._to_copy.default", shape=shapes.like, reads_whole=True)
register("aten.where.self", shape=_where_shape)
register("aten.where.ScalarOther", "aten.where.ScalarSelf", pointwise=True)
register("aten.masked_fill.Scalar", shape=_masked_fill_shape)
register("aten.masked_fill.Scalar", pointwise=False)
register("aten.masked_fill.Tensor", raises=converts(2))
register("aten.masked_fill.Scalar", raises=overflows(2))
register("aten.fill.Tensor", raises=converts(1))
register("aten.fill.Scalar", raises=overflows(1))
register("aten.copy_.default", shape=_copy_in_place_shape)
register(
    *("aten.copy_.default", "aten.fill_.Scalar", "aten.fill_.Tensor", "aten.zero_.default"),
    is_copy=True,
)
register("aten.fill.Scalar", moves=True)
register("aten.fill_.Tensor", reads_first=True)
register("aten.zero_.default", "aten.fill_.Scalar", shape=_filled_shape)
register("aten.copy_.default", "aten.copy.default", "aten._to_copy.default", mixed_devices=True)


_SAFE: Final = """
clone contiguous copy to _to_copy type_as alias detach lift_fresh lift_fresh_copy where
masked_fill
"""
register(*aten_names(_SAFE), raises=never)
