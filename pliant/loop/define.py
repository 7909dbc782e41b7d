"""Tensors as definitions: memory, and what stands at each place of it as a function of the index.

The one idea: a definition says *what* an element is, never in which loop it is computed. `at` is
called with a body under construction and the index as expressions, as often as a kernel needs the
element; it reads other definitions through the body, which knows whether the element is in a
register already or has to be loaded. Fusion is nothing but the choice which definitions share
loops.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from pliant.loop.ir import Op, Value
from pliant.loop.types import Type
from pliant.sym.expr import ONE, ZERO, Expr

Index = tuple[Expr, ...]


class Body(Protocol):
    """A loop body under construction: operations are added by calling it."""

    def __call__(self, op: Op, *args: Value) -> Value: ...
    def constant(self, number: int | float | bool, type: Type) -> Value: ...
    def cast(self, value: Value, type: Type) -> Value: ...
    def bitcast(self, value: Value, type: Type) -> Value: ...
    def iota(self, index: Expr | int) -> Value: ...
    def as_index(self, value: Value) -> Expr: ...
    def read(self, of: Definition, place: Expr, mask: Value | None = None) -> Value: ...
    def fault(self, when: Value) -> None: ...
    def once(self, key: object, index: Index, make: Callable[[], Value]) -> Value: ...


@dataclass(frozen=True, slots=True, eq=False)
class Computed:
    """Each element on its own."""

    at: Callable[[Body, Index], Value]


@dataclass(frozen=True, slots=True, eq=False)
class Reduced:
    """Each element from all elements of `over`: the arguments of `op` there are `at(body, outer,
    inner)`; `then` finishes what comes out."""

    over: tuple[Expr, ...]
    op: Op
    at: Callable[[Body, Index, Index], tuple[Value, ...]]
    then: Callable[[Body, Value, Index], Value]


@dataclass(frozen=True, slots=True, eq=False)
class Definition:
    """Memory for the elements of a tensor. `body` is None if they come from elsewhere: an input, or
    what an operator of PyTorch returns."""

    name: str
    sizes: tuple[Expr, ...]
    strides: tuple[Expr, ...]  # in elements; the first element is at 0
    type: Type
    body: Computed | Reduced | None = None
    # Instead of memory of its own: the memory that is overwritten with it.
    into: Definition | None = None

    def place(self, index: Sequence[Expr]) -> Expr:
        """Where an element is."""
        return address(index, self.strides)

    def __repr__(self) -> str:
        return self.name


def address(index: Sequence[Expr], strides: Sequence[Expr], offset: Expr = ZERO) -> Expr:
    for i, stride in zip(index, strides, strict=True):
        offset = offset + i * stride
    return offset


def contiguous(sizes: Sequence[Expr]) -> tuple[Expr, ...]:
    """The strides of a tensor whose elements stand one after the other."""
    strides: list[Expr] = []
    step = ONE
    for size in reversed(sizes):
        strides.append(step)
        step = step * size
    return tuple(reversed(strides))
