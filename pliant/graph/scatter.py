"""Writes through views: what becomes of a tensor when a view of it gets new values.

The one idea: for each kind of view, the way back. A view that only arranges the same elements anew
is undone by the opposite view; one that shows some of them is put back among the others by an
operator of ATen. For everything else PyTorch has one that takes strides.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import torch

from pliant.sym.node import to_torch

aten = torch.ops.aten


def written_back(recorder: Any, alias: Any, parent: Any, new: Any) -> Any:
    """The fake of `parent` with `new` in the place that the view `alias` shows."""
    name = alias.op.name
    back = _BACK.get(name)
    args = tuple([_number(recorder, arg) for arg in alias.args[1:]])
    kwargs = {k: _number(recorder, v) for k, v in (alias.kwargs or {}).items()}
    if back is not None and not alias.position:
        return back(recorder, parent, new, *args, **kwargs)
    return _by_strides(recorder, alias, parent, new)


def _number(recorder: Any, value: Any) -> Any:
    if isinstance(value, (list, tuple)):
        return type(value)([_number(recorder, v) for v in value])
    return to_torch(value, recorder.env) if hasattr(value, "symbols") else value


def _by_strides(recorder: Any, alias: Any, parent: Any, new: Any) -> Any:
    env, view = recorder.env, alias.value
    sizes = [to_torch(size, env) for size in view.sizes]
    strides = [to_torch(stride, env) for stride in view.strides]
    offset = to_torch(view.offset, env)
    more = (new, sizes, strides, offset)
    return recorder.scattered(aten.as_strided_scatter.default, parent, more, {})


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
}
