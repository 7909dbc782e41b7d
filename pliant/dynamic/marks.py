"""Marks: what a user says about single dimensions of a tensor, kept on the tensor itself.

The one idea: a mark is advice for the moment when something is compiled. It changes no result, so
an entry compiled earlier goes on serving a tensor that is marked later, as long as it fits.

Marks made with PyTorch's own functions of the same names are read as well.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any, Final, Literal

import torch

from pliant.base.errors import InvalidMarkError
from pliant.base.values import dataclass

MarkKind = Literal["dynamic", "maybe", "static", "unbacked"]
InputState = Literal["static", "dynamic", "unbacked"]
Indices = int | Sequence[int]


@dataclass(frozen=True, slots=True)
class Mark:
    """What is said about one dimension.

    `min` and `max` are promises about its size (both inclusive, None: no bound). `strict`: it is an
    error if the dimension turns out to be a constant. `whole`: it was not named, but marked with
    all others (`mark_static(t)`), which any other mark overrides. `shape_id`: all dimensions that
    have this name are of one size.
    """

    kind: MarkKind
    min: int | None = None
    max: int | None = None
    strict: bool = False
    whole: bool = False
    shape_id: str | None = None


NO_MARKS: Final[Mapping[int, Mark]] = MappingProxyType({})

# On the tensor, a mark is a tuple of plain values: a marked tensor can be saved, and loaded again
# where pliant isn't installed or where only plain values are trusted.
_ATTRIBUTE: Final = "_pliant_marks"
_TORCH: Final[dict[str, Mark]] = {  # a later row overrides an earlier one, as in PyTorch
    "_dynamo_static_indices": Mark("static"),
    "_dynamo_weak_dynamic_indices": Mark("maybe"),
    "_dynamo_dynamic_indices": Mark("dynamic", strict=True),
    "_dynamo_strict_unbacked_indices": Mark("unbacked", strict=True),
    "_dynamo_unbacked_indices": Mark("unbacked"),
}
_ALL: Final = frozenset({_ATTRIBUTE, *_TORCH})
_GENERALITY: Final[dict[str, int]] = {"static": 0, "maybe": 1, "dynamic": 2, "unbacked": 3}


def mark_dynamic(
    t: torch.Tensor,
    index: Indices,
    *,
    hint_override: int | None = None,
    min: int | None = None,
    max: int | None = None,
    specialize_on: Sequence[Any] | None = None,
) -> None:
    """Mark dimensions of `t` as dynamic: they are symbolic when a function is compiled for it.

    ::

        pliant.mark_dynamic(x, 0)                    # one compilation for every batch size
        pliant.mark_dynamic(x, [0, -1], max=4096)    # several; a promise about their sizes

    Stronger than `compile(dynamic=False)` and than what was seen to change. If the program needs
    the size to be one particular number, that is a `ShapeConstraintError` which says where;
    `maybe_mark_dynamic` allows it.

    Call it before the compiled function, on the tensor that is passed to it: results of
    operations on `t` are not marked. Marks of further calls are added to the earlier ones.

    Args:
        t: an argument of the compiled function, or a tensor inside of one.
        index: a dimension, or several.
        hint_override: accepted, without effect: code for a symbolic size is the same for every
            size, so there is nothing that a hint would choose.
        min: the smallest size, a promise that spares guards.
        max: the largest. A call whose size is not in the range is compiled anew.
        specialize_on: accepted, without effect, for the same reason.
    """
    _mark(t, index, Mark("dynamic", min, max, strict=True), "mark_dynamic")


def maybe_mark_dynamic(t: torch.Tensor, index: Indices) -> None:
    """Mark dimensions as `mark_dynamic` does, but let the program make constants of them."""
    _mark(t, index, Mark("maybe"), "maybe_mark_dynamic")


def mark_static(t: torch.Tensor, index: Indices | None = None) -> None:
    """Mark dimensions of `t`, or all of them, as constants: each size is compiled for.

    Stronger than `compile(dynamic=True)` and than what was seen to change. Without an `index` it
    holds for the dimensions that have no other mark, whether that comes before or after.
    """
    _mark(t, index, Mark("static", whole=index is None), "mark_static")


def mark_unbacked(
    t: torch.Tensor,
    index: Indices,
    *,
    min: int | None = None,
    max: int | None = None,
    hint_override: int | None = None,
    strict: bool = False,
    specialize_on: Sequence[Any] | None = None,
    shape_id: str | None = None,
) -> None:
    """Mark dimensions of `t` as unbacked: symbolic, and compilation doesn't look at their sizes.

    They are treated like sizes that depend on data: no guard is made from the size that happens to
    be there, and a branch on it that can't be decided is a graph break (under `fullgraph` a
    `DataDependentError`).

    Args:
        t: an argument of the compiled function, or a tensor inside of one.
        index: a dimension, or several.
        min: the smallest size, a promise that answers some questions.
        max: the largest.
        hint_override: accepted, without effect, as by `mark_dynamic`.
        strict: it is an error if the program makes a constant of them.
        specialize_on: accepted, without effect.
        shape_id: a name. Dimensions with the same name, of any tensors, are one size: a call in
            which they differ is an `InvalidMarkError`.
    """
    mark = Mark("unbacked", min, max, strict=bool(strict), shape_id=shape_id)
    _mark(t, index, mark, "mark_unbacked")


def mark_static_address(t: torch.Tensor, guard: bool = False) -> None:
    """Say that `t` keeps its memory from call to call, as `torch._dynamo.mark_static_address`.

    It has no effect: compiled code is given the address of each input when it is called, and
    nothing would be faster if it stayed the same.

    Args:
        t: a tensor.
        guard: accepted.
    """
    if not isinstance(t, torch.Tensor):
        raise InvalidMarkError(f"mark_static_address() was given {_kind_of(t)}")


def marks_of(t: torch.Tensor) -> Mapping[int, Mark]:
    """The marks of a tensor, by dimension; for most tensors, quickly, none."""
    attributes = t.__dict__
    if not attributes or _ALL.isdisjoint(attributes):
        return NO_MARKS
    # pliant's own marks win.
    return {**_torch_marks(attributes, t.dim()), **_own_marks(attributes)}


# ---- writing


def _mark(t: torch.Tensor, index: Indices | None, mark: Mark, name: str) -> None:
    if not isinstance(t, torch.Tensor):
        raise InvalidMarkError(
            f"{name}() was given {_kind_of(t)}",
            why="only dimensions of tensors are marked",
            remedy="give it the tensor that the compiled function is called with; for a number, "
            "name it in the option dynamic_sources",
        )
    _check_range(mark, name)
    own = _own_marks(t.__dict__)
    marks = dict(own)
    for dim in _dimensions(t, index, name):
        marks[dim] = _combined(own.get(dim), mark, dim, name)
    # A tensor that is marked again, in each call of a loop, is left alone.
    if marks != own:
        setattr(t, _ATTRIBUTE, {dim: _as_plain(mark) for dim, mark in sorted(marks.items())})


def _check_range(mark: Mark, name: str) -> None:
    for bound, value in (("min", mark.min), ("max", mark.max)):
        if value is not None and (type(value) is not int or value < 0):
            raise InvalidMarkError(
                f"{name}(): {bound} can't be {value!r}", remedy="give an integer, 0 or more"
            )
    if mark.min is not None and mark.max is not None and mark.min > mark.max:
        raise InvalidMarkError(
            f"{name}(): no size is at least {mark.min} and at most {mark.max}",
            remedy="give a min that isn't greater than the max",
        )


def _dimensions(t: torch.Tensor, index: Any, name: str) -> list[int]:
    """The dimensions meant, counted from the front."""
    rank = t.dim()
    if index is None:
        return list(range(rank)) if name == "mark_static" else _refuse(index, name)
    indices = index if isinstance(index, (list, tuple)) else [index]
    for dim in indices:
        if type(dim) is not int:
            _refuse(dim, name)
        if not -rank <= dim < rank:
            raise InvalidMarkError(
                f"{name}(): there is no dimension {dim} in a tensor of {rank} dimensions",
                remedy=f"give an index from {-rank} to {rank - 1}" if rank else "don't mark it",
            )
    return [dim % rank for dim in indices]


def _refuse(index: object, name: str) -> list[int]:
    raise InvalidMarkError(
        f"{name}(): {index!r} is not the index of a dimension",
        remedy="give an int, or a list or tuple of ints",
    )


def _combined(old: Mark | None, new: Mark, dim: int, name: str) -> Mark:
    """The mark that says what both say. One on all dimensions (`mark_static(t)`) yields to one on
    this dimension. Otherwise static contradicts any other kind, the more general of two other kinds
    wins, and ranges are intersected."""
    if old is None or old.whole:
        return new
    if new.whole:
        return old
    if (old.kind == "static") != (new.kind == "static"):
        raise InvalidMarkError(
            f"{name}(): dimension {dim} is already marked as {_words(old)}",
            why=f"it can't also be {_words(new)}",
            remedy="mark it once; a new tensor (x.detach(), x.view_as(x)) has no marks",
        )
    kind = max(old.kind, new.kind, key=_GENERALITY.__getitem__)
    least = _of_both(max, old.min, new.min)
    most = _of_both(min, old.max, new.max)
    combined = Mark(
        kind, least, most, old.strict or new.strict, shape_id=new.shape_id or old.shape_id
    )
    _check_range(combined, name)
    return combined


def _of_both(pick: Any, first: int | None, second: int | None) -> int | None:
    bounds = [bound for bound in (first, second) if bound is not None]
    return pick(bounds) if bounds else None


def _words(mark: Mark) -> str:
    return "dynamic" if mark.kind == "maybe" else mark.kind


def _kind_of(value: object) -> str:
    return f"the class {value.__name__}" if isinstance(value, type) else f"a {type(value).__name__}"


def _as_plain(mark: Mark) -> tuple[Any, ...]:
    return (mark.kind, mark.min, mark.max, mark.strict, mark.whole, mark.shape_id)


# ---- reading


def _own_marks(attributes: Mapping[str, Any]) -> dict[int, Mark]:
    marks = attributes.get(_ATTRIBUTE)
    return {dim: Mark(*plain) for dim, plain in marks.items()} if marks else {}


def _torch_marks(attributes: Mapping[str, Any], rank: int) -> dict[int, Mark]:
    """What torch._dynamo.mark_dynamic and its siblings left on a tensor."""
    marks: dict[int, Mark] = {}
    for attribute, mark in _TORCH.items():
        for index in attributes.get(attribute, ()):
            if -rank <= index < rank:  # they don't check it
                least, most = _torch_range(attributes, index, mark.kind)
                name = attributes.get("_dynamo_shape_ids", {}).get(index)
                marks[index % rank] = Mark(mark.kind, least, most, mark.strict, shape_id=name)
    return marks


def _torch_range(
    attributes: Mapping[str, Any], index: int, kind: MarkKind
) -> tuple[int | None, int | None]:
    if kind == "unbacked":
        least, most = attributes.get("_dynamo_unbacked_bounds", {}).get(index, (None, None))
        return least, most
    if kind != "dynamic":
        return None, None
    ranges = [r for r in attributes.get("_dynamo_dynamic_range", ()) if r.dim == index]
    least = most = None
    for bounds in ranges:
        least, most = _of_both(max, least, bounds.min), _of_both(min, most, bounds.max)
    return least, most
