"""Rematerialization in a whole step: what a checkpoint computes is computed again by the backward.

The one idea: forward and backward are one graph, in which a value would be kept until its last
reader has run. So readers outside of the checkpoint, which are gradient formulas, read copies of
what it computes on the way. A copy is made right before its first reader, so that no two
checkpoints are in memory at once.
"""

from __future__ import annotations

from collections.abc import Mapping

from pliant.graph.ir import FunctionalBuilder, Node, Tensor, replaced
from pliant.graph.partition import can_be_repeated, is_whole_write, operands_of


def rematerialize(function: FunctionalBuilder) -> None:
    """Rewrite gradient formulas to read copies of what checkpoints compute. `Node.recompute` says
    which nodes are in a checkpoint; those with None are outside."""
    makers = {t: node for node in function.nodes if _is_repeated(node) for t in node.results}
    if not makers:
        return
    copies: dict[Tensor, Tensor] = {}
    nodes: list[Node] = []
    for node in function.nodes:
        # A reader outside of checkpoints. Copies stand right before it, operands first.
        if node.recompute is None:
            for maker in _missing(node, makers, copies):
                nodes.append(_copy(maker, copies))
            _replace_operands(node, copies)
        nodes.append(node)
    function.nodes[:] = nodes


def _is_repeated(node: Node) -> bool:
    """Whether copies of the node are made. What can't be repeated, like random draws, is kept."""
    free = node.view or is_whole_write(node)
    return bool(node.recompute) and (free or can_be_repeated(node))


def _missing(
    node: Node, makers: Mapping[Tensor, Node], copies: Mapping[Tensor, Tensor]
) -> list[Node]:
    """The nodes of which `node` needs copies that don't exist yet, in the order of their reads (a
    postorder walk)."""
    order: dict[Node, None] = {}
    waiting = [node]  # not by recursion: a checkpoint may be a chain of thousands of operators
    while waiting:
        makers_before = [
            makers[t]
            for t in operands_of(waiting[-1])
            if t in makers and t not in copies and makers[t] not in order
        ]
        if makers_before:
            waiting += makers_before
        else:
            order[waiting.pop()] = None
    del order[node]
    return list(order)


def _copy(node: Node, copies: dict[Tensor, Tensor]) -> Node:
    args = replaced(node.args, copies)
    kwargs = {name: replaced(value, copies) for name, value in node.kwargs.items()}
    results = tuple(
        [Tensor(t.sizes, t.strides, t.offset, t.dtype, device=t.device) for t in node.results]
    )
    new = Node(node.name, node.func, args, kwargs, results, node.view, stack=node.stack)
    new.generated = node.generated
    for result in results:
        result.node = new
    copies.update(zip(node.results, results, strict=True))
    return new


def _replace_operands(node: Node, copies: Mapping[Tensor, Tensor]) -> None:
    node.args = replaced(node.args, copies)
    node.kwargs = {name: replaced(value, copies) for name, value in node.kwargs.items()}
    for step in (node.put and node.put.otherwise) or ():
        _replace_operands(step, copies)
