"""Code for bodies that run a number of times that only the data tells.

`while_loop`, `scan` and `map` call their bodies in a loop of Python's, and `cond` calls one of two.
The one idea: the call as a whole stays opaque, and each body is a graph with inputs like any other,
so it gets code of its own. A body is told apart by how its inputs are laid out: a loop whose first
step starts from a transposed tensor has code for that step and for the others.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import field
from typing import Any, Final

import torch
from torch import fx
from torch.utils import _pytree as pytree

from pliant.base.values import dataclass
from pliant.fake.tensor import Fake
from pliant.graph.aliases import AliasWorld
from pliant.graph.ir import Functional
from pliant.graph.opaque_calls import CopyingFunction, OnLeaves
from pliant.sym.env import ShapeEnv
from pliant.sym.expr import Expr, evaluate
from pliant.sym.frozen import InputLayout, Shapes
from pliant.sym.node import SYMBOLIC, from_torch, to_torch

MOST_LAYOUTS: Final = 4  # of the inputs of one body; for others PyTorch runs it

Numbers = tuple[int, ...]


@dataclass(slots=True, eq=False)
class FlatBody:
    """A body for inputs that are laid out in one way, as a graph like any other. It takes the
    tensors and numbers among the arguments (`places` are their positions among the leaves), then
    the values of symbols; it returns a flat tuple, of which `output` and `constants` make the
    result again. `kinds` are dtype and device of each input, None for a number."""

    gm: fx.GraphModule
    shapes: Shapes
    places: tuple[int, ...]
    kinds: tuple[tuple[torch.dtype, torch.device] | None, ...]
    output: pytree.TreeSpec
    constants: tuple[tuple[int, Any], ...]  # leaves of the output that are no tensors, by place
    code: Callable[..., Any]

    def examples(self, hint: Callable[[Expr], int]) -> list[Any]:
        """Arguments with these layouts and undefined contents."""
        examples: list[Any] = []
        for layout, kind in zip(self.shapes.inputs, self.kinds, strict=True):
            if isinstance(layout, InputLayout) and kind is not None:
                sizes, strides = (
                    [hint(n) for n in part] for part in (layout.sizes, layout.strides)
                )
                dtype, device = kind
                examples.append(torch.empty_strided(sizes, strides, dtype=dtype, device=device))
            else:
                examples.append(hint(layout) if isinstance(layout, Expr) else 1.0)
        return examples

    def strides(self, values: Mapping[Any, int]) -> tuple[tuple[int, ...], ...]:
        """The strides of its tensor inputs, for these values of symbols."""
        layouts = [shape for shape in self.shapes.inputs if isinstance(shape, InputLayout)]
        return tuple([tuple([evaluate(n, values) for n in layout.strides]) for layout in layouts])

    def restored(self, results: Sequence[Any]) -> Any:
        """The result of the body, from the flat tuple that its code returned."""
        leaves = list(results)
        for place, constant in self.constants:
            leaves.insert(place, constant)
        return pytree.tree_unflatten(leaves, self.output)


@dataclass(slots=True, eq=False)
class BodyCode:
    """A body, with a graph for each layout of its inputs. While the operator is traced on fakes,
    `calls` collects the arguments of the body; `settle` makes `flat` of them."""

    module: fx.GraphModule
    name: str
    flat: list[FlatBody] = field(default_factory=list)
    calls: list[tuple[Any, ...]] = field(default_factory=list)

    def on_fakes(self, *args: Any) -> Any:
        self.calls.append(args)
        return self.module(*args)

    def settle(self, world: AliasWorld, env: ShapeEnv, symbols: Sequence[Expr]) -> None:
        """Make a graph for each layout that was seen, which is compiled later."""
        layouts: dict[Any, FlatBody] = {}
        for args in self.calls:
            flat = flattened(world, env, self, args, symbols)
            if flat is not None and len(layouts) < MOST_LAYOUTS:
                layouts.setdefault(flat.shapes.inputs, flat)
        self.flat = list(layouts.values())
        self.calls.clear()


@dataclass(slots=True, eq=False)
class BoundBody:
    """A body in one call of the loop, where `numbers` are the values of symbols: runs the code for
    the strides of its arguments, or the captured body if there is none."""

    body: BodyCode
    numbers: Numbers
    by_strides: dict[Any, FlatBody]

    def __call__(self, *args: Any) -> Any:
        leaves = pytree.arg_tree_leaves(*args)
        strides = tuple([leaf.stride() for leaf in leaves if isinstance(leaf, torch.Tensor)])
        flat = self.by_strides.get(strides)
        if flat is None:
            return self.body.module(*args)
        inputs = [leaves[place] for place in flat.places]
        return flat.restored(flat.code(*inputs, *self.numbers))


@dataclass(slots=True, eq=False)
class CallWithBodies:
    """An operator that calls bodies, such as `while_loop`, as a node calls it: with the values of
    `symbols`, then the arguments without the bodies. `bodies` are by position among these."""

    target: Callable[..., Any]
    bodies: dict[int, BodyCode]
    symbols: tuple[Expr, ...]

    @property
    def __name__(self) -> str:
        return str(getattr(self.target, "__name__", "call"))

    def __call__(self, numbers: Numbers, *rest: Any) -> Any:
        if any(type(leaf) is Fake for leaf in pytree.tree_leaves(rest)):
            return self.target(*self._placed(rest, lambda body: body.on_fakes))
        values: Mapping[Any, int] = dict(zip(self.symbols, numbers, strict=True))

        def bound(body: BodyCode) -> BoundBody:
            return BoundBody(body, numbers, {flat.strides(values): flat for flat in body.flat})

        return self.target(*self._placed(rest, bound))

    def _placed(self, rest: Sequence[Any], instead: Callable[[BodyCode], Any]) -> list[Any]:
        args = list(rest)
        for place, body in self.bodies.items():
            args.insert(place, instead(body))
        return args


def call_with_bodies(
    world: AliasWorld, target: Callable[..., Any], args: Sequence[Any]
) -> tuple[CallWithBodies, tuple[Any, ...]]:
    """The operator with its bodies taken out of its arguments, and the arguments that are left."""
    name = f"{getattr(target, '__name__', 'call')}_body"
    bodies = {
        at: BodyCode(arg, name) for at, arg in enumerate(args) if isinstance(arg, fx.GraphModule)
    }
    rest = [arg for at, arg in enumerate(args) if at not in bodies]
    symbols: dict[Expr, None] = {}
    for leaf in pytree.tree_leaves(rest):
        symbols |= dict.fromkeys(s for n in _numbers(world, leaf) for s in n.symbols)
    integers = tuple([s for s in symbols if isinstance(s, Expr)])
    numbers = tuple([to_torch(s, world.env) for s in integers])
    return CallWithBodies(target, bodies, integers), (numbers, *rest)


def bodies_in(functional: Functional) -> Iterator[FlatBody]:
    """The bodies of a graph that have code of their own."""
    for node in functional.nodes:
        if isinstance(node.func, CopyingFunction):
            call: Any = node.func.function.function
            call = call.function if isinstance(call, OnLeaves) else call
            if isinstance(call, CallWithBodies):
                for body in call.bodies.values():
                    yield from body.flat


def _numbers(world: AliasWorld, leaf: Any) -> tuple[Any, ...]:
    if type(leaf) is Fake:
        return world.numbers((*leaf.size(), *leaf.stride()))
    return (world.number(leaf),) if isinstance(leaf, SYMBOLIC) else ()


# --------------------------------------------------------------------------------------------------
# Flat graphs


def flattened(
    world: AliasWorld,
    env: ShapeEnv,
    body: BodyCode,
    args: tuple[Any, ...],
    symbols: Sequence[Expr],
) -> FlatBody | None:
    """The body for arguments like `args` as a flat graph; None if it takes something that code
    can't."""
    module, graph = body.module, fx.Graph()
    inputs: list[Any] = []
    places: list[int] = []
    kinds: list[tuple[torch.dtype, torch.device] | None] = []

    def placeholder(shape: Any, kind: tuple[torch.dtype, torch.device] | None) -> fx.Node:
        inputs.append(shape)
        kinds.append(kind)
        return graph.placeholder(f"input_{len(inputs)}")

    leaves, structure = pytree.tree_flatten(args)
    nodes: list[Any] = []
    for at, leaf in enumerate(leaves):
        shape = _shape_of(world, leaf)
        if shape is NotImplemented:
            return None
        if shape is not None:
            places.append(at)
            leaf = placeholder(shape, (leaf.dtype, leaf.device) if type(leaf) is Fake else None)
        nodes.append(leaf)
    # Behind the tensors and numbers among the arguments.
    for symbol in symbols:
        placeholder(symbol, None)
    originals = [node for node in module.graph.nodes if node.op == "placeholder"]
    values = dict(zip(originals, pytree.tree_unflatten(nodes, structure), strict=True))
    output = _copy(module.graph, graph, values)
    results, spec = pytree.tree_flatten(output)
    graph.output(tuple([leaf for leaf in results if isinstance(leaf, fx.Node)]))
    constants = [(at, leaf) for at, leaf in enumerate(results) if not isinstance(leaf, fx.Node)]
    gm = fx.GraphModule(module, graph, class_name=body.name)
    shapes = Shapes(env, tuple(inputs))
    return FlatBody(gm, shapes, tuple(places), tuple(kinds), spec, tuple(constants), gm.forward)


