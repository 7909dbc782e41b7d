"""A capture taken apart: what it is, as data, and what ties it to this process.

The one idea: capture works with live objects; its result names them by number (`base.external`).
What PyTorch's graph is here is a list of nodes: a `torch.fx.GraphModule` can't be written to disk,
since its targets are functions of all kinds, loading one traces it anew, and what nodes remember
(`meta`) is lost.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

from torch import fx
from torch.fx.immutable_collections import immutable_dict, immutable_list

from pliant.base.external import PLAIN, Externals
from pliant.base.writes import RAISES, WRITES
from pliant.guards.guard import Guard, guards_data
from pliant.guards.source import Source
from pliant.stages import CapturedGraph, CapturedParts, GraphNode, NodeRef
from pliant.sym.frozen import SYMBOLS, Shapes
from pliant.sym.records import Provenance

MARKS: Final = (WRITES, RAISES)


def parts_data(
    externals: Externals,
    graph: fx.GraphModule | None,
    shapes: Shapes | None,
    inputs: tuple[Source, ...],
    guards: tuple[Guard, ...],
    slots: tuple[Source, ...],
    symbols: tuple[Provenance, ...],
) -> CapturedParts:
    """What a capture has found, as data. `inputs` are in the order of the graph's placeholders."""
    return CapturedParts(
        None if graph is None else _graph_data(graph, shapes, inputs, externals),
        guards_data(guards, externals),
        externals.visit(slots),
        externals.visit(symbols),
    )


def _graph_data(
    graph: fx.GraphModule,
    shapes: Shapes | None,
    inputs: tuple[Source, ...],
    externals: Externals,
) -> CapturedGraph:
    nodes = list(graph.graph.nodes)
    names = dict.fromkeys(node.target for node in nodes if node.op == "get_attr")
    return CapturedGraph(
        nodes=tuple([_node(node, externals) for node in nodes]),
        attributes={name: _attribute(getattr(graph, name), externals) for name in names},
        inputs=externals.visit(inputs),
        layouts=() if shapes is None else shapes.inputs,
    )


def namespace_data(namespace: dict[str, Any], externals: Externals) -> dict[str, Any]:
    """The globals of residual code. Containers are objects with an identity."""
    return {
        name: value if type(value) in PLAIN else externals.identity(value)
        for name, value in namespace.items()
    }


def _node(node: fx.Node, externals: Externals) -> GraphNode:
    meta = node.meta
    return GraphNode(
        node.name,
        node.op,
        # Functions are found again by the table, not by their name: that may not lead to them.
        node.target if isinstance(node.target, str) else externals.external(node.target),
        _argument(node.args, externals),
        _argument(node.kwargs, externals),
        meta.get("stack", ()),
        meta.get(SYMBOLS, ()),
        tuple([(mark, meta[mark]) for mark in MARKS if mark in meta]),
    )


def _argument(value: Any, externals: Externals) -> Any:
    """As `torch.fx` keeps arguments: nodes, plain values, and collections of them."""
    kind = type(value)
    if kind in PLAIN:
        return value
    if kind is fx.Node:
        return NodeRef(value.name)
    if kind in (tuple, immutable_list):
        return kind(_arguments(value, externals))
    if kind is immutable_dict:
        return {name: _argument(inner, externals) for name, inner in value.items()}
    if kind is slice:
        return slice(*_arguments((value.start, value.stop, value.step), externals))
    return externals.visit(value)


def _arguments(values: Iterable[Any], externals: Externals) -> list[Any]:
    return [_argument(value, externals) for value in values]


def _attribute(value: Any, externals: Externals) -> Any:
    """The body of a control flow operator is a graph too."""
    if isinstance(value, fx.GraphModule):
        return _graph_data(value, None, (), externals)
    return externals.external(value)
