"""Softmax in parts, so that a backward on a GPU can compute it again from what is small.

The one idea: of a softmax of long rows the largest number and the sum of each row are all that is
hard to compute again. As one operator it is saved for the backward as a whole, often in float32 and
twice as large as what it was computed from; in parts, the partition saves those two numbers.

    log_softmax(x) = (x - m) - log(sum(exp(x - m)))    with m = amax(x), one number per row
"""

from __future__ import annotations

from typing import Any, Final

import torch

from pliant.graph.ir import FunctionalBuilder, Node, Tensor
from pliant.loop.define import contiguous
from pliant.sym.expr import ONE, ZERO

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
    x, dim = node.args[:2]
    parts: list[Node] = []

    def call(func: Any, *args: Any, by_rows: bool = False, result: Tensor | None = None) -> Tensor:
        sizes = list(x.sizes)
        if by_rows:
            sizes[dim] = ONE
        if result is None:
            layout = contiguous(tuple(sizes))
            result = Tensor(tuple(sizes), layout, ZERO, x.dtype, device=x.device)
        result.node = Node(str(func), func, args, {}, (result,), recompute=node.recompute)
        result.node.stack = node.stack
        parts.append(result.node)
        return result

    # log_softmax(x) = (x - m) - log(sum(exp(x - m))), step by step.
    largest = call(aten.amax.default, x, [dim], True, by_rows=True)
    shifted = call(aten.sub.Tensor, x, largest)
    powers = call(aten.exp.default, shifted)
    total = call(aten.sum.dim_IntList, powers, [dim], True, by_rows=True)
    logarithm = call(aten.log.default, total, by_rows=True)
    call(aten.sub.Tensor, shifted, logarithm, result=node.results[0])
    return parts
