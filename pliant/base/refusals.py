"""Operations that the back end can't compile, and graphs that had better break there.

The one idea: for the sake of one operation a graph needn't be run by PyTorch as a whole. The back
end says which one it is, by the step of the capture that recorded it. The driver captures once
more, with a break at that step, and Python runs the operation between two graphs.
"""

from __future__ import annotations

import types
from typing import Any, Final

import torch
from torch import fx

from pliant.base.values import dataclass

STEP: Final = "step"
"""Under this key a node of a captured graph has the step of the capture that recorded it."""

ASKED: Final = "asked"
"""Under this key a captured graph has the breaks that attempts of the capture asked for, by step,
if the graph may break where it can't be compiled."""

REFUSED: Final = "refused"
"""Under this key the back end notes what it can't compile, in a graph that may break there."""

CULPRIT: Final = "pliant_culprit"
"""This attribute of an error says which node of a captured graph it is about; None: about none."""

ABOUT_GRADIENTS: Final = ("retain_grad", "register_hook")

FEWEST: Final = 5
"""So many other operations make a graph break worth its time."""


@dataclass(frozen=True, slots=True)
class RefusedOperation:
    """An operation without code: the step that recorded it, its name, and why there is none."""

    step: int
    operation: str
    reason: str


def name_culprit(error: BaseException, node: Any) -> None:
    """Note which node of a graph an error is about, unless that is known. (It may be an error of
    the program's, whose class does as it likes with attributes.)"""
    vars(error).setdefault(CULPRIT, node)


def about(error: BaseException, cause: BaseException) -> BaseException:
    """An error that is about the same node as its cause."""
    if CULPRIT in vars(cause):
        name_culprit(error, vars(cause)[CULPRIT])
    return error


def names_gradients(function: types.FunctionType) -> bool:
    """Whether the function may ask for gradients by what it computes."""
    names = set(function.__code__.co_names)
    asks = "grad" in names and function.__globals__.get("grad") is torch.autograd.grad
    return asks or not names.isdisjoint(("autograd", *ABOUT_GRADIENTS))


def _asks_for_inner(graph: Any, culprit: Any) -> bool:
    """Whether the program is, at this node or later, about gradients by what is computed before.
    (For autograd the results of one graph don't depend on each other.)"""
    nodes = list(graph.graph.nodes)
    before = set(nodes[: nodes.index(culprit)])
    if any(node.target == "retain_grad" for node in before):
        return True
    asked: list[Any] = []
    for node in nodes:
        name = getattr(node.target, "__name__", node.target)
        if node not in before and (node.target is torch.autograd.grad or name in ABOUT_GRADIENTS):
            asked += node.all_input_nodes
    return any(node.op != "placeholder" and node in before for node in asked)


def _makes_array(node: fx.Node) -> bool:
    """Whether it gives an array of NumPy's. Behind a break sizes of arrays are constants, and the
    function would be compiled for each."""
    module = getattr(node.target, "__module__", None) or type(node.target).__module__
    return node.target == "numpy" or module.partition(".")[0] == "numpy"


def refuse(graph: Any, error: BaseException) -> bool:
    """Note why a captured graph can't be compiled as a whole, if it may break instead, and this is
    about one of its operations among many."""
    node = vars(error).get(CULPRIT)
    if not isinstance(node, fx.Node) or node.graph is not graph.graph or ASKED not in graph.meta:
        return False
    # What has no operand computes nothing, but begins a mode: a break would be inside of PyTorch's
    # own context manager.
    if not node.all_input_nodes or _makes_array(node):
        return False
    calls = [n for n in graph.graph.nodes if n.op.startswith("call_") and STEP in n.meta]
    others = {n.meta[STEP] for n in calls} - {node.meta.get(STEP)}
    if STEP not in node.meta or len(others) < FEWEST or _asks_for_inner(graph, node):
        return False
    name = getattr(node.target, "__name__", str(node.target))
    graph.meta[REFUSED] = RefusedOperation(node.meta[STEP], name, str(error))
    return True
