"""The state of PyTorch's generator, where a captured graph sets it.

The one idea: a seed is an effect like a draw, and effects stay in their order.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from pliant.graph.aliases import NotFunctionalized
from pliant.graph.ir import Node
from pliant.graph.opaque_calls import opaque_function

if TYPE_CHECKING:
    from torch import fx

    from pliant.graph.functionalize import CapturedRun


def seed_generators(run: CapturedRun, node: fx.Node) -> None:
    if torch.cuda.is_initialized():  # whose generators are seeded too, and not all are put back
        raise NotFunctionalized("manual_seed of several devices")
    positional = tuple(run._args(node.args))
    seeding = Node("python.manual_seed", opaque_function(_seed, positional, {}), positional, {})
    seeding.effect = True
    seeding.stack = run.functionalizer.stack
    run.functionalizer.function.nodes.append(seeding)


def _seed(number: int) -> None:
    torch.manual_seed(number)
