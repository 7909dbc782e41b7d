"""Which matrix products are computed by kernels of ours, on GPUs.

The one idea: libraries are faster than we are, so a product is theirs unless what surrounds it
costs more than they gain. By default that is one case: a large result whose rows are no multiple of
16 bytes and that is returned, as the logits of most vocabularies. A library computes it padded, and
a copy cuts the padding off; a kernel of ours stores each row where it belongs.

Where the program asks for it (`mode="max-autotune"`), kernels of ours are tried for all large
products, with what is computed from their elements in the same kernel, and measured beside the
library (`targets.triton.tuning`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from pliant.graph.half_matmul import ALIGNMENT, LARGE, factors_of, multiplications, row_of
from pliant.graph.ir import FunctionalBuilder, Tensor, returned_tensors, tensors_in
from pliant.sym.expr import ONE, Expr, product_of

Hint = Callable[[Expr], int]

WORTH_TRYING: Final = 1 << 29
"""Multiplications below which a launch takes longer than the product."""


def generate_odd_products(function: FunctionalBuilder, hint: Hint) -> None:
    """Mark the products for which libraries would need a padded result and a copy of it. `hint`
    tells sizes that were seen."""
    returned = _only_returned(function)
    for node in function.nodes:
        factors = factors_of(node)
        if factors is None or node.results[0] not in returned:
            continue
        sizes = node.results[0].sizes
        odd = bool(hint(sizes[-1]) % ALIGNMENT) and hint(product_of(sizes[:-1])) > 1
        fitting = _is_aligned(factors.first, hint) and _is_aligned(factors.second, hint)
        node.generated = odd and fitting and multiplications(node, factors, hint) >= LARGE


def generate_large_products(function: FunctionalBuilder, hint: Hint) -> None:
    """Mark all large products: their kernels are measured."""
    for node in function.nodes:
        factors = factors_of(node)
        if factors is not None and multiplications(node, factors, hint) >= WORTH_TRYING:
            node.generated = True


def _only_returned(function: FunctionalBuilder) -> set[Tensor]:
    """The values that the caller gets, or gets views of, and that nothing else reads."""
    read = {t for n in function.nodes if not n.view for t in tensors_in((n.args, n.kwargs))}
    read.update(function.writes.values())
    returned = set(returned_tensors(function.outputs))
    # Backwards, so that views of views are seen before what they are views of.
    for node in reversed(function.nodes):
        if node.view:
            (base, (result,)) = node.args[0], node.results
            read.update([base] if result in read else [])
            returned.update([base] if result in returned else [])
    return returned - read


def _is_aligned(matrix: Tensor, hint: Hint) -> bool:
    """Whether rows, or columns, begin where 16 bytes do."""
    stored = ONE in matrix.strides[-2:]
    return stored and hint(row_of(matrix)) % ALIGNMENT == 0
