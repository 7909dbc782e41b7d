"""Running sums and products, extremes so far: each element from those up to it.

The one idea: a scan is a state that goes along one dimension, in the order in which eager PyTorch
goes, so that results are the same bit for bit. Sums and products of floats are kept in f64 (those
of halves in f32) and rounded where they are stored; of integers in i64. All other dimensions are
independent: along the last one they run in lanes.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, Final

import torch

from pliant.loop.define import Body, Index, Scan, Scanned
from pliant.loop.ir import Op, Value
from pliant.loop.types import HALF, INTEGER, Type, largest, smallest
from pliant.ops.lazy import Lazy, in_memory
from pliant.ops.lowering import Lowering, NotLowered, computed_in, lowers
from pliant.ops.places import normal_dim, usual
from pliant.sym.expr import ONE

SERIAL_COST: Final = 6
"""What costs more operations is computed in lanes, and kept in memory, before it is scanned one
element at a time."""

State = tuple[Value, ...]


def wide(t: Type) -> Type:
    """In what eager PyTorch keeps running sums of this type."""
    if t in HALF:
        return Type.F32
    return Type.I64 if t in INTEGER else Type.F64


def scanned(
    low: Lowering,
    x: Lazy,
    dim: int,
    start: Callable[[Body], State],
    step: Callable[[Body, State, Value, Index], State],
    *then: Callable[[Body, State], Value],
) -> list[Lazy]:
    """A result for each of `then`, which make elements of the states along the dimension."""
    source = _ready(low, x, dim)

    def go(b: Body, state: State, index: Index) -> State:
        return step(b, state, source.at(b, index), index)

    scan = Scan(start, go)
    found: list[Lazy] = []
    for meta, finish in zip(low.results, then, strict=True):
        body = Scanned(dim, scan, _finished(finish))
        found.append(in_memory(low.define(meta.sizes, meta.type, body, meta.strides)))
    return found


def _finished(finish: Callable[[Body, State], Value]) -> Callable[[Body, State, Index], Value]:
    return lambda b, state, index: finish(b, state)


def _ready(low: Lowering, x: Lazy, dim: int) -> Lazy:
    in_lanes = any(size is not ONE for size in x.sizes[dim + 1 :])
    return x if in_lanes or x.cost <= SERIAL_COST else low.realize(x)


# --------------------------------------------------------------------------------------------------
# Sums and products


def _accumulated(low: Lowering, op: Op, x: Lazy, dim: int, first: int) -> Lazy:
    result = low.result.type
    if usual(result) is Type.BOOL:
        raise NotLowered("a running sum of bools")
    x, dim, state = low.cast(x, result), normal_dim(dim, len(x.sizes)), wide(result)
    if not x.sizes or x.sizes[dim] is ONE:
        return low.map(lambda b, v: v, x.type, x, cost=0)

    def start(b: Body) -> State:
        return (b.constant(first if state is Type.I64 else float(first), state),)

    def step(b: Body, old: State, value: Value, index: Index) -> State:
        return (b(op, old[0], b.cast(value, state)),)

    return scanned(low, x, dim, start, step, lambda b, new: b.cast(new[0], result))[0]


@lowers("aten.cumsum.default")
def cumsum(low: Lowering, x: Lazy, dim: int, *, dtype: torch.dtype | None = None) -> Lazy:
    return _accumulated(low, Op.ADD, x, dim, 0)


@lowers("aten.cumprod.default")
def cumprod(low: Lowering, x: Lazy, dim: int, *, dtype: torch.dtype | None = None) -> Lazy:
    return _accumulated(low, Op.MUL, x, dim, 1)


# --------------------------------------------------------------------------------------------------
# Extremes


def _extreme_so_far(low: Lowering, x: Lazy, dim: int, better: Op) -> list[Lazy]:
    """The last of those that are as good; a nan is better than all numbers."""
    usual(x.type)
    dim, t = normal_dim(dim, len(x.sizes)), x.type
    working = Type.U8 if t is Type.BOOL else computed_in(t)
    if not x.sizes or x.sizes[dim] is ONE:
        first = low.lazy(0, Type.I64)
        positions = low.map(lambda b, v, i: i, Type.I64, x, first, cost=0)
        return [low.map(lambda b, v: v, t, x, cost=0), positions]
    worst = _worst(working, better)

    def start(b: Body) -> State:
        return b.constant(worst, working), b.constant(0, Type.I64)

    def step(b: Body, old: State, value: Value, index: Index) -> State:
        best, where = old
        value = b.cast(value, working)
        take = b(better, value, best)
        if working.kind == "float":
            take = b(Op.OR, take, b(Op.ISNAN, value))
        return b(Op.SELECT, take, value, best), b(Op.SELECT, take, b.iota(index[dim]), where)

    return scanned(
        low, x, dim, start, step, lambda b, new: b.cast(new[0], t), lambda b, new: new[1]
    )


def _worst(t: Type, better: Op) -> Any:
    if t in INTEGER:
        return smallest(t) if better is Op.GE else largest(t)
    return -math.inf if better is Op.GE else math.inf


@lowers("aten.cummax.default")
def cummax(low: Lowering, x: Lazy, dim: int) -> list[Lazy]:
    return _extreme_so_far(low, x, dim, Op.GE)


@lowers("aten.cummin.default")
def cummin(low: Lowering, x: Lazy, dim: int) -> list[Lazy]:
    return _extreme_so_far(low, x, dim, Op.LE)


# --------------------------------------------------------------------------------------------------
# Logarithms of sums


@lowers("aten.logcumsumexp.default", "aten._logcumsumexp.default")
def logcumsumexp(low: Lowering, x: Lazy, dim: int) -> Lazy:
    dim, t = normal_dim(dim, len(x.sizes)), x.type
    if t.kind != "float":
        raise NotLowered(f"of {t}")
    if not x.sizes or x.sizes[dim] is ONE:
        return low.map(lambda b, v: v, t, x, cost=0)
    state = wide(t)

    def start(b: Body) -> State:
        return (b.constant(-math.inf, state),)

    def step(b: Body, old: State, value: Value, index: Index) -> State:
        return (_log_of_sum(b, b.cast(value, state), old[0]),)

    return scanned(low, x, dim, start, step, lambda b, new: b.cast(new[0], t))[0]


def _log_of_sum(b: Body, x: Value, y: Value) -> Value:
    """log(exp(x) + exp(y)); of two infinities that are the same, that."""
    least, most = b(Op.MINIMUM, x, y), b(Op.MAXIMUM, x, y)
    rest = b(Op.LOG1P, b(Op.EXP, b(Op.SUB, least, most)))
    infinite = b(Op.AND, b(Op.EQ, least, most), b(Op.ISINF, least))
    return b(Op.SELECT, infinite, x, b(Op.ADD, rest, most))
