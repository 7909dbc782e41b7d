"""Attention masks of bools, materialized as the floats that PyTorch adds.

The one idea: given a mask of bools, `scaled_dot_product_attention` first converts it to 0 and -inf,
in every call. As an operator of the graph the conversion is shared by all layers that use the same
mask, and fused with what computes it.
"""

from __future__ import annotations

from typing import Final

import torch

from pliant.graph.ir import FunctionalBuilder, Node, Tensor, replaced
from pliant.loop.define import contiguous
from pliant.sym.expr import ZERO

ATTENTION: Final = "aten.scaled_dot_product_attention.default"
PLACE: Final = 3


def materialize_masks(function: FunctionalBuilder) -> None:
    """Attention with masks of floats instead of bools."""
    masks: dict[Tensor, Tensor] = {}
    nodes: list[Node] = []
    for node in function.nodes:
        if node.name == ATTENTION:
            _replace(node, masks, nodes)
        nodes.append(node)
    function.nodes[:] = nodes


def _replace(node: Node, masks: dict[Tensor, Tensor], nodes: list[Node]) -> None:
    bools = node.args[PLACE] if len(node.args) > PLACE else node.kwargs.get("attn_mask")
    dtype = node.args[0].dtype
    if not isinstance(bools, Tensor) or bools.dtype is not torch.bool:
        return
    if dtype is not torch.get_default_dtype():  # which is what the numbers would be
        return
    if bools not in masks:
        choose = torch.ops.aten.where.Scalar
        mask = Tensor(bools.sizes, contiguous(bools.sizes), ZERO, dtype, device=bools.device)
        # Right before the first attention that uses it; later ones find it in `masks`.
        mask.node = Node(str(choose), choose, (bools, 0.0, float("-inf")), {}, (mask,))
        nodes.append(mask.node)
        masks[bools] = mask
    # All arguments at once is safe: no other one can be a tensor of bools.
    node.args = replaced(node.args, masks)
    node.kwargs = {name: replaced(value, masks) for name, value in node.kwargs.items()}