def _shape_of(world: AliasWorld, leaf: Any) -> Any:
    """The layout or symbol of an input; None for a constant, NotImplemented for what code can't
    take."""
    if type(leaf) is Fake:
        return InputLayout(world.numbers(leaf.size()), world.numbers(leaf.stride()))
    if not isinstance(leaf, SYMBOLIC):
        return NotImplemented if isinstance(leaf, torch.Tensor) else None
    number = from_torch(leaf)
    return number if getattr(number, "op", "") == "symbol" else NotImplemented


def _copy(old: fx.Graph, new: fx.Graph, values: dict[fx.Node, Any]) -> Any:
    """Copy the nodes of one graph into another, and return what it outputs. `getitem` of an input
    that is a structure is resolved here, as its leaves are inputs of the new graph."""
    output: Any = None
    for node in old.nodes:
        if node.op == "output":
            output = fx.map_arg(node.args[0], values.__getitem__)
        elif node in values:
            continue
        elif _takes_apart(node, values):
            values[node] = values[node.args[0]][node.args[1]]
        else:
            values[node] = new.node_copy(node, values.__getitem__)
    return output


def _takes_apart(node: fx.Node, values: Mapping[fx.Node, Any]) -> bool:
    is_item = node.op == "call_function" and getattr(node.target, "__name__", "") == "getitem"
    return is_item and not isinstance(values[node.args[0]], fx.Node)  # type: ignore[index]
