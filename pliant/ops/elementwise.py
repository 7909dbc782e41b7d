"""How an operator on elements at the same place is computed: types first, then values.

The one idea: an operator says what it computes from values of one type; which type that is follows
from its arguments, in one of few ways (`Promotion`), exactly as in eager PyTorch. Halves are
computed in f32 and rounded after every operator; the few that eager PyTorch rounds in between say
so (`steps`).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from enum import Enum, auto
from typing import Any, Final

import torch

from pliant.base.values import dataclass
from pliant.fake.layout import promoted_levels
from pliant.loop.define import BodyAround, LoopBody
from pliant.loop.ir import LoopValue, Op
from pliant.loop.types import FLOAT8, HALF, INTEGER, Type, largest, smallest
from pliant.ops.indexed_tensor import IndexedTensor
from pliant.ops.lowering import Combine, Lowering, NotLowered, Number, computed_in, type_of
from pliant.sym.cond import Cond
from pliant.sym.expr import ONE, ZERO, Expr
from pliant.sym.floats import FloatExpr

INTS: Final = frozenset({Type.I8, Type.I16, Type.I32, Type.I64, Type.U8})
FLOATS: Final = frozenset({Type.F16, Type.BF16, Type.F32, Type.F64})
NUMBERS: Final = INTS | FLOATS
BITS: Final = INTS | {Type.BOOL}
NARROW: Final = FLOAT8 | {Type.F16}
"""Floats with a narrower range than those of the program's numbers that are likely."""
COMPUTABLE: Final = NUMBERS | {Type.BOOL}
"""The types for which eager PyTorch has most operators. A call with a type that an operator doesn't
have is left to PyTorch, which raises."""


class Promotion(Enum):
    """The type that arguments are brought to before they are computed with."""

    COMMON = auto()  # what the arguments promote to
    FLOAT = auto()  # the same, but integers become the default dtype
    FIRST = auto()  # that of the first argument


@dataclass(frozen=True, slots=True)
class Pointwise:
    """A lowering rule for a pointwise operator: `compute(body, *values)` gives an element, from
    values that are all of one type of `on` (of f32, for halves), chosen by `promotion`. The result
    is cast to what the call returns. `steps`: half types for which eager PyTorch rounds after each
    operation of `compute`."""

    compute: Combine
    on: frozenset[Type] = NUMBERS
    promotion: Promotion = Promotion.COMMON
    args: tuple[str, ...] = ("self",)  # names in the schema
    # Numbers that have no say in the type, with their defaults.
    options: tuple[tuple[str, Number], ...] = ()
    cost: int = 1
    steps: frozenset[Type] = frozenset()
    rounded: bool = False  # options are numbers of the type, not of the wider one that computes
    wide: bool = False  # a number as second argument isn't rounded to the type either
    alike: bool = False  # all arguments must have one type
    on_gpu: Combine | None = None  # where that finds no errors, `compute` without the check

    def __call__(self, low: Lowering, /, *args: Any, **kwargs: Any) -> IndexedTensor:
        names = [*self.args, *[name for name, _ in self.options]]
        arguments = dict(self.options) | dict(zip(names, args)) | kwargs
        if self.alike and len({arguments[name].type for name in self.args}) > 1:
            raise NotLowered("of several types")
        return elementwise(
            low,
            self.compute if self.on_gpu is None or low.device == "cpu" else self.on_gpu,
            [arguments[name] for name in self.args],
            [arguments[name] for name, _ in self.options],
            on=self.on,
            promotion=self.promotion,
            cost=self.cost,
            steps=self.steps,
            rounded=self.rounded,
            wide=self.wide,
        )


def elementwise(
    low: Lowering,
    compute: Combine,
    args: Sequence[IndexedTensor | Number],
    options: Sequence[Number] = (),
    *,
    on: frozenset[Type] = NUMBERS,
    promotion: Promotion = Promotion.COMMON,
    cost: int = 1,
    steps: frozenset[Type] = frozenset(),
    rounded: bool = False,
    wide: bool = False,
) -> IndexedTensor:
    """The result of a pointwise operator. `args` decide the type, `options` don't; the other
    parameters are those of `Pointwise`."""
    common = working_type(low, args, promotion)
    if common not in on:
        raise NotLowered(f"of {common}")
    # Eager converts to the common type first, and computes halves in f32. Both conversions round,
    # so neither can be left out.
    working = computed_in(common)
    indexed_tensors = [low.indexed(low.indexed(arg, common), working) for arg in args]
    if wide and common in HALF and is_number(args[1]):
        indexed_tensors[1] = low.indexed(args[1], working)
    for number in options:
        check_always_fits(number, common)
        indexed_tensors.append(
            low.indexed(low.indexed(number, common if rounded else working), working)
        )
    result = low.result.type
    stepwise = common if common in HALF and common in steps else None

    def combine(b: LoopBody, *values: LoopValue) -> LoopValue:
        # Some kernels of eager round after each operation; the results differ in the last bit.
        body = b if stepwise is None else RoundingBody(b, stepwise)
        return b.cast(compute(body, *values), result)

    return low.map(combine, result, *indexed_tensors, cost=cost)


