"""Graphs of wrapper subclasses, written over what the tensors are made of.

The one idea: the class stands at both ends only. The flat graph takes the tensors inside, puts the
wrappers together itself, runs the captured nodes on them, and takes the results apart. Where it is
functionalized, the wrappers are made of fakes and their `__torch_dispatch__` runs; what is left of
them are operators on plain tensors. With a class `Two` of tensors a and b, `x * 2` is

    def flat(x_a, x_b):
        x = new_Two((x_a, x_b), sizes, strides)
        y = x * 2
        return part(y, "a"), part(y, "b"), and the sizes and strides that y shows
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import fx

from pliant.base.values import dataclass
from pliant.fake.tensor import Fake
from pliant.fake.wrappers import RECIPE, WrapperRecipe, is_wrapper, recipe_of
from pliant.graph.aliases import NotFunctionalized
from pliant.sym.expr import Expr
from pliant.sym.frozen import InputLayout, Shapes

# --------------------------------------------------------------------------------------------------
# What the nodes of a flat graph call


def wrapper_maker(recipe: WrapperRecipe) -> Callable[..., Any]:
    """The function of a graph that makes a wrapper of tensors."""

    def wrap(parts: Sequence[Any], sizes: Any, strides: Any) -> Any:
        for part in parts:
            if type(part) is Fake and (world := part._world()) is not None:
                world.wraps = True  # type: ignore[attr-defined]
        return recipe.make(parts, sizes, strides)

    wrap.__name__ = wrap.__qualname__ = f"new_{recipe.cls.__name__}"
    return wrap


def part(wrapper: torch.Tensor, name: str) -> Any:
    """A tensor that a wrapper is made of."""
    return getattr(wrapper, name)


def dimension(wrapper: torch.Tensor, measure: str, dim: int) -> Any:
    """A size or a stride that a wrapper shows."""
    return getattr(wrapper, measure)(dim)


# --------------------------------------------------------------------------------------------------
# Flat graphs


@dataclass(frozen=True, slots=True, eq=False)
class Unwrapped:
    """A flat graph. `arguments` has the recipe of each argument of the captured graph that is a
    wrapper, else None; `results` the recipe of each result, or the number of the argument that it
    is, else None. `kept` are the tensors inside of arguments that are inputs of the flat graph."""

    gm: fx.GraphModule
    shapes: Shapes
    examples: list[Any]
    arguments: tuple[WrapperRecipe | None, ...]
    results: tuple[WrapperRecipe | int | None, ...]
    kept: tuple[int, ...]

    def load(self, code: Callable[..., Any], written: Sequence[int]) -> WithWrappers:
        """The captured graph, run by `code` for the flat one. `written`: the inputs of that which
        it writes to."""
        at, outer = 0, []
        written = [self.kept[index] for index in written]
        for number, recipe in enumerate(self.arguments):
            count = 1 if recipe is None else recipe.count
            if recipe is not None and any(at <= index < at + count for index in written):
                outer.append(number)
            at += count
        return WithWrappers(code, self.arguments, self.results, self.kept, tuple(outer))


@dataclass(frozen=True, slots=True, eq=False)
class WithWrappers:
    """Runs code for the tensors inside of wrappers: takes arguments apart, and puts results
    together."""

    code: Callable[..., Any]
    arguments: tuple[WrapperRecipe | None, ...]
    results: tuple[WrapperRecipe | int | None, ...]
    kept: tuple[int, ...]  # which of the tensors inside the code takes
    written: tuple[int, ...]

    def __call__(self, *args: Any) -> Any:
        inner: list[Any] = []
        for arg, recipe in zip(args, self.arguments, strict=True):
            if recipe is None:
                inner.append(arg)
            else:
                recipe.take_apart(arg, inner)
        flat = iter(self.code(*[inner[at] for at in self.kept]))
        if self.written:  # autograd compares version counters
            torch._C._increment_version([args[number] for number in self.written])
        return tuple([self._result(recipe, flat, args) for recipe in self.results])

    def _result(self, recipe: WrapperRecipe | int | None, flat: Any, args: Sequence[Any]) -> Any:
        if isinstance(recipe, int):
            return args[recipe]
        return next(flat) if recipe is None else recipe.put_together(flat)


def has_wrappers(gm: fx.GraphModule, examples: Sequence[Any]) -> bool:
    return any(map(is_wrapper, examples)) or any(RECIPE in node.meta for node in gm.graph.nodes)


def unwrap(gm: fx.GraphModule, shapes: Shapes, examples: Sequence[Any]) -> Unwrapped:
    """The flat graph of a captured one."""
    builder = _Builder()
    values: dict[fx.Node, fx.Node] = {}
    # Inputs: each wrapper is taken apart, and put together again by a node.
    places = [node for node in gm.graph.nodes if node.op == "placeholder"]
    arguments: list[WrapperRecipe | None] = []
    for node, layout, example in zip(places, shapes.inputs, examples, strict=True):
        recipe = recipe_of(example) if is_wrapper(example) else None
        values[node] = builder.take(node.name, layout, example, recipe)
        arguments.append(recipe)
    builder.wrap_all()
    for node in gm.graph.nodes:
        if node.op == "output":
            # The captured nodes, as they are.
            outputs = node.args[0]
        elif node not in values:
            values[node] = builder.graph.node_copy(node, values.__getitem__)
    # Results: a wrapper that is an argument is returned itself, any other as its parts.
    wrappers = [node for node, recipe in zip(places, arguments, strict=True) if recipe is not None]
    results: list[WrapperRecipe | int | None] = []
    flat: list[fx.Node] = []
    for node in outputs:
        recipe = node.meta.get(RECIPE)
        if RECIPE in node.meta and recipe is None:
            raise NotFunctionalized("a wrapper with a context that changes")
        results.append(places.index(node) if node in wrappers else recipe)
        if node not in wrappers:
            flat += builder.parts_of(values[node], recipe)
    builder.graph.output(tuple(flat))
    flat_gm = fx.GraphModule(gm, builder.graph, class_name=type(gm).__name__)
    return Unwrapped(
        flat_gm,
        Shapes(shapes.env, tuple(builder.inputs)),
        builder.examples,
        tuple(arguments),
        tuple(results),
        tuple(builder.kept),
    )


class _Builder:
    """A flat graph in the making."""

    def __init__(self) -> None:
        self.graph = fx.Graph()
        self.inputs: list[Any] = []
        self.examples: list[Any] = []
        self.leaves = 0  # of the arguments
        self.kept: list[int] = []  # those that are inputs: one of them may be met twice
        self._taken: dict[int, fx.Node] = {}

    def take(self, name: str, layout: Any, example: Any, recipe: WrapperRecipe | None) -> fx.Node:
        """The node for an argument of the captured graph: an input, or a wrapper that is made of
        inputs (recursively, as a wrapper may hold others)."""
        if recipe is None:
            self.leaves += 1
            # Guards see to it that what is one tensor now stays one.
            if isinstance(example, torch.Tensor) and id(example) in self._taken:
                return self._taken[id(example)]
            self.kept.append(self.leaves - 1)
            self.inputs.append(layout)
            self.examples.append(example)
            node = self._taken[id(example)] = self.graph.placeholder(f"{name}_{len(self.inputs)}")
            return node
        if not isinstance(layout, InputLayout) or not layout.inner:
            raise NotFunctionalized(f"a tensor of type {type(example).__name__}")
        layouts = dict(layout.inner)
        parts = [
            self.take(f"{name}_{inner}", layouts[inner], getattr(example, inner), below)
            for inner, below in zip(recipe.names, recipe.inner, strict=True)
        ]
        sizes = tuple([self._number(parts, layouts, "size", n) for n in layout.sizes])
        strides = tuple([self._number(parts, layouts, "stride", n) for n in layout.strides])
        return self.graph.call_function(wrapper_maker(recipe), (tuple(parts), sizes, strides))

    def wrap_all(self) -> None:
        """Move all placeholders to the front, where FX wants them."""
        first = next((node for node in self.graph.nodes if node.op != "placeholder"), None)
        if first is not None:
            for node in [n for n in self.graph.nodes if n.op == "placeholder"]:
                first.prepend(node)

    def _number(
        self, parts: list[fx.Node], layouts: dict[str, InputLayout], measure: str, number: Expr
    ) -> Any:
        """A size or a stride that a wrapper shows: that of a tensor inside, or a constant."""
        if number.value is not None:
            return number.value
        for node, layout in zip(parts, layouts.values(), strict=True):
            numbers = layout.sizes if measure == "size" else layout.strides
            if number in numbers:
                return self.graph.call_function(dimension, (node, measure, numbers.index(number)))
        raise NotFunctionalized("a wrapper with a size of its own")

    def parts_of(self, node: fx.Node, recipe: WrapperRecipe | None) -> list[fx.Node]:
        """Nodes for the tensors that a result is made of, and for the sizes and strides that it
        shows."""
        if recipe is None:
            return [node]
        parts: list[fx.Node] = []
        for name, below in zip(recipe.names, recipe.inner, strict=True):
            parts += self.parts_of(self.graph.call_function(part, (node, name)), below)
        for measure in ("size", "stride"):
            for dim in range(recipe.dims):
                parts.append(self.graph.call_function(dimension, (node, measure, dim)))
        return parts
