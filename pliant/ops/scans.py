"""Running sums and products, extremes so far: each element from those up to it.

The one idea: a scan is a state that goes along one dimension, in the order in which eager PyTorch
goes, so that results are the same bit for bit. Sums and products of floats are kept in f64 (those
of halves in f32) and rounded where they are stored; of integers in i64. All other dimensions are
independent: along the last one they run in lanes.

On a GPU parts of a row are scanned at the same time, as in eager PyTorch: `combine` says what two
parts make. There, floats are kept in f32.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, Final

import torch

from pliant.base.operators import aten_names, register
from pliant.base.values import replace
from pliant.fake.raising import never
from pliant.fake.traced import by_marks, in_rows
from pliant.loop.define import Index, LoopBody, Scan, Scanned
from pliant.loop.ir import LoopValue, Op
from pliant.loop.types import FLOAT, HALF, INTEGER, Type, largest, smallest
from pliant.ops.indexed_tensor import IndexedTensor, in_memory
from pliant.ops.lowering import Lowering, NotLowered, computed_in, lowers
from pliant.ops.places import normal_dim, usual
from pliant.sym.expr import ONE

SERIAL_COST: Final = 6
"""What costs more operations is computed in lanes, and kept in memory, before it is scanned one
element at a time."""

State = tuple[LoopValue, ...]
Start = Callable[[LoopBody], State]
Step = Callable[[LoopBody, State, LoopValue, Index], State]
Finish = Callable[[LoopBody, State], LoopValue]
CombineStates = Callable[[LoopBody, State, State], State]


def wide(low: Lowering, t: Type) -> Type:
    """The type in which eager PyTorch keeps running sums of elements of type t."""
    if t in INTEGER:
        return Type.I64
    return Type.F32 if t in HALF or (t is Type.F32 and not _in_order(low)) else Type.F64


def _in_order(low: Lowering) -> bool:
    """Whether one element is scanned after the other."""
    return low.device == "cpu"


def in_each(op: Op) -> CombineStates:
    """States whose parts are each combined by one operation."""
    return lambda b, left, right: tuple([b(op, x, y) for x, y in zip(left, right, strict=True)])


def scanned(
    low: Lowering,
    x: IndexedTensor,
    dim: int,
    start: Start,
    step: Step,
    combine: CombineStates,
    *then: Finish,
) -> list[IndexedTensor]:
    """A result for each of `then`, which make elements of the states along the dimension."""
    if not x.sizes:
        return [low.map(lambda b, v: v, x.type, x, cost=0)]
    if _is_single(low, x, dim):  # nothing to go along
        return [_first_step(low, x, start, step, finish) for finish in then]
    source = _ready(low, x, dim)

    def go(b: LoopBody, state: State, index: Index) -> State:
        return step(b, state, source.at(b, index), index)

    scan = Scan(start, go, combine)
    results: list[IndexedTensor] = []
    for meta, finish in zip(low.results, then, strict=True):
        body = Scanned(dim, scan, _finished(finish))
        results.append(in_memory(low.define(meta.sizes, meta.type, body, meta.strides)))
    return results


def _is_single(low: Lowering, x: IndexedTensor, dim: int) -> bool:
    """The result tells of a size in the data: it may have been found to be 1 since `x` was made."""
    return ONE in (x.sizes[dim], low.results[0].sizes[dim])


def _first_step(
    low: Lowering, x: IndexedTensor, start: Start, step: Step, finish: Finish
) -> IndexedTensor:
    def at(b: LoopBody, index: Index) -> LoopValue:
        return finish(b, step(b, start(b), x.at(b, index), index))

    return replace(low.generate(low.result.sizes, low.result.type, at, x.cost + 2), reads=x.reads)


def _finished(finish: Finish) -> Callable[[LoopBody, State, Index], LoopValue]:
    return lambda b, state, index: finish(b, state)


def _ready(low: Lowering, x: IndexedTensor, dim: int) -> IndexedTensor:
    # Other dimensions run in lanes, and so does what is computed on the way.
    in_lanes = any(size is not ONE for size in x.sizes[dim + 1 :])
    cheap = in_lanes or x.cost <= SERIAL_COST or not _in_order(low)
    return x if cheap else low.realize(x)


# --------------------------------------------------------------------------------------------------
# Sums and products


def _accumulated(low: Lowering, op: Op, x: IndexedTensor, dim: int, first: int) -> IndexedTensor:
    result = low.result.type
    if usual(result) is Type.BOOL:
        raise NotLowered("a running sum of bools")
    x, dim, state = low.cast(x, result), normal_dim(dim, len(x.sizes)), wide(low, result)

    def start(b: LoopBody) -> State:
        return (b.constant(first if state is Type.I64 else float(first), state),)

    def step(b: LoopBody, old: State, value: LoopValue, index: Index) -> State:
        return (b(op, old[0], b.cast(value, state)),)

    combine = in_each(op)
    return scanned(low, x, dim, start, step, combine, lambda b, new: b.cast(new[0], result))[0]


@lowers("aten.cumsum.default", shape=by_marks(in_rows), fresh=True, reads_whole=True)
def cumsum(
    low: Lowering, x: IndexedTensor, dim: int, *, dtype: torch.dtype | None = None
) -> IndexedTensor:
    return _accumulated(low, Op.ADD, x, dim, 0)


@lowers("aten.cumprod.default", shape=by_marks(in_rows))
def cumprod(
    low: Lowering, x: IndexedTensor, dim: int, *, dtype: torch.dtype | None = None
) -> IndexedTensor:
    return _accumulated(low, Op.MUL, x, dim, 1)


# --------------------------------------------------------------------------------------------------
# Extremes


def _extreme_so_far(low: Lowering, x: IndexedTensor, dim: int, better: Op) -> list[IndexedTensor]:
    """The last of those that are as good; a nan is better than all numbers."""
    usual(x.type)
    dim, t = normal_dim(dim, len(x.sizes)), x.type
    # Comparisons are of numbers.
    working = Type.U8 if t is Type.BOOL else computed_in(t)
    # Along the last dimension of a CPU tensor, elements are scanned one by one.
    in_lanes = any(size is not ONE for size in x.sizes[dim + 1 :]) or not _in_order(low)
    if working in FLOAT and not in_lanes:
        # Its branches are rarely taken, and take less time than choices that are always made.
        raise NotLowered("extremes of floats along the last dimension: PyTorch is faster")
    if not x.sizes or _is_single(low, x, dim):
        first = low.indexed(0, Type.I64)
        positions = low.map(lambda b, v, i: i, Type.I64, x, first, cost=0)
        return [low.map(lambda b, v: v, t, x, cost=0), positions]
    start, step, finish = _extremes(working, better, dim)
    finishes = (lambda b, state: finish(b, state, t), _where_extreme)
    return scanned(low, x, dim, start, step, _better_part(better), *finishes)


def _extremes(t: Type, better: Op, dim: int) -> tuple[Start, Step, Callable[..., LoopValue]]:
    """The state: the best number, where it is, and of floats, where the last nan is (or -1). Each
    of them is one choice from element to element, and that is what the loop waits for."""

    def start(b: LoopBody) -> State:
        first = b.constant(_worst(t, better), t), b.constant(0, Type.I64)
        return (*first, b.constant(-1, Type.I64)) if t in FLOAT else first

    def step(b: LoopBody, old: State, value: LoopValue, index: Index) -> State:
        value, best, position = b.cast(value, t), old[0], b.iota(index[dim])
        # Strictly better: of equal ones the last stays, as in eager PyTorch.
        stays = b(better, best, value)
        new = b(Op.SELECT, stays, best, value), b(Op.SELECT, stays, old[1], position)
        return (*new, b(Op.SELECT, b(Op.ISNAN, value), position, old[2])) if t in FLOAT else new

    def finish(b: LoopBody, state: State, result: Type) -> LoopValue:
        if t not in FLOAT:
            return b.cast(state[0], result)
        bits = Type.I32 if t is Type.F32 else Type.I64
        no_nan = b(Op.LT, state[2], b.constant(0, Type.I64))
        number = b.bitcast(state[0], bits)
        chosen = b(Op.SELECT, no_nan, number, b.constant(_NAN[bits], bits))
        if result is not Type.BF16:
            return b.cast(b.bitcast(chosen, t), result)
        upper = b(Op.SHR, chosen, b.constant(16, bits))  # the others are 0: it was a half
        return b.bitcast(b.cast(upper, Type.I16), result)

    return start, step, finish


def _better_part(better: Op) -> CombineStates:
    def combine(b: LoopBody, left: State, right: State) -> State:
        stays = b(better, left[0], right[0])
        best = [b(Op.SELECT, stays, x, y) for x, y in zip(left[:2], right[:2], strict=True)]
        # Positions of nans only grow, from -1.
        nans = [b(Op.MAXIMUM, x, y) for x, y in zip(left[2:], right[2:], strict=True)]
        return (*best, *nans)

    return combine


_NAN: Final = {Type.I32: 0x7FC00000, Type.I64: 0x7FF8000000000000}


def _where_extreme(b: LoopBody, state: State) -> LoopValue:
    if len(state) == 2:
        return state[1]
    return b(Op.SELECT, b(Op.LT, state[2], b.constant(0, Type.I64)), state[1], state[2])


def _worst(t: Type, better: Op) -> Any:
    if t in INTEGER:
        return smallest(t) if better is Op.GT else largest(t)
    return -math.inf if better is Op.GT else math.inf


@lowers("aten.cummax.default")
def cummax(low: Lowering, x: IndexedTensor, dim: int) -> list[IndexedTensor]:
    return _extreme_so_far(low, x, dim, Op.GT)


@lowers("aten.cummin.default")
def cummin(low: Lowering, x: IndexedTensor, dim: int) -> list[IndexedTensor]:
    return _extreme_so_far(low, x, dim, Op.LT)


# --------------------------------------------------------------------------------------------------
# Logarithms of sums


@lowers("aten.logcumsumexp.default", "aten._logcumsumexp.default", shape=by_marks(in_rows))
def logcumsumexp(low: Lowering, x: IndexedTensor, dim: int) -> IndexedTensor:
    dim, t = normal_dim(dim, len(x.sizes)), x.type
    if t.kind != "float":
        raise NotLowered(f"of {t}")
    state = wide(low, t)

    def start(b: LoopBody) -> State:
        return (b.constant(-math.inf, state),)

    def combine(b: LoopBody, left: State, right: State) -> State:
        return (_log_of_sum(b, right[0], left[0]),)

    def step(b: LoopBody, old: State, value: LoopValue, index: Index) -> State:
        return (_log_of_sum(b, b.cast(value, state), old[0]),)

    return scanned(low, x, dim, start, step, combine, lambda b, new: b.cast(new[0], t))[0]


def _log_of_sum(b: LoopBody, x: LoopValue, y: LoopValue) -> LoopValue:
    """log(exp(x) + exp(y)); of two infinities that are the same, that."""
    least, most = b(Op.MINIMUM, x, y), b(Op.MAXIMUM, x, y)
    rest = b(Op.LOG1P, b(Op.EXP, b(Op.SUB, least, most)))
    # inf - inf would be nan.
    infinite = b(Op.AND, b(Op.EQ, least, most), b(Op.ISINF, least))
    return b(Op.SELECT, infinite, x, b(Op.ADD, rest, most))


register(*aten_names("cumsum cumprod cummax cummin logcumsumexp _logcumsumexp"), raises=never)
