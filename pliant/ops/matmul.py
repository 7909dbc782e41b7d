"""Products of matrices: all of them are called whole.

The one idea: PyTorch composes `matmul`, `linear` and `einsum` of operators, asking about sizes to
choose the fastest way (fold a batch, skip a copy, leave out what is empty), and each question would
become a guard, though the result looks the same whichever way is taken. Here is one way for all
sizes. Only the look of the result counts, and that autograd sees what it depends on.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Sequence
from typing import Any, Final

import torch
import torch.nn.functional as F

from pliant.base.operators import aten_names, register, register_functions
from pliant.base.values import dataclass
from pliant.fake import shapes
from pliant.fake.functions import depending_on
from pliant.fake.layout import (
    broadcast,
    contiguous_strides,
)
from pliant.fake.order import is_contiguous, is_one, need, sure
from pliant.fake.overload import Overload
from pliant.fake.raising import never
from pliant.fake.results import Recipe
from pliant.fake.rule import Args, Kwargs, ShapeRule, dense
from pliant.fake.tensor import Fake, make
from pliant.fake.traced import by_marks, in_rows

Tensor = torch.Tensor
aten = torch.ops.aten


# --------------------------------------------------------------------------------------------------
# Products of matrices


def _product(rank: int) -> ShapeRule:
    """mm and bmm."""

    def rule(op: Overload, args: Args, kwargs: Kwargs, device: torch.device) -> Recipe | None:
        sizes = _product_sizes(rank, *args) if len(args) == 2 and not kwargs else None
        return None if sizes is None else dense(sizes, args[0].dtype, device)

    return rule


def _product_sizes(rank: int, a: Fake, b: Fake) -> tuple[int, ...] | None:
    fits = a.dim() == b.dim() == rank and a.dtype is b.dtype
    fits = fits and shapes.same_size(a.size(-1), b.size(-2))
    same_batch = fits and shapes.same(a.shape[:-2], b.shape[:-2])
    return (*a.shape[:-1], b.size(-1)) if same_batch else None


def _added_product(rank: int) -> ShapeRule:
    """addmm and baddbmm."""

    def rule(op: Overload, args: Args, kwargs: Kwargs, device: torch.device) -> Recipe | None:
        bias, a, b = args[:3]
        sizes = _product_sizes(rank, a, b)
        if sizes is None or bias.dtype is not a.dtype:
            return None
        if not shapes.same(broadcast([bias.size(), sizes]), sizes):
            return None
        return dense(sizes, a.dtype, device)

    return rule


@dataclass(frozen=True, slots=True, eq=False)
class Factors:
    """Two tensors whose last two dimensions are matrices, or of which all but the last dimension
    are rows; `turned`: the second one is transposed. And what is added. (Tensors of the functional
    graph.)"""

    first: Any
    second: Any
    turned: bool = False
    added: Any = None


def _two(node: Any) -> Factors | None:
    first, second = node.args[:2]
    return Factors(first, second) if min(len(first.sizes), len(second.sizes)) > 1 else None


def _addmm(node: Any) -> Factors | None:
    added, first, second = node.args[:3]
    plain = len(node.args) == 3 and all(v == 1 for v in node.kwargs.values())
    return Factors(first, second, False, added) if plain else None


register("aten.mm.default", shape=_product(2), factors=_two, fresh=True)
register("aten.bmm.default", shape=_product(3), factors=_two, fresh=True)
register("aten.addmm.default", shape=_added_product(2), factors=_addmm, fresh=True)
register("aten.baddbmm.default", shape=_added_product(3), fresh=True)
register("aten._addmm_activation.default", fresh=True)


# --------------------------------------------------------------------------------------------------
# `matmul` and `linear`


def _as_dense(t: Tensor, *sizes: Any) -> Tensor:
    """A reshaped copy: whether it could be a view is not asked."""
    copied = t if is_contiguous(t) else t.clone(memory_format=torch.contiguous_format)
    return copied.view(*sizes)


def symbolic_matmul(input: Tensor, other: Tensor) -> Any:
    if not input.dim() or not other.dim() or input.dtype is not other.dtype:
        return NotImplemented
    if input.dim() == 1 and other.dim() == 1:
        return torch.dot(input, other)
    if input.dim() == 1:
        product = symbolic_matmul(input.unsqueeze(0), other)
        return _no_view(product, (*product.shape[:-2], product.size(-1)))
    if other.dim() == 1:
        product = symbolic_matmul(input, other.unsqueeze(1))
        return _no_view(product, product.shape[:-1])
    if input.dim() == other.dim() == 2:
        return torch.mm(input, other)
    batch = broadcast([input.shape[:-2], other.shape[:-2]])
    if batch is None:
        return NotImplemented
    need(input.size(-1) == other.size(-2))
    count = math.prod(batch)
    # All batch dimensions as one, for `bmm`: a view if the operand is contiguous, else a copy.
    left = _as_dense(input.expand(*batch, -1, -1), count, input.size(-2), input.size(-1))
    right = _as_dense(other.expand(*batch, -1, -1), count, other.size(-2), other.size(-1))
    return _no_view(torch.bmm(left, right), (*batch, input.size(-2), other.size(-1)))


def _no_view(product: Any, sizes: Sequence[Any]) -> Any:
    """A new tensor in another shape: the program can't tell that it had one before."""
    return product if product is NotImplemented else torch.ops.aten._unsafe_view(product, sizes)


