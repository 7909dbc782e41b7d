"""Large matrix products of halves on GPUs, padded to rows of multiples of 16 bytes.

The one idea: libraries have their fast kernels for aligned matrices only, and the others are
several times slower. So operands are padded with zeros, and the padding is cut off the result:

    mm(x, w)  of [4096, 768] and [768, 50257]
        = constant_pad(mm(x, constant_pad(w, [0, 7])), [0, -7])

The zeros of the inner dimension add nothing. Kernels that read the result skip its padding, and
those that compute an operand write the padding, too: a copy is made only of what is in memory
already, or returned. A joint graph saves the product as it is; the backward skips its padding.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Final

import torch

from pliant.graph.half_matmul import ALIGNMENT, LARGE, factors_of, multiplications, row_of
from pliant.graph.ir import FunctionalBuilder, Node, Tensor
from pliant.graph.rewrite import Replacement
from pliant.loop.define import contiguous
from pliant.sym.expr import ONE, ZERO, Expr, floordiv, product_of

if TYPE_CHECKING:
    from pliant.ops.matmul import Factors

aten = torch.ops.aten
Hint = Callable[[Expr], int]

PADDED_TO: Final = 16
"""Triton's kernels, which read the product, load 16 bytes at a time if rows are multiples of that
many elements."""
_TRANSPOSES: Final = frozenset(("aten.t.default", "aten.transpose.int", "aten.permute.default"))


def align_products(function: FunctionalBuilder, hint: Hint) -> None:
    """Pad the operands of large products whose rows aren't aligned. `hint` tells sizes that were
    seen."""
    padding = _Padding()
    nodes: list[Node] = []
    for node in function.nodes:
        factors = None if node.generated else factors_of(node)
        parts = None
        if factors is not None and gains(node, factors, hint):
            parts = padding.product(node, factors)
        nodes += [node] if parts is None else parts
    function.nodes[:] = nodes


def gains(node: Node, factors: Factors, hint: Hint) -> bool:
    """Whether the product is large and some of its rows aren't aligned: the gain is larger than the
    cost of the copies then."""
    first, second = factors.first, factors.second
    widths = (node.results[0].sizes[-1], first.sizes[-1], row_of(first), row_of(second))
    large = multiplications(node, factors, hint) >= LARGE
    return large and any(hint(width) % ALIGNMENT for width in widths)


def aligned(size: Expr) -> Expr:
    """The size itself if it is a multiple of `ALIGNMENT`, else the next multiple of `PADDED_TO`."""
    if size.value is not None and size.value % ALIGNMENT == 0:
        return size
    return floordiv(size + (PADDED_TO - 1), PADDED_TO) * PADDED_TO


class _Padding:
    """Pads the operands of the products of one function: one of several products once."""

    def __init__(self) -> None:
        self.padded: dict[tuple[Tensor, tuple[Expr, ...]], Tensor] = {}

    def product(self, node: Node, factors: Factors) -> list[Node] | None:
        """The nodes that replace a product; None if an operand is not stored as a matrix."""
        parts, (result,) = Replacement(node), node.results
        rows = self._operand(parts, factors.first, is_left=True)
        matrix = self._operand(parts, factors.second, is_left=False)
        if rows is None or matrix is None:
            return None
        matrix = parts.transposed(matrix) if factors.turned else matrix
        sizes = (rows.sizes[0], matrix.sizes[1])
        args, func = [rows, matrix], aten.mm.default
        if factors.added is not None:
            args.insert(0, self._pad(parts, factors.added, (sizes[1],)))
            func = aten.addmm.default
        product = parts.call(func, sizes, result.dtype, *args)
        if len(result.sizes) > 2:
            shape = (*result.sizes[:-1], sizes[1])
            product = parts.call(
                aten.view.default, shape, result.dtype, product, list(shape), view=True
            )
        if product.sizes != result.sizes:
            _pad_to(parts, product, result.sizes)
        return parts.end()

    def _operand(self, parts: Replacement, tensor: Tensor, is_left: bool) -> Tensor | None:
        """An operand as a matrix whose rows are padded, and whose columns are, too, unless these
        are rows of the result that a stride spans anyway."""
        tensor = stored = _without_transposes(tensor)
        transposed = tensor.strides[-1] is not ONE
        if transposed:
            view = tensor.node
            if view is None or view.name not in _TRANSPOSES or len(tensor.sizes) != 2:
                return None
            stored = view.args[0]
        sizes = [*stored.sizes[:-1], aligned(stored.sizes[-1])]
        if len(sizes) == 2 and (transposed or not is_left):
            sizes[0] = aligned(sizes[0])
        matrix = self._pad(parts, stored, tuple(sizes))
        if len(sizes) > 2:
            shape = (product_of(sizes[:-1]), sizes[-1])
            matrix = parts.call(
                aten.view.default, shape, stored.dtype, matrix, list(shape), view=True
            )
        return parts.transposed(matrix) if transposed else matrix

    def _pad(self, parts: Replacement, stored: Tensor, sizes: tuple[Expr, ...]) -> Tensor:
        """The tensor padded with zeros at the ends, or itself if it is as it should be."""
        if sizes == stored.sizes and stored.strides == contiguous(stored.sizes):
            return stored
        key = (stored, sizes)
        if key not in self.padded:
            self.padded[key] = _pad_to(parts, stored, sizes)
        return self.padded[key]


def _without_transposes(tensor: Tensor) -> Tensor:
    """The tensor that this one is the transpose of the transpose of, if it is."""
    node = tensor.node
    if node is not None and node.name in _TRANSPOSES:
        inner = node.args[0].node
        if inner is not None and inner.name in _TRANSPOSES:
            (source, *_) = inner.args
            if source.sizes == tensor.sizes and source.strides == tensor.strides:
                return _without_transposes(source)
    return tensor


def _pad_to(parts: Replacement, tensor: Tensor, sizes: Sequence[Expr]) -> Tensor:
    """The tensor padded with zeros at the ends, or cut off there, to these sizes."""
    pads: list[Any] = []
    # `constant_pad_nd` counts dimensions from the last one.
    for old, new in zip(reversed(tensor.sizes), reversed(sizes), strict=True):
        pads += [ZERO, new - old]
    return parts.call(aten.constant_pad_nd.default, sizes, tensor.dtype, tensor, pads)
