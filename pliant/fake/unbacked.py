"""Operators whose result has a size, or a value, that is in the data: it becomes a new symbol.

The one idea: what can't be known is given a name. The symbol has no value while the program is
followed, only a range by nature (`nonzero` finds between none and all elements); whoever has to
know more breaks the graph there, not here.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from pliant.base.values import dataclass
from pliant.fake.layout import contiguous_strides
from pliant.fake.results import New, Recipe
from pliant.fake.rule import Args, Kwargs
from pliant.fake.tensor import memories
from pliant.sym.cond import ne
from pliant.sym.env import ShapeEnv
from pliant.sym.expr import as_expr
from pliant.sym.node import from_torch, to_torch
from pliant.sym.ranges import INF, Range

Tensor = torch.Tensor
DataShape = Callable[[ShapeEnv, torch.device, Args, Kwargs], Recipe | None]


def new_size(env: ShapeEnv, name: str, most: Any = None, least: int = 0) -> torch.SymInt:
    """A new unbacked symbol for a size, between `least` and `most` if these are known."""
    limit = most if type(most) is int else INF
    size: torch.SymInt = to_torch(
        env.add_unbacked(name, size_like=True, declared=Range(least, limit), why="read from data"),
        env,
    )
    return size


def scalar(env: ShapeEnv, dtype: torch.dtype, name: str) -> Any:
    """A new unbacked symbol for what `item()` returns; None for complex numbers, which have no
    symbols."""
    if dtype is torch.bool:
        flag = env.add_unbacked(name, declared=Range(0, 1), why="read from data")
        return to_torch(ne(flag, as_expr(0)), env)
    if dtype.is_floating_point:
        return to_torch(env.add_float(name, None, why="read from data"), env)
    if dtype.is_complex:
        return None
    limits = torch.iinfo(dtype)
    # Symbols stand for 64-bit numbers anyway.
    declared = None if limits.bits == 64 else Range(limits.min, limits.max)
    return to_torch(env.add_unbacked(name, declared=declared, why="read from data"), env)


def places_in(
    env: ShapeEnv, mask: Tensor, name: str = "the number of places in a mask"
) -> torch.SymInt:
    """A new symbol for the number of places where a mask is true."""
    return new_size(env, name, mask.numel())


def layout_of(t: Tensor) -> tuple[Any, ...]:
    """A key for the elements of memory that a tensor shows, and how."""
    numbers = (t.storage_offset(), *t.size(), *t.stride())
    return (t.dtype, *map(from_torch, numbers))


class Numbers:
    """The symbols for numbers read from tensors, and for the number of places in masks. Reading the
    same memory twice gives the same symbol, until it is written to."""

    def __init__(self) -> None:
        # By storage and place in it: a tensor that keeps the memory alive, its version, the number.
        self._read: dict[int, dict[Any, tuple[Tensor, int, Any]]] = {}
        # First elements that are known, by storage; with the tensor, which keeps it alive.
        self._firsts: dict[int, tuple[Tensor, Any]] = {}

    def note_first(self, t: Tensor, number: Any) -> None:
        """The first element of a tensor in new memory is this number."""
        self._firsts[t.untyped_storage()._cdata] = t, number

    def first(self, t: Tensor) -> Any:
        """The first element, if it is known; otherwise None."""
        known = self._firsts.get(t.untyped_storage()._cdata) if self._firsts else None
        if known is None or t.storage_offset() != 0 or t.dtype is not known[0].dtype:
            return None
        return known[1]

    def read(self, env: ShapeEnv, t: Tensor, name: str) -> Any:
        """A new symbol, or the one from before; None for a kind of number that has no symbols."""
        if (first := self.first(t)) is not None:
            return first
        offset = t.storage_offset()
        place = (offset, t.dtype) if type(offset) is int else None
        return self._number(t, place, lambda: scalar(env, t.dtype, name))

    def count(self, env: ShapeEnv, mask: Tensor, *name: str) -> Any:
        """The symbol for the number of places where a mask is true: the one from before, or a new
        one."""
        return self._number(mask, layout_of(mask), lambda: places_in(env, mask, *name))

    def _number(self, t: Tensor, place: Any, new: Callable[[], Any]) -> Any:
        if place is None or t.is_inference():  # its place or its version is not known
            return new()
        places = self._read.setdefault(t.untyped_storage()._cdata, {})
        before = places.get(place)
        if before is not None and before[1] == t._version:
            return before[2]
        number = new()
        places[place] = (t, t._version, number)
        return number

    def forget(self, written: Tensor) -> None:
        """Forget what was read from the memory of `written`. (The version isn't enough: `x.data`
        has another version counter.)"""
        if self._read or self._firsts:
            for memory in memories([written]):
                self._read.pop(memory, None)
                self._firsts.pop(memory, None)


@dataclass(frozen=True, slots=True)
class Listed:
    """What `tolist()` returns: a list, nested as deep as there are sizes. A number in it becomes a
    symbol when it is first read."""

    sizes: tuple[int, ...]
    dtype: torch.dtype
    what: str

    def __len__(self) -> int:
        return self.sizes[0]

    @property
    def of_numbers(self) -> bool:
        """Whether the items are numbers, not lists."""
        return len(self.sizes) == 1

    def item(self, env: ShapeEnv, index: int) -> Any:
        name = f"{self.what}[{index}]"
        if self.of_numbers:
            return scalar(env, self.dtype, name)
        return Listed(self.sizes[1:], self.dtype, name)


def listed(
    env: ShapeEnv, sizes: tuple[int | torch.SymInt, ...], dtype: torch.dtype, name: str
) -> Any:
    """What `tolist()` gives of a tensor with these sizes; None for a kind of number that has no
    symbols. How many elements there are has to be known."""
    if not sizes:
        return scalar(env, dtype, name)
    counts: list[int] = []
    for size in sizes:
        counts.append(int(size))
        if not counts[-1]:  # there is nothing inside, whatever the other sizes are
            break
    return None if dtype.is_complex and all(counts) else Listed(tuple(counts), dtype, name)


def dense(sizes: Any, dtype: torch.dtype, device: torch.device) -> New:
    return New(tuple(sizes), contiguous_strides(sizes), 0, dtype, device, False)


def always(args: Args, kwargs: Kwargs) -> bool:
    """Whether sizes of a result are in the data, where they always are."""
    return True
