"""What passes replace a node with: other nodes, that end in its results.

The one idea: a pass names operators and sizes; where the new nodes come from in the program, and
what checkpoints say of them, is taken from the node that they replace.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import field
from typing import Any

import torch

from pliant.base.values import dataclass
from pliant.graph.ir import Node, Tensor
from pliant.loop.define import contiguous
from pliant.sym.expr import ZERO, Expr


@dataclass(frozen=True, slots=True, eq=False)
class Replacement:
    """The nodes that replace `node`, in order."""

    node: Node
    nodes: list[Node] = field(default_factory=list)

    def call(
        self,
        func: Any,
        sizes: Sequence[Expr],
        dtype: torch.dtype,
        *args: Any,
        strides: Sequence[Expr] | None = None,
        view: bool = False,
        **kwargs: Any,
    ) -> Tensor:
        """The result of one more operator, with these sizes. It is contiguous, unless `strides`
        say otherwise."""
        laid_out = contiguous(tuple(sizes)) if strides is None else tuple(strides)
        device = self.node.results[0].device
        result = Tensor(tuple(sizes), laid_out, ZERO, dtype, device=device)
        # A node is made with the results that it has.
        result.node = Node(
            str(func), func, args, kwargs, (result,), view=view, recompute=self.node.recompute
        )
        result.node.stack = self.node.stack
        self.nodes.append(result.node)
        return result

    def transposed(self, matrix: Tensor) -> Tensor:
        """A view of a matrix."""
        (rows, columns), (down, along) = matrix.sizes, matrix.strides
        sizes, strides = (columns, rows), (along, down)
        return self.call(
            torch.ops.aten.t.default, sizes, matrix.dtype, matrix, strides=strides, view=True
        )

    def end(self) -> list[Node]:
        """All nodes; the last one has the result of the node that they replace."""
        (result,) = self.node.results
        self.nodes[-1].results = (result,)
        result.node = self.nodes[-1]
        return self.nodes
