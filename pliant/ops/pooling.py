"""Windows of neighbours made one element: average and maximum.

The one idea: a small window is written out, each of its elements read and combined in the order in
which eager PyTorch takes them, so that results are equal to the last bit. Conditions stand only at
those elements of a window that can be outside.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from math import prod
from typing import Any, Final

import torch
import torch.nn.functional as F

from pliant.base.operators import aten_names, register, register_functions
from pliant.base.values import dataclass
from pliant.fake import meta
from pliant.fake.images import has_pixels, image, plain_image, resized
from pliant.fake.order import is_contiguous
from pliant.fake.overload import Overload
from pliant.fake.raising import never
from pliant.fake.results import Recipe, Several
from pliant.fake.rule import Args, Kwargs, ShapeRule
from pliant.fake.tensor import Fake
from pliant.loop.define import Index, LoopBody, Reduced
from pliant.loop.ir import LoopValue, Op
from pliant.loop.types import FLOAT, HALF, NUMBER, Type, smallest
from pliant.ops.indexed_tensor import IndexedTensor, in_memory
from pliant.ops.lowering import Lowering, NotLowered, computed_in, lowers
from pliant.ops.places import all_of, compared, read_where, reading, stored, zero
from pliant.sym.expr import ZERO, Expr, as_expr, maximum, minimum, product_of

WRITTEN_OUT: Final = 36
"""Larger windows are a loop."""


def _most(t: Type) -> int:
    """There are no instructions to gather elements of less than 32 bits: the code gets long."""
    return WRITTEN_OUT if t.bits >= 32 else 16 if t.bits == 16 else 0


@dataclass(frozen=True, slots=True)
class PoolingWindow:
    """How windows lie along one dimension of this `size`: window i begins at `i*step - pad`, and
    its `length` elements are `apart` from each other (dilation)."""

    length: int
    step: int
    pad: int
    apart: int
    beyond: bool  # the last one may end outside of the padding
    size: Expr

    def first(self, i: Expr) -> Expr:
        """Where window i begins, which may be below 0, in the padding."""
        return i * self.step - self.pad

    def inside(self, b: LoopBody, i: Expr, k: int) -> list[LoopValue]:
        """The conditions under which the k-th place of window i is inside of the dimension; none
        where that is sure."""
        place, reach = self.first(i) + k * self.apart, k * self.apart
        conditions = [compared(b, Op.GE, place, 0)] if reach < self.pad else []
        # Only the last elements of a window can be past the end, unless a whole window may begin
        # there.
        if self.beyond or reach > (self.length - 1) * self.apart - self.pad:
            conditions.append(compared(b, Op.LT, place, self.size))
        return conditions


def _windows(
    x: IndexedTensor, count: int, length: Any, step: Any, pad: Any, apart: Any, beyond: bool
) -> list[PoolingWindow]:
    lengths = _per_dimension(length, count)
    steps = _per_dimension(step, count) if step not in (None, [], ()) else lengths
    rest = (_per_dimension(pad, count), _per_dimension(apart, count), x.sizes[-count:])
    if len(x.sizes) not in (count + 1, count + 2):
        raise NotLowered(f"windows over {len(x.sizes)} dimensions")
    return [
        PoolingWindow(n, s, p, a, beyond, size) for n, s, p, a, size in zip(lengths, steps, *rest)
    ]


def _per_dimension(setting: Any, count: int) -> list[int]:
    numbers = list(setting) if isinstance(setting, list | tuple) else [setting]
    if not all(isinstance(n, int) for n in numbers):
        raise NotLowered("windows of a symbolic size")
    return numbers * count if len(numbers) == 1 else numbers


def _offsets(windows: Sequence[PoolingWindow]) -> Iterator[tuple[int, ...]]:
    return itertools.product(*[range(window.length) for window in windows])


def _place(windows: Sequence[PoolingWindow], index: Index, offset: Sequence[int]) -> Index:
    outer = index[: len(index) - len(windows)]
    along = zip(windows, index[len(outer) :], offset, strict=True)
    return (*outer, *[w.first(i) + k * w.apart for w, i, k in along])


def _inside(
    b: LoopBody, windows: Sequence[PoolingWindow], index: Index, offset: Sequence[int]
) -> LoopValue | None:
    along = zip(windows, index[len(index) - len(windows) :], offset, strict=True)
    return all_of(b, [cond for w, i, k in along for cond in w.inside(b, i, k)])


# --------------------------------------------------------------------------------------------------
# Average


def _average(count: int) -> Callable[..., IndexedTensor]:
    def rule(
        low: Lowering,
        x: IndexedTensor,
        kernel_size: Any,
        stride: Any = (),
        padding: Any = 0,
        ceil_mode: bool = False,
        count_include_pad: bool = True,
        divisor_override: int | None = None,
    ) -> IndexedTensor:
        # Averages have no dilation.
        windows = _windows(x, count, kernel_size, stride, padding, 1, ceil_mode)
        if divisor_override == 0 or (count == 3 and x.type in HALF):
            raise NotLowered("what eager refuses")

        def divisors(index: Index) -> list[Expr]:
            if divisor_override is not None:
                return [as_expr(divisor_override)]
            along = zip(windows, index[len(index) - count :], strict=True)
            return [product_of([_counted(w, i, count_include_pad) for w, i in along])]

        return _sum_over(low, x, windows, divisors)

    return rule


def _counted(window: PoolingWindow, i: Expr, with_padding: bool) -> Expr:
    """How many elements window i is averaged over."""
    pad = window.pad if with_padding else 0
    if not window.beyond and pad == window.pad:
        return as_expr(window.length)
    first = window.first(i)
    end = minimum(first + window.length, window.size + pad)
    # A window in the padding alone has the sum 0, whatever it is divided by.
    return end - first if with_padding else maximum(end - maximum(first, ZERO), as_expr(1))


def _sum_over(
    low: Lowering,
    x: IndexedTensor,
    windows: Sequence[PoolingWindow],
    divisors: Callable[[Index], list[Expr]],
) -> IndexedTensor:
    t = x.type
    working = computed_in(t)
    if working not in FLOAT:
        raise NotLowered(f"averages of {t}")
    times = prod([window.length for window in windows])
    source = stored(low, x, times)

    def element(b: LoopBody, index: Index, offset: Sequence[int]) -> LoopValue:
        inside = _inside(b, windows, index, offset)
        place = _place(windows, index, offset)
        return b.cast(read_where(b, source, place, inside, lambda: zero(b, t)), working)

    def divided(b: LoopBody, total: LoopValue, index: Index) -> LoopValue:
        for number in divisors(index):
            total = b(Op.DIV, total, b.cast(b.iota(number), working))
        return b.cast(total, t)

    def at(b: LoopBody, index: Index) -> LoopValue:
        total = b.constant(0.0, working)
        for offset in _offsets(windows):
            total = b(Op.ADD, total, element(b, index, offset))
        return divided(b, total, index)

    sizes = low.result.sizes
    if times <= _most(t):
        return reading(low, sizes, t, at, source, times=times)
    return _looped(low, source, windows, divided)


def _looped(
    low: Lowering,
    source: IndexedTensor,
    windows: Sequence[PoolingWindow],
    divided: Callable[[LoopBody, LoopValue, Index], LoopValue],
) -> IndexedTensor:
    """A large window as a reduction."""
    if any(w.pad or w.beyond or isinstance(w, Uneven) for w in windows):
        raise NotLowered("large windows that reach outside")
    t = source.type

    def at(b: LoopBody, index: Index, inner: Index) -> tuple[LoopValue, ...]:
        outer = index[: len(index) - len(windows)]
        along = zip(windows, index[len(outer) :], inner, strict=True)
        place = (*outer, *[w.first(i) + k for w, i, k in along])
        return (b.cast(source.at(b, place), computed_in(t)),)

    over = tuple([as_expr(w.length) for w in windows])
    return in_memory(low.define(low.result.sizes, t, Reduced(over, Op.SUM, at, divided)))


lowers("aten.avg_pool1d.default")(_average(1))
lowers("aten.avg_pool2d.default")(_average(2))
lowers("aten.avg_pool3d.default")(_average(3))


@dataclass(frozen=True, slots=True)
class Uneven(PoolingWindow):
    """Windows that share a size out to `count`, where that doesn't divide it: they overlap, and
    `length` is that of the longest."""

    count: int = 1

    def first(self, i: Expr) -> Expr:
        return i * self.size // self.count

    def end(self, i: Expr) -> Expr:
        return ((i + 1) * self.size + (self.count - 1)) // self.count

    def inside(self, b: LoopBody, i: Expr, k: int) -> list[LoopValue]:
        return [compared(b, Op.LT, self.first(i) + k, self.end(i))] if k else []


def _shared_out(low: Lowering, size: Expr, output: Expr) -> PoolingWindow:
    n, m = low.simplify(size).value, low.simplify(output).value
    if not n or not m:
        raise NotLowered("windows that differ in length")
    if n % m == 0:
        return PoolingWindow(n // m, n // m, 0, 1, False, as_expr(n))
    # Window i is [floor(i*n/m), ceil((i+1)*n/m)), as PyTorch defines it.
    longest = max([-(-(i + 1) * n // m) - i * n // m for i in range(m)])
    return Uneven(longest, 1, 0, 1, False, as_expr(n), m)


def _adaptive(count: int) -> Callable[..., IndexedTensor]:
    def rule(low: Lowering, x: IndexedTensor, output_size: Any) -> IndexedTensor:
        pairs = zip(x.sizes[-count:], low.result.sizes[-count:], strict=True)
        windows = [_shared_out(low, size, output) for size, output in pairs]

        def divisors(index: Index) -> list[Expr]:
            along = zip(windows, index[len(index) - count :], strict=True)
            return [
                w.end(i) - w.first(i) if isinstance(w, Uneven) else as_expr(w.length)
                for w, i in along
            ]

        return _sum_over(low, x, windows, divisors)

    return rule


lowers("aten.adaptive_avg_pool1d.default")(_adaptive(1))
lowers("aten._adaptive_avg_pool2d.default")(_adaptive(2))
lowers("aten._adaptive_avg_pool3d.default")(_adaptive(3))


# --------------------------------------------------------------------------------------------------
# Maximum


@dataclass(frozen=True, slots=True, eq=False)
class _Largest:
    """The largest element of each window, the first of several; a nan is larger than all."""

    low: Lowering
    x: IndexedTensor
    windows: list[PoolingWindow]

    def at(self, b: LoopBody, index: Index, position: bool) -> LoopValue:
        t = computed_in(self.x.type)
        # The padding counts as smaller than everything.
        best = b.constant(float("-inf") if t in FLOAT else smallest(t), t)
        # A window that has nothing but -inf in it reports its first element.
        best_place = self._first(b, index) if position else None
        for offset in _offsets(self.windows):
            inside = _inside(b, self.windows, index, offset)
            place = _place(self.windows, index, offset)
            read = read_where(b, self.x, place, inside, lambda: zero(b, self.x.type))
            value = b.cast(read, t)
            better = b(Op.GT, value, best)
            if t in FLOAT:
                # As in eager, a nan wins, and the last one is reported.
                better = b(Op.OR, better, b(Op.ISNAN, value))
            if inside is not None:
                better = b(Op.AND, better, inside)
            best = b(Op.SELECT, better, value, best)
            if best_place is not None:
                best_place = b(Op.SELECT, better, b.iota(self._number(place)), best_place)
        return b.cast(best, self.x.type) if best_place is None else best_place

    def _number(self, place: Index) -> Expr:
        """The position among all elements of a plane."""
        number = ZERO
        for i, window in zip(place[len(place) - len(self.windows) :], self.windows, strict=True):
            number = number * window.size + i
        return number

    def _first(self, b: LoopBody, index: Index) -> LoopValue:
        """The position of the first element of the window that is inside."""
        firsts = []
        outer = len(index) - len(self.windows)
        for window, i in zip(self.windows, index[outer:], strict=True):
            first, apart = window.first(i), window.apart
            missing = (maximum(-first, ZERO) + (apart - 1)) // apart if window.pad else ZERO
            firsts.append(first + missing * apart)
        return b.iota(self._number((*index[:outer], *firsts)))


def _largest(count: int, positions: bool) -> Callable[..., Any]:
    def rule(
        low: Lowering,
        x: IndexedTensor,
        kernel_size: Any,
        stride: Any = (),
        padding: Any = 0,
        dilation: Any = 1,
        ceil_mode: bool = False,
    ) -> Any:
        windows = _windows(x, count, kernel_size, stride, padding, dilation, ceil_mode)
        times = prod([window.length for window in windows])
        # One-dimensional pooling of integers is left to eager PyTorch.
        types = NUMBER if count > 1 else FLOAT
        if times > _most(x.type) or computed_in(x.type) not in types:
            raise NotLowered(f"the largest of {times} elements of type {x.type}")
        source = stored(low, x, times)
        largest = _Largest(low, source, windows)
        sizes = low.results[0].sizes

        def values(b: LoopBody, index: Index) -> LoopValue:
            return largest.at(b, index, position=False)

        best = reading(low, sizes, x.type, values, source, times=times)
        if not positions:
            return best

        def places(b: LoopBody, index: Index) -> LoopValue:
            return largest.at(b, index, position=True)

        return best, reading(low, sizes, Type.I64, places, source, times=times)

    return rule


for _count in (1, 2, 3):
    lowers(f"aten.max_pool{_count}d.default")(_largest(_count, False))
    lowers(f"aten.max_pool{_count}d_with_indices.default")(_largest(_count, True))


# --------------------------------------------------------------------------------------------------
# Shapes


def _filled_up(args: Args, defaults: Args) -> Args:
    """The arguments of a pooling operator, with defaults for those after the second that aren't
    given."""
    return (*args, *defaults[len(args) - 2 :])


def _max_pool_shape(rank: int) -> ShapeRule:
    def rule(op: Overload, args: Args, kwargs: Kwargs, device: torch.device) -> Recipe | None:
        t, kernel, stride, padding, dilation, ceil = _filled_up(args, ((), 0, 1, False))
        sizes = _fitting(t, rank, kernel, stride or kernel, padding, dilation, ceil)
        if sizes is None or kwargs:
            return None
        return Several(tuple, (image(t, sizes, device), image(t, sizes, device, torch.int64)))

    return rule


_AVG_POOL = ((), 0, False, True, None)


def _avg_pool_shape(rank: int) -> ShapeRule:
    def rule(op: Overload, args: Args, kwargs: Kwargs, device: torch.device) -> Recipe | None:
        t, kernel, stride, padding, ceil, _, divisor = _filled_up(args, _AVG_POOL)
        sizes = _fitting(t, rank, kernel, stride or kernel, padding, 1, ceil)
        unusual = kwargs or divisor == 0 or not t.is_floating_point()
        return None if sizes is None or unusual else layout(t, sizes, device)

    layout = image if rank == 2 else plain_image
    return rule


def _fitting(
    t: Fake, rank: int, kernel: Any, stride: Any, padding: Any, dilation: Any, ceil: bool
) -> list[Any] | None:
    """The sizes of the result; None for whatever PyTorch may have something to say about."""
    settings = [_numbers(v, rank) for v in (kernel, stride, padding, dilation)]
    if t.dim() not in (rank + 1, rank + 2) or None in settings or not has_pixels(t, rank):
        return None
    fitting = list(t.shape[:-rank])
    for size, k, s, p, d in zip(t.shape[-rank:], *(v or () for v in settings), strict=True):
        if k < 1 or s < 1 or d < 1 or not 0 <= p <= k // 2:
            return None
        span = size + 2 * p - d * (k - 1) - 1
        # Rounded up, the last window still has to begin inside the image or the padding before it.
        rounded_down = span // s + 1
        fitting.append(
            torch.sym_min(-(-span // s) + 1, -(-(size + p) // s)) if ceil else rounded_down
        )
    return fitting if all(size >= 1 for size in fitting[-rank:]) else None


def _numbers(value: Any, rank: int) -> list[int] | None:
    """A number for each dimension, of which one may be given for all."""
    numbers = [value] if type(value) is int else list(value)
    if any(type(n) is not int for n in numbers) or len(numbers) not in (1, rank):
        return None
    return numbers * rank if len(numbers) == 1 else numbers


def _adaptive_avg_pool_shape(rank: int) -> ShapeRule:
    def rule(op: Overload, args: Args, kwargs: Kwargs, device: torch.device) -> Recipe | None:
        sizes = resized(args[0], args[1], least=0)
        return None if sizes is None or kwargs else layout(args[0], sizes, device)

    layout = image if rank == 2 else plain_image
    return rule


def _adaptive_max_pool_shape(
    op: Overload, args: Args, kwargs: Kwargs, device: torch.device
) -> Recipe | None:
    t = args[0]
    sizes = resized(t, args[1], least=0)
    if sizes is None or kwargs:
        return None
    return Several(tuple, (image(t, sizes, device), image(t, sizes, device, torch.int64)))


def _symbolic_max_pool1d(
    input: torch.Tensor,
    kernel_size: Any,
    stride: Any = None,
    padding: Any = 0,
    dilation: Any = 1,
    ceil_mode: bool = False,
    return_indices: bool = False,
) -> Any:
    def row(value: Any, first: int) -> tuple[Any, Any]:
        return first, value[0] if isinstance(value, list | tuple) else value

    if input.dim() not in (2, 3) or return_indices:
        return NotImplemented
    stride = kernel_size if stride is None or stride == [] else stride
    rest = (row(kernel_size, 1), row(stride, 1), row(padding, 0), row(dilation, 1), ceil_mode)
    rows = input if is_contiguous(input) else input.clone(memory_format=torch.contiguous_format)
    return torch.max_pool2d(rows.unsqueeze(-2), *rest).squeeze(-2)


def _max_pool1d_on_fakes(func: Any, t: torch.Tensor, *args: Any, **kwargs: Any) -> Any:
    # The CPU has a kernel of its own for inference, not used for tensor subclasses; its result is
    # contiguous whatever the input is.
    indices = kwargs.get("return_indices") or any(args[5:])
    graded = t.requires_grad and torch.is_grad_enabled()
    t = t if indices or graded or not t.is_cpu else t.contiguous()
    return func(t, *args, **kwargs)


register("aten.max_pool1d.default", opaque=torch.max_pool1d)
register_functions(
    (torch.max_pool1d, F.max_pool1d), symbolic=_symbolic_max_pool1d, on_fakes=_max_pool1d_on_fakes
)
for _count in (2, 3):
    register(f"aten.max_pool{_count}d_with_indices.default", shape=_max_pool_shape(_count))
    register(f"aten.avg_pool{_count}d.default", shape=_avg_pool_shape(_count))
    register(f"aten._adaptive_avg_pool{_count}d.default", shape=_adaptive_avg_pool_shape(_count))
register("aten.adaptive_max_pool2d.default", shape=_adaptive_max_pool_shape)
register("aten.max_unpool2d.default", cpu_meta=meta.like_input)


_SAFE: Final = """
avg_pool1d avg_pool2d avg_pool3d max_pool1d max_pool2d max_pool3d max_pool1d_with_indices
max_pool2d_with_indices max_pool3d_with_indices adaptive_avg_pool1d _adaptive_avg_pool2d
_adaptive_avg_pool3d
"""
register(*aten_names(_SAFE), raises=never)
