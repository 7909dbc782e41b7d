"""The FX graph under construction: the tensor operations of the program, as the user wrote them.

Nodes call the functions and methods that the user called, unchanged. Placeholders are named after
the source of their tensor. Each node has the user's stack (`meta["stack"]`, outermost first) and,
for PyTorch's own printers, the same as text (`meta["stack_trace"]`). A node whose result contains
numbers that depend on data has their unbacked symbols (`meta["symbols"]`), in order of creation.
"""

from __future__ import annotations

import itertools
import math
import operator
import re
from collections import Counter
from collections.abc import Callable, Container, Sequence
from typing import Any, Final

import torch
from torch import fx
from torch.fx.node import map_aggregate

from pliant.base.external import PLAIN, without_addresses
from pliant.base.graph_code import CapturedModule
from pliant.base.position import Position
from pliant.base.refusals import STEP
from pliant.base.values import dataclass
from pliant.capture.frame import Frame
from pliant.fake.trial import Call, Trials
from pliant.fake.wrappers import has_own_sizes, is_wrapper
from pliant.guards.source import Source
from pliant.sym.frozen import SYMBOLS, InputLayout
from pliant.sym.node import from_torch


@dataclass(frozen=True, slots=True)
class GraphInput:
    """An input of the graph: its placeholder, where it comes from, and its present value.

    `plain`: the graph takes a plain tensor in place of one of a subclass. `layout` is that of the
    tensor when the function is called; the program may give its `fake` another one.
    """

    node: fx.Node
    source: Source
    example: torch.Tensor | float
    plain: bool = False
    fake: torch.Tensor | None = None
    layout: InputLayout | None = None


ANY: Final = -1
"""Stands for memory of which nothing is known."""