def _matmul_sizes(a: Fake, b: Fake) -> tuple[Any, ...] | None:
    """The sizes of a product of batches of matrices; None for operands of fewer dimensions, which
    are one operator, or are folded in several ways."""
    if a.dim() < 3 or b.dim() < 3 or not shapes.same_size(a.size(-1), b.size(-2)):
        return None
    batch = broadcast([a.shape[:-2], b.shape[:-2]])
    return None if batch is None else (*batch, a.size(-2), b.size(-1))


def _reversed_matmul(input: Tensor, other: Tensor) -> Any:
    return symbolic_matmul(other, input)


register("aten.matmul.default", opaque=torch.matmul, factors=_two, fresh=True)
_MATMUL: Final = (torch.matmul, operator.matmul, Tensor.matmul, Tensor.__matmul__)
register_functions(_MATMUL, symbolic=symbolic_matmul, sizes=_matmul_sizes, cast_by_parts=True)
register_functions((torch.linalg.matmul,), symbolic=symbolic_matmul, cast_by_parts=True)
register_functions((Tensor.__rmatmul__,), symbolic=_reversed_matmul, cast_by_parts=True)


def _linear(input: Tensor, weight: Tensor, bias: Tensor | None = None) -> Any:
    if input.dim() < 2 or weight.dim() != 2 or is_contiguous(input):
        return NotImplemented
    rows = math.prod(input.shape[:-1])
    flat = _as_dense(input, rows, input.size(-1))
    product = torch.mm(flat, weight.t()) if bias is None else torch.addmm(bias, flat, weight.t())
    return _no_view(product, (*input.shape[:-1], weight.size(0)))


def _linear_sizes(x: Fake, weight: Fake, bias: Fake | None = None) -> tuple[Any, ...] | None:
    usual = x.dim() >= 2 and weight.dim() == 2 and is_contiguous(x)
    if not usual or not shapes.same_size(x.size(-1), weight.size(1)):
        return None
    if bias is not None and not shapes.same(bias.shape, weight.shape[:1]):
        return None
    return (*x.shape[:-1], weight.size(0))


def _linear_factors(node: Any) -> Factors | None:
    x, weight, *rest = node.args
    bias = rest[0] if rest else node.kwargs.get("bias")
    return Factors(x, weight, True, bias) if len(x.sizes) > 1 and len(weight.sizes) == 2 else None


register("aten.linear.default", opaque=F.linear, factors=_linear_factors, fresh=True)
register_functions((F.linear,), symbolic=_linear, sizes=_linear_sizes, cast_by_parts=True)


# --------------------------------------------------------------------------------------------------
# `einsum`


