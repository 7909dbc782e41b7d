"""Captured graphs: whose they are, and how far they ran when they failed."""

from __future__ import annotations

import types
from collections.abc import Callable, Iterator
from typing import Any, Final

import torch
from torch import fx

from pliant.base.checks import check_truth
from pliant.base.graph_code import code_of, nodes_by_line
from pliant.base.writes import FINAL, MODES_KEPT, PARTLY, WRITES

FUNCTION: Final = "function"


def run(graph: fx.GraphModule, *args: Any) -> Any:
    """Run the code of the graph; `graph.forward` would write it now."""
    return graph.forward(*args)


def name_after(graph: fx.GraphModule, function: str) -> None:
    """Say which function the graph was captured from, for what is reported of it later."""
    graph.meta[FUNCTION] = function


def function_of(graph: fx.GraphModule) -> str:
    """The user's name for the function of a graph; its own name, if it was not captured by us."""
    name: str = graph.meta.get(FUNCTION) or type(graph).__name__
    return name


def without_overrides(graph: Callable[..., Any]) -> Callable[..., Any]:
    """The graph, run without the `__torch_function__` of tensor subclasses."""

    def run(*args: Any) -> Any:
        with torch._C.DisableTorchFunctionSubclass():
            return graph(*args)

    return run


def ran_before(graph: fx.GraphModule, error: BaseException) -> list[fx.Node]:
    """The nodes that ran before `error` came out of the code of `graph`; none if it did not."""
    return list(graph.graph.nodes)[: _failed_at(graph, error) or 0]


def mode_changes_kept(graph: fx.GraphModule, error: BaseException) -> int:
    """How many changes of PyTorch's modes came before `error` came out of the code of `graph`,
    without those that the program's `with` blocks take back when the exception leaves them."""
    at = _failed_at(graph, error)
    return 0 if at is None else list(graph.graph.nodes)[at].meta.get(MODES_KEPT, 0)


def wrote_nothing(graph: fx.GraphModule, error: BaseException) -> bool:
    """Whether `error` came out of the code of `graph` before memory from outside was written."""
    at = _failed_at(graph, error)
    if at is None:
        return False
    nodes = list(graph.graph.nodes)
    return nodes[at].meta.get(WRITES) != PARTLY and not any(WRITES in n.meta for n in nodes[:at])


def is_before_final(graph: fx.GraphModule, error: BaseException) -> bool:
    """Whether `error` came out of the graph before a node that can't be undone. If a backend runs
    the graph by code of its own, that is only known of errors of tests: all tests come before."""
    at = _failed_at(graph, error)
    if at is None:
        return is_failed_test(graph, error)
    return not any(FINAL in node.meta for node in list(graph.graph.nodes)[: at + 1])


def is_failed_test(graph: fx.GraphModule, error: BaseException) -> bool:
    """Whether `error` is that of a test in the graph: data aren't what it was captured for."""
    tests = [node for node in graph.graph.nodes if node.target in TESTS]
    return any(str(node.args[TESTS[node.target]]) in str(error) for node in tests)


TESTS: Final[dict[Any, int]] = {check_truth: 2, torch._assert_async: 1}
"""Nodes that test data, and which of their arguments is the text of the error."""


def values_at(graph: fx.GraphModule, error: BaseException) -> list[Any]:
    """The local variables of the code of `graph`, and of graphs in it, when `error` came out of it,
    in the order in which they were computed."""
    codes = {code_of(part) for part in graph.modules() if isinstance(part, fx.GraphModule)}
    frames = [entry.tb_frame for entry in _entries(error) if entry.tb_frame.f_code in codes]
    return [value for frame in frames for value in frame.f_locals.values()]


def _failed_at(graph: fx.GraphModule, error: BaseException) -> int | None:
    """The number of the node that failed; None if that was not in the code of `graph`."""
    code = code_of(graph)
    for entry in _entries(error):
        if entry.tb_frame.f_code is code:
            return nodes_by_line(graph)(entry.tb_lineno)
    return None


def _entries(error: BaseException) -> Iterator[types.TracebackType]:
    entry = error.__traceback__
    while entry is not None:
        yield entry
        entry = entry.tb_next
