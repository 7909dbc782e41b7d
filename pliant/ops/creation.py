"""Tensors made from numbers: fills, ranges, the identity.

The one idea: the sizes and the dtype are those of the result as eager PyTorch gives them; a rule
only says what stands at an index. `empty` is zeros: that can't be told, and what is overwritten is
never computed.
"""

from __future__ import annotations

import math
from typing import Any, Final

import torch
import torch.nn.functional as F

from pliant.base.operators import aten_names, register, register_functions
from pliant.fake import shapes
from pliant.fake.layout import (
    must_be_size,
)
from pliant.fake.order import need
from pliant.fake.overload import Overload
from pliant.fake.raising import never, overflows
from pliant.fake.results import Recipe
from pliant.fake.rule import Args, Kwargs, dense
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
from pliant.sym.program import LARGEST

# --------------------------------------------------------------------------------------------------
# Fills


def filled(low: Lowering, value: Number, options: dict[str, Any]) -> IndexedTensor:
    """The result, with one number everywhere."""
    check_usual(**options)
    t = low.result.type
    value = fitting(value, t)
    return low.generate(low.result.sizes, t, lambda b, index: number(b, value, t), 0)


@lowers("aten.full.default", moves=True)
def full(low: Lowering, size: Any, fill_value: Number, **options: Any) -> IndexedTensor:
    return filled(low, fill_value, options)


@lowers("aten.new_full.default", moves=True)
def new_full(
    low: Lowering, x: IndexedTensor, size: Any, fill_value: Number, **options: Any
) -> IndexedTensor:
    return filled(low, fill_value, options)


@lowers("aten.full_like.default", moves=True)
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
    moves=True,
)
def zeros(low: Lowering, *args: Any, **options: Any) -> IndexedTensor:
    return filled(low, 0, options)


@lowers("aten.ones.default", "aten.new_ones.default", "aten.ones_like.default", moves=True)
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
    last = start + step * sizes[0]
    if t not in INTEGER and t not in FLOAT:
        limit = _EXACT.get(t)
        ends = [le(x, limit) for x in (start, -start, last, -last)] if limit else []
        if not ends or not low.known(and_(*ends)):
            raise NotLowered(f"a range of {t}")
    if last.value is not None and abs(last.value) > LARGEST:
        raise NotLowered(f"a range up to {last}")
    return low.generate(sizes, t, lambda b, index: b.cast(b.iota(start + index[0] * step), t), 0)


def _integral(x: Number) -> Expr:
    """A number without fraction."""
    if isinstance(x, FloatExpr) and x.value is not None:
        x = x.value
    if isinstance(x, float) and x.is_integer():
        x = int(x)
    # A kernel can't add indices to larger numbers.
    if isinstance(x, Expr) or (isinstance(x, int) and abs(x) <= LARGEST):
        return as_expr(x)
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
        chosen, zero = x.at(b, index[:-1]), b.constant(0, Type.I64)
        b.fault(b(Op.OR, b(Op.LT, chosen, zero), b(Op.GE, chosen, b.iota(classes))))
        return b.cast(b(Op.EQ, chosen, b.iota(index[-1])), Type.I64)

    return reading(low, low.result.sizes, Type.I64, at, x)


# --------------------------------------------------------------------------------------------------
# Shapes


def _is_negative(size: Any) -> bool:
    """Whether a size is negative. One that is read from data counts as 0 or more."""
    has_hint = type(size) is int or size.node.has_hint()
    return has_hint and bool(size < 0)


def _factory_shape(op: Overload, args: Args, kwargs: Kwargs, device: torch.device) -> Recipe | None:
    sizes = args[0]
    usual = {"dtype", "device", "pin_memory", "layout", "generator"}
    if kwargs.keys() - usual or kwargs.get("layout") not in (None, torch.strided):
        return None
    if len(args) > 1 or any(map(_is_negative, sizes)):
        return None
    for size in sizes:
        must_be_size(size)
    return dense(sizes, kwargs.get("dtype") or torch.get_default_dtype(), device)