class GraphBuilder:
    """Builds one graph, node by node."""

    def __init__(self, frames: Sequence[Frame] = ()) -> None:
        self.graph = fx.Graph()
        self.inputs: list[GraphInput] = []
        self.outputs: dict[fx.Node, int] = {}  # with their positions among the results
        self._effectful: set[fx.Node] = set()
        self._kept: set[fx.Node] = set()
        # The memory that effectful nodes write to, if no tensor from outside has it.
        self._own_writes: dict[fx.Node, set[int]] = {}
        # Calls to be tried before they are dropped, and where in the program they are.
        self._calls: dict[fx.Node, tuple[Call, int]] = {}
        self.refused: tuple[fx.Node, int] | None = None  # the first such call, once it is finished
        self._last_items: dict[fx.Node, fx.Node] = {}  # of the lists that nodes return
        self._after_inputs: fx.Node | None = None
        self._names: set[str] = set()  # of placeholders
        self._numbered: Counter[str] = Counter()  # names that were wished for again
        self.root: dict[str, Any] = {}  # what nodes refer to by name
        self.new_symbols: Callable[[], tuple[Any, ...]] = tuple  # made since the last node
        self._frames = frames  # that are under way
        self.call_numbers = itertools.count(1)  # one line may make several calls
        self._grad_enabled = torch.is_grad_enabled()  # when the program begins
        self.grad_mode_left: Any = None  # to be set by residual code, as there is no graph
        self.keeps_dead_graphs = False  # the backend gets operations whose results are unused

    def attribute(self, wish: str, real: Any) -> fx.Node:
        """A node for an object that is neither a tensor nor plain data. The graph's module keeps
        it."""
        name = f"{wish}_{self._numbered[wish]}"
        while name in self.root:
            self._numbered[wish] += 1
            name = f"{wish}_{self._numbered[wish]}"
        self.root[name] = real
        return self.graph.create_node("get_attr", name)

    def begin_body(self) -> fx.Node:
        """Mark the place from which on nodes belong to the body of a higher-order operation
        (`torch.cond`)."""
        return self.graph.create_node("call_function", begin_body)

    @property
    def in_body(self) -> bool:
        """Whether the body of a higher-order operation is being followed."""
        return bool(self.graph.find_nodes(op="call_function", target=begin_body, sort=False))

    def end_body(self, mark: fx.Node) -> tuple[list[fx.Node], bool]:
        """The nodes of the body that began at the mark, and whether one of them has an effect. The
        caller takes them out with `drop`."""
        nodes, node = [], mark.next
        while node.op != "root":
            nodes.append(node)
            node = node.next
        return nodes, not self._effectful.isdisjoint(nodes)

    def drop(self, nodes: list[fx.Node]) -> None:
        """Erase these nodes, to which no others refer."""
        for node in reversed(nodes):
            self._effectful.discard(node)
            self._kept.discard(node)
            self.graph.erase_node(node)

    def input(self, source: Source, example: torch.Tensor | float, plain: bool = False) -> fx.Node:
        """A placeholder for the number (or another object) at `source`. `plain`: for the number of
        Python's that one of another library is."""
        node = self._placeholder(source)
        self.inputs.append(GraphInput(node, source, example, plain))
        return node

    def tensor_input(
        self, source: Source, example: torch.Tensor, plain: bool, fake: torch.Tensor
    ) -> fx.Node:
        """A placeholder for the tensor at `source`."""
        node = self._placeholder(source)
        layout = layout_of(fake)
        self.inputs.append(GraphInput(node, source, example, plain, fake, layout))
        return node

    def _placeholder(self, source: Source) -> fx.Node:
        name = self._unused(placeholder_name(source))
        last = self._after_inputs
        # An input may be met in the middle of the program; placeholders stand first.
        place = self.graph.inserting_after(last) if last else self.graph.inserting_before(None)
        with place:
            node = self.graph.placeholder(name)
        self._after_inputs = node
        return node

    def _unused(self, name: str) -> str:
        """A name for a placeholder that no other one has: different paths can have the same
        text."""
        unused = name
        while unused in self._names:
            self._numbered[name] += 1
            unused = f"{name}_{self._numbered[name]}"
        self._names.add(unused)
        return unused

    def operation(
        self,
        target: Callable[..., Any] | str,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        stack: tuple[Position, ...],
        effect: bool,
    ) -> fx.Node:
        """A node that calls the function `target`, or the method of this name of its first
        argument.

        `effect` says that the call does more than return a result, so that the node stays even if
        unused.
        """
        kind = "call_method" if isinstance(target, str) else "call_function"
        if target is operator.pow and not isinstance(args[0], fx.Node) and _has_sign(args[0]):
            target = pow  # FX writes -1 ** x, which is -(1 ** x)
        if any(map(_holds_complex, (args, kwargs))):
            args, kwargs = map_aggregate((args, kwargs), self._written_exactly)
        # Its arguments afterwards: `create_node` would walk through them to find sizes of PyTorch's
        # own tracer, which a capture doesn't have.
        node = self.graph.create_node(kind, target)
        node.args = args
        if kwargs:
            node.kwargs = kwargs
        node.meta["stack"] = stack
        node.meta["calls"] = tuple([each.number for each in self._frames if not each.internal])
        if self._frames:
            node.meta[STEP] = self._frames[-1].step
        symbols = self.new_symbols()
        if symbols:
            node.meta[SYMBOLS] = symbols
        if effect:
            self._effectful.add(node)
        return node

    def _written_exactly(self, arg: Any) -> Any:
        """An argument as FX can print it: a complex number would lose the signs of zeros, so it
        becomes a call."""
        if type(arg) is not complex or not (_has_sign(arg.real) or _has_sign(arg.imag)):
            return arg
        return self.graph.create_node("call_function", complex, (arg.real, arg.imag))

    def after(self, node: fx.Node, method: str, args: tuple[Any, ...]) -> fx.Node:
        """A call of a method placed directly behind `node`, before anything can change its
        object."""
        last = self._after_inputs if node.op == "placeholder" else node
        with self.graph.inserting_after(last):
            new_node = self.graph.call_method(method, args)
        for name in ("stack", "calls"):
            new_node.meta[name] = node.meta.get(name, ())
        return new_node

    def item(self, node: fx.Node, index: int) -> fx.Node:
        """A node for an item of the list that `node` returns, placed behind those of earlier
        items."""
        with self.graph.inserting_after(self._last_items.get(node, node)):
            item = self.graph.call_function(operator.getitem, (node, index))
        self._last_items[node] = item
        for name in ("stack", "calls"):
            item.meta[name] = node.meta.get(name, ())
        item.meta[SYMBOLS] = self.new_symbols()
        return item

    def keep(self, node: fx.Node) -> None:
        """Keep `node` even if nothing needs its result."""
        self._kept.add(node)

    def note_own_write(self, node: fx.Node, memory: set[int]) -> None:
        """Note that `node` does nothing but write to this memory, which the graph itself has
        allocated: if nobody reads it, the node is dead."""
        self._own_writes[node] = memory

    def try_call(self, node: fx.Node, call: Call, step: int) -> None:
        """Note a call that PyTorch might refuse. `finish` tries it where nothing else would raise
        its error, as when the node is dead. `step` is the number of the instruction that made it.
        """
        self._calls[node] = call, step

    def output(self, node: fx.Node) -> int:
        """Return `node` from the graph too; its position among the results."""
        return self.outputs.setdefault(node, len(self.outputs))

    def _mixes_dtypes(self, node: fx.Node) -> bool:
        return node in self._calls and self._calls[node][0].mixes_dtypes()

    def _is_refused(self, node: fx.Node, trials: Trials, reshaped: Container[int]) -> bool:
        """Whether PyTorch refuses the call of this node, found out by a trial. The node is noted as
        the place where the graph has to end."""
        if node not in self._calls:
            return False
        call, step = self._calls[node]
        if any(id(fake) in reshaped for fake in call.fakes()) or not trials.refuses(call):
            return False
        self.refused = node, step
        return True

    def _observed(self) -> set[fx.Node]:
        """The nodes whose effects or results can be seen after the graph. A write to memory of the
        graph that nothing reads later can't, nor can what is computed for it."""
        observed, memory = set[fx.Node](), set[int]()
        for node in reversed(list(self.graph.nodes)):
            written = self._own_writes.get(node)
            seen = written is None or ANY in memory or not written.isdisjoint(memory)
            effect = node in self._effectful and seen
            if effect or node.op == "output" or not observed.isdisjoint(node.users):
                observed.add(node)
                memory.update(*[self._memory(arg) for arg in node.all_input_nodes])
        return observed

    def _memory(self, node: fx.Node) -> set[int]:
        """The memory that the results of a node are in, as far as the graph has allocated it; ANY
        where that isn't known."""
        if not node.op.startswith("call_"):  # it is from outside
            return set()
        if node.target is operator.getitem and node not in self._calls:
            return self._memory(node.all_input_nodes[0])
        return self._calls[node][0].memory() if node in self._calls else {ANY}

    def _redundant_modes(self, dead: Container[fx.Node]) -> list[fx.Node]:
        """Pairs of changes of the gradient mode, there and back, without an operation in
        between."""
        enabled, pending, redundant = self._grad_enabled, None, list[fx.Node]()
        # A peephole pass: a pending change is undone by the next one, if no operation is in
        # between.
        for node in self.graph.nodes:
            if node in dead or not node.op.startswith("call_"):
                continue
            if pending is not None and _changes_grad_mode(node) and node.args[0] == enabled:
                redundant += [pending, node]
                pending = None
                continue
            if pending is not None:
                enabled = pending.args[0]
            changes = _changes_grad_mode(node) and node.args[0] != enabled
            pending = node if changes else None
        return redundant

    def _live_calls(self, dead: dict[fx.Node, None]) -> list[fx.Node]:
        """The calls that stay in the graph: none if all they do is change the gradient mode, which
        residual code does then. If dead operations are wanted, they are taken out of `dead`
        instead."""
        calls = [node for node in self.graph.nodes if node.op.startswith("call_")]
        live = [node for node in calls if node not in dead]
        if not all(map(_changes_grad_mode, live)):
            return live
        operations = [node for node in calls if not _changes_grad_mode(node)]
        if self.keeps_dead_graphs and operations:
            needed_nodes = {
                *operations,
                *(arg for node in operations for arg in node.all_input_nodes),
            }
            for node in needed_nodes & dead.keys():
                del dead[node]
            return operations
        for node in live:  # the last one counts
            self.grad_mode_left = node.args[0]
            dead[node] = None
        return []

    def finish(
        self, name: str, check: bool, reshaped: Container[int] = (), try_all: bool = False
    ) -> fx.GraphModule | None:
        """Dead code elimination, and the finished graph; None if nothing is left.

        `reshaped` are the ids of fakes that have changed since calls were made on them, which can't
        be tried. With `try_all`, calls that are needed are tried, too.
        """
        self.graph.output(tuple(self.outputs))
        trials, needed, dead = Trials(), set[fx.Node](), dict[fx.Node, None]()
        observed = self._observed() if self._own_writes else needed
        # Backwards: users are known to be dead before what they use is looked at.
        for node in reversed(list(self.graph.nodes)):
            effect = node in self._effectful
            if effect or node.op == "output" or not needed.isdisjoint(node.users):
                needed.add(node)
            tried = try_all or effect or node not in observed or self._mixes_dtypes(node)
            refused = tried and self._is_refused(node, trials, reshaped)
            used = node in needed or node in self._kept or not node.users.keys() <= dead.keys()
            if not refused and not used:
                dead[node] = None
        self._calls.clear()
        # Only now: operations that turned out to be dead don't separate changes of the mode.
        dead |= dict.fromkeys(self._redundant_modes(dead))
        live = self._live_calls(dead)
        for node in dead:
            self.graph.erase_node(node)
        self.inputs = [entry for entry in self.inputs if not entry.node._erased]
        # A graph that only returns its inputs would cost a call and do nothing.
        if not live:
            return None
        write_stack_traces(self.graph)
        if check:
            self.graph.lint()
        return CapturedModule(self.root, self.graph, class_name=name)


