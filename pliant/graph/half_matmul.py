"""Matrix products of float16 and bfloat16: their operands, and what libraries want of them on GPUs.

The passes over these products are `generated_matmul`, `aligned_matmul` and `epilogues`, in this
order.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final

import torch

from pliant.base.operators import record_of
from pliant.graph.ir import Node, Tensor
from pliant.loop.define import contiguous
from pliant.sym.expr import ONE, Expr, product_of

if TYPE_CHECKING:
    from pliant.ops.matmul import Factors

Hint = Callable[[Expr], int]

HALVES: Final = (torch.bfloat16, torch.float16)
ALIGNMENT: Final = 8
"""Halves in 16 bytes: libraries for GPUs have their fast kernels for rows of multiples of that."""
LARGE: Final = 1 << 32
"""Multiplications that take longer than to copy the operands."""


def factors_of(node: Node) -> Factors | None:
    """The operands of a product of rows with a matrix, of halves and with at most a bias; None for
    any other node."""
    rule = record_of(node.name).factors
    factors = None if rule is None or node.effect or node.defines else rule(node)
    if factors is None or len(node.results) != 1:
        return None
    (result,), first, second, added = node.results, factors.first, factors.second, factors.added
    operands = [t for t in (first, second, added) if t is not None]
    halves = result.dtype in HALVES and all(t.dtype is result.dtype for t in operands)
    matrices = len(first.sizes) >= 2 and len(second.sizes) == 2
    biased = added is None or (len(added.sizes) == 1 and added.sizes[0] is result.sizes[-1])
    plain = result.strides == contiguous(result.sizes)
    return factors if halves and matrices and biased and plain else None


def multiplications(node: Node, factors: Factors, hint: Hint) -> int:
    """How many a product takes, at the sizes that `hint` expects."""
    return hint(product_of(node.results[0].sizes)) * hint(factors.first.sizes[-1])


def row_of(tensor: Tensor) -> Expr:
    """The leading dimension of a matrix: the stride of rows, or of columns if it is stored by
    columns."""
    down, along = tensor.strides[-2:]
    return down if along is ONE else along
