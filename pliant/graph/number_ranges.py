"""Symbolic numbers that operators convert to the dtype of their result.

The one idea: eager PyTorch raises an error where such a number is out of the range of the dtype. A
kernel would not notice, so the range is a condition for the graph to run: where it fails, the graph
runs as it was captured, and PyTorch says what is wrong. The condition may be narrower than
PyTorch's, which some operators don't test, or test for a wider dtype.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

import torch

from pliant.base.values import replace
from pliant.fake.overload import Overload
from pliant.graph.ir import InRange
from pliant.sym.expr import Expr
from pliant.sym.floats import FloatExpr

UNCHECKED: Final = frozenset(("other", "self", "start", "end", "step"))
"""Operands, which are computed with as tensors are, and the numbers of a range. (Checks of those
would keep sizes beyond 65,504 from dividing sums of float16.)"""
SELECTED: Final = "aten.where."  # its operands are not computed with
POSITIVE: Final = "aten.softshrink."  # or 0, and finite, in every dtype
SUBTRACTS: Final = ("aten.sub.", "aten.rsub.")  # adds times minus the number, which has to fit
INTEGER_LIMIT: Final = 1 << 63
LARGEST_INTEGRAL: Final = float(INTEGER_LIMIT - 1024)  # as a float


def range_conditions(
    op: Overload, args: Sequence[Any], kwargs: Mapping[str, Any], dtypes: Iterable[torch.dtype]
) -> Iterator[InRange]:
    """The conditions on symbolic numbers among the arguments of a call whose results have these
    dtypes: that they are in range, as PyTorch raises an error for those that aren't."""
    numbers = [*_converted(op, args, kwargs)]
    if not numbers:
        return
    for dtype in set(dtypes):
        for number in numbers:
            if op.name.startswith(POSITIVE):
                yield _positive(number, dtype)
                continue
            condition = _in_range(number, dtype)
            if condition is not None and op.name.startswith(SUBTRACTS):
                condition = replace(condition, low=max(condition.low, -condition.high))
            if condition is not None:
                yield condition


def _converted(
    op: Overload, args: Sequence[Any], kwargs: Mapping[str, Any]
) -> Iterator[Expr | FloatExpr]:
    unchecked = frozenset() if op.name.startswith(SELECTED) else UNCHECKED
    for position, argument in enumerate(op.func._schema.arguments):
        value = args[position] if position < len(args) else kwargs.get(argument.name)
        if not isinstance(value, Expr | FloatExpr) or argument.name in unchecked:
            continue
        if str(argument.type) in ("number", "Optional[number]"):
            yield value


def _positive(number: Expr | FloatExpr, dtype: torch.dtype) -> InRange:
    most = torch.finfo(dtype).max
    if isinstance(number, FloatExpr):
        return InRange(number, 0.0, most)
    return InRange(number, 0, int(min(most, INTEGER_LIMIT - 1)))


def _in_range(number: Expr | FloatExpr, dtype: torch.dtype) -> InRange | None:
    if dtype in (torch.bool, torch.float64) or dtype.is_complex:
        return None
    if isinstance(number, FloatExpr):
        if dtype.is_floating_point:
            most = torch.finfo(dtype).max
            return InRange(number, -most, most, infinite=True)
        info = torch.iinfo(dtype)
        low, high = max(float(info.min), -LARGEST_INTEGRAL), min(float(info.max), LARGEST_INTEGRAL)
        return InRange(number, low, high)
    if not dtype.is_floating_point:
        info = torch.iinfo(dtype)
        return InRange(number, info.min, min(info.max, INTEGER_LIMIT - 1))
    most = torch.finfo(dtype).max
    # Float16 and what is smaller. All others hold any 64-bit integer, rounded.
    return InRange(number, -int(most), int(most)) if most < INTEGER_LIMIT else None
