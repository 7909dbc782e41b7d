"""Attention masks that depend on positions alone: causal ones, and those that hide nothing.

The one idea: a library that is traced computes masks from `arange` even if all they say is "causal"
or "nothing is hidden". Here the elements of such tensors are expressions of their index, for all
sizes at once, and the mask is a condition on a query and a key. Attention is then told `is_causal`,
or given no mask: PyTorch computes half as much, and has faster kernels for it.

    i = arange(n);  mask = i[None, :] <= i[:, None]    mask[q, k] is the condition k <= q: causal

This is abstract interpretation: each rule maps what is known of an operator's arguments to what is
known of its result, and an operator without a rule ends it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import torch

from pliant.base.operators import record_of
from pliant.graph.ir import FunctionalBuilder, Node, Tensor
from pliant.loop.define import Index, broadcast_index, contiguous
from pliant.loop.types import Type
from pliant.ops.indexed_tensor import IndexedTensor
from pliant.ops.lowering import NotLowered
from pliant.sym.cond import FALSE, TRUE, Cond, and_, eq, ge, gt, le, le0, lt, ne, not_, or_, truth
from pliant.sym.expr import ONE, ZERO, Expr, as_expr, integer, substitute, symbol

Element = Callable[[Index], Any]  # the element at an index: an expression, or a condition

ATTENTION: Final[Mapping[str, tuple[int, int]]] = {
    "aten.scaled_dot_product_attention.default": (3, 5),
}
"""The positions of the mask and of `is_causal` among the arguments. (The kernels that joint graphs
call aren't here: PyTorch has chosen them because there is a mask.)"""


def replace_known_masks(function: FunctionalBuilder) -> None:
    """Attention without the masks that positions alone decide."""
    users = [node for node in function.nodes if node.name in ATTENTION]
    masks = {mask for node in users if (mask := _mask_of(node)) is not None}
    if not masks:
        return
    elements = KnownElements()
    for node in function.nodes:
        elements.note(node)
    meanings = {mask: elements.meaning(mask) for mask in masks}
    for node, number in elements.constant.items():
        _fill(node, number)
    for node in users:
        meaning = meanings.get(_mask_of(node))  # type: ignore[arg-type]  # None: it has no mask
        if meaning is not None:
            _replace_mask(node, causal=meaning == "causal")


def _mask_of(node: Node) -> Tensor | None:
    place, causal = ATTENTION[node.name]
    if node.kwargs.get("is_causal") or (len(node.args) > causal and node.args[causal]):
        return None
    mask = node.args[place] if len(node.args) > place else node.kwargs.get("attn_mask")
    return mask if isinstance(mask, Tensor) else None


def _replace_mask(node: Node, causal: bool) -> None:
    place, flag = ATTENTION[node.name]
    args = list(node.args)
    if len(args) > place:
        args[place] = None
    node.kwargs.pop("attn_mask", None)
    if len(args) > flag:
        args[flag] = causal
    elif causal:
        node.kwargs["is_causal"] = True
    node.args = tuple(args)


def _fill(node: Node, number: int | bool) -> None:
    """Make a lookup whose result is this number everywhere a `full`: nothing has to be looked up,
    and it can't raise."""
    (result,) = node.results
    node.func = torch.ops.aten.full.default
    node.name = str(node.func)
    node.args = (list(result.sizes), number)
    node.kwargs = {"dtype": result.dtype, "device": result.device}


class KnownElements:
    """The elements of tensors that are computed from nothing but sizes and positions."""

    def __init__(self) -> None:
        self.elements: dict[Tensor, Element] = {}
        # Floats that are added to scores: 0 where the condition holds, else -inf.
        self.hiding: dict[Tensor, Element] = {}
        self.constant: dict[Node, int | bool] = {}  # lookups, and what they give everywhere

    def note(self, node: Node) -> None:
        """Work out the elements of a node's result, if those of its arguments are known."""
        if len(node.results) != 1 or node.effect or node.defines:
            return
        rule = _view if node.view else _RULES.get(node.name)
        if rule is None:
            return
        try:
            element = rule(self, node)
        except NotLowered:
            return
        if element is not None:
            self.elements[node.results[0]] = element

    def of(self, value: Any) -> Element | None:
        """The elements of a tensor or a number."""
        if isinstance(value, Tensor):
            return self.elements.get(value)
        if type(value) is bool:
            constant: Any = truth(value)
        elif isinstance(value, (int, Expr)):
            constant = as_expr(value)
        else:
            return None
        return lambda index: constant

    def operands(self, node: Node, count: int) -> list[Element] | None:
        """The arguments of an elementwise operator, as functions of the index of its result."""
        sizes = node.results[0].sizes
        spread = [self._spread(arg, sizes) for arg in node.args[:count]]
        elements = [element for element in spread if element is not None]
        return elements if len(elements) == count == len(node.args) else None

    def _spread(self, value: Any, sizes: Sequence[Expr]) -> Element | None:
        element = self.of(value)
        if element is None or not isinstance(value, Tensor):
            return element
        first = len(sizes) - len(value.sizes)
        # A size that may or may not be 1 is not known to be spread.
        if any(s is not ONE and s is not sizes[first + d] for d, s in enumerate(value.sizes)):
            return None
        ones = [size is ONE for size in value.sizes]
        return lambda index: element(broadcast_index(index, ones))

    def meaning(self, mask: Tensor) -> str | None:
        """`"causal"`, `"nothing hidden"`, or None."""
        element = self.elements.get(mask) if mask.dtype is torch.bool else self.hiding.get(mask)
        if element is None or len(mask.sizes) < 2:
            return None
        places = index_variables(mask.sizes)
        condition = element(places)
        extents = {
            place: size for place, size in zip(places, mask.sizes, strict=True) if size is not ONE
        }
        parts = condition.args if condition.op == "and" else (condition,)
        open_parts = [part for part in parts if not _always(part, extents)]
        if not open_parts:
            return "nothing hidden"
        *_, query, key = places
        return "causal" if open_parts == [le(key, query)] else None


def index_variables(sizes: Sequence[Expr]) -> Index:
    """An index of variables, one for each dimension; 0 for a dimension of size 1."""
    return tuple([ZERO if size is ONE else symbol(f"at{d}") for d, size in enumerate(sizes)])


def _always(condition: Cond, extents: Mapping[Expr, Expr]) -> bool:
    """Whether a condition holds wherever the variables are within their extents. Of `sum <= 0` it
    is enough to look where the sum is largest: a linear one is, at the ends of the extents."""
    if condition is TRUE or condition.op != "le0":
        return condition is TRUE
    ends: dict[Any, Any] = {}
    (total,) = condition.args
    for variable, extent in extents.items():
        times = [c for part, c in total.terms if part is variable]
        if sum(variable in part.symbols for part, _ in total.terms) != len(times):
            return False  # it is not linear
        ends[variable] = extent - 1 if times and times[0] > 0 else ZERO
    return le0(substitute(total, ends)) is TRUE


# --------------------------------------------------------------------------------------------------
# Operators


def _view(elements: KnownElements, node: Node) -> Element | None:
    of, *args = node.args
    sizes, result = node.results[0].sizes, node.results[0]
    rule = record_of(node.name).index_map if "[" not in node.name else None
    if rule is None or record_of(node.name).is_part or not isinstance(of, Tensor):
        return None
    hidden = elements.hiding.get(of)
    element = elements.of(of) if hidden is None else hidden
    if element is None:
        return None
    source = IndexedTensor(of.sizes, Type.I64, _never_read)
    index_map = rule(source, sizes, *args, **node.kwargs)
    if hidden is not None:
        elements.hiding[result] = lambda index: hidden(index_map(index))
        return None
    return lambda index: element(index_map(index))


def _never_read(*args: Any) -> Any:
    raise NotLowered("what is in memory")


def _copied(elements: KnownElements, node: Node) -> Element | None:
    """A copy, or a conversion among integers."""
    source, result = node.args[0], node.results[0]
    if not isinstance(source, Tensor) or _is_number(source) != _is_number(result):
        return None
    return elements.of(source) if source.sizes == result.sizes else None


def _is_number(t: Tensor) -> bool | None:
    if t.dtype is torch.bool:
        return False
    return True if t.dtype in (torch.int32, torch.int64) else None


def _arange(elements: KnownElements, node: Node) -> Element | None:
    numbers = [as_expr(arg) for arg in node.args if type(arg) is int or isinstance(arg, Expr)]
    if len(numbers) != len(node.args) or not _is_number(node.results[0]):
        return None
    start, step = ZERO, ONE
    if len(numbers) > 1:
        start, _, *rest = numbers
        step = rest[0] if rest else ONE
    return lambda index: start + index[0] * step


def _filled(value: int | None, at: int = 1) -> Callable[[KnownElements, Node], Element | None]:
    """The rule of an operator whose result is one number everywhere: `value`, or the argument at
    this position if it is None."""

    def rule(elements: KnownElements, node: Node) -> Element | None:
        number = node.args[at] if value is None else value
        kind = _is_number(node.results[0])
        if kind is None or type(number) not in (bool, int):
            return None
        constant = integer(number) if kind else truth(bool(number))
        return lambda index: constant

    return rule


def _combined(
    combine: Callable[[Any, Any], Any], on: type
) -> Callable[[KnownElements, Node], Element | None]:
    """An operator on two numbers (`on` is Expr), or on two conditions."""

    def rule(elements: KnownElements, node: Node) -> Element | None:
        operands = elements.operands(node, 2)
        if operands is None or node.kwargs:
            return None
        left, right = operands

        def element(index: Index) -> Any:
            a, b = left(index), right(index)
            if not (isinstance(a, on) and isinstance(b, on)):
                raise NotLowered("bools as numbers")
            return combine(a, b)

        element(index_variables(node.results[0].sizes))  # whether it is of that kind
        return element

    return rule


def _opposite(elements: KnownElements, node: Node) -> Element | None:
    element = elements.of(node.args[0])
    if element is None or node.results[0].dtype is not torch.bool:
        return None
    return lambda index: not_(element(index))


def _joined(elements: KnownElements, node: Node) -> Element | None:
    """The rule of `cat` of one element with others, if their elements are those of one function:
    `cat([zeros(1), arange(1, n)])` is `arange(n)`."""
    tensors, *rest = node.args
    dim = rest[0] if rest else node.kwargs.get("dim", 0)
    if len(tensors) != 2 or type(dim) is not int:
        return None
    first, others = tensors
    dim %= len(others.sizes)
    first_element, more = elements.of(first), elements.of(others)
    if first_element is None or more is None or first.sizes[dim] is not ONE:
        return None

    # The element that the others would have one place before their first.
    def earlier(index: Index) -> Any:
        return more((*index[:dim], index[dim] - 1, *index[dim + 1 :]))

    place = index_variables(node.results[0].sizes)
    start = (*place[:dim], ZERO, *place[dim + 1 :])
    return earlier if first_element(start) is earlier(start) else None


def _sums(elements: KnownElements, node: Node) -> Element | None:
    """The rule of `cumsum`, of nothing but zeros."""
    element = elements.of(node.args[0])
    if element is None or not _is_number(node.results[0]):
        return None
    zeros = element(index_variables(node.args[0].sizes)) in (ZERO, FALSE)
    return (lambda index: ZERO) if zeros else None


def _looked_up(elements: KnownElements, node: Node) -> Element | None:
    """The rule of indexing a tensor whose elements are all the same, if the indices are known to be
    within it."""
    source, places = node.args
    element = elements.of(source)
    if element is None or len(places) != len(source.sizes):
        return None
    variables = index_variables(source.sizes)
    constant = element(variables)
    if not constant.symbols.isdisjoint(variables):
        return None
    for place, size in zip(places, source.sizes, strict=True):
        if not isinstance(place, Tensor) or not _within(elements, place, size):
            return None
    if constant.value is not None and node.results[0].strides == contiguous(node.results[0].sizes):
        elements.constant[node] = constant.value
    return lambda index: constant


def _within(elements: KnownElements, places: Tensor, size: Expr) -> bool:
    element = elements.of(places)
    if element is None or not _is_number(places):
        return False
    variables = index_variables(places.sizes)
    extents = {v: n for v, n in zip(variables, places.sizes, strict=True) if n is not ONE}
    place = element(variables)
    return _always(ge(place, 0), extents) and _always(lt(place, size), extents)


def _hidden(elements: KnownElements, node: Node) -> Element | None:
    """The rule of `where(condition, 0, -inf)`: noted among those that are added to scores."""
    condition, shown, hidden = node.args
    element = elements._spread(condition, node.results[0].sizes)
    if element is not None and (_number(shown), _number(hidden)) == (0.0, float("-inf")):
        elements.hiding[node.results[0]] = element
    return None


def _number(value: Any) -> float | None:
    """The number that all elements of a value are, or None."""
    if isinstance(value, Tensor):
        node = value.node
        if node is None or node.name not in _NUMBERS:
            return None
        value = node.args[_NUMBERS[node.name]]
    return float(value) if type(value) in (int, float) else None


_NUMBERS: Final = {"aten.scalar_tensor.default": 0, "aten.full.default": 1}
_COMPARISONS: Final = {"le": le, "lt": lt, "ge": ge, "gt": gt, "eq": eq, "ne": ne}
_CONNECTIVES: Final = {
    **dict.fromkeys(("__and__.Tensor", "bitwise_and.Tensor", "logical_and.default"), and_),
    **dict.fromkeys(("__or__.Tensor", "bitwise_or.Tensor", "logical_or.default"), or_),
}
_RULES: Final[dict[str, Callable[[KnownElements, Node], Element | None]]] = {
    **dict.fromkeys(
        ("aten.arange.default", "aten.arange.start", "aten.arange.start_step"), _arange
    ),
    **dict.fromkeys(("aten.ones.default", "aten.new_ones.default"), _filled(1)),
    **dict.fromkeys(("aten.zeros.default", "aten.new_zeros.default"), _filled(0)),
    "aten.full.default": _filled(None),
    "aten.new_full.default": _filled(None, 2),
    **dict.fromkeys(("aten.clone.default", "aten.to.dtype", "aten.to.device"), _copied),
    **dict.fromkeys(("aten._to_copy.default", "aten.to.dtype_layout"), _copied),
    "aten.add.Tensor": _combined(lambda a, b: a + b, Expr),
    "aten.sub.Tensor": _combined(lambda a, b: a - b, Expr),
    **{
        f"aten.{name}.{kind}": _combined(compare, Expr)
        for name, compare in _COMPARISONS.items()
        for kind in ("Tensor", "Scalar")
    },
    **{f"aten.{name}": _combined(connect, Cond) for name, connect in _CONNECTIVES.items()},
    **dict.fromkeys(("aten.logical_not.default", "aten.bitwise_not.default"), _opposite),
    "aten.cat.default": _joined,
    "aten.cumsum.default": _sums,
    "aten.index.Tensor": _looked_up,
    **dict.fromkeys(("aten.where.self", "aten.where.Scalar", "aten.where.ScalarSelf"), _hidden),
    "aten.where.ScalarOther": _hidden,
}
