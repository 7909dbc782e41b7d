"""Softmax in parts, so that a backward on a GPU can compute it again from what is small.

The one idea: of a softmax of long rows the largest number and the sum of each row are all that is
hard to compute again. As one operator it is saved for the backward as a whole, often in float32 and
twice as large as what it was computed from; in parts, the partition saves those two numbers.

    log_softmax(x) = (x - m) - log(sum(exp(x - m)))    with m = amax(x), one number per row
"""

from __future__ import annotations

from typing import Final

import torch

from pliant.graph.ir import FunctionalBuilder, Node
from pliant.graph.rewrite import Replacement
from pliant.sym.expr import ONE

aten = torch.ops.aten

LONG: Final = 1024  # shorter rows are a small part of what is saved
_NAMES: Final = ("aten._log_softmax.default", "aten.log_softmax.int")


def split_softmax(function: FunctionalBuilder) -> None:
    """Each `log_softmax` of long rows as the operators that it consists of."""
    nodes: list[Node] = []
    for node in function.nodes:
        nodes += _parts(node) if node.name in _NAMES and _is_long(node) else [node]
    function.nodes[:] = nodes


def _is_long(node: Node) -> bool:
    (result,) = node.results
    x, dim = node.args[:2]
    # Of halves, numbers are rounded between the parts.
    if x.dtype is not result.dtype or x.dtype not in (torch.float32, torch.float64) or not x.sizes:
        return False
    return (x.sizes[dim].value or 0) >= LONG


def _parts(node: Node) -> list[Node]:
    (result,), (x, dim) = node.results, node.args[:2]
    rows = [ONE if d == dim % len(x.sizes) else size for d, size in enumerate(x.sizes)]
    parts, dtype = Replacement(node), x.dtype
    # log_softmax(x) = (x - m) - log(sum(exp(x - m))), step by step.
    largest = parts.call(aten.amax.default, rows, dtype, x, [dim], True)
    shifted = parts.call(aten.sub.Tensor, x.sizes, dtype, x, largest)
    powers = parts.call(aten.exp.default, x.sizes, dtype, shifted)
    total = parts.call(aten.sum.dim_IntList, rows, dtype, powers, [dim], True)
    logarithm = parts.call(aten.log.default, rows, dtype, total)
    parts.call(aten.sub.Tensor, result.sizes, dtype, shifted, logarithm)
    return parts.end()