def _einsum(equation: Any, *operands: Any) -> Any:
    """`einsum` of one or two tensors without repeated letters in one of them, by `bmm`;
    NotImplemented for others."""
    if len(operands) == 1 and isinstance(operands[0], list | tuple):
        operands = tuple(operands[0])
    parsed = _parse(equation, operands)
    if parsed is None:
        return NotImplemented
    names, out = parsed
    # The size of each letter, which all operands have to agree on.
    sizes: dict[str, Any] = {}
    for letters, t in zip(names, operands, strict=True):
        for letter, size in zip(letters, t.size(), strict=True):
            before = sizes.setdefault(letter, size)
            common = broadcast([(before,), (size,)])
            if common is None or not all(sure(common[0] == n) for n in (before, size)):
                return NotImplemented  # PyTorch broadcasts them, or refuses to
    if len(operands) == 1:
        return _einsum_one(names[0], out, operands[0])
    return _einsum_two(names, out, operands, sizes)


def _parse(equation: Any, operands: Sequence[Any]) -> tuple[list[str], str] | None:
    if not isinstance(equation, str) or len(operands) not in (1, 2):
        return None
    if not all(isinstance(t, Tensor) for t in operands):
        return None
    # Only equations with an arrow: without one, the result has the letters in alphabetical order.
    left, arrow, out = equation.replace(" ", "").partition("->")
    names = left.split(",")
    if len(names) != len(operands) or not arrow:
        return None
    dots = [t.dim() - len(name) + 3 for name, t in zip(names, operands) if "..." in name]
    if dots and (min(dots) < 0 or not all(ch.islower() for ch in left if ch.isalpha())):
        return None
    names = [
        name.replace("...", _DOTS[len(_DOTS) - (t.dim() - len(name) + 3) :])
        for name, t in zip(names, operands)
    ]
    out = out.replace("...", _DOTS[len(_DOTS) - max(dots, default=0) :])
    plain = all(
        len(name) == t.dim() and len(set(name)) == len(name) for name, t in zip(names, operands)
    )
    return (names, out) if plain and set(out) <= set("".join(names)) else None


_DOTS = "ABCDEFGHIJ"  # the dimensions of "...", the last of them last


def _einsum_one(name: str, out: str, t: Tensor) -> Tensor:
    summed = [c for c in name if c not in out]
    t = t.permute([name.index(c) for c in (*out, *summed)])
    return t.sum(list(range(len(out), t.dim()))) if summed else t


def _einsum_two(
    names: list[str], out: str, operands: Sequence[Tensor], sizes: dict[str, Any]
) -> Any:
    """A product of matrices, in the order in which PyTorch leaves its dimensions; or of numbers if
    none is summed."""
    left, right = names
    a, b = operands
    # What only one of them has and the result doesn't is summed beforehand.
    a, left = _summed_but_for(a, left, out, right)
    b, right = _summed_but_for(b, right, out, left)
    swaps = set(left) == set(names[0]) and set(right) == set(names[1])
    # The letters are in four groups: in both operands and the result (batch), in one operand and
    # the result (rows, columns), or in both operands alone (summed).
    batch = [c for c in out if c in left and c in right]
    only_left = [c for c in out if c in left and c not in right]
    only_right = [c for c in out if c in right and c not in left]
    summed = [c for c in left if c in right and c not in out]
    # (Where all are dense and in order, it makes no difference which product it is.)
    dense = len(out) < 2 or (is_contiguous(a) and is_contiguous(b))
    in_order = [*batch, *only_left, *only_right] == list(out)
    # Matrices of two dtypes have no product; numbers do.
    either = dense and in_order and a.dtype is b.dtype
    is_known = all(sure(sizes[c] == 1) for c in summed)
    if is_known or (not either and all(is_one(sizes[c]) for c in summed)):
        every = out + "".join(summed)  # PyTorch sorts by the strides of those too
        product = _in_order(a, left, every) * _in_order(b, right, every)
        for _ in summed:
            product = product.select(-1, 0)
        return product
    swaps = swaps and bool(only_left) and bool(only_right)
    if swaps and out.index(only_right[-1]) < out.index(only_left[0]):
        a, left, only_left, b, right, only_right = b, right, only_right, a, left, only_left

    def folded(t: Tensor, name: str, *groups: list[str]) -> Tensor:
        t = t.permute([name.index(c) for group in groups for c in group])
        return _as_dense(t, *(math.prod(sizes[c] for c in group) for group in groups))

    product = torch.bmm(
        folded(a, left, batch, only_left, summed), folded(b, right, batch, summed, only_right)
    )
    order = [*batch, *only_left, *only_right]
    return product.view([sizes[c] for c in order]).permute([order.index(c) for c in out])


