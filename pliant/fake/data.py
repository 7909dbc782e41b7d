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
from pliant.fake.results import New, Recipe, Several
from pliant.sym.cond import ne
from pliant.sym.env import ShapeEnv
from pliant.sym.expr import as_expr
from pliant.sym.node import to_torch
from pliant.sym.ranges import INF, Range

Tensor = torch.Tensor
Args = tuple[Any, ...]
Kwargs = dict[str, Any]
Rule = Callable[[ShapeEnv, torch.device, Args, Kwargs], Recipe | None]


def rule_for(name: str) -> Rule | None:
    return _RULES.get(name)


def new_size(env: ShapeEnv, what: str, most: Any = None, least: int = 0) -> torch.SymInt:
    """A size that is in the data: between these two, if they are known."""
    limit = most if type(most) is int else INF
    found: torch.SymInt = to_torch(
        env.add_unbacked(what, size_like=True, declared=Range(least, limit), why="read from data"),
        env,
    )
    return found


def scalar(env: ShapeEnv, dtype: torch.dtype, what: str) -> Any:
    """What `item()` gives; None for a kind of number that has no symbols."""
    if dtype is torch.bool:
        flag = env.add_unbacked(what, declared=Range(0, 1), why="read from data")
        return to_torch(ne(flag, as_expr(0)), env)
    if dtype.is_floating_point:
        return to_torch(env.add_float(what, None, why="read from data"), env)
    if dtype.is_complex:
        return None
    limits = torch.iinfo(dtype)
    declared = None if limits.bits == 64 else Range(limits.min, limits.max)
    return to_torch(env.add_unbacked(what, declared=declared, why="read from data"), env)


class Numbers:
    """What `item()` gave. The same element of memory holds the same number until it is written."""

    def __init__(self) -> None:
        # By place: a tensor that keeps the memory alive, its version, the number.
        self._read: dict[Any, tuple[Tensor, int, Any]] = {}

    def read(self, env: ShapeEnv, t: Tensor, what: str) -> Any:
        """A new symbol, or the one from before; None for a kind of number that has no symbols."""
        offset = t.storage_offset()
        if type(offset) is not int or t.is_inference():  # its place or its version is not known
            return scalar(env, t.dtype, what)
        place = (t.untyped_storage()._cdata, offset, t.dtype)
        before = self._read.get(place)
        if before is not None and before[1] == t._version:
            return before[2]
        found = scalar(env, t.dtype, what)
        self._read[place] = (t, t._version, found)
        return found


@dataclass(frozen=True, slots=True)
class Listed:
    """What `tolist()` gives: a list, nested as deep as there are sizes. A number in it becomes a
    symbol when somebody reads it; mostly few are read."""

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
        what = f"{self.what}[{index}]"
        if self.of_numbers:
            return scalar(env, self.dtype, what)
        return Listed(self.sizes[1:], self.dtype, what)


def listed(env: ShapeEnv, t: Tensor, what: str) -> Any:
    """What `tolist()` gives; None for a kind of number that has no symbols. How many elements there
    are has to be known."""
    if not t.dim():
        return scalar(env, t.dtype, what)
    sizes: list[int] = []
    for size in t.shape:
        sizes.append(int(size))
        if not sizes[-1]:  # there is nothing inside, whatever the other sizes are
            break
    return None if t.dtype.is_complex and all(sizes) else Listed(tuple(sizes), t.dtype, what)


def _dense(sizes: Any, dtype: torch.dtype, device: torch.device) -> New:
    return New(tuple(sizes), contiguous_strides(sizes), 0, dtype, device, False)


def _nonzero(env: ShapeEnv, device: torch.device, args: Args, kwargs: Kwargs) -> Recipe:
    t = args[0]
    count = new_size(env, "the number of nonzero elements", t.numel())
    # Found coordinate by coordinate, and returned transposed.
    return New((count, t.dim()), (1, count), 0, torch.int64, device, False)


