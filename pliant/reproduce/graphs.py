"""Captured graphs, and pieces of them as functions in a script.

The one idea: any set of nodes is a program. What it uses of other nodes becomes its inputs, with
the values that eager PyTorch has there.
"""

from __future__ import annotations

import builtins
import math
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

import torch
from torch import fx

from pliant.backends.by_sizes import has_symbols
from pliant.backends.registry import backend_name, call_backend, lookup
from pliant.base.values import dataclass
from pliant.reproduce.compare import leaves
from pliant.reproduce.inputs import GlobalState, copied


@dataclass(slots=True)
class RecordedGraph:
    """A graph that the backend was given, and the values it was called with."""

    gm: fx.GraphModule
    inputs: tuple[Any, ...]
    grad_enabled: bool
    symbolic: bool
    """Whether sizes or numbers are symbols in it."""


class Recorder:
    """A backend that records each graph, and has another backend compile it."""

    def __init__(self, backend: Any) -> None:
        self.backend = lookup(backend)
        self.graphs: list[RecordedGraph] = []
        self.__name__ = backend_name(self.backend)

    def compile_with_values(
        self, gm: fx.GraphModule, example_inputs: Sequence[Any], shapes: Any, options: Any
    ) -> Callable[..., Any]:
        grad_enabled = torch.is_grad_enabled()
        graph = fx.Graph()  # a backend may change the one that it is given
        graph.output(graph.graph_copy(gm.graph, {}))
        record = RecordedGraph(
            fx.GraphModule(gm, graph),
            copied(tuple(example_inputs)),
            grad_enabled,
            shapes and has_symbols(shapes),
        )
        self.graphs.append(record)
        compiled = call_backend(self.backend, gm, example_inputs, shapes, options)
        called = False

        def call(*args: Any) -> Any:
            nonlocal called
            if not called:  # the values of the call, where compiling had only examples
                called, record.inputs = True, copied(args)
            return compiled(*args)

        return call

    def __call__(self, gm: fx.GraphModule, example_inputs: Sequence[Any]) -> Any:
        return self.compile_with_values(gm, example_inputs, None, None)


@dataclass(frozen=True, slots=True)
class FunctionCode:
    """A function `f` as source, its arguments, and the values that the source loads from a file."""

    text: str
    inputs: list[Any]
    saved: Mapping[str, Any]


class Pieces:
    """The programs that consist of some of a graph's nodes. A value that a piece needs from another
    node is one of its inputs."""

    def __init__(self, record: RecordedGraph) -> None:
        self.record = record
        self.nodes = [n for n in record.gm.graph.nodes if n.op.startswith("call_")]
        every = {*record.gm.graph.nodes}
        self._has_result = {n for n, value in self._values(every).items() if leaves(value)}
        (output,) = [n for n in record.gm.graph.nodes if n.op == "output"]
        self.returned = set(output.all_input_nodes)

    def outputs(self, nodes: Collection[fx.Node]) -> list[fx.Node]:
        """What a piece returns: results of the graph, and what nothing in the piece uses."""
        used = {source for node in nodes for source in node.all_input_nodes}
        return [
            node
            for node in self.nodes
            if node in nodes
            and node in self._has_result
            and (node in self.returned or node not in used)
        ]

    def code(
        self,
        nodes: Collection[fx.Node],
        outputs: Sequence[fx.Node],
        constants: Mapping[int, int] | None = None,
    ) -> FunctionCode:
        """The piece with these nodes and outputs as a function. `constants` are numbers among the
        arguments of nodes, with what replaces them."""
        sources = {source for node in nodes for source in node.all_input_nodes} - {*nodes}
        inputs = [n for n in self.record.gm.graph.nodes if n in sources and not self._is_body(n)]
        graph, copies = fx.Graph(), {}
        for node in inputs:
            copies[node] = graph.placeholder(node.name)
        for node in self.record.gm.graph.nodes:
            if node in nodes or (node in sources and node not in copies):
                copies[node] = graph.node_copy(node, copies.__getitem__)
                if constants and node in nodes:
                    _replace_constants(copies[node], constants)
        graph.output(tuple([copies[node] for node in outputs]))
        values = self._values(inputs)
        text, saved = _text("f", graph, self.record.gm)
        return FunctionCode(text, [values[node] for node in inputs], saved)

    def _is_body(self, node: fx.Node) -> bool:
        """Whether the node stands for a subgraph, such as a branch of `torch.cond`."""
        if node.op != "get_attr":
            return False
        return isinstance(_attribute(self.record.gm, str(node.target)), torch.nn.Module)

    def _values(self, nodes: Collection[fx.Node]) -> dict[fx.Node, Any]:
        """The values that eager PyTorch computes at these nodes."""
        state = GlobalState()
        try:
            torch._C._set_grad_enabled(self.record.grad_enabled)
            # The same random numbers each time, so that pieces get the values of the whole.
            torch.manual_seed(0)
            interpreter = _Interpreter(self.record.gm, nodes)
            interpreter.run(*copied(self.record.inputs))
            return interpreter.values
        finally:
            state.restore()


