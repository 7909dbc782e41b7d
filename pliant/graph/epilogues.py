"""Activations behind matrix products of halves on GPUs, which the product's kernel computes.

The one idea: cuBLAS applies `relu`, or the `tanh` form of `gelu`, to its result while that is still
in registers; a kernel of its own would read and write it once more. Libraries write `gelu` out,
each in its own way,

    0.5 * x * (1.0 + tanh(0.7978845608 * (x + 0.044715 * pow(x, 3.0))))

so an activation is recognised by what it computes: the operators between the product and the first
value that all its readers see are run on a few numbers, and compared with the activation there. Any
two of these functions, and whatever else few operators compute, differ by far more than rounding.

A product that is read by others too, as by the backward of a joint graph, stays as it is.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

import torch
import torch.nn.functional as F

from pliant.graph.half_matmul import factors_of
from pliant.graph.ir import FunctionalBuilder, Node, Scalar, Tensor, returned_tensors, tensors_in
from pliant.graph.rewrite import Replacement
from pliant.loop.define import contiguous
from pliant.sym.expr import product_of

if TYPE_CHECKING:
    from pliant.ops.matmul import Factors

aten = torch.ops.aten
Readers = Mapping[Tensor, Sequence[Node]]

LONGEST: Final = 12
"""Operators that an activation is written with, at most."""
_LAST: Final = frozenset(("aten.relu.default", "aten.gelu.default", "aten.mul.Tensor"))
"""The operators that activations end with."""
_POINTWISE: Final = _LAST | frozenset(
    ("aten.add.Tensor", "aten.pow.Tensor_Scalar", "aten.tanh.default")
)
_NUMBERS: Final = (-30.0, -4.0, -2.5, -1.7, -0.9, -0.3, -1e-3, 0.0, 2e-3, 0.4, 1.1, 1.9, 2.7, 25.0)


def _tanh_gelu(x: torch.Tensor) -> torch.Tensor:
    return F.gelu(x, approximate="tanh")


_ACTIVATIONS: Final[tuple[tuple[Callable[[torch.Tensor], torch.Tensor], bool], ...]] = (
    (F.relu, False),
    (_tanh_gelu, True),
)
"""What cuBLAS computes, and whether `_addmm_activation` is told `use_gelu`."""


def fuse_activations(function: FunctionalBuilder) -> None:
    """Have products compute the activations behind them."""
    products = [node for node in function.nodes if _factors(node) is not None]
    if not products:
        return
    readers = _readers(function)
    instead: dict[Node, list[Node]] = {}
    for node in products:
        found = _activation(node.results[0], readers)
        factors = _factors(node)
        if found is not None and factors is not None:
            last, use_gelu = found
            instead[last] = _fused(last, node, factors, use_gelu)
    function.nodes[:] = [new for node in function.nodes for new in instead.get(node, [node])]


def _factors(node: Node) -> Factors | None:
    """The operands of a product of rows with a matrix and a bias, in the layout that is fused."""
    factors = None if node.generated else factors_of(node)
    if factors is None or factors.added is None:
        return None
    first, bias = factors.first, factors.added
    plain = first.strides == contiguous(first.sizes) and bias.strides == contiguous(bias.sizes)
    return factors if plain else None


def _readers(function: FunctionalBuilder) -> Readers:
    """The nodes that read each value; what is returned or written is read by a node of nothing."""
    readers: dict[Tensor, list[Node]] = {}
    for node in function.nodes:
        for tensor in tensors_in((node.args, node.kwargs)):
            readers.setdefault(tensor, []).append(node)
    outside = Node("", None, (), {})
    for tensor in (*returned_tensors(function.outputs), *function.writes.values()):
        readers.setdefault(tensor, []).append(outside)
    return readers


def _activation(product: Tensor, readers: Readers) -> tuple[Node, bool] | None:
    """The last operator of an activation that is all that reads a product, and whether it is
    `gelu`."""
    values, nodes = {product}, list[Node]()
    waiting = list(readers.get(product, ()))
    while waiting and len(nodes) < LONGEST:
        node = waiting.pop(0)
        if node in nodes or not values.issuperset(tensors_in((node.args, node.kwargs))):
            continue  # it comes again, with its other operand
        if not _is_part(node, product):
            return None
        nodes.append(node)
        values.update(node.results)
        unread = [v for v in values if any(user not in nodes for user in readers.get(v, ()))]
        if unread == list(node.results) and node.name in _LAST:
            return _recognised(product, nodes)
        waiting += readers.get(node.results[0], ())
    return None


def _is_part(node: Node, product: Tensor) -> bool:
    """Whether it may be one of the operators that an activation consists of."""
    same = all(t.dtype is product.dtype for t in node.results) and not node.effect
    numbers = [arg.number if isinstance(arg, Scalar) else arg for arg in node.args]
    numbers = [n for n in (*numbers, *node.kwargs.values()) if not isinstance(n, Tensor)]
    plain = all(type(number) in (int, float, str) for number in numbers)
    return same and (node.view or (node.name in _POINTWISE and plain))


def _recognised(product: Tensor, nodes: Sequence[Node]) -> tuple[Node, bool] | None:
    """The last of these nodes, if they compute an activation of the product."""
    x = torch.tensor(_NUMBERS, dtype=torch.float64)
    values = {product: x}
    for node in nodes:
        args = [_run_on(arg, values) for arg in node.args]
        kwargs = {name: _run_on(arg, values) for name, arg in node.kwargs.items()}
        # A view has the same elements in another shape.
        values[node.results[0]] = args[0] if node.view else node.func(*args, **kwargs)
    for activation, use_gelu in _ACTIVATIONS:
        if torch.allclose(values[nodes[-1].results[0]], activation(x), rtol=1e-6, atol=1e-9):
            return nodes[-1], use_gelu
    return None


def _run_on(arg: Any, values: Mapping[Tensor, torch.Tensor]) -> Any:
    if isinstance(arg, Tensor):
        return values[arg]
    return arg.number if isinstance(arg, Scalar) else arg


def _fused(last: Node, product: Node, factors: Factors, use_gelu: bool) -> list[Node]:
    """The nodes that replace the last one of an activation."""
    (result,), dtype, parts = last.results, last.results[0].dtype, Replacement(last)
    rows, matrix = factors.first, factors.second
    if len(rows.sizes) > 2:
        shape = (product_of(rows.sizes[:-1]), rows.sizes[-1])
        rows = parts.call(aten.view.default, shape, dtype, rows, list(shape), view=True)
    if factors.turned:
        matrix = parts.transposed(matrix)
    sizes = (rows.sizes[0], matrix.sizes[1])
    args = (factors.added, rows, matrix)
    parts.call(aten._addmm_activation.default, sizes, dtype, *args, use_gelu=use_gelu)
    if sizes != result.sizes:
        (called,) = parts.nodes[-1].results
        spread = list(result.sizes)
        parts.call(aten.view.default, spread, dtype, called, spread, view=True)
    return parts.end()