def _masked_select(env: ShapeEnv, device: torch.device, args: Args, kwargs: Kwargs) -> Recipe:
    t, mask = args
    picked = torch.broadcast_tensors(*(torch.empty(x.shape, device="meta") for x in (t, mask)))
    count = new_size(env, "the number of selected elements", picked[0].numel())
    return _dense((count,), t.dtype, device)


def _repeat_interleave(
    env: ShapeEnv, device: torch.device, args: Args, kwargs: Kwargs
) -> Recipe | None:
    if kwargs.get("output_size") is not None:
        return None
    count = new_size(env, "the sum of repeats")
    return _dense((count,), args[0].dtype, device)


def _bincount(env: ShapeEnv, device: torch.device, args: Args, kwargs: Kwargs) -> Recipe:
    weights, least = (*args[1:], None, 0)[:2] if len(args) < 3 else args[1:3]
    weights, least = kwargs.get("weights", weights), kwargs.get("minlength", least)
    count = new_size(env, "the number of bins", least=least if type(least) is int else 0)
    dtype = torch.int64 if weights is None else _weighted(weights.dtype)
    return _dense((count,), dtype, device)


def _weighted(dtype: torch.dtype) -> torch.dtype:
    return dtype if dtype is torch.float32 else torch.float64


def _unique(inverse_at: int, counts_at: int | None) -> Rule:
    """Of all elements. Results that were not asked for are empty."""

    def rule(env: ShapeEnv, device: torch.device, args: Args, kwargs: Kwargs) -> Recipe | None:
        t = args[0]
        asked = _flags(args, kwargs, (inverse_at, "return_inverse"), (counts_at, "return_counts"))
        if kwargs.get("dim") is not None:
            return None
        count = new_size(env, "the number of unique elements", t.numel())
        inverse = t.size() if asked[0] else (0,)
        parts = [_dense((count,), t.dtype, device), _dense(inverse, torch.int64, device)]
        if counts_at is not None:
            parts.append(_dense((count,) if asked[1] else (0,), torch.int64, device))
        return Several(tuple, tuple(parts))

    return rule


def _flags(args: Args, kwargs: Kwargs, *wanted: tuple[int | None, str]) -> list[bool]:
    def one(at: int | None, name: str) -> bool:
        return bool(args[at] if at is not None and at < len(args) else kwargs.get(name, False))

    return [one(at, name) for at, name in wanted]


def _unique_dim(env: ShapeEnv, device: torch.device, args: Args, kwargs: Kwargs) -> Recipe:
    t, dim = args[:2]
    dim = dim % t.dim()
    count = new_size(env, "the number of unique slices", t.size(dim))
    sizes = [count if d == dim else size for d, size in enumerate(t.size())]
    order = [dim, *[d for d in range(t.dim()) if d != dim]]
    inner = contiguous_strides([sizes[d] for d in order])
    strides = tuple(inner[order.index(d)] for d in range(t.dim()))
    unique = New(tuple(sizes), strides, 0, t.dtype, device, False)
    counts = _dense((count,), torch.int64, device)
    return Several(tuple, (unique, _dense((t.size(dim),), torch.int64, device), counts))


def _pack(env: ShapeEnv, device: torch.device, args: Args, kwargs: Kwargs) -> Recipe:
    """Sequences have one element or more. How many are still going on is counted on the CPU."""
    t, _, batch_first = args
    rows = new_size(env, "the sum of the lengths", least=1)
    steps = new_size(env, "the longest length", t.size(1 if batch_first else 0), least=1)
    counts = _dense((steps,), torch.int64, torch.device("cpu"))
    return Several(tuple, (_dense((rows, *t.shape[2:]), t.dtype, device), counts))


_RULES: dict[str, Rule] = {
    "aten._pack_padded_sequence.default": _pack,
    "aten.nonzero.default": _nonzero,
    "aten.argwhere.default": _nonzero,
    "aten.masked_select.default": _masked_select,
    "aten.repeat_interleave.Tensor": _repeat_interleave,
    "aten.bincount.default": _bincount,
    "aten._unique.default": _unique(2, None),
    "aten._unique2.default": _unique(2, 3),
    "aten.unique_consecutive.default": _unique(1, 2),
    "aten.unique_dim.default": _unique_dim,
}
