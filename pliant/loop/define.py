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
    """A loop body under construction: operations are added by calling it."""

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
    """Each element on its own."""

    at: Callable[[LoopBody, Index], LoopValue]


@dataclass(frozen=True, slots=True, eq=False)
class Reduced:
    """Each element from all elements of `over`: the arguments of `op` there are `at(body, outer,
    inner)`; `then` finishes what comes out."""

    over: tuple[Expr, ...]
    op: Op
    at: Callable[[LoopBody, Index, Index], tuple[LoopValue, ...]]
    then: Callable[[LoopBody, LoopValue, Index], LoopValue]


@dataclass(frozen=True, slots=True, eq=False)
class Scan:
    """What goes along a dimension: values that begin as `start` and become `step(body, state,
    index)` with each element. `combine(body, left, right)` is the state behind two parts, from
    those behind each of them: it has to be associative, with `start` as its identity."""

    start: Callable[[LoopBody], tuple[LoopValue, ...]]
    step: Callable[[LoopBody, tuple[LoopValue, ...], Index], tuple[LoopValue, ...]]
    combine: (
        Callable[[LoopBody, tuple[LoopValue, ...], tuple[LoopValue, ...]], tuple[LoopValue, ...]]
        | None
    ) = None


@dataclass(frozen=True, slots=True, eq=False)
class Scanned:
    """Each element from those up to it along dimension `dim`: `then` gives it from the state of the
    scan. Several definitions can be of one scan."""

    dim: int
    scan: Scan
    then: Callable[[LoopBody, tuple[LoopValue, ...], Index], LoopValue]


@dataclass(frozen=True, slots=True, eq=False)
class Update:
    """An element to write: its index in the tensor, and the condition for the write."""

    index: Index
    value: LoopValue
    when: LoopValue | None = None


@dataclass(frozen=True, slots=True, eq=False)
class Scattered:
    """Elements that go where the data say, into memory (`Definition.into`) that has elements
    already. `at(body, rows, place)` are the updates. Those of different `rows` never go to one
    place, those of `over` are made in order. `combine` makes the element of the old and the new
    one; without it, the last one stays. `inner` of the rows are closer in memory than what is
    scattered. `adds`: `combine` is addition."""

    rows: tuple[Expr, ...]
    over: tuple[Expr, ...]
    at: Callable[[LoopBody, Index, Index], Update]
    combine: Callable[[LoopBody, LoopValue, LoopValue], LoopValue] | None = None
    inner: int = 0
    adds: bool = False


@dataclass(frozen=True, slots=True, eq=False)
class Definition:
    """Memory for the elements of a tensor. `body` is None if they come from elsewhere: an input, or
    what an operator of PyTorch returns."""

    name: str
    sizes: tuple[Expr, ...]
    strides: tuple[Expr, ...]  # in elements; the first element is at 0
    type: Type
    body: Computed | Reduced | Scanned | Scattered | None = None
    # Instead of memory of its own: the memory that is overwritten with it, or a part of that from
    # `offset` on; who reads the definition afterwards may read all of the memory.
    into: Definition | None = None
    offset: Expr = ZERO
    device: str = "cpu"  # the type of device that has the memory

    def place(self, index: Sequence[Expr]) -> Expr:
        """Where an element is."""
        return address(index, self.strides, self.offset)

    def __repr__(self) -> str:
        return self.name


def broadcast_index(index: Index, ones: Sequence[bool]) -> Index:
    """The index into a tensor that is broadcast to one with this index: 0 in the dimensions that
    are spread from `ones`."""
    first = len(index) - len(ones)
    return tuple([ZERO if one else i for one, i in zip(ones, index[first:])])


def address(index: Sequence[Expr], strides: Sequence[Expr], offset: Expr = ZERO) -> Expr:
    for i, stride in zip(index, strides, strict=True):
        offset = offset + i * stride
    return offset


def bytes_of(definition: Definition, hint: Callable[[Expr], int]) -> int:
    """How much memory it takes, for the sizes that are expected."""
    return hint(product_of(definition.sizes)) * definition.type.dtype.itemsize


def contiguous(sizes: Sequence[Expr]) -> tuple[Expr, ...]:
    """The strides of a tensor whose elements stand one after the other."""
    strides: list[Expr] = []
    step = ONE
    for size in reversed(sizes):
        strides.append(step)
        step = step * size
    return tuple(reversed(strides))
