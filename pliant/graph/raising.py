"""Operators of the functional graph that may raise because of the numbers in a tensor.

The one idea: a kernel notices what eager PyTorch would raise for where it computes the element. So
every element of such a result has to be computed, even if it isn't used. In `x[i][:2]` all of `i`
has to be tested, although two elements are read: a result that is not computed in full on the way
to what is needed becomes a definition of its own.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch

from pliant.base.operators import record_of
from pliant.fake.overload import describe
from pliant.graph.ir import Functional, Node, Tensor, returned_tensors, tensors_in


def may_raise(node: Node) -> bool:
    if node.view or node.func is None:
        return False
    if not isinstance(node.func, torch._ops.OpOverload):
        return True
    raises = describe(node.func).raises
    return raises is not None and raises(node.args, node.kwargs)


def keep_one(nodes: Sequence[Node]) -> None:
    """Make sure that the nodes of a call that may raise aren't all dead code. Capture may have seen
    the call in parts, one of which may raise, while the graph has it as a whole, of which that
    isn't known: then its last node is kept."""
    if nodes and not any(node.effect or may_raise(node) for node in nodes):
        nodes[-1].effect = nodes[-1].func is not None and not nodes[-1].view


def alive(function: Functional) -> list[Node]:
    """The nodes whose results are used, or that may raise, in order."""
    needed = set(returned_tensors(function.outputs))
    needed |= set(function.writes.values())
    live: list[Node] = []
    for node in reversed(function.nodes):
        if node.effect or not needed.isdisjoint(node.results) or may_raise(node):
            needed.update(tensors_in((node.args, node.kwargs)))
            live.append(node)
    return live[::-1]


def read_whole(function: Functional, nodes: Sequence[Node]) -> set[Tensor]:
    """The tensors of which every element is computed for some reader. Backwards over the nodes: a
    view that is read whole reads its source whole."""
    read = set(returned_tensors(function.outputs))
    read |= set(function.writes.values())
    for node in reversed(nodes):
        if node.func is None and len(node.args) == 2:  # a write to a part
            read.add(node.args[1])
        elif node.func is None or record_of(node.name).rearranges:
            if node.results[0] in read:
                read.add(node.args[0])
        elif record_of(node.name).reads_whole:
            read.add(node.args[0])
        elif _is_pointwise(node):
            sizes = node.results[0].sizes
            # Others are broadcast, and an empty result reads nothing of them.
            read.update(t for t in tensors_in((node.args, node.kwargs)) if t.sizes == sizes)
    return read


def _is_pointwise(node: Node) -> bool:
    return torch.Tag.pointwise in getattr(node.func, "tags", ()) and bool(node.results)
