"""Tensors as definitions: memory, and what stands at each place of it as a function of the index.

The one idea: a definition says *what* an element is, never in which loop it is computed. `at` is
called with a body under construction and the index as expressions, as often as a kernel needs the
element; it reads other definitions through the body, which knows whether the element is in a
register already or has to be loaded. Fusion is nothing but the choice which definitions share
loops.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

from pliant.base.values import dataclass
from pliant.loop.ir import LoopValue, Op
from pliant.loop.types import Type
from pliant.sym.expr import ONE, ZERO, Expr, product_of

Index = tuple[Expr, ...]


class LoopBody(Protocol):
    """A loop body under construction. Calling it adds an operation. `read` gives the element at a
    place of a definition, from registers or memory, which isn't touched where the mask is false;
    `fault` has the program raise if the condition holds; `once` shares what `make` gives among
    equal keys and indices."""

    def __call__(self, op: Op, *args: LoopValue) -> LoopValue: ...
    def constant(self, number: int | float | bool, type: Type) -> LoopValue: ...
    def cast(self, value: LoopValue, type: Type) -> LoopValue: ...
    def bitcast(self, value: LoopValue, type: Type) -> LoopValue: ...
    def iota(self, index: Expr | int) -> LoopValue: ...
    def as_index(self, value: LoopValue) -> Expr: ...
    def read(self, of: Definition, place: Expr, mask: LoopValue | None = None) -> LoopValue: ...
    def fault(self, when: LoopValue) -> None: ...
    def once(self, key: object, index: Index, make: Callable[[], LoopValue]) -> LoopValue: ...


class BodyAround:
    """A body that delegates to another one. Subclasses override what differs."""

    __slots__ = ("body",)

    def __init__(self, body: LoopBody) -> None:
        self.body = body

    def __call__(self, op: Op, *args: LoopValue) -> LoopValue:
        return self.body(op, *args)

    def constant(self, number: int | float | bool, type: Type) -> LoopValue:
        return self.body.constant(number, type)

    def cast(self, value: LoopValue, type: Type) -> LoopValue:
        return self.body.cast(value, type)

    def bitcast(self, value: LoopValue, type: Type) -> LoopValue:
        return self.body.bitcast(value, type)

    def iota(self, index: Expr | int) -> LoopValue:
        return self.body.iota(index)

    def as_index(self, value: LoopValue) -> Expr:
        return self.body.as_index(value)

    def read(self, of: Definition, place: Expr, mask: LoopValue | None = None) -> LoopValue:
        return self.body.read(of, place, mask)

    def fault(self, when: LoopValue) -> None:
        self.body.fault(when)

    def once(self, key: object, index: Index, make: Callable[[], LoopValue]) -> LoopValue:
        return self.body.once(key, index, make)


@dataclass(frozen=True, slots=True, eq=False)
class Computed:
    """Each element is computed on its own: `at(body, index)`. The sum of two tensors, say, is

    Computed(lambda b, i: b(Op.ADD, b.read(x, x.place(i)), b.read(y, y.place(i))))
    """

    at: Callable[[LoopBody, Index], LoopValue]


@dataclass(frozen=True, slots=True, eq=False)
class Reduced:
    """Each element is reduced from all elements of `over`, by the reduction `op`: its arguments are
    `at(body, outer, inner)`, where `outer` is the index of the element and `inner` runs over
    `over`. `then(body, result, outer)` computes the element from the result: it divides a sum by
    the count for a mean. `is_product`: it is a product of matrices, for targets with instructions
    for these."""

    over: tuple[Expr, ...]
    op: Op
    at: Callable[[LoopBody, Index, Index], tuple[LoopValue, ...]]
    then: Callable[[LoopBody, LoopValue, Index], LoopValue]
    is_product: bool = False


@dataclass(frozen=True, slots=True, eq=False)
class Scan:
    """A running state along a dimension: values that begin as `start(body)` and become `step(body,
    state, index)` with each element. `combine(body, left, right)`, if there is one, is the state
    after two parts, from the states after each: it is associative, with `start` as its identity."""

    start: Callable[[LoopBody], tuple[LoopValue, ...]]
    step: Callable[[LoopBody, tuple[LoopValue, ...], Index], tuple[LoopValue, ...]]
    combine: (
        Callable[[LoopBody, tuple[LoopValue, ...], tuple[LoopValue, ...]], tuple[LoopValue, ...]]
        | None
    ) = None


@dataclass(frozen=True, slots=True, eq=False)
class Scanned:
    """Each element is computed from those up to it along dimension `dim`: as `then(body, state,
    index)` from the state of the scan. Definitions with the same `scan` share one state, as values
    and indices of `cummax` do."""

    dim: int
    scan: Scan
    then: Callable[[LoopBody, tuple[LoopValue, ...], Index], LoopValue]


@dataclass(frozen=True, slots=True, eq=False)
class Update:
    """An element to write: its index in the tensor, its value, and `when` to write it (None:
    always)."""

    index: Index
    value: LoopValue
    when: LoopValue | None = None


@dataclass(frozen=True, slots=True, eq=False)
class Scattered:
    """Updates of memory (`Definition.into`) at places that depend on data. The update for an index
    of `rows` and one of `over` is `at(body, row, place)`. Updates of different rows never go to the
    same place; those of one row are made in the order of `over`. `combine(body, old, new)` is the
    updated element; without it, the last update stays. The last `inner` dimensions of the rows are
    closer in memory than what is scattered. `adds`: `combine` is addition."""

    rows: tuple[Expr, ...]
    over: tuple[Expr, ...]
    at: Callable[[LoopBody, Index, Index], Update]
    combine: Callable[[LoopBody, LoopValue, LoopValue], LoopValue] | None = None
    inner: int = 0
    adds: bool = False


@dataclass(frozen=True, slots=True, eq=False)
class Definition:
    """A tensor in memory (or in registers, if all its readers share its kernel), and how its
    elements are computed. `body` is None if they come from elsewhere: an input, a constant, or what
    an operator of PyTorch returns."""

    name: str
    sizes: tuple[Expr, ...]
    strides: tuple[Expr, ...]  # in elements; the first element is at 0
    type: Type
    body: Computed | Reduced | Scanned | Scattered | None = None
    # Instead of memory of its own: the memory that is overwritten with it, or a part of that from
    # `offset` on; a reader of the definition may read all of the memory.
    into: Definition | None = None
    offset: Expr = ZERO
    device: str = "cpu"  # the type of device that has the memory

    def place(self, index: Sequence[Expr]) -> Expr:
        """The place of an element, counted from the start of the memory that it is in."""
        return address(index, self.strides, self.offset)

    def __repr__(self) -> str:
        return self.name


def broadcast_index(index: Index, ones: Sequence[bool]) -> Index:
    """The index into a tensor that is broadcast to more elements, from the index of these: without
    the dimensions that the tensor lacks, and 0 in those where it has size 1 (`ones`)."""
    first = len(index) - len(ones)
    return tuple([ZERO if one else i for one, i in zip(ones, index[first:])])


def address(index: Sequence[Expr], strides: Sequence[Expr], offset: Expr = ZERO) -> Expr:
    """`offset` plus the dot product of index and strides."""
    for i, stride in zip(index, strides, strict=True):
        offset = offset + i * stride
    return offset


def bytes_of(definition: Definition, hint: Callable[[Expr], int]) -> int:
    """How many bytes of memory a definition takes, at the sizes that `hint` expects."""
    return hint(product_of(definition.sizes)) * definition.type.dtype.itemsize


def contiguous(sizes: Sequence[Expr]) -> tuple[Expr, ...]:
    """The strides of a contiguous tensor of these sizes."""
    strides: list[Expr] = []
    step = ONE
    for size in reversed(sizes):
        strides.append(step)
        step = step * size
    return tuple(reversed(strides))