def _summed_but_for(t: Tensor, name: str, out: str, other: str) -> tuple[Tensor, str]:
    """Summed over the dimensions that neither the other operand nor the result has."""
    remaining = "".join(dict.fromkeys(c for c in (*out, *other) if c in name))
    return (
        (t, name) if len(remaining) == len(name) else (_einsum_one(name, remaining, t), remaining)
    )


def _in_order(t: Tensor, name: str, out: str) -> Tensor:
    """The tensor with its dimensions in the order of `out`, and one of size 1 for each letter that
    it doesn't have. Dimensions that aren't in `out` have one element, and are dropped."""
    rest = [name.index(c) for c in name if c not in out]
    t = t.permute([name.index(c) for c in out if c in name] + rest)
    for _ in rest:
        t = t.select(-1, 0)
    for at, letter in enumerate(out):
        t = t if letter in name else t.unsqueeze(at)
    return t


register("aten.einsum.default", opaque=torch.einsum)
register_functions((torch.einsum,), symbolic=_einsum, cast_by_parts=True)
register("aten.bilinear.default", opaque=torch.bilinear)


# --------------------------------------------------------------------------------------------------
# Distances


def _contiguous_like(like: Any, sizes: Sequence[Any]) -> Fake:
    strides = contiguous_strides(sizes)
    return make(like._world, sizes, strides, 0, like.dtype, like.device)


def _cdist(a: Tensor, b: Tensor, p: float = 2.0, compute_mode: Any = None) -> Any:
    alike = a.dim() >= 2 and b.dim() >= 2 and a.dtype is b.dtype and a.is_floating_point()
    batch = broadcast([a.shape[:-2], b.shape[:-2]]) if alike else None
    if batch is None:
        return NotImplemented
    need(a.size(-1) == b.size(-1))
    return depending_on(_contiguous_like(a, (*batch, a.size(-2), b.size(-2))), (a, b))


def _euclidean_shape(
    op: Overload, args: Args, kwargs: Kwargs, device: torch.device
) -> Recipe | None:
    a, b = args
    fits = a.dim() >= 2 and b.dim() >= 2 and a.dtype is b.dtype and a.is_floating_point()
    batch = broadcast([a.shape[:-2], b.shape[:-2]]) if fits else None
    if batch is None or not shapes.same(a.shape[-1:], b.shape[-1:]):
        return None
    return dense((*batch, a.size(-2), b.size(-2)), a.dtype, device)


register("aten.cdist.default", opaque=torch.cdist)
register_functions((torch.cdist,), symbolic=_cdist)
register("aten._euclidean_dist.default", shape=_euclidean_shape)


# --------------------------------------------------------------------------------------------------
# Others


def _scaled_mm_meta(func: Any, a: Tensor, b: Tensor, *args: Any, **kwargs: Any) -> Any:
    # Only CUDA insists on a layout.
    return func(a.contiguous(), b.t().contiguous().t(), *args, **kwargs)


register("aten._scaled_mm.default", "aten._scaled_mm_v2.default", cpu_meta=_scaled_mm_meta)


def _need_equal(at: int) -> Callable[[Args, Kwargs], None]:
    """The last dimension of the first tensor (which is number `at`) and the only one of the second
    have to be equal."""
    return lambda args, kwargs: need(args[0].size(at) == args[1].size(0))


register("aten.dot.default", "aten.vdot.default", shape=by_marks(in_rows, _need_equal(0)))
register("aten.mv.default", shape=by_marks(in_rows, _need_equal(1)))


_SAFE: Final = """
mm addmm _addmm_activation bmm baddbmm mv addmv addbmm addr dot vdot matmul linear bilinear
einsum outer ger linalg_cross cdist _cdist_forward _pdist_forward _euclidean_dist
"""
register(*aten_names(_SAFE), raises=never)
