"""Common subexpression elimination (CSE).

The one idea: tensors are values, so two calls of an operator with the same arguments give the same
value, and the second one is dropped. What is returned is not merged: in eager PyTorch each result
has memory of its own. Neither are custom operators, which may draw numbers or keep a log.
"""

from __future__ import annotations

from typing import Any, Final

from pliant.graph.ir import (
    FunctionalBuilder,
    MemoryWrite,
    Node,
    Tensor,
    is_uninitialised,
    replaced,
    returned_tensors,
)

CUSTOM_UNLESS: Final = frozenset(("aten", "prims"))


def eliminate_common_subexpressions(function: FunctionalBuilder) -> None:
    """Drop each call whose results an earlier call has computed, in one pass over the nodes."""
    # Two results of the program are two tensors, even where they hold the same numbers.
    apart = set(returned_tensors(function.outputs))
    # These end up in the caller's memory.
    apart |= set(function.writes.values())
    # What is overwritten needs memory of its own: it is equal to others only until then.
    apart |= {node.put.old for node in function.nodes if node.put is not None}
    # The first node with each key; and by dropped value, the equal one that stays.
    first: dict[Any, Node] = {}
    instead: dict[Tensor, Tensor] = {}
    remaining: list[Node] = []
    for node in function.nodes:
        node.args = replaced(node.args, instead)
        node.kwargs = {name: replaced(value, instead) for name, value in node.kwargs.items()}
        if node.put is not None:
            _replace_in_put(node.put, instead)
        # The tensors that arrive at the program's own backward are named there, not in its
        # arguments.
        if node.gradient is not None:
            node.gradient.arriving = replaced(node.gradient.arriving, instead)
        shared = node.func is not None and not (node.effect or node.defines or _is_custom(node))
        if shared and not is_uninitialised(node):  # which will be written to, each for itself
            # Nodes are in the order in which they run, so the first of them dominates all later
            # uses.
            earlier = first.setdefault(_key(node), node)
            if earlier is not node and apart.isdisjoint(node.results):
                instead.update(zip(node.results, earlier.results, strict=True))
                continue
        remaining.append(node)
    function.nodes[:] = remaining


def _is_custom(node: Node) -> bool:
    return getattr(node.func, "namespace", "aten") not in CUSTOM_UNLESS


def _replace_in_put(put: MemoryWrite, instead: dict[Tensor, Tensor]) -> None:
    put.old = instead.get(put.old, put.old)
    put.updated = None if put.updated is None else instead.get(put.updated, put.updated)
    for node in put.otherwise or ():
        node.args = replaced(node.args, instead)


def _key(node: Node) -> Any:
    """Equal for two nodes that compute the same value, with the same layout."""
    results = [(t.sizes, t.strides, t.offset, t.dtype) for t in node.results]
    named = [(name, _argument_key(value)) for name, value in sorted(node.kwargs.items())]
    return (
        node.name,
        node.func,
        _argument_key(node.args),
        tuple(named),
        tuple(results),
        node.gradient,
    )


def _argument_key(value: Any) -> Any:
    """Equal for arguments that are the same. 1, 1.0 and True, or 0.0 and -0.0, are equal in Python
    and different arguments."""
    if isinstance(value, (list, tuple)):
        return (type(value), *map(_argument_key, value))
    if isinstance(value, int | float | complex):
        return (type(value), repr(value))
    try:
        hash(value)
    except TypeError:
        return id(value)
    return value
