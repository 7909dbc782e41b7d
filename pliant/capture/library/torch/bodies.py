"""Functions given to PyTorch's transforms and control flow, as graphs of their own (bodies).

`torch.func.grad(f)(x)` calls `f` in a way that can't be written as operations on `x`. So `f` is
followed on placeholders for its arguments, into the graph under construction; then its nodes are
cut out and become a module, whose further inputs are the tensors around it that it uses (it is
lambda-lifted). The operation is one node that takes the module. For `grad(lambda y: (y *
w).sum())(x)`:

    body(arg_0, outer_w):  mul = arg_0 * outer_w;  return mul.sum()
    graph:                 grad(body)(x, w)
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import torch
from torch import fx

from pliant.base.values import dataclass
from pliant.capture.failures import note_operation
from pliant.capture.frame import Frame
from pliant.capture.graph import write_stack_traces
from pliant.capture.model import call
from pliant.capture.torch_calls import about_to_write, convert, from_result, run_on_fakes
from pliant.capture.trace import Trace
from pliant.capture.value import Break, Lazy, Raised, Value
from pliant.capture.values.containers import Mapping, Sequence
from pliant.capture.values.tensors import TensorValue
from pliant.sym.node import to_torch

Change = Callable[[Any], Any]  # from a tensor outside to what the function is given for it


@dataclass(frozen=True, slots=True)
class Body:
    """A function as a module with the parameters: the arguments, then `lifted`, then keyword
    arguments."""

    node: fx.Node
    module: fx.GraphModule
    lifted: list[fx.Node]  # nodes around it that it uses
    lifted_fakes: list[Any]
    result: Value
    effect: bool  # it writes to a tensor or draws random numbers
    output: Any = None  # of a flat body: the result, with nodes in the place of values
    returned: tuple[fx.Node, ...] = ()  # of a flat body: those of them that it computes


def follow_body(
    trace: Trace,
    name: str,
    function: Value,
    args: list[Value],
    kwargs: dict[str, Value] | None = None,
    changes: list[Change | None] | None = None,
    attribute: str = "body",
    flat: bool = False,
    once: bool = False,
) -> Body:
    """Follow `function` as something that PyTorch will call, once or often.

    With `changes`, one for each argument, tensors in it are placeholders, as inputs of the body.
    Without, the body uses the tensors around it. The function may not change Python objects that
    outlive it, because it isn't known when and how often it is called; with `once` it may, unless
    they would hold what the body computes. `attribute` is the name of the body in the graph's
    module. A `flat` body returns a tuple of what it computes, without structure.
    """
    # Before anything is followed: what can be reached now is what must not change.
    watch = Watch(trace, [function, *args, *(kwargs or {}).values()])
    symbols_before = len(trace.sizes.env.symbols)
    mark = trace.graph.begin_body()
    places: list[fx.Node] = []
    try:
        body_args, named_args = args, kwargs or {}
        if changes is not None:
            body_args = [_argument(trace, a, c, places) for a, c in zip(args, changes, strict=True)]
            named_args = {k: _argument(trace, a, None, places) for k, a in named_args.items()}
        result = call(trace, function, body_args, named_args)
        watch.check(name, set(trace.graph.end_body(mark)[0]) if once else None)
        # Such a number would exist only inside the body.
        if _unknown_numbers(trace, symbols_before):
            raise Break("data-dependent", f"{name} of a function that reads data")
        # The result as nodes: what the body's module returns.
        output, _ = convert(trace, result, name)
    except Raised as raised:
        _give_up(trace, mark)
        raise Break("operation-raises", f"{name}: {raised.value.python_type().__name__}") from None
    except Break:
        _give_up(trace, mark)
        raise
    finally:
        watch.stop()
    names = [None] * len(args) + list(kwargs or ())
    inputs = list(zip(places, names, strict=False))
    return _cut(trace, mark, inputs, output, result, len(args), attribute, flat)


def follow_aside(
    trace: Trace,
    name: str,
    function: Value,
    args: list[Value],
    kwargs: dict[str, Value],
    context: Value | None = None,
) -> Value:
    """Follow a function that PyTorch calls by itself when the code runs, only to learn what it
    assumes. Its nodes are dropped afterwards. It may write to its `context`."""
    watch = Watch(trace, [v for v in (function, *args, *kwargs.values()) if v is not context])
    mark, draws = trace.graph.begin_body(), len(trace.random_draws)
    try:
        result = call(trace, function, args, kwargs)
        watch.check(name)
        if len(trace.random_draws) > draws:
            raise Break("body-effect", f"{name} of a function that draws random numbers")
    except Raised as raised:
        raise Break("operation-raises", f"{name}: {raised.value.python_type().__name__}") from None
    finally:
        watch.stop()
        _give_up(trace, mark)
    return result


def _give_up(trace: Trace, mark: fx.Node) -> None:
    """Drop all nodes since the mark."""
    nodes, _ = trace.graph.end_body(mark)
    trace.sizes.nodes.drop(set(nodes))
    trace.graph.drop([mark, *nodes])


def record_body_call(
    trace: Trace,
    target: Callable[..., Any],
    node_args: tuple[Any, ...],
    fake_args: tuple[Any, ...],
    node_kwargs: dict[str, Any] | None = None,
    fake_kwargs: dict[str, Any] | None = None,
    effect: bool = False,
    on_fakes: Callable[..., Any] | None = None,
    may_write: bool = True,
    keep: bool = False,
) -> Value:
    """A node that calls `target`. Its result is found by running `target`, or `on_fakes`, on fakes.
    With `keep` it is called even if its result is not used."""
    name = getattr(target, "__name__", "a function")
    result = run_on_fakes(trace, name, on_fakes or target, list(fake_args), fake_kwargs or {})
    writes = bool(result.mutated)
    if writes and not may_write:
        raise Break("operation-raises", f"{name} of a function that writes to a tensor around it")
    if writes:
        about_to_write(trace, target, result.mutated)
    trace.writes_tensors |= writes
    effect = effect or writes or result.random
    trace.changes += effect
    node = trace.graph.operation(target, node_args, node_kwargs or {}, trace.stack(), effect)
    note_operation(trace, node, result, effect)
    if keep:
        trace.graph.keep(node)
    value = from_result(trace, result.value, node, name)
    trace.sizes.emit_checks()
    return value


def named_body(trace: Trace, body: Body, attribute: str) -> fx.Node:
    """The node of the body, under another name in the graph's module."""
    del trace.graph.root[str(body.node.target)]
    trace.graph.drop([body.node])
    return trace.graph.attribute(attribute, body.module)