def _integers_shape(
    op: Overload, args: Args, kwargs: Kwargs, device: torch.device
) -> Recipe | None:
    """Of random integers: `randint(low, high, size)`, with or without `low`."""
    *bounds, sizes = args
    if not all(type(bound) is int for bound in bounds) or not (0, *bounds)[-2] < bounds[-1]:
        return None
    return _factory_shape(op, (sizes,), _of_integers(kwargs), device)


def _permutation_shape(
    op: Overload, args: Args, kwargs: Kwargs, device: torch.device
) -> Recipe | None:
    return _factory_shape(op, (args,), _of_integers(kwargs), device)


def _of_integers(kwargs: Kwargs) -> Kwargs:
    return {**kwargs, "dtype": kwargs.get("dtype") or torch.int64}


def _eye_shape(op: Overload, args: Args, kwargs: Kwargs, device: torch.device) -> Recipe | None:
    return _factory_shape(op, ((args * 2)[:2],), kwargs, device)


def _arange_shape(op: Overload, args: Args, kwargs: Kwargs, device: torch.device) -> Recipe | None:
    start, end, step = numbers = {1: (0, *args, 1), 2: (*args, 1)}.get(len(args), args)
    default = torch.int64 if {*map(type, numbers)} == {int} else torch.get_default_dtype()
    dtype = kwargs.get("dtype") or default
    known = {int} if dtype is torch.int64 else {int, float}  # a float would be cast first
    if not known.issuperset(map(type, numbers)) or step == 0 or (end - start) * step < 0:
        return None
    if not all(map(math.isfinite, numbers)):
        return None
    return dense((_range_count(start, end, step, dtype),), dtype, device)


_LARGEST_COUNTED: Final = {True: 1 << 53, False: 1 << 61}
"""Of ranges with symbolic ends. A double has all integers up to here; 64 bits hold any sum of
three."""


def _is_counted_in_doubles(dtype: torch.dtype | None) -> bool:
    """Whether eager PyTorch computes how many numbers a range has in doubles."""
    return dtype not in (None, torch.int64)