def is_number(x: IndexedTensor | Number) -> bool:
    """Whether an argument is one number for all elements: a number, or a tensor of one element."""
    return not isinstance(x, IndexedTensor) or all(size is ONE for size in x.sizes)


def working_type(
    low: Lowering, args: Sequence[IndexedTensor | Number], promotion: Promotion
) -> Type:
    """The type that the arguments are brought to."""
    if promotion is Promotion.FIRST:
        assert isinstance(args[0], IndexedTensor)
        return args[0].type
    dtype = common_dtype(args, low.default_dtype)
    if promotion is Promotion.FLOAT and not dtype.is_floating_point:
        dtype = low.default_dtype
    return type_of(dtype)


def common_dtype(args: Sequence[IndexedTensor | Number], default: torch.dtype) -> torch.dtype:
    """What the arguments promote to: `torch.result_type` of any number of them. Tensors with
    dimensions come first, then those without, then numbers; a later group counts only if it is of
    a higher category (bool, integer, float) than all before."""
    # Tensors with dimensions, tensors without, numbers.
    ranked: tuple[list[torch.dtype], list[torch.dtype], list[torch.dtype]] = ([], [], [])
    for arg in args:
        if isinstance(arg, IndexedTensor):
            ranked[0 if arg.sizes else 1].append(arg.type.dtype)
        else:
            ranked[2].append(_dtype_of_number(arg, default))
    try:
        return promoted_levels(*ranked)
    except RuntimeError as error:  # the wider unsigned types have no common type with others
        texts = [str(dtype) for level in ranked for dtype in level]
        raise NotLowered(" with ".join(texts)) from error


_KINDS: Final[tuple[tuple[tuple[type, ...], torch.dtype | None], ...]] = (
    ((bool, Cond), torch.bool),
    ((int, Expr), torch.int64),
    ((float, FloatExpr), None),
)


def _dtype_of_number(x: Number, default: torch.dtype) -> torch.dtype:
    for kinds, dtype in _KINDS:
        if isinstance(x, kinds):
            return dtype or default
    raise NotLowered(f"a number that is a {type(x).__name__}")


def check_fits(x: Number, t: Type) -> None:
    """Give up on a number that is out of the range of a type: PyTorch raises an error for it. What
    isn't known yet is taken to fit."""
    value = x.value if isinstance(x, Expr | FloatExpr) else x
    if value is None or isinstance(value, bool | Cond) or t is Type.BOOL:
        return
    if not isinstance(value, int | float):
        raise NotLowered(f"a number that is a {type(x).__name__}")
    if t in INTEGER:
        if not math.isfinite(value) or not smallest(t) <= value <= largest(t):
            raise NotLowered(f"{value} as {t}")
    elif math.isfinite(value) and abs(value) > torch.finfo(t.dtype).max:
        raise NotLowered(f"{value} as {t}")


def check_always_fits(x: Number, t: Type) -> None:
    """The same, but also give up on a symbolic number if the range of the type is narrow: PyTorch
    tests the number of each call."""
    check_fits(x, t)
    unknown = isinstance(x, Expr | FloatExpr) and x.value is None
    narrow = t in NARROW or (t in INTEGER and not (isinstance(x, Expr) and t is Type.I64))
    if unknown and narrow:
        raise NotLowered(f"{x} as {t}")


class RoundingBody(BodyAround):
    """A body in which every f32 is rounded to a half type as soon as it is computed."""

    __slots__ = ("half",)

    def __init__(self, body: LoopBody, half: Type) -> None:
        super().__init__(body)
        self.half = half

    def __call__(self, op: Op, *args: LoopValue) -> LoopValue:
        return self._rounded(self.body(op, *args))

    def constant(self, number: int | float | bool, type: Type) -> LoopValue:
        return self._rounded(self.body.constant(number, type))

    def _rounded(self, value: LoopValue) -> LoopValue:
        if value.type is not Type.F32:
            return value
        return self.body.cast(self.body.cast(value, self.half), Type.F32)


# --------------------------------------------------------------------------------------------------
# Small words for computing


def op(op: Op) -> Combine:
    """One operation of the loop IR."""
    return lambda b, *values: b(op, *values)


def like(b: LoopBody, number: int | float | bool, value: LoopValue) -> LoopValue:
    """A constant of the type of a value."""
    t = value.type
    if t is Type.BOOL:
        return b.constant(bool(number), t)
    return b.constant(int(number) if t in INTEGER else float(number), t)


def is_float(value: LoopValue) -> bool:
    return value.type.kind == "float"


def unchanged(b: LoopBody, x: LoopValue) -> LoopValue:
    return x


def finished(low: Lowering, combine: Combine, *xs: IndexedTensor) -> IndexedTensor:
    """Elementwise, rounded to what the call returns."""
    returned = low.results[0]
    result = low.map(
        lambda b, *values: b.cast(combine(b, *values), returned.type), returned.type, *xs
    )
    return result if returned.sizes else scalar(result)


def scalar(x: IndexedTensor) -> IndexedTensor:
    """A tensor of one element as one without dimensions."""
    return IndexedTensor(
        (), x.type, lambda b, index: x.at(b, (ZERO,) * len(x.sizes)), x.cost, x.reads
    )
