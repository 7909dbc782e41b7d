"""Pointwise operators: what they return is found out from tensors with one element.

The one idea: an operator that works element by element needs no meta kernel for its shape: sizes
are broadcast, the layout follows from the operands'. What is left is the dtype, and whether the
arguments are accepted at all; the operator itself tells that from tensors with one element, which
raise no question about symbolic sizes, and for which no meta kernel has to be loaded.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from pliant.fake.layout import (
    broadcast,
    contiguous_strides,
    is_plain,
    like_strides,
    pointwise_strides,
    promoted,
)
from pliant.fake.overload import Overload, tried_on
from pliant.fake.promotion import as_computed
from pliant.fake.results import New, Recipe, Same, Several
from pliant.fake.tensor import Fake
from pliant.sym.node import SYMBOLIC

StridesRule = Callable[[list[Fake], tuple[Any, ...]], tuple[Any, ...] | None]


def like_first(tensors: list[Fake], sizes: tuple[Any, ...]) -> tuple[Any, ...]:
    return like_strides(tensors[0]) or pointwise_strides(tensors[:1], sizes, uniform=False)


def applies(op: Overload, fakes: list[Fake]) -> bool:
    return (
        (_is_tagged(op.func) if op.record.pointwise is None else op.record.pointwise)
        and bool(fakes)  # numbers alone have a value, which is known
        and not any(t.is_conj() or t.is_neg() for t in fakes)
    )


def _is_tagged(func: Any) -> bool:
    """Whether the operator, or the one that it is the in-place form of, is tagged as pointwise:
    some in-place operators lack the tag."""
    if torch.Tag.pointwise in func.tags:
        return True
    packet, _, overload = func.__name__.partition(".")
    plain = getattr(torch.ops.aten, packet[:-1], None) if packet.endswith("_") else None
    return torch.Tag.pointwise in getattr(getattr(plain, overload, None), "tags", ())


def recipe(
    op: Overload, args: tuple[Any, ...], kwargs: dict[str, Any], device: torch.device
) -> Recipe | None:
    """What the operator returns; None for unusual arguments, about which the meta kernel has to be
    asked."""
    if "out" in kwargs or kwargs.get("memory_format") is not None:
        return None
    # It writes into another argument than the first.
    if any(a.alias_info is not None for a in op.func._schema.arguments[1:]):
        return None
    tensors = [v for v in (*args, *kwargs.values()) if type(v) is Fake]
    sizes = broadcast([t.size() for t in tensors])
    if sizes is None:
        return None
    tried = _try(op, args, kwargs, tried_on(op, device))
    if op.written:
        return _written(op, args[0], sizes)
    strides = _strides(op, args, kwargs, _as_computed(op, args, tensors, tried), sizes)
    if strides is None:
        return None
    if isinstance(tried, torch.Tensor):
        return _part(tried, sizes, strides, device)
    parts = [_part(t, sizes, strides, device) for t in tried]
    return None if None in parts else Several(tuple, tuple(p for p in parts if p is not None))


_NUMBERS = (int, float, complex, *SYMBOLIC)


def _as_computed(
    op: Overload, args: tuple[Any, ...], tensors: list[Fake], result: Any
) -> list[Any]:
    """The operands as they are computed with: converted to the dtype of the result, or for a
    comparison to their common one."""
    if not isinstance(result, torch.Tensor) or op.name.startswith("aten.where."):
        return tensors
    dtype = result.dtype
    if any(t.is_complex() for t in tensors):  # whose parts are numbers
        return tensors
    if dtype is torch.bool:
        plain = [v.node.pytype(1) if isinstance(v, SYMBOLIC) else v for v in args]
        dtype = promoted(tensors, [v for v in plain if isinstance(v, _NUMBERS)])
    return as_computed(tensors, dtype)


def _strides(
    op: Overload,
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    tensors: list[Fake],
    sizes: tuple[Any, ...],
) -> tuple[Any, ...] | None:
    special = op.record.layout
    if special is not None and sizes:
        return special(tensors, sizes)
    number = any(isinstance(v, _NUMBERS) or type(v) is torch.Tensor for v in args)
    uniform = not (number and sizes) or _takes_numbers_aside(op, args, kwargs)
    return pointwise_strides(tensors, sizes, uniform)


def _takes_numbers_aside(op: Overload, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
    """Whether numbers among the arguments are parameters (an exponent, a weight) rather than
    operands.

    Operands count as tensors of another shape, and then PyTorch lays out the result in another way.
    So the operator is run once on a tensor whose layout shows the difference.
    """
    key = (op.name, *(type(v) is Fake for v in args), *kwargs)
    if key not in _aside:
        shown = _shows_numbers_aside(op, args, kwargs)
        if shown is None:  # nothing, which numbers or dtypes are the cause of
            return False
        _aside[key] = shown
    return _aside[key]


_aside: dict[Any, bool] = {}
# Contiguous, as a dimension of size 1 may have any stride. Where operands are of one shape, PyTorch
# gives the result fresh strides, (4, 4, 1); else it sorts the strides that are there.
_PROBE = ((2, 1, 4), (4, 1, 1))


def _shows_numbers_aside(
    op: Overload, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> bool | None:
    if op.draws is not None or op.written:
        return False

    def probe(value: Any) -> Any:
        if type(value) is Fake:
            return torch.ones(9, dtype=value.dtype).as_strided(*_PROBE)
        return value.node.pytype(1) if isinstance(value, SYMBOLIC) else value

    try:
        named = {name: probe(value) for name, value in kwargs.items()}
        result = op.func(*map(probe, args), **named)
    except (RuntimeError, TypeError, IndexError):  # other shapes or dtypes are needed
        return None
    if not isinstance(result, torch.Tensor):
        return False
    return result.stride() == (4, 4, 1) if result.shape == _PROBE[0] else None


def _try(op: Overload, args: tuple[Any, ...], kwargs: dict[str, Any], device: torch.device) -> Any:
    def small(value: Any) -> Any:
        """A tensor of the same kind with one element (nothing divides by zero); some number."""
        if type(value) is Fake:
            return torch.ones((1,) * value.dim(), dtype=value.dtype, device=device)
        if isinstance(value, SYMBOLIC):
            return value.node.pytype(1)
        return None if isinstance(value, torch.Generator) else value

    return op.func(*map(small, args), **{name: small(value) for name, value in kwargs.items()})


def _part(
    result: torch.Tensor, sizes: tuple[Any, ...], strides: tuple[Any, ...], device: torch.device
) -> New | None:
    if result.dim() == len(sizes) and result.numel() == 1:
        return New(torch.Size(sizes), tuple(strides), 0, result.dtype, device, False)
    if result.dim() == 0:  # reduced
        return New(torch.Size(()), contiguous_strides(()), 0, result.dtype, device, False)
    if result.numel() == 0 and result.dim() == 1:  # a buffer that is not needed
        return New(torch.Size((0,)), (1,), 0, result.dtype, device, False)
    return None


def _written(op: Overload, target: Fake, sizes: tuple[Any, ...]) -> Recipe | None:
    fits = len(sizes) == target.dim() and all(a == b for a, b in zip(sizes, target.size()))
    return Same(op.written[0]) if fits and is_plain(target) else None
