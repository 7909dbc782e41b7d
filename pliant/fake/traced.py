"""Operators each of whose result sizes is a size of an argument: found out by marked tensors.

The one idea: give every size a small number of its own, run the operator on tensors of those sizes,
and read the result: where a number comes out, the size it stands for does. Nothing is asked about a
symbol, and no meta kernel has to be loaded. Only for operators that are in the table: those that
neither compute with sizes nor compare them, and whose result is laid out in a way that is known
beforehand.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import inf, prod
from typing import Any

import torch

from pliant.fake.layout import contiguous_strides, like_strides
from pliant.fake.order import need
from pliant.fake.overload import Overload, tried_on
from pliant.fake.results import Constant, New, Recipe, Several
from pliant.fake.tensor import Fake

Args = tuple[Any, ...]
Layout = Callable[[Fake, Sequence[Any]], tuple[Any, ...] | None]
MOST = 1 << 16  # elements in a marked tensor


class Marks:
    """Which small number stands for which size. 0 and 1 stand for themselves."""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._numbers: dict[Any, int] = {0: 0, 1: 1}
        self._sizes: dict[int, Any] = {0: 0, 1: 1}

    def of(self, size: Any) -> int:
        known = size if type(size) is int else size.node.constant
        key = size.node.env.simplify(size.node.expr) if known is None else known
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
    """So many sizes that the marks multiply to too much."""


def applies(op: Overload, args: Args, kwargs: dict[str, Any], fakes: list[Fake]) -> bool:
    return (
        op.name in _LAYOUTS
        and bool(fakes)
        and not any(t.is_conj() or t.is_neg() for t in fakes)
        and not _has_symbolic_number((args, kwargs))
        and "out" not in kwargs
    )


def _has_symbolic_number(value: Any) -> bool:
    if isinstance(value, torch.SymInt | torch.SymFloat | torch.SymBool):
        return True
    if isinstance(value, dict):
        return _has_symbolic_number(tuple(value.values()))
    return isinstance(value, list | tuple) and any(map(_has_symbolic_number, value))


def recipe(op: Overload, args: Args, kwargs: dict[str, Any], device: torch.device) -> Recipe | None:
    """None: the meta kernel has to be asked about the symbols."""
    _need_elements(op.name, args, kwargs)
    if op.name in _EQUAL:
        (a, i), (b, j) = _EQUAL[op.name]
        need(args[a].size(i) == args[b].size(j))
    marks = Marks(tried_on(op, device))
    try:
        told = op.func(*(marks.marked(a) for a in args), **kwargs)
    except (RuntimeError, IndexError):  # let it be told with the true sizes
        return None
    return _part(told, marks, _LAYOUTS[op.name], args[0], device)


def _part(
    told: Any, marks: Marks, layout: Layout, first: Fake, device: torch.device
) -> Recipe | None:
    if isinstance(told, list | tuple):
        parts = [_part(t, marks, layout, first, device) for t in told]
        return None if None in parts else Several(tuple, tuple(p for p in parts if p is not None))
    if not isinstance(told, torch.Tensor):
        return Constant(told)
    sizes = marks.read(told.size())
    strides = None if sizes is None else layout(first, sizes)
    if sizes is None or strides is None:
        return None
    return New(torch.Size(sizes), strides, 0, told.dtype, device, False)


def _need_elements(name: str, args: Args, kwargs: dict[str, Any]) -> None:
    """Some reductions have no result over nothing; eager PyTorch refuses."""
    if name in _NORMS:
        _need_elements_of_norm(args, kwargs)
    if name not in WITHOUT_IDENTITY or not args[0].dim():
        return
    t, dim = args[0], args[1] if len(args) > 1 else kwargs.get("dim")
    if name.startswith("aten.kthvalue"):
        dim = args[2] if len(args) > 2 else kwargs.get("dim", -1)
    dims = range(t.dim()) if dim is None else [dim]
    for d in dims:
        need(t.size(d) != 0)


def _need_elements_of_norm(args: Args, kwargs: dict[str, Any]) -> None:
    """Norms that are the largest or the smallest element have no value over nothing."""
    t, order, dim = (*args, None, None)[:3]
    order = kwargs.get("ord", order)
    if not isinstance(order, int | float) or not (order < 0 or order == inf):
        return
    dims = kwargs.get("dim", dim)
    every = dims is None or dims == []
    for d in range(t.dim()) if every else [dims] if isinstance(dims, int) else dims:
        if t.dim():
            need(t.size(d) != 0)


def _dense(first: Fake, sizes: Sequence[Any]) -> tuple[Any, ...]:
    return contiguous_strides(sizes)


def _like_first(first: Fake, sizes: Sequence[Any]) -> tuple[Any, ...] | None:
    """In the order of the first argument, which has the same sizes."""
    return like_strides(first) if len(sizes) == first.dim() else contiguous_strides(sizes)


WITHOUT_IDENTITY = frozenset(
    f"aten.{name}"
    for name in (
        *("argmax.default", "argmin.default", "max.default", "min.default", "median.dim"),
        *("nanmedian.dim", "kthvalue.default", "mode.default", "aminmax.default"),
    )
)


_NORMS = frozenset(
    f"aten.{name}"
    for name in ("linalg_vector_norm.default", "norm.Scalar")
    + ("norm.ScalarOpt_dim", "norm.ScalarOpt_dim_dtype")
)


def _names(*groups: tuple[str, str]) -> list[str]:
    """`("all any", "default dim")` is all.default, all.dim, any.default, any.dim."""
    return [f"aten.{n}.{o}" for names, more in groups for n in names.split() for o in more.split()]


_DENSE = _names(
    ("prod", "default dim_int"),
    ("std var var_mean std_mean", "correction"),
    ("all any", "default dim dims"),
    ("norm", "Scalar ScalarOpt_dim ScalarOpt_dim_dtype"),
    ("median nanmedian nansum logsumexp linalg_vector_norm trace", "default"),
    ("dot vdot mv cumsum cumprod logcumsumexp _logcumsumexp index_select tril triu", "default"),
    ("count_nonzero", "dim_IntList default"),
)
_ORDERED = _names(("sort argsort", "default stable"), ("flip", "default"))

_LAYOUTS: dict[str, Layout] = {
    **dict.fromkeys((*WITHOUT_IDENTITY, *_DENSE), _dense),
    **dict.fromkeys(_ORDERED, _like_first),
}

# Sizes that have to be equal: (argument, dimension) pairs.
_EQUAL: dict[str, tuple[tuple[int, int], tuple[int, int]]] = {
    "aten.dot.default": ((0, 0), (1, 0)),
    "aten.vdot.default": ((0, 0), (1, 0)),
    "aten.mv.default": ((0, 1), (1, 0)),
}
