"""Writes through views: what becomes of a tensor when a view of it gets new values.

The one idea: for each kind of view, the way back. A view that only arranges the same elements anew
is undone by the opposite view; one that shows some of them is put back among the others by an
operator of ATen. For everything else PyTorch has one that takes strides.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import torch

from pliant.graph.ir import Strided, Tensor
from pliant.graph.overlap import INJECTIVE, keep_injective
from pliant.sym.cond import eq, ge, le
from pliant.sym.expr import Expr, mul, product_of, sum_of
from pliant.sym.frozen import Undecided
from pliant.sym.node import to_torch

aten = torch.ops.aten


def written_back(functionalizer: Any, alias: Any, parent: Any, new: Any) -> Any:
    """The fake of `parent` with `new` in the place that the view `alias` shows."""
    name = alias.op.name
    back = _BACK.get(name)
    args = tuple([_number(functionalizer, arg) for arg in alias.args[1:]])
    kwargs = {k: _number(functionalizer, v) for k, v in (alias.kwargs or {}).items()}
    if name in _PARTS:
        return _PARTS[name](functionalizer, parent, new, alias.position, *args, **kwargs)
    if back is not None:
        return back(functionalizer, parent, new, *args, **kwargs)
    return _by_strides(functionalizer, alias, parent, new)


def window_of(target: Tensor, memory: Tensor) -> Strided:
    """Where a tensor is in memory, counted from the first element of that."""
    return Strided(target.sizes, target.strides, target.offset - memory.offset)


def covers_all(alias: Any) -> bool:
    """Whether the view shows all elements of its memory."""
    while alias.parent is not None:
        same = alias.value.sizes == alias.parent.value.sizes and alias.op.name in INJECTIVE
        if not same and alias.op.name not in _ALL:
            return False
        alias = alias.parent
    return True


def can_be_put_back(alias: Any) -> bool:
    """Whether there is a way back through all views but by computing with strides."""
    while alias.parent is not None:
        if alias.op.name not in _BACK and alias.op.name not in _PARTS:
            return False
        alias = alias.parent
    return True


def _number(functionalizer: Any, value: Any) -> Any:
    if isinstance(value, (list, tuple)):
        return type(value)([_number(functionalizer, v) for v in value])
    return to_torch(value, functionalizer.env) if hasattr(value, "symbols") else value


def memory_of(functionalizer: Any, alias: Any, view: Any) -> Any:
    """What `as_strided` makes a view of: all the memory, whatever tensor it was called on."""
    while alias.parent is not None:
        alias = alias.parent
    base, window = alias.base.value, functionalizer.tensor(view)
    if base.dtype is not window.dtype:
        raise Undecided("as_strided, of another dtype")
    first = window.offset - base.offset
    known = functionalizer.env.known
    inside = [ge(first, 0), le(first + _reach(window), _reach(base))]
    inside += [ge(size, 1) for size in base.sizes]  # nothing reaches anywhere in an empty one
    if not all(map(known, inside)):
        raise Undecided("as_strided, maybe beyond the tensor")
    return alias


def _reach(t: Any) -> Expr:
    """From the first element to the last, if there are any."""
    return sum_of([mul(size - 1, stride) for size, stride in zip(t.sizes, t.strides)])


def _by_strides(rec: Any, alias: Any, parent: Any, new: Any) -> Any:
    """Elements are replaced where they are in memory, which must have no gaps."""
    env, view = rec.env, alias.value
    base = rec.tensor(parent)
    keep_injective(rec, alias.op.name, alias, view)  # what is in one place has one value
    count = product_of(base.sizes)
    if view.dtype is not base.dtype or env.known(eq(count - 1, _reach(base))) is not True:
        raise Undecided(f"a write through {alias.op.name}")
    offset, total = to_torch(base.offset, env), to_torch(count, env)
    line = rec.dispatch(aten.as_strided.default, (parent, [total], [1], offset), {})
    at = rec.dispatch(aten.full.default, ([], to_torch(view.offset - base.offset, env)), _INDEX)
    for dim, (size, stride) in enumerate(zip(view.sizes, view.strides)):
        steps = rec.dispatch(aten.arange.default, (to_torch(size, env),), _INDEX)
        steps = rec.dispatch(aten.mul.Tensor, (steps, to_torch(stride, env)), {})
        shape = [-1 if d == dim else 1 for d in range(len(view.sizes))]
        steps = rec.dispatch(aten.view.default, (steps, shape), {})
        at = rec.dispatch(aten.add.Tensor, (at, steps), {})
    at = rec.dispatch(aten.view.default, (at, [-1]), {})
    new = rec.dispatch(aten.clone.default, (new,), {"memory_format": torch.contiguous_format})
    new = rec.dispatch(aten.view.default, (new, [-1]), {})
    made = rec.dispatch(aten.scatter.src, (line, 0, at, new), {})
    layout = (list(parent.size()), list(parent.stride()), 0)
    return rec.dispatch(aten.as_strided.default, (made, *layout), {})


_INDEX: Final = {"dtype": torch.int64, "device": torch.device("cpu")}


def _reshape(rec: Any, parent: Any, new: Any, *args: Any, **kwargs: Any) -> Any:
    """The same elements in the same order: needs memory in that order."""
    new = rec.dispatch(aten.clone.default, (new,), {"memory_format": torch.contiguous_format})
    return rec.dispatch(aten.view.default, (new, list(parent.size())), {})


def _permute(rec: Any, parent: Any, new: Any, dims: Any) -> Any:
    rank = parent.dim()
    where = {d % rank: i for i, d in enumerate(dims)}
    return rec.dispatch(aten.permute.default, (new, [where[i] for i in range(rank)]), {})


def _transpose(rec: Any, parent: Any, new: Any, a: int, b: int) -> Any:
    return rec.dispatch(aten.transpose.int, (new, a, b), {})


def _t(rec: Any, parent: Any, new: Any) -> Any:
    return rec.dispatch(aten.t.default, (new,), {})


def _slice(rec: Any, parent: Any, new: Any, *args: Any, **kwargs: Any) -> Any:
    return rec.scattered(aten.slice_scatter.default, parent, (new, *args), kwargs)


def _select(rec: Any, parent: Any, new: Any, *args: Any) -> Any:
    return rec.scattered(aten.select_scatter.default, parent, (new, *args), {})


def _diagonal(rec: Any, parent: Any, new: Any, *args: Any, **kwargs: Any) -> Any:
    return rec.scattered(aten.diagonal_scatter.default, parent, (new, *args), kwargs)


def _unsqueeze(rec: Any, parent: Any, new: Any, dim: int) -> Any:
    return rec.dispatch(aten.squeeze.dim, (new, dim), {})


def _same(rec: Any, parent: Any, new: Any, *args: Any) -> Any:
    return new


def _other_type(rec: Any, parent: Any, new: Any, *args: Any) -> Any:
    """The same bits: elements of other sizes need memory in the order of the indices."""
    if new.dtype.itemsize != parent.dtype.itemsize:
        new = rec.dispatch(aten.clone.default, (new,), {"memory_format": torch.contiguous_format})
    return rec.dispatch(aten.view.dtype, (new, parent.dtype), {})


def _unbind(rec: Any, parent: Any, new: Any, at: int, dim: int = 0) -> Any:
    return rec.scattered(aten.select_scatter.default, parent, (new, dim, at), {})


def _split(rec: Any, parent: Any, new: Any, at: int, size: Any, dim: int = 0) -> Any:
    start = at * size
    return rec.scattered(
        aten.slice_scatter.default, parent, (new, dim, start, start + new.size(dim)), {}
    )


def _split_sizes(rec: Any, parent: Any, new: Any, at: int, sizes: Any, dim: int = 0) -> Any:
    start = sum(sizes[:at])
    return rec.scattered(
        aten.slice_scatter.default, parent, (new, dim, start, start + sizes[at]), {}
    )


# Views that are one of several.
_PARTS: Final[dict[str, Callable[..., Any]]] = {
    "aten.unbind.int": _unbind,
    "aten.split.Tensor": _split,
    "aten.split_with_sizes.default": _split_sizes,
}


_BACK: Final[dict[str, Callable[..., Any]]] = {
    "aten.view.default": _reshape,
    "aten._unsafe_view.default": _reshape,
    "aten._reshape_alias.default": _reshape,
    "aten.squeeze.default": _reshape,
    "aten.squeeze.dim": _reshape,
    "aten.squeeze.dims": _reshape,
    "aten.permute.default": _permute,
    "aten.transpose.int": _transpose,
    "aten.t.default": _t,
    "aten.slice.Tensor": _slice,
    "aten.select.int": _select,
    "aten.diagonal.default": _diagonal,
    "aten.unsqueeze.default": _unsqueeze,
    "aten.alias.default": _same,
    "aten.detach.default": _same,
    "aten.view.dtype": _other_type,
}

# Views that show all elements of what they are a view of.
_ALL: Final = frozenset(_BACK) - {"aten.slice.Tensor", "aten.select.int", "aten.diagonal.default"}