def result_of(trace: Trace, body: Body, results: Sequence) -> Value:
    """The structure that a function with a flat body returned, with `results` in the place of what
    it computed."""
    return _with_results(
        trace, body.result, body.output, dict(zip(body.returned, results.items, strict=True))
    )


def _with_results(trace: Trace, value: Value, output: Any, results: dict[fx.Node, Value]) -> Value:
    """`value` with what the operation gave in the place of what was followed."""
    if isinstance(output, fx.Node):
        return results.get(output, value)
    # Nothing in it was computed by the body, so it stays the object it is.
    if results.keys().isdisjoint(_nodes_in(output)):
        return value
    value = trace.read(value)
    if isinstance(value, Sequence):
        pairs = zip(value.items, output, strict=True)
        return Sequence(value.cls, [_with_results(trace, v, o, results) for v, o in pairs])
    if isinstance(value, Mapping):
        items = value.read_all(trace).items()
        return Mapping(
            value.cls, {k: _with_results(trace, v, output[k], results) for k, v in items}
        )
    raise Break("operation-result", "a function that returns tensors in other things")


def fakes_of(trace: Trace, nodes: list[fx.Node]) -> list[Any]:
    """The fakes, or numbers, of these nodes."""
    fakes: dict[fx.Node, Any] = {value.node: value.fake for value in trace.tensors.values()}
    numbers = trace.sizes.nodes.numbers()
    return [fakes[n] if n in fakes else _number(trace, n, numbers) for n in nodes]


