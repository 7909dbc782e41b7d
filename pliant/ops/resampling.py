"""Images made larger and smaller: nearest, linear and cubic interpolation.

The one idea: along each dimension a rule gives, for an index of the result, a few indices of the
input with a weight each. Places are computed in the type and in the order in which eager PyTorch
computes them: for some sizes a place is next to the border between two elements. Where eager has
two ways to compute it, which differ, PyTorch runs it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Final

import torch
import torch.nn.functional as F

from pliant.base.operators import aten_names, register, register_functions
from pliant.base.values import dataclass
from pliant.fake.functions import depending_on
from pliant.fake.images import image, resized
from pliant.fake.layout import (
    suggested_strides,
)
from pliant.fake.order import is_contiguous, need
from pliant.fake.overload import Overload
from pliant.fake.raising import never
from pliant.fake.results import Recipe
from pliant.fake.rule import Args, Kwargs, dense
from pliant.fake.tensor import make
from pliant.loop.define import Index, LoopBody
from pliant.loop.ir import LoopValue, Op
from pliant.loop.types import FLOAT, HALF, Type
from pliant.ops.indexed_tensor import IndexedTensor
from pliant.ops.lowering import Lowering, NotLowered, Number, lowers
from pliant.ops.places import compared, reading, stored
from pliant.sym.cond import eq, ge
from pliant.sym.expr import Expr
from pliant.sym.floats import FloatExpr

Tap = tuple[Expr, LoopValue]  # an index of the input, and its weight


@dataclass(frozen=True, slots=True)
class Axis:
    """One dimension that is resampled: its sizes before and after, and the factor by which it was
    asked to grow, if that was said."""

    before: Expr
    after: Expr
    factor: float | None


def _axes(
    low: Lowering, x: IndexedTensor, count: int, factors: Sequence[Number | None]
) -> list[Axis]:
    first = len(x.sizes) - count
    if first != 2:
        raise NotLowered(f"resampling {len(x.sizes)} dimensions")
    axes = []
    for before, after, factor in zip(
        x.sizes[first:], low.result.sizes[first:], factors, strict=True
    ):
        if isinstance(factor, FloatExpr) and factor.value is not None:
            factor = factor.value
        if not isinstance(factor, float | int | None):
            raise NotLowered(f"the factor {factor}")
        if not low.known(ge(before, 1)):
            raise NotLowered("maybe nothing to resample")
        # PyTorch ignores a factor that isn't positive, and takes that of the sizes.
        positive = float(factor) if factor is not None and factor > 0 else None
        axes.append(Axis(low.simplify(before), low.simplify(after), positive))
    return axes


def _ratio(b: LoopBody, axis: Axis, t: Type) -> LoopValue:
    """Input elements per element of the result."""
    if axis.factor is not None:
        return b.cast(b.constant(1.0 / axis.factor, Type.F64), t)
    return b(Op.DIV, b.cast(b.iota(axis.before), t), b.cast(b.iota(axis.after), t))


# --------------------------------------------------------------------------------------------------
# Nearest

Place = Callable[[LoopBody, Expr], Expr]


def _whole_ratio(axis: Axis, exact: bool) -> Place | None:
    """The place as an expression of integers, if one size is 1, 2, 4, ... 32 times the other. With
    floats the same comes out, as these factors are exact."""
    for shift in range(0, 6):
        k = 1 << shift
        if axis.after is axis.before * k and axis.factor in (None, float(k)):
            return lambda b, i: i // k
        if axis.before is axis.after * k and axis.factor in (None, 1.0 / k):
            # The element in the middle of those that one stands for, instead of the first.
            middle = k // 2 if exact else 0
            return lambda b, i: i * k + middle
    return None


def _nearest_place(low: Lowering, axis: Axis, t: Type, exact: bool) -> Place:
    ratio = _whole_ratio(axis, exact)
    if ratio is not None:
        return ratio
    if exact or t is Type.F64:
        raise NotLowered("places that eager computes in two ways")
    if axis.factor is not None and not _one_way(low, axis):
        raise NotLowered("sizes and a factor that differ")

    def place(b: LoopBody, i: Expr) -> Expr:
        # In f32, as eager PyTorch: in another precision a place might be rounded to the next
        # element.
        scaled = b(Op.MUL, b.cast(b.iota(i), Type.F32), _ratio(b, axis, Type.F32))
        below = b.cast(b(Op.FLOOR, scaled), Type.I64)
        return b.as_index(b(Op.MINIMUM, below, b.iota(axis.before - 1)))

    return place


def _one_way(low: Lowering, axis: Axis) -> bool:
    """Whether eager PyTorch surely doesn't take its special path for images whose size stays the
    same or doubles, which ignores the factor."""
    special = [eq(axis.after, axis.before), eq(axis.after, axis.before * 2)]
    return all(low.known(cond) is False for cond in special)


def _nearest(count: int, exact: bool) -> Callable[..., IndexedTensor]:
    def rule(
        low: Lowering, x: IndexedTensor, output_size: Sequence[Number], *scales: Number | None
    ) -> IndexedTensor:
        if x.type not in FLOAT | HALF | {Type.U8}:
            raise NotLowered(f"resampling {x.type}")
        factors = (*scales, *[None] * (count - len(scales)))
        axes = _axes(low, x, count, factors)
        places = [_nearest_place(low, axis, x.type, exact) for axis in axes]

        def at(b: LoopBody, index: Index) -> LoopValue:
            inner = [place(b, i) for place, i in zip(places, index[2:], strict=True)]
            return x.at(b, (*index[:2], *inner))

        return reading(low, low.result.sizes, x.type, at, x)

    return rule


# --------------------------------------------------------------------------------------------------
# Linear and cubic: sums of neighbours times weights


def _source(b: LoopBody, axis: Axis, i: Expr, t: Type, align_corners: bool) -> LoopValue:
    """Where the center of an element of the result is in the input."""
    position = b.cast(b.iota(i), t)
    if not align_corners:
        # Pixels are squares here: centers are half a pixel from the borders of the image.
        half = b.constant(0.5, t)
        scaled = b(Op.MUL, _ratio(b, axis, t), b(Op.ADD, position, half))
        return b(Op.SUB, scaled, half)
    steps = [b.cast(b.iota(size - 1), t) for size in (axis.before, axis.after)]
    # Pixels are points here: corners fall on corners. A single one is the first.
    several = compared(b, Op.GT, axis.after, 1)
    ratio = b(Op.SELECT, several, b(Op.DIV, *steps), b.constant(0.0, t))
    return b(Op.MUL, ratio, position)


def _split(b: LoopBody, source: LoopValue, axis: Axis) -> tuple[LoopValue, LoopValue]:
    """The element at or before a place (i64), and the way from there, between 0 and 1. Doubles are
    cast to float before they are rounded down, as in eager PyTorch."""
    t = source.type
    below = b.cast(b(Op.FLOOR, b.cast(source, Type.F32)), Type.I64)
    below = b(Op.MINIMUM, below, b.iota(axis.before - 1))
    way = b(Op.SUB, source, b.cast(below, t))
    way = b(Op.MINIMUM, b(Op.MAXIMUM, way, b.constant(0.0, t)), b.constant(1.0, t))
    return below, way


def _linear(low: Lowering, b: LoopBody, axis: Axis, i: Expr, t: Type, corners: bool) -> list[Tap]:
    zero, all_of_it = b.constant(0.0, t), b.constant(1.0, t)
    same_size = low.known(eq(axis.before, axis.after))
    if same_size:
        return [(i, all_of_it), (i, zero)]
    source = _source(b, axis, i, t, corners)
    source = b(Op.SELECT, b(Op.LT, source, zero), zero, source)
    below, way = _split(b, source, axis)
    last = b.iota(axis.before - 1)
    # At the border the neighbour is the element itself.
    above = b(Op.MINIMUM, b(Op.ADD, below, b.constant(1, Type.I64)), last)
    if same_size is None:  # then an element is itself and its neighbour, again itself, times 0
        equal = compared(b, Op.EQ, axis.before, axis.after)
        below = b(Op.SELECT, equal, b.iota(i), below)
        above = b(Op.SELECT, equal, b.iota(i), above)
        way = b(Op.SELECT, equal, zero, way)
    weights = [b(Op.SUB, all_of_it, way), way]
    return [(b.as_index(below), weights[0]), (b.as_index(above), weights[1])]


CUBIC = -0.75


def _near(b: LoopBody, x: LoopValue) -> LoopValue:
    """The weight of an element at a distance up to 1."""
    t = x.type
    inner = b(Op.MUL, b.constant(CUBIC + 2, t), x)
    inner = b(Op.SUB, inner, b.constant(CUBIC + 3, t))
    return b(Op.ADD, b(Op.MUL, b(Op.MUL, inner, x), x), b.constant(1.0, t))


def _far(b: LoopBody, x: LoopValue) -> LoopValue:
    """The weight of an element at a distance from 1 to 2."""
    t = x.type
    inner = b(Op.SUB, b(Op.MUL, b.constant(CUBIC, t), x), b.constant(5 * CUBIC, t))
    inner = b(Op.ADD, b(Op.MUL, inner, x), b.constant(8 * CUBIC, t))
    return b(Op.SUB, b(Op.MUL, inner, x), b.constant(4 * CUBIC, t))


def _cubic(low: Lowering, b: LoopBody, axis: Axis, i: Expr, t: Type, corners: bool) -> list[Tap]:
    below, way = _split(b, _source(b, axis, i, t, corners), axis)
    one = b.constant(1.0, t)
    rest = b(Op.SUB, one, way)
    # Keys' cubic convolution: four neighbours, at distances 1 + way, way, 1 - way and 2 - way.
    weights = [_far(b, b(Op.ADD, way, one)), _near(b, way), _near(b, rest)]
    weights.append(_far(b, b(Op.ADD, rest, one)))
    last, first = b.iota(axis.before - 1), b.constant(0, Type.I64)
    taps: list[Tap] = []
    for k, weight in enumerate(weights):
        place = b(Op.ADD, below, b.constant(k - 1, Type.I64))
        # Beyond the border, its element is repeated.
        place = b(Op.MAXIMUM, b(Op.MINIMUM, place, last), first)
        taps.append((b.as_index(place), weight))
    return taps


Taps = Callable[[Lowering, LoopBody, Axis, Expr, Type, bool], list[Tap]]


def _weighted(count: int, taps: Taps, taps_per_axis: int) -> Callable[..., IndexedTensor]:
    def rule(
        low: Lowering,
        x: IndexedTensor,
        output_size: Sequence[Number],
        align_corners: bool,
        *scales: Number | None,
    ) -> IndexedTensor:
        factors = (*scales, *[None] * (count - len(scales)))
        axes, t = _axes(low, x, count, factors), x.type
        if t not in FLOAT:
            raise NotLowered(f"interpolation in {t}")
        # Each element of x is read by several of the result.
        source = stored(low, x, taps_per_axis**count)

        def value(b: LoopBody, index: Index, rest: Sequence[list[Tap]]) -> LoopValue:
            """The sum over the dimensions from the first of `rest` on."""
            if not rest:
                return source.at(b, index)
            total: LoopValue | None = None
            for place, weight in rest[0]:
                part = b(Op.MUL, value(b, (*index, place), rest[1:]), weight)
                total = part if total is None else b(Op.ADD, total, part)
            assert total is not None
            return total

        def at(b: LoopBody, index: Index) -> LoopValue:
            inner = zip(axes, index[2:], strict=True)
            # Places and weights of each dimension once, for all combinations of them.
            each_axis = [taps(low, b, axis, i, t, align_corners) for axis, i in inner]
            return value(b, index[:2], each_axis)

        return reading(low, low.result.sizes, t, at, source, times=taps_per_axis**count)

    return rule


# --------------------------------------------------------------------------------------------------
# All of them, each also in the form that has the factors in a list

SCALES = {1: ("scales",), 2: ("scales_h", "scales_w"), 3: ("scales_d", "scales_h", "scales_w")}


def _enter(name: str, count: int, rule: Callable[..., IndexedTensor], corners: bool) -> None:
    def plain(
        low: Lowering,
        x: IndexedTensor,
        output_size: Sequence[Number],
        *more: object,
        **named: object,
    ) -> IndexedTensor:
        names = ("align_corners", *SCALES[count]) if corners else SCALES[count]
        arguments = {**dict(zip(names, more)), **named}
        return rule(low, x, output_size, *[arguments.get(n) for n in names])

    def listed(
        low: Lowering,
        x: IndexedTensor,
        output_size: Sequence[Number] | None,
        *more: object,
        **named: object,
    ) -> IndexedTensor:
        names = ("align_corners", "scale_factors") if corners else ("scale_factors",)
        arguments = {**dict(zip(names, more)), **named}
        factors = arguments.pop("scale_factors", None) or [None] * count
        return rule(low, x, output_size, *arguments.values(), *factors)  # type: ignore[misc]

    lowers(f"aten.{name}.default")(plain)
    lowers(f"aten.{name}.vec")(listed)


for _count in (1, 2, 3):
    _enter(f"upsample_nearest{_count}d", _count, _nearest(_count, exact=False), False)
    _enter(f"_upsample_nearest_exact{_count}d", _count, _nearest(_count, exact=True), False)
for _name, _count in (("linear1d", 1), ("bilinear2d", 2), ("trilinear3d", 3)):
    _enter(f"upsample_{_name}", _count, _weighted(_count, _linear, 2), True)
_enter("upsample_bicubic2d", 2, _weighted(2, _cubic, 4), True)


# --------------------------------------------------------------------------------------------------
# Shapes


def _upsample_shape(
    op: Overload, args: Args, kwargs: Kwargs, device: torch.device
) -> Recipe | None:
    if any(type(size) is int and size == 0 for size in args[0].shape[1:]):
        raise RuntimeError("there is nothing in the image")  # which meta kernels do not see
    sizes = None if kwargs else resized(args[0], args[1], least=1)
    return None if sizes is None else image(args[0], sizes, device)


_SMOOTH = ("nearest", "nearest-exact", "linear", "bilinear", "bicubic", "trilinear")


def _symbolic_interpolate(
    input: torch.Tensor,
    size: Any = None,
    scale_factor: Any = None,
    mode: str = "nearest",
    align_corners: Any = None,
    recompute_scale_factor: Any = None,
    antialias: bool = False,
) -> Any:
    rank = input.dim() - 2
    usual = mode in _SMOOTH and rank in (1, 2, 3) and input.is_cpu and input.is_floating_point()
    usual = usual and _RANKS.get(mode, rank) == rank
    if not usual or (size is None) == (scale_factor is None) or recompute_scale_factor:
        return NotImplemented
    setting = size if scale_factor is None else scale_factor
    per_dim = list(setting) if isinstance(setting, list | tuple) else [setting] * rank
    if scale_factor is not None:
        per_dim = [_scaled(n, scale) for n, scale in zip(input.shape[2:], per_dim)]
    if len(per_dim) != rank or None in per_dim:
        return NotImplemented
    for size in (*input.shape[1:], *per_dim):
        need(size > 0)
    sizes = (*input.shape[:2], *per_dim)
    layout = (sizes, suggested_strides(input, sizes), 0, input.dtype, input.device)
    result = make(input._world, *layout)  # type: ignore[attr-defined]
    return depending_on(result, (input,))


_RANKS = {"linear": 1, "bilinear": 2, "bicubic": 2, "trilinear": 3}


def _scaled(size: Any, scale: Any) -> Any:
    """A size times a number, rounded down; None unless the number is known."""
    if not isinstance(scale, int | float) or scale <= 0:
        return None
    if scale == int(scale):
        return size * int(scale)
    # Scales of 1/2, 1/4, ... divide the size; others depend on how a product is rounded.
    part = round(1 / scale)
    is_whole = part * scale == 1 and part & (part - 1) == 0
    return size // part if is_whole else math.trunc(size * scale)


def _upsample_result(original: Any, x: Any, size: Any, *rest: Any) -> Any:
    """The metadata of an operator that resamples, which is given sizes or factors."""
    result = NotImplemented
    if x._has_symbolic_sizes_strides:
        result = _symbolic_interpolate(x, size, None if size is not None else rest[-1])
    return original(x, size, *rest) if result is NotImplemented else result


def _grid_sampler_shape(
    op: Overload, args: Args, kwargs: Kwargs, device: torch.device
) -> Recipe | None:
    """The shape rule of `grid_sampler_2d`. PyTorch's meta function decomposes it into a long list
    of operators, which takes seconds."""
    t, grid = args[:2]
    usual = t.dim() == grid.dim() == 4 and t.dtype is grid.dtype and t.is_floating_point()
    if not usual or not (t.is_cpu and grid.is_cpu and is_contiguous(t)):
        return None
    if t.size(0) != grid.size(0) or grid.size(3) != 2 or t.size(2) == 0 or t.size(3) == 0:
        return None
    return dense((t.size(0), t.size(1), grid.size(1), grid.size(2)), t.dtype, device)


def _cudnn_grid_sampler_meta(func: Any, t: torch.Tensor, grid: torch.Tensor) -> torch.Tensor:
    return t.new_empty((*t.shape[:2], *grid.shape[1:3]))


register_functions((F.interpolate,), symbolic=_symbolic_interpolate)
for _name in (
    *("upsample_linear1d", "upsample_bilinear2d", "upsample_bicubic2d", "upsample_trilinear3d"),
    *(f"upsample_nearest{rank}d" for rank in (1, 2, 3)),
    *(f"_upsample_nearest_exact{rank}d" for rank in (1, 2, 3)),
):
    register(f"aten.{_name}.default", shape=_upsample_shape)
    _listed = getattr(torch.ops.aten, _name).vec
    register(f"aten.{_name}.vec", opaque=partial(_upsample_result, _listed))
register("aten.grid_sampler_2d.default", shape=_grid_sampler_shape)
register("aten.cudnn_grid_sampler.default", meta=_cudnn_grid_sampler_meta)


_SAFE: Final = """
upsample_linear1d upsample_bilinear2d upsample_bicubic2d upsample_trilinear3d
upsample_nearest1d upsample_nearest2d upsample_nearest3d _upsample_nearest_exact1d
_upsample_nearest_exact2d _upsample_nearest_exact3d grid_sampler_2d grid_sampler_3d
"""
register(*aten_names(_SAFE), raises=never)
