"""Shape rules that many operators share; those of one operator stand beside its lowering, in `ops`.

The one idea: a rule looks at the fakes themselves and returns a recipe, or None for "ask the meta
kernel": whenever arguments are unusual, so that errors keep PyTorch's words. Rules only save time;
without them every answer would be the same.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from pliant.fake.layout import (
    broadcast,
    is_plain,
    like_strides,
    pointwise_strides,
    promoted,
)
from pliant.fake.order import fits, need, sure
from pliant.fake.overload import Overload
from pliant.fake.promotion import as_computed
from pliant.fake.results import Recipe, Same
from pliant.fake.rule import Args, Kwargs, ShapeRule, dense, new
from pliant.fake.tensor import Fake
from pliant.sym.program import LARGEST

TypeRule = Callable[[torch.dtype], torch.dtype | None]

NUMBERS = (int, float, bool, torch.SymInt, torch.SymFloat, torch.SymBool)


# Pointwise.


def operands(values: Sequence[Any]) -> tuple[list[Fake], list[Any]] | None:
    """The tensors and the numbers, or None if something else is among them."""
    tensors: list[Fake] = []
    numbers: list[Any] = []
    for value in values:
        if type(value) is Fake:
            if value.dtype.is_complex or value.is_neg():
                return None
            tensors.append(value)
        elif type(value) in NUMBERS:
            if type(value) is int and value > LARGEST:
                return None  # an unsigned number: PyTorch refuses it beside some dtypes
            numbers.append(value)
        elif isinstance(value, torch.Tensor) and not value.dtype.is_complex:
            numbers.append(value.dtype)
        else:
            return None
    return (tensors, numbers) if tensors else None


def promote(dtype: torch.dtype) -> torch.dtype | None:
    return None if dtype is torch.bool else dtype  # arithmetic on bool has exceptions: ask


def to_float(dtype: torch.dtype) -> torch.dtype | None:
    return dtype if dtype.is_floating_point else torch.get_default_dtype()


def floats_only(dtype: torch.dtype) -> torch.dtype | None:
    return dtype if dtype.is_floating_point else None


def to_bool(dtype: torch.dtype) -> torch.dtype | None:
    return torch.bool


def unchanged(dtype: torch.dtype) -> torch.dtype | None:
    return dtype


def pointwise(count: int, result_dtype: TypeRule, numbers_aside: bool = False) -> ShapeRule:
    """Of the first `count` arguments; those after them do not matter to the look of the result.
    `numbers_aside`: numbers among them are no operands."""

    def rule(op: Overload, args: Args, kwargs: Kwargs, device: torch.device) -> Recipe | None:
        values = operands(args[:count])
        if values is None or len(args) < count:
            return None
        tensors, numbers = values
        sizes = broadcast([t.size() for t in tensors])
        common = promoted(tensors, numbers)
        dtype = result_dtype(common)
        if sizes is None or dtype is None:
            return None
        tensors = as_computed(tensors, common if dtype is torch.bool else dtype)
        # A number is a 0-dim operand: with one, the operands are not all of one shape.
        mixed = bool(numbers) and not numbers_aside
        return new(sizes, strides_of(tensors, mixed, sizes), dtype, device)

    return rule


def without_bools(rule: ShapeRule) -> ShapeRule:
    """The rule of an operator of two operands that PyTorch refuses for tensors of bools. (As for
    numbers, `vmap` gives them the type of the tensor beside them.)"""

    def numbers_only(op: Overload, args: Args, kwargs: Kwargs, device: torch.device) -> Any:
        bools = any(getattr(x, "dtype", None) is torch.bool for x in args[:2])
        return None if bools else rule(op, args, kwargs, device)

    return numbers_only


def strides_of(tensors: list[Fake], with_number: bool, sizes: tuple[int, ...]) -> tuple[int, ...]:
    return pointwise_strides(tensors, sizes, uniform=not (with_number and sizes))


def in_place(count: int, result_dtype: TypeRule) -> ShapeRule:
    def rule(op: Overload, args: Args, kwargs: Kwargs, device: torch.device) -> Recipe | None:
        values = operands(args[:count])
        if values is None or len(args) < count:
            return None
        tensors, numbers = values
        target = args[0]
        dtype = result_dtype(promoted(tensors, numbers))
        fits = same(broadcast([t.size() for t in tensors]), target.size())
        if not fits or dtype is None or not torch.can_cast(dtype, target.dtype):
            return None
        # Writing to an expanded tensor is an error; leave it to be told.
        return Same(op.written[0]) if is_plain(target) else None

    return rule


def same(sizes: Sequence[int] | None, others: Sequence[int]) -> bool:
    """Whether these are the same sizes. Backed sizes are compared with a guard; unbacked ones have
    to be equal, which is tested when the code runs."""
    return sizes is not None and len(sizes) == len(others) and all(map(same_size, sizes, others))


def same_size(a: Any, b: Any) -> bool:
    if a is b or sure(a == b):
        return True
    question: Any = a == b
    if isinstance(question, torch.SymBool) and not question.node.has_hint():
        need(question)
        return True
    return bool(question)


# Reductions. Results are contiguous.


def _dims(t: Fake, dim: Any) -> list[int] | None:
    if dim is None or dim == []:
        return list(range(t.dim()))
    dims = [dim] if isinstance(dim, int) else list(dim)
    rank = max(t.dim(), 1)
    if any(not -rank <= d < rank for d in dims) or len({d % rank for d in dims}) != len(dims):
        return None
    return [d % rank for d in dims]


def reduced_sizes(t: Fake, dim: Any, keep: bool) -> list[int] | None:
    dims = _dims(t, dim)
    if dims is None or t.dtype.is_complex:
        return None
    sizes = enumerate(t.size())
    return [1 if d in dims else s for d, s in sizes if keep or d not in dims]


def sum_dtype(dtype: torch.dtype) -> torch.dtype | None:
    return dtype if dtype.is_floating_point else torch.int64


def reduction(result_dtype: TypeRule, *, empty: bool = True) -> ShapeRule:
    """`empty`: whether reducing over nothing is allowed."""

    def rule(op: Overload, args: Args, kwargs: Kwargs, device: torch.device) -> Recipe | None:
        t, dim, keep = (*args, None, False)[:3] if len(args) == 1 else (*args, False)[:3]
        sizes = reduced_sizes(t, dim, keep)
        requested = kwargs.get("dtype")
        dtype = result_dtype(requested or t.dtype)
        dtype = requested if requested is not None and dtype is not None else dtype
        unusual = kwargs.keys() - {"dtype"} or len(args) > 3
        unusual = unusual or (not empty and sizes is not None and over_nothing(t, dim))
        return None if sizes is None or dtype is None or unusual else dense(sizes, dtype, device)

    return rule


def over_nothing(t: Fake, dim: Any) -> bool:
    """Whether a reduction is over nothing. (Of a size in the data, a test when the code runs.)"""
    return any(not fits(t.size(d) != 0) for d in _dims(t, dim) or () if t.dim())


def contiguous(result_dtype: TypeRule, at: int = 0, everywhere: bool = False) -> ShapeRule:
    """A rule for operators that give one element for each of the argument at position `at`,
    contiguous however that lies. Unless `everywhere`, this holds on CPUs only."""

    def rule(op: Overload, args: Args, kwargs: Kwargs, device: torch.device) -> Recipe | None:
        values = operands(args[: at + 1])
        dtype = values and result_dtype(promoted(*values))
        if not dtype or not (everywhere or device.type == "cpu") or type(args[at]) is not Fake:
            return None
        return dense(args[at].size(), dtype, device)

    return rule


# Copies and new tensors.


def like(op: Overload, args: Args, kwargs: Kwargs, device: torch.device) -> Recipe | None:
    """clone, _to_copy, empty_like and its kin: dense tensors keep their strides unless told."""
    t = args[0]
    if not isinstance(t, torch.Tensor):  # a number that PyTorch had made a tensor of
        t = torch.tensor(t)
    form = kwargs.get("memory_format")
    if t.is_conj() or t.is_neg() or kwargs.get("layout") not in (None, torch.strided):
        return None
    dtype = kwargs.get("dtype") or t.dtype
    if form is torch.contiguous_format:
        return dense(t.size(), dtype, device)
    strides = like_strides(t) if form in (None, torch.preserve_format) else None
    return None if strides is None else new(t.size(), strides, dtype, device)
