"""What was seen of the inputs of a function whenever it was compiled: automatic dynamic shapes.

The one idea: a size is a constant until a call comes with another one; then it is known to vary,
and becomes a symbol. Nothing is ever taken back.

    f(torch.ones(3, 8))   sizes (3, 8)                  nothing is known to vary
    f(torch.ones(5, 8))   sizes (5, 8), was (3, 8)      dimension 0 varies

Strides need care. Those of a row-major matrix change with its width, but say nothing new: they are
a product of sizes. A stride counts as varying only if no such product explains it in every
observation.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import field

from pliant.base.values import dataclass

Pairs = frozenset[tuple[int, int]]


@dataclass(frozen=True, slots=True)
class Changed:
    """What is known to vary of one tensor input, at the number of dimensions it has now.

    `sizes` and `strides` are dimensions. `follows` has, for each dimension, the one whose
    stride times size its own stride was in every observation (see the function `follows`); in
    `order`, every dimension comes after the one it follows.
    `before` are the last sizes that were different, for those in `sizes`; `offset_before` likewise.
    """

    sizes: frozenset[int]
    strides: frozenset[int]
    offset: bool
    follows: tuple[int | None, ...]
    order: tuple[int, ...]
    before: dict[int, int] = field(default_factory=dict)
    offset_before: int | None = None


@dataclass(slots=True)
class _Seen:
    """All observations of one input with one number of dimensions, summed up. `pairs` are the
    products of `_products` that held in every one of them."""

    sizes: tuple[int, ...]
    strides: tuple[int, ...]
    offset: int
    pairs: Pairs
    moved: set[int] = field(default_factory=set)  # dimensions whose stride changed
    before: dict[int, int] = field(default_factory=dict)
    offset_before: int | None = None

    def add(self, sizes: tuple[int, ...], strides: tuple[int, ...], offset: int) -> None:
        """Take a further observation into account."""
        for dim, (old, new) in enumerate(zip(self.sizes, sizes, strict=True)):
            if old != new:
                self.before[dim] = old
        # Which dimensions have a stride that changed; `summary` leaves out those explained by
        # sizes.
        self.moved |= {
            dim
            for dim, (old, new) in enumerate(zip(self.strides, strides, strict=True))
            if old != new
        }
        if offset != self.offset:
            self.offset_before = self.offset
        # By chance a stride may be several products; over several observations the true ones stay.
        self.pairs &= _products(sizes, strides)
        self.sizes, self.strides, self.offset = sizes, strides, offset

    def summary(self) -> Changed:
        explained = _chosen(self.pairs, self.sizes, self.strides)
        return Changed(
            sizes=frozenset(self.before),
            strides=frozenset(dim for dim in self.moved if explained[dim] is None),
            offset=self.offset_before is not None,
            follows=explained,
            order=_order(self.sizes, self.strides),
            before=dict(self.before),
            offset_before=self.offset_before,
        )


class InputHistory:
    """What was seen of each input of one function, at its compilations so far."""

    def __init__(self) -> None:
        self._tensors: dict[tuple[str, int], _Seen] = {}
        self._numbers: dict[tuple[str, type], tuple[int | float, int | float | None]] = {}
        self._tensor_sources: set[str] = set()
        self._in_tensors: dict[str, set[object]] = {}

    def observe_tensor(
        self, source_text: str, sizes: Sequence[int], strides: Sequence[int], offset: int
    ) -> Changed:
        """Note the layout of an input tensor; returns what is known to vary. The same source with
        another number of dimensions is kept apart."""
        sizes, strides = tuple(sizes), tuple(strides)
        self._tensor_sources.add(source_text)
        # Sizes of tensors with different numbers of dimensions can't be compared one by one.
        key = (source_text, len(sizes))
        history = self._tensors.get(key)
        if history is None:
            pairs = _products(sizes, strides)
            history = self._tensors[key] = _Seen(sizes, strides, offset, pairs)
        else:
            history.add(sizes, strides, offset)
        return history.summary()

    def observe_number(self, source_text: str, value: int | float) -> bool:
        """Note the value of an int or float input; returns whether it is known to vary. The same
        source with the other type is kept apart. A number where a tensor was before varies at once.
        """
        key = (source_text, type(value))
        if key not in self._numbers:
            self._numbers[key] = (value, None)
            return source_text in self._tensor_sources
        last, before = self._numbers[key]
        # By bits, as guards compare: nan would differ from itself on every call.
        if _bits(last) != _bits(value):
            self._numbers[key] = (value, last)
            return True
        return before is not None or source_text in self._tensor_sources

    def count_numbers_in(self, source_text: str, value: int | float) -> int:
        """Note the number that a tensor of the program's state held when the program asked about
        it; returns how many different ones there were."""
        numbers = self._in_tensors.setdefault(source_text, set())
        numbers.add(_bits(value))
        return len(numbers)

    def number_before(self, source_text: str, value: int | float) -> int | float | None:
        """The last value of this number that was different from the latest one."""
        return self._numbers.get((source_text, type(value)), (None, None))[1]


def follows(sizes: Sequence[int], strides: Sequence[int]) -> tuple[int | None, ...]:
    """For each dimension `i` a dimension `j` with `strides[i] == strides[j] * max(sizes[j], 1)`.

    That is how PyTorch lays out dense tensors (an empty dimension counts as one of size 1), in
    whatever order: of a row-major tensor every dimension follows the next one, the last follows
    none. There are no circles. A stride that follows can be written as a product of sizes; one that
    doesn't (None) is a number of its own.

        >>> follows((4, 5, 6), (30, 6, 1))
        (1, 2, None)
        >>> follows((4, 5), (100, 1))        # a slice of something wider
        (None, None)
    """
    sizes, strides = tuple(sizes), tuple(strides)
    return _chosen(_products(sizes, strides), sizes, strides)


def _products(sizes: tuple[int, ...], strides: tuple[int, ...]) -> Pairs:
    """All (i, j) where the stride of i is that of j times the size of j. Not for stride 0, which
    is that of expanded dimensions, and would follow any other such."""
    span = [stride * max(size, 1) for size, stride in zip(sizes, strides, strict=True)]
    dims = range(len(sizes))
    return frozenset(
        (i, j) for i in dims for j in dims if i != j and strides[i] == span[j] and strides[i] > 0
    )


def _chosen(
    pairs: Pairs, sizes: tuple[int, ...], strides: tuple[int, ...]
) -> tuple[int | None, ...]:
    """For each dimension, one of its pairs: the nearest dimension that comes before it in the order
    of memory. So there are no cycles."""
    order = _order(sizes, strides)
    followed: list[int | None] = [None] * len(strides)
    # Only what is before it in memory, so that a circle of followers can't arise.
    for place, i in enumerate(order):
        followed[i] = next((j for j in reversed(order[:place]) if (i, j) in pairs), None)
    return tuple(followed)


def _order(sizes: tuple[int, ...], strides: tuple[int, ...]) -> tuple[int, ...]:
    """The dimensions from the innermost to the outermost. Dimensions of size 0 or 1 can have any
    stride; among equal strides they count as inner ones, and otherwise the order is row-major."""
    dims = range(len(strides))
    return tuple(sorted(dims, key=lambda dim: (strides[dim], sizes[dim] > 1, -dim)))


def _bits(value: int | float) -> object:
    """What makes a value the same: NaN is NaN, 0.0 is not -0.0."""
    return struct.pack("d", value) if type(value) is float else value
