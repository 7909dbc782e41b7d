"""Random numbers: drawn by PyTorch's generators, in eager's order, into memory that is laid out as
eager's."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import torch
import torch.nn.functional as F

from pliant.base.operators import aten_names, register, register_functions
from pliant.fake import meta, shapes
from pliant.fake.layout import (
    is_plain,
)
from pliant.fake.overload import Overload
from pliant.fake.raising import never
from pliant.fake.results import Recipe, Same
from pliant.fake.rule import Args, Kwargs, ShapeRule, is_empty

Tensor = torch.Tensor
aten = torch.ops.aten
HALVES: Final = (torch.bfloat16, torch.float16)


def _drawn_shape(defaults: tuple[float, ...], allowed: Callable[..., bool]) -> ShapeRule:
    """Overwritten in place with random numbers, of a distribution with these parameters."""

    def rule(op: Overload, args: Args, kwargs: Kwargs, device: torch.device) -> Recipe | None:
        t, *parameters = args
        numbers = (*parameters, *defaults[len(parameters) :])
        usual = t.is_floating_point() and all(type(n) in (int, float) for n in numbers)
        return Same(op.written[0]) if usual and allowed(*numbers) and is_plain(t) else None

    return rule


def _symbolic_dropout(input: Tensor, p: float = 0.5, *args: Any, **kwargs: Any) -> Any:
    training = kwargs.get("training", kwargs.get("train", args[0] if args else True))
    inplace = kwargs.get("inplace", args[1] if len(args) > 1 else False)
    if is_empty(input):
        return NotImplemented  # which PyTorch returns as it is
    usual = training and not inplace and input.is_floating_point() and isinstance(p, float | int)
    return input * torch.rand_like(input) if usual and 0 < p < 1 else NotImplemented


def _dropout(x: torch.Tensor, p: float, train: bool) -> Any:
    """`dropout` as PyTorch composes it, without its question whether the tensor is empty."""
    if not train or p == 0:
        return x
    if p == 1:
        return x * 0.0
    if x.device.type != "cpu":  # one kernel of PyTorch's, which draws in an order of its own
        return aten.native_dropout.default(x, p, train)[0]
    return x * torch.empty_like(x).bernoulli_(1 - p).div_(1 - p)


def _native_dropout(x: torch.Tensor, p: float, train: bool | None) -> Any:
    """Drawn by the kernel that computes with it, where that gives eager's numbers. As in eager's
    kernel infinity times 0 is nan, and the product is rounded once."""
    usual = train is not False and isinstance(p, float | int) and 0 < p < 1
    if not usual or not x.is_floating_point():
        return NotImplemented
    drawn = x._world().dropout(x, p)  # type: ignore[attr-defined]
    if drawn is None:
        return NotImplemented
    mask, scale = drawn
    if x.dtype not in HALVES:
        return x * mask * scale, mask
    return aten._to_copy.default(x.float() * mask * scale, dtype=x.dtype), mask


def _bernoulli(t: torch.Tensor, p: float = 0.5, generator: Any = None) -> Any:
    """Drawn as bools, which are a quarter of what a float is to write, and to save for a backward.
    The generator's numbers are the same for all dtypes (on a GPU but for float64)."""
    if not t.is_floating_point() or (t.device.type != "cpu" and t.dtype is torch.float64):
        return NotImplemented
    drawn = torch.empty_like(t, dtype=torch.bool)
    return aten._to_copy.default(aten.bernoulli.p(drawn, p, generator=generator), dtype=t.dtype)


def _takes_tensors(args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
    """Parameters of a distribution that are in a tensor are looked at when it is drawn from. The
    first one may be where to write to."""
    parameters = (*args[1:], kwargs.get("p"), kwargs.get("std"))
    in_tensors = any(hasattr(value, "dtype") for value in parameters)
    return in_tensors or not any(isinstance(value, int | float) for value in parameters)


def _like_first_meta(func: Any, t: Tensor, *args: Any, **kwargs: Any) -> Tensor:
    return t.new_empty(t.size())


register(
    "aten.normal_.default",
    shape=_drawn_shape((0.0, 1.0), lambda mean, deviation: deviation >= 0),
    functional=aten.normal_functional.default,
)
register(
    "aten.uniform_.default", shape=_drawn_shape((0.0, 1.0), lambda low, high: low <= high < 1e30)
)
register("aten.exponential_.default", shape=_drawn_shape((1.0,), lambda rate: rate > 0))
register("aten.bernoulli_.float", functional=aten.bernoulli.p)
register(
    "aten.rand_like.default",
    "aten.randn_like.default",
    "aten.normal_functional.default",
    "aten.uniform.default",
    "aten.exponential.default",
    "aten.randint_like.default",
    shape=shapes.like,
    fills_first=True,
)
register(
    "aten.randint_like.low_dtype",
    "aten.randint_like.generator",
    "aten.randint_like.low_generator_dtype",
    shape=shapes.like,
)
register("aten.bernoulli.p", fills_first=True, decomposition=_bernoulli)
register(*aten_names("randint randint_like randperm random"), draws_integers=True)
register("aten.bernoulli", "aten.normal", raises=_takes_tensors)
register("aten.poisson.default", shape=shapes.contiguous(shapes.floats_only, everywhere=True))
register("aten.native_dropout.default", pointwise=True, decomposition=_native_dropout)
register("aten.dropout.default", decomposition=_dropout)
register_functions((F.dropout, torch.dropout), symbolic=_symbolic_dropout, cast_by_parts=True)
register(
    "aten._sample_dirichlet.default",
    "aten._dirichlet_grad.default",
    "aten._standard_gamma_grad.default",
    "aten.binomial.default",
    meta=_like_first_meta,
)
register(
    "aten.normal.Tensor_float",
    "aten.normal.float_Tensor",
    "aten.normal.Tensor_Tensor",
    meta=meta.contiguous,
)
register("aten.native_dropout_backward.default", cpu_meta=meta.like_sum)


_SAFE: Final = """
native_dropout rand randn randperm randint rand_like randn_like randint_like uniform
exponential cauchy log_normal geometric random normal_functional dropout
"""
register(*aten_names(_SAFE), raises=never)
