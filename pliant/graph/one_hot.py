"""Sums of what is 0 in all places but one.

The one idea: the gradient of a cross entropy compares each class with the target, because a
comparison fuses where a scatter would not. It is then summed over the classes, which reads nothing
and still takes as long as a pass over all of them. The sum is the number at the target, if that is
a class:

    where((arange(n) == target) & rest, value, 0).sum(1)
        = where((0 <= target) & (target < n) & rest, value, 0)

`rest` and `value` have to be the same for all classes.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final

import torch

from pliant.base.values import dataclass
from pliant.graph.ir import FunctionalBuilder, Node, Tensor
from pliant.graph.known_masks import KnownElements, index_variables
from pliant.graph.rewrite import Replacement
from pliant.sym.expr import ONE, Expr

aten = torch.ops.aten

_AND: Final = frozenset(("aten.__and__.Tensor", "aten.bitwise_and.Tensor"))


@dataclass(frozen=True, slots=True, eq=False)
class _OneHot:
    """What is summed over dimension `dim`, of `size` places: `value` at the place `target` if
    `rest` holds, and 0 elsewhere."""

    dim: int
    size: Expr
    target: Tensor
    rest: tuple[Tensor, ...]
    value: Tensor


def sum_one_hot(function: FunctionalBuilder) -> None:
    """Replace each sum of numbers that are 0 in all places but one by the one that isn't."""
    if not any(_is_sum_of_choices(node) for node in function.nodes):
        return
    elements = KnownElements()
    nodes: list[Node] = []
    for node in function.nodes:
        elements.note(node)
        summed = _summed(elements, node) if _is_sum_of_choices(node) else None
        nodes += [node] if summed is None else _chosen(node, summed)
    function.nodes[:] = nodes


def _is_sum_of_choices(node: Node) -> bool:
    """Whether it is the sum over one dimension of `where(condition, tensor, 0)`."""
    if node.name != "aten.sum.dim_IntList" or node.effect:
        return False
    summed, dims, *_ = node.args
    (result,), maker = node.results, summed.node
    if maker is None or maker.name != "aten.where.ScalarOther" or maker.args[2] != 0:
        return False
    floats = summed.dtype.is_floating_point and summed.dtype is result.dtype
    return floats and dims is not None and len(dims) == 1 and isinstance(maker.args[1], Tensor)


def _summed(elements: KnownElements, node: Node) -> _OneHot | None:
    summed, (dim,), *_ = node.args
    condition, value, _ = summed.node.args
    rank = len(summed.sizes)
    dim %= rank
    target, rest = None, []
    for part in _parts(condition):
        compared = None if target is not None else _compared(elements, part, dim, rank)
        if compared is None:
            rest.append(part)
        else:
            target = compared
    if target is None:
        return None
    others = (target, *rest, value)
    # They are the same for all places, and have all other dimensions.
    spread = _broadcast((ONE,) * rank, *[t.sizes for t in others])
    if any((size is ONE) != (d == dim or summed.sizes[d] is ONE) for d, size in enumerate(spread)):
        return None
    return _OneHot(dim, summed.sizes[dim], target, tuple(rest), value)


def _parts(condition: Tensor) -> Iterator[Tensor]:
    """The conditions that have to hold for this one to hold."""
    node = condition.node
    if node is not None and node.name in _AND and condition.dtype is torch.bool:
        for operand in node.args:
            yield from _parts(operand)
    else:
        yield condition


def _compared(elements: KnownElements, part: Tensor, dim: int, rank: int) -> Tensor | None:
    """The tensor with which a condition compares the places along a dimension."""
    if part.node is None or part.node.name != "aten.eq.Tensor":
        return None
    for places, target in (part.node.args, reversed(part.node.args)):
        at = dim - (rank - len(places.sizes))
        element = elements.of(places)
        if element is None or at < 0 or places.sizes[at] is ONE:
            continue
        index = index_variables(places.sizes)
        if element(index) is index[at] and target.dtype is torch.int64:
            return target
    return None


def _chosen(node: Node, summed: _OneHot) -> list[Node]:
    """The nodes that replace the sum."""
    (result,), parts = node.results, Replacement(node)
    target, bools = summed.target, torch.bool
    above = parts.call(aten.ge.Scalar, target.sizes, bools, target, 0)
    below = parts.call(aten.lt.Scalar, target.sizes, bools, target, _number(summed.size))
    inside = parts.call(aten.bitwise_and.Tensor, target.sizes, bools, above, below)
    for condition in summed.rest:
        sizes = _broadcast(inside.sizes, condition.sizes)
        inside = parts.call(aten.bitwise_and.Tensor, sizes, bools, inside, condition)
    value, dtype = summed.value, result.dtype
    sizes = _broadcast(inside.sizes, value.sizes)
    number = parts.call(aten.where.ScalarOther, sizes, dtype, inside, value, 0)
    if number.sizes != result.sizes:
        number = parts.call(aten.view.default, result.sizes, dtype, number, list(result.sizes))
        parts.nodes[-1].view = True
    # A sum of zeros and a negative zero is 0.
    parts.call(aten.add.Scalar, result.sizes, dtype, number, 0)
    return parts.end()


def _number(size: Expr) -> Any:
    return size if size.value is None else size.value


def _broadcast(*shapes: Sequence[Expr]) -> tuple[Expr, ...]:
    """The sizes that tensors of these shapes broadcast to. Only the constant 1 is spread."""
    rank = max(len(shape) for shape in shapes)
    sizes = [ONE] * rank
    for shape in shapes:
        for d, size in enumerate(shape, rank - len(shape)):
            sizes[d] = size if sizes[d] is ONE else sizes[d]
    return tuple(sizes)