def _changes_grad_mode(node: fx.Node) -> bool:
    return node.target is torch._C._set_grad_enabled and type(node.args[0]) is bool


def write_stack_traces(graph: fx.Graph) -> None:
    """The user's stacks as text, which PyTorch's printers show."""
    for node in graph.nodes:
        stack = node.meta.get("stack")
        if stack:
            node.meta["stack_trace"] = _stack_trace(stack)


def _has_sign(number: Any) -> bool:
    return type(number) in (int, float) and math.copysign(1, number) < 0


def _holds_complex(arg: Any) -> bool:
    kind = type(arg)
    if kind in PLAIN:  # as most are
        return kind is complex
    if isinstance(arg, dict):
        arg = list(arg.values())
    elif kind not in (list, tuple):
        return False
    return any(map(_holds_complex, arg))


def layout_of(fake: Any) -> InputLayout:
    shown = ((), ()) if has_own_sizes(fake) else (fake.size(), fake.stride())
    sizes, strides = (map(from_torch, numbers) for numbers in shown)
    inner: tuple[tuple[str, InputLayout], ...] = ()
    if is_wrapper(fake):
        names, _ = fake.__tensor_flatten__()
        inner = tuple([(name, layout_of(getattr(fake, name))) for name in names])
    return InputLayout(tuple(sizes), tuple(strides), inner)


def begin_body() -> None:
    """The target of marks, which never are in a finished graph."""


def placeholder_name(source: Source) -> str:
    """`L['self'].layers[0].weight` as `l_self_layers_0_weight`."""
    text = without_addresses(str(source))
    text = re.sub(r"\W+", "_", text.replace("L[", "l[").replace("G[", "g[")).strip("_")
    return text if text.isidentifier() else f"input_{text}"


def _stack_trace(stack: tuple[Position, ...]) -> str:
    return "\n".join(map(_stack_entry, stack))


def _stack_entry(position: Position) -> str:
    text = f'  File "{position.file}", line {position.line}, in {position.function}'
    source = position.source_line()
    return f"{text}\n    {source}" if source else text