class _Interpreter(fx.Interpreter):
    """Runs a graph and keeps copies of some values, as they are before others write to them."""

    def __init__(self, gm: fx.GraphModule, nodes: Collection[fx.Node]) -> None:
        super().__init__(gm)
        self.wanted = nodes
        self.values: dict[fx.Node, Any] = {}
        self._memo: dict[Any, Any] = {}

    def run_node(self, n: fx.Node) -> Any:
        result = super().run_node(n)
        if n in self.wanted and n.op != "output":
            # Inputs of the graph may share memory; what is computed has its own.
            memo = self._memo if n.op == "placeholder" else None
            is_module = isinstance(result, torch.nn.Module)
            self.values[n] = result if is_module else copied(result, memo)
        return result


def _attribute(module: Any, path: str) -> Any:
    for name in path.split("."):
        module = getattr(module, name)
    return module


def _replace_constants(node: fx.Node, constants: Mapping[int, int]) -> None:
    def replaced(value: Any) -> Any:
        return constants.get(value, value) if type(value) is int else value

    node.args = fx.node.map_aggregate(node.args, replaced)
    node.kwargs = fx.node.map_aggregate(node.kwargs, replaced)


# ---- graphs as text

_FREED = re.compile(r";  [\w =]+ = None$", re.MULTILINE)


def _text(name: str, graph: fx.Graph, owner: fx.GraphModule) -> tuple[str, dict[str, Any]]:
    """A graph as a function of this name, after the subgraphs and the imports that it needs."""
    code = graph.python_code("self")
    source = _FREED.sub("", code.src).strip()
    source = re.sub(r"^def forward\(self(, )?", f"def {name}(", source)
    source = re.sub(r"\)( -> [^:]+)?:", "):", source, count=1)
    parts, saved = [], {}
    for node in graph.nodes:
        if node.op == "get_attr":
            body = _attribute(owner, str(node.target))
            inner, inner_saved = _text(f"{name}_{node.name}", body.graph, body)
            source = source.replace(f"self.{node.target}", f"{name}_{node.name}")
            parts.append(inner)
            saved.update(inner_saved)
    imports = []
    for global_name, value in code.globals.items():
        if not re.search(rf"\b{global_name}\b", source) or global_name == "torch":
            continue
        line = _import(global_name, value)
        if line is None:
            saved[global_name] = value
            line = f"{global_name} = load()[{global_name!r}]"
        imports.append(line)
    header = "\n".join(line for line in imports if line)
    return "\n\n\n".join([*([header] if header else []), *parts, source]) + "\n", saved


def _import(name: str, value: Any) -> str | None:
    """How a script gets a value: "" if it is there already, None if it can't be imported."""
    if getattr(builtins, name, None) is value:
        return ""
    if getattr(math, name, None) is value:
        return f"from math import {name}"
    if name == "NoneType":
        return "NoneType = type(None)"
    module, attribute = getattr(value, "__module__", None), getattr(value, "__name__", "")
    try:
        if getattr(__import__(module or "", fromlist=["_"]), attribute, None) is value:
            alias = "" if attribute == name else f" as {name}"
            return f"from {module} import {attribute}{alias}"
    except (ImportError, ValueError):
        pass
    return None