def _number(trace: Trace, node: fx.Node, numbers: dict[fx.Node, Any]) -> Any:
    if node in numbers:
        return to_torch(numbers[node], trace.sizes.env)
    if "object" in node.meta:
        return node.meta["object"]
    raise Break("operation-argument", f"a function that uses {node}")


# ---- what the function is given


def _argument(trace: Trace, value: Value, change: Change | None, places: list[fx.Node]) -> Value:
    place = trace.graph.operation(_place, (), {}, trace.stack(), False)
    places.append(place)
    return _placeholder(trace, value, place, change)


def _place() -> None:
    """The target of nodes that become inputs of a body."""


def _placeholder(trace: Trace, value: Value, node: fx.Node, change: Change | None) -> Value:
    value = trace.read(value)
    maker = _STAND_INS.get(type(value))
    return value if maker is None else maker(trace, value, node, change)


def _tensor(trace: Trace, value: TensorValue, node: fx.Node, change: Change | None) -> Value:
    fake = trace.world.run(change or _same_data, (value.fake,)).value
    # Each input of a body has a tensor of its own, or a write in it would be one to the tensor
    # outside.
    if fake is value.fake:
        fake = trace.world.run(_same_data, (fake,)).value
    placeholder = TensorValue(node, fake, value.cls)
    trace.tensors[id(fake)] = placeholder
    return placeholder


def _same_data(tensor: torch.Tensor) -> torch.Tensor:
    """Another tensor with the same data, which is a leaf if this one is."""
    if not tensor.requires_grad:
        return tensor.detach()
    return tensor.detach().requires_grad_() if tensor.is_leaf else tensor.view_as(tensor)


def _sequence(trace: Trace, value: Sequence, node: fx.Node, change: Change | None) -> Value:
    items = [_item(trace, item, node, index, change) for index, item in enumerate(value.items)]
    return Sequence(value.cls, items)


def _mapping(trace: Trace, value: Mapping, node: fx.Node, change: Change | None) -> Value:
    items = value.read_all(trace).items()
    entries: dict[Any, Value | None] = {
        key: _item(trace, item, node, key, change) for key, item in items
    }
    return Mapping(value.cls, entries)


def _item(trace: Trace, item: Value, node: fx.Node, key: Any, change: Change | None) -> Value:
    item = trace.read(item)
    if type(item) not in _STAND_INS:
        return item
    part = trace.graph.operation(operator.getitem, (node, key), {}, trace.stack(), False)
    return _placeholder(trace, item, part, change)


_STAND_INS: dict[type, Callable[[Trace, Any, fx.Node, Change | None], Value]] = {
    TensorValue: _tensor,
    Sequence: _sequence,
    Mapping: _mapping,
}


# ---- what it may not do


class Watch:
    """Watches for changes of Python objects that existed before a function was followed. Changes
    that it takes back are allowed (a module's attribute that is set for a while)."""

    def __init__(self, trace: Trace, roots: list[Value]) -> None:
        self.trace = trace
        self.around = trace.watch
        self.outer = _reachable(trace, roots)
        self.before: dict[int, tuple[Any, Any]] = {}
        trace.watch = self.note

    def note(self, value: Any) -> None:
        outer = value.source is not None or id(value) in self.outer
        if id(value) not in self.before and (outer or getattr(value, "outside", False)):
            self.before[id(value)] = (value, _state(value))
        # Bodies may be nested, and a change concerns all of them.
        if self.around is not None:
            self.around(value)

    def stop(self) -> None:
        self.trace.watch = self.around

    def check(self, name: str, inside: set[fx.Node] | None = None) -> None:
        """Break if something has changed; with `inside`, if it holds results of these nodes."""
        for value, before in self.before.values():
            if not _unchanged(value, before) and (inside is None or _holds(value, inside)):
                description = f"a {value.python_type().__name__}"
                raise Break("body-effect", f"{name} of a function that changes {description}")


