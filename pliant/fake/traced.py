"""Operators each of whose result sizes is a size of an argument: found out by marked tensors.

The one idea: give every size a small number of its own, run the operator on tensors of those sizes,
and read the result: where a number comes out, the size it stands for does. Nothing is asked about a
symbol, and no meta kernel has to be loaded. Only for operators whose record says so: those that
neither compute with sizes nor compare them, and whose result is laid out in a way that is known
beforehand.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod
from typing import Any

import torch

from pliant.fake.layout import contiguous_strides, like_strides
from pliant.fake.overload import Overload, tried_on
from pliant.fake.results import Constant, New, Recipe, Several
from pliant.fake.rule import Args, Kwargs, ShapeRule
from pliant.fake.tensor import Fake

ResultLayout = Callable[[Fake, Sequence[Any]], tuple[Any, ...] | None]
Needs = Callable[[Args, Kwargs], None]
MOST = 1 << 16  # elements in a marked tensor


class Marks:
    """Which small number stands for which size. 0 and 1 stand for themselves."""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._numbers: dict[Any, int] = {0: 0, 1: 1}
        self._sizes: dict[int, Any] = {0: 0, 1: 1}

    def of(self, size: Any) -> int:
        constant = size if type(size) is int else size.node.constant
        # Equal sizes get equal marks, or the operator would refuse them.
        key = size.node.env.simplify(size.node.expr) if constant is None else constant
        # The next unused number: 2, 3, 4, …, since 0 and 1 are taken.
        number = self._numbers.setdefault(key, len(self._numbers))
        self._sizes.setdefault(number, size)
        return number

    def marked(self, value: Any) -> Any:
        if type(value) is Fake:
            shape = [self.of(size) for size in value.size()]
            if prod(shape) > MOST:
                raise TooLarge
            return torch.zeros(shape, dtype=value.dtype, device=self._device)
        return [self.marked(v) for v in value] if isinstance(value, list | tuple) else value

    def read(self, shape: Sequence[int]) -> list[Any] | None:
        return [self._sizes[n] for n in shape] if self._sizes.keys() >= set(shape) else None


class TooLarge(RuntimeError):
    """The tensors with marks as sizes would be too large."""


def _has_symbolic_number(value: Any) -> bool:
    if isinstance(value, torch.SymInt | torch.SymFloat | torch.SymBool):
        return True
    if isinstance(value, dict):
        return _has_symbolic_number(tuple(value.values()))
    return isinstance(value, list | tuple) and any(map(_has_symbolic_number, value))


def by_marks(layout: ResultLayout, needs: Needs | None = None) -> ShapeRule:
    """A shape rule for operators that only copy sizes: run the operator on marked tensors, and read
    the sizes of its result. `layout` gives the strides, `needs` demands what has to hold."""

    def rule(op: Overload, args: Args, kwargs: Kwargs, device: torch.device) -> Recipe | None:
        if not _is_usual(args, kwargs):
            return None
        if needs is not None:
            needs(args, kwargs)
        marks = Marks(tried_on(op, device))
        try:
            result = op.func(*(marks.marked(a) for a in args), **kwargs)
        except (RuntimeError, IndexError):  # let it be told with the true sizes
            return None
        return _part(result, marks, layout, args[0], device)

    return rule


def first_of(*rules: ShapeRule) -> ShapeRule:
    """The first of several rules that says something."""

    def rule(op: Overload, args: Args, kwargs: Kwargs, device: torch.device) -> Recipe | None:
        recipes = (shape_rule(op, args, kwargs, device) for shape_rule in rules)
        return next((recipe for recipe in recipes if recipe is not None), None)

    return rule


def _is_usual(args: Args, kwargs: Kwargs) -> bool:
    fakes = [value for value in (*args, *kwargs.values()) if type(value) is Fake]
    return (
        bool(fakes)
        and not any(t.is_conj() or t.is_neg() for t in fakes)
        and not _has_symbolic_number((args, kwargs))
        and "out" not in kwargs
    )


def _part(
    result: Any, marks: Marks, layout: ResultLayout, first: Fake, device: torch.device
) -> Recipe | None:
    if isinstance(result, list | tuple):
        parts = [_part(t, marks, layout, first, device) for t in result]
        return None if None in parts else Several(tuple, tuple(p for p in parts if p is not None))
    if not isinstance(result, torch.Tensor):
        return Constant(result)
    sizes = marks.read(result.size())
    strides = None if sizes is None else layout(first, sizes)
    if sizes is None or strides is None:
        return None
    return New(torch.Size(sizes), strides, 0, result.dtype, device, False)


def in_rows(first: Fake, sizes: Sequence[Any]) -> tuple[Any, ...]:
    return contiguous_strides(sizes)


def as_first(first: Fake, sizes: Sequence[Any]) -> tuple[Any, ...] | None:
    """In the order of the first argument, which has the same sizes."""
    return like_strides(first) if len(sizes) == first.dim() else contiguous_strides(sizes)
