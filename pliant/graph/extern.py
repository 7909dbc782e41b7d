"""What PyTorch is called with: tensors as places in memory."""

from __future__ import annotations

from typing import Any

import torch

from pliant.base.values import dataclass
from pliant.graph.ir import Node
from pliant.ops.indexed_tensor import MemoryLayout
from pliant.sym.expr import Expr


@dataclass(frozen=True, slots=True, eq=False)
class TensorArgument:
    """A tensor in memory, as an argument of an operator that PyTorch runs."""

    memory: MemoryLayout
    sizes: tuple[Expr, ...]
    dtype: torch.dtype
    written: bool = False  # by the operator


@dataclass(frozen=True, slots=True, eq=False)
class ExternOperator:
    """What an `ExternCall` calls: the operator with places for tensors and expressions for numbers.
    If the operator takes `out`, that is memory of what the call makes."""

    node: Node
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    func: Any = None  # instead of the node's

    def __str__(self) -> str:
        return self.node.name