def _reachable(trace: Trace, roots: list[Value]) -> set[int]:
    """The ids of all values that exist now and that the function can reach."""
    frames: list[Frame] = trace.frames
    for frame in frames:
        roots = [*roots, *frame.stack, *frame.locals.values(), *frame.cells.values()]
    return set(_all_behind(roots))


def _all_behind(roots: list[Value]) -> dict[int, Value]:
    """These values and everything reachable from them, by id."""
    roots = list(roots)
    visited: dict[int, Value] = {}
    while roots:
        value = _read(roots.pop())
        if id(value) not in visited:
            visited[id(value)] = value
            roots.extend(value.children())
            owned = getattr(value, "attributes", None)
            roots.extend([] if owned is None else [owned])
    return visited


def _holds(value: Value, nodes: set[fx.Node]) -> bool:
    """Whether an object holds a result of one of these nodes."""
    return any(getattr(each, "node", None) in nodes for each in _all_behind([value]).values())


def _read(value: Any) -> Any:
    return value.seen if isinstance(value, Lazy) and value.seen is not None else value


def _state(value: Any) -> Any:
    return dict(value.items) if isinstance(value, Mapping) else None


def _unchanged(value: Any, before: Any) -> bool:
    """Whether a dictionary holds again what it held before. Other objects count as changed."""
    if not isinstance(value, Mapping):
        return False
    for key, item in value.items.items():
        if key in before:
            if _read(item) is not _read(before[key]):
                return False
        elif item is None or not _is_backed(value, key, item):
            return False
    return all(key in value.items or item is None for key, item in before.items())


def _is_backed(value: Mapping, key: Any, item: Value) -> bool:
    """Whether a dictionary from outside holds this object at `key`."""
    backing = value.backing or {}
    return key in backing and getattr(_read(item), "real", None) is backing[key]


def _unknown_numbers(trace: Trace, since: int) -> bool:
    env = trace.sizes.env
    return any(env.symbols[s].hint is None for s in list(env.symbols)[since:])


# ---- the module


def _cut(
    trace: Trace,
    mark: fx.Node,
    places: list[tuple[fx.Node, str | None]],
    output: Any,
    result: Value,
    count: int,
    attribute: str,
    flat: bool,
) -> Body:
    """Move the nodes since the mark to a module of their own."""
    nodes, effect = trace.graph.end_body(mark)
    inside = set(nodes)
    structure = output
    returned: tuple[fx.Node, ...] = ()
    if flat:
        output = returned = tuple(dict.fromkeys(n for n in _nodes_in(output) if n in inside))
    # A body may return a tensor from around it as it is.
    used = [n for node in nodes for n in node.all_input_nodes] + _nodes_in(output)
    lifted = list(dict.fromkeys(n for n in used if n not in inside))
    fakes = fakes_of(trace, lifted)
    graph = fx.Graph()
    copies: dict[fx.Node, fx.Node] = {}
    for index, (place, _) in enumerate(places[:count]):
        copies[place] = graph.placeholder(f"arg_{index}")
    for node in lifted:
        copies[node] = graph.placeholder(f"outer_{node.name}")
    for place, keyword in places[count:]:
        copies[place] = graph.placeholder(str(keyword))
    for node in nodes:
        if node not in copies:
            # In order, so that what a node uses has been copied before it.
            copies[node] = graph.node_copy(node, lambda n: copies[n])
    graph.output(fx.map_arg(output, lambda n: copies[n]))
    write_stack_traces(graph)
    module = fx.GraphModule(trace.graph.root, graph, class_name="body")
    # Numbers that the body computed can't be used outside of it.
    trace.sizes.nodes.drop(inside)
    trace.graph.drop([mark, *nodes])
    node = trace.graph.attribute(attribute, module)
    return Body(node, module, lifted, fakes, result, effect, structure, returned)


def _nodes_in(output: Any) -> list[fx.Node]:
    nodes: list[fx.Node] = []
    fx.map_arg(output, nodes.append)
    return nodes