def _range_count(start: Any, end: Any, step: Any, dtype: torch.dtype) -> int:
    """How many numbers a range has, with eager PyTorch's rounding. PyTorch's meta kernel has
    none."""
    if _is_counted_in_doubles(dtype):
        return math.ceil((float(end) - float(start)) / float(step))
    sums = (end - start, end - start + step)
    if any(abs(number) > LARGEST for number in sums):
        raise RuntimeError("a range whose size is computed beyond 64 bits")
    return -((start - end) // step)


def _symbolic_arange(*args: Any, **kwargs: Any) -> Any:
    bounds, kwargs = _bounds(args, kwargs)
    if bounds is None:
        return NotImplemented
    usual = kwargs.keys() <= {"dtype", "device", "requires_grad", "pin_memory", "layout"}
    usual |= kwargs.keys() == {"out"}
    start, end, step = bounds
    numbers = [n for n in bounds if isinstance(n, int | torch.SymInt)]
    _need_exact_count(numbers, len(numbers) < 3, step, kwargs)
    if not usual or len(numbers) < 3 or type(step) is not int or step == 0:
        return NotImplemented
    need((end >= start) if step > 0 else (end <= start))
    count = -((start - end) // step)
    if kwargs.get("out") is not None:
        return _written_in_order(kwargs["out"], count)
    return torch.empty((count,), **{"dtype": torch.int64, **_given(kwargs)})


def _bounds(args: Args, kwargs: Kwargs) -> tuple[tuple[Any, Any, Any] | None, Kwargs]:
    """Start, end and step of a range, each by position or by name, and what else is said of it.
    None for a range that PyTorch refuses."""
    rest = dict(kwargs)
    named: dict[str, Any] = {name: rest.pop(name) for name in _BOUNDS if name in rest}
    places = _BOUNDS if len(args) > 1 or named else ("end",)
    by_place: dict[str, Any] = dict(zip(places, args, strict=False))
    bounds = {**by_place, **named}
    twice = len(bounds) < len(args) + len(named)
    if twice or "end" not in bounds or ("step" in bounds and "start" not in bounds):
        return None, rest
    return (bounds.get("start", 0), bounds["end"], bounds.get("step", 1)), rest


_BOUNDS: Final = ("start", "end", "step")


def _need_exact_count(integers: list[Any], floats: bool, step: Any, kwargs: Kwargs) -> None:
    """Demand integers that are so small that eager PyTorch's count of the range is exact."""
    out = kwargs.get("out")
    in_doubles = _is_counted_in_doubles(kwargs.get("dtype") if out is None else out.dtype)
    if not in_doubles and not floats and type(step) is int and abs(step) == 1:
        return  # as many don't fit into memory
    for end in integers:
        need(end <= _LARGEST_COUNTED[in_doubles or floats])
        need(end >= -_LARGEST_COUNTED[in_doubles or floats])


def _written_in_order(out: torch.Tensor, count: Any) -> torch.Tensor:
    """A tensor of as many elements, of any shape, keeps its shape."""
    if out.numel() != count:
        out.resize_((count,))
    return out.zero_()


def _symbolic_linspace(start: Any, end: Any, steps: Any, **kwargs: Any) -> Any:
    usual = kwargs.keys() <= {"dtype", "device", "requires_grad"}
    plain = all(isinstance(n, int | float | torch.SymInt | torch.SymFloat) for n in (start, end))
    if not usual or not plain or type(steps) is int:
        return NotImplemented
    return torch.empty((steps,), **_given(kwargs))


def _given(kwargs: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in kwargs.items() if value is not None}


def _one_hot_result(x: torch.Tensor, num_classes: Any = -1) -> Any:
    """Contiguous: PyTorch compares where it knows no data, and keeps the strides then."""
    if type(num_classes) is int and num_classes <= 0:
        return F.one_hot(x, num_classes)
    return x.new_empty((*x.size(), num_classes), dtype=torch.int64)


register(
    "aten.zeros.default",
    "aten.ones.default",
    "aten.empty.memory_format",
    "aten.rand.default",
    "aten.randn.default",
    "aten.rand.generator",
    "aten.randn.generator",
    shape=_factory_shape,
)
# PyTorch's meta kernels of the others take symbolic sizes.
register("aten.randint.generator", "aten.randint.low_generator", shape=_integers_shape)
register("aten.randperm.generator", shape=_permutation_shape)
register("aten.eye.default", "aten.eye.m", shape=_eye_shape)
_ARANGE: Final = ("aten.arange.default", "aten.arange.start", "aten.arange.start_step")
register(*_ARANGE, shape=_arange_shape, opaque=torch.arange)
register_functions((torch.arange,), symbolic=_symbolic_arange, cast_by_parts=True)
register("aten.linspace.default", opaque=torch.linspace)
register_functions((torch.linspace,), symbolic=_symbolic_linspace, cast_by_parts=True)
register("aten.one_hot.default", opaque=_one_hot_result)
register_functions((F.one_hot, torch.ops.aten.one_hot), checks_data=True)
register(
    *("aten.empty_like.default", "aten.zeros_like.default", "aten.ones_like.default"),
    *("aten.full_like.default",),
    shape=shapes.like,
)

_LIKE: Final = """
empty_like zeros_like ones_like full_like new_empty new_empty_strided new_zeros new_ones new_full
"""
register(*[f"{name}.default" for name in aten_names(_LIKE)], reads_layout=True)

_SAFE: Final = """
arange eye full full_like ones ones_like zeros zeros_like new_full new_ones new_zeros
scalar_tensor empty empty_like empty_permuted empty_strided new_empty new_empty_strided
tril_indices triu_indices
"""
register(*aten_names(_SAFE), raises=never)
register("aten.full.default", "aten.full_like.default", raises=overflows(1))
register("aten.new_full.default", raises=overflows(2))
