"""Symbolic numbers as nodes of the graph.

The one idea: a symbol has an origin, the node from which its value is read when the code runs
(`x.size(0)`, the result of `item()`, an input). Any other expression becomes nodes over the origins
of its symbols, made when they are first needed, each once.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import torch
from torch import fx

from pliant.capture.graph import GraphInput, layout_of
from pliant.capture.host_randomness import DrawnNumber
from pliant.capture.value import Break
from pliant.guards.guard import Load
from pliant.sym.cond import Cond, eq
from pliant.sym.env import ShapeEnv
from pliant.sym.expr import Expr
from pliant.sym.floats import MATH, FloatExpr
from pliant.sym.frozen import Shapes
from pliant.sym.node import from_torch

if TYPE_CHECKING:
    from pliant.capture.trace import Trace

Symbolic = Expr | FloatExpr | Cond
Origin = Callable[[], fx.Node]


class SizeNodes:
    """The nodes of one graph that compute numbers."""

    def __init__(self, trace: Trace, env: ShapeEnv) -> None:
        self.trace = trace
        self.env = env
        self._origins: dict[Any, Origin] = {}
        self._nodes: dict[Any, fx.Node] = {}

    def forget(self) -> None:
        self._origins.clear()

    def numbers(self) -> dict[fx.Node, Any]:
        """What each node that computes a number computes."""
        return {node: expr for expr, node in self._nodes.items()}

    def drop(self, nodes: set[fx.Node]) -> None:
        """Forget these nodes, which are in a graph of their own from now on."""
        self._nodes = {expr: node for expr, node in self._nodes.items() if node not in nodes}

    def set_origin(self, s: Any, origin: Origin) -> None:
        """The value of a symbol is read from the node that `origin` makes."""
        # The first origin stays: it is the earliest place where the number is known.
        self._origins.setdefault(s, origin)

    def settle(self, number: Any, node: fx.Node) -> None:
        """Make `node` the origin of the number that it returns, if that is a new symbol."""
        expr = from_torch(number)
        if isinstance(expr, Cond) and expr.op == "ne0":  # the result of bool_tensor.item()
            inner = expr.args[0]
            self.set_origin(inner, lambda: self._call(int, (node,)))
        elif expr.op in ("symbol", "fsymbol"):
            self.set_origin(expr, lambda: node)

    def settle_sizes(self, fake: torch.Tensor, node: fx.Node) -> None:
        """Sizes of a new tensor that are new symbols are read from it."""
        self._settle_each("size", fake.size(), node)

    def settle_strides(self, fake: torch.Tensor, node: fx.Node) -> None:
        self._settle_each("stride", fake.stride(), node)

    def _settle_each(self, method: str, numbers: Sequence[Any], node: fx.Node) -> None:
        for dim, number in enumerate(numbers):
            s = from_torch(number)
            if s.op == "symbol" and s not in self._origins:
                after = self.trace.graph.after
                # The node is made only if somebody needs the number, directly behind its tensor:
                # later the tensor may have been resized.
                self.set_origin(s, partial(after, node, method, (node, dim)))

    def node(self, expr: Symbolic) -> fx.Node | float:
        """The node that computes `expr`, made when it is first asked for; a plain number for a
        constant."""
        known_node = self._nodes.get(expr)
        if known_node is not None:
            return known_node
        value = getattr(expr, "value", None)
        if value is not None:
            return value
        new_node = self._make(expr)
        self._nodes[expr] = new_node
        return new_node

    def _make(self, expr: Any) -> fx.Node:
        if expr.op in ("symbol", "fsymbol"):
            return self._at_symbol(expr)
        special = _SPECIAL.get(expr.op)
        if special is not None:
            return special(self, expr)
        return self._call(_TARGETS[expr.op], tuple(self.node(arg) for arg in expr.args))

    def _at_symbol(self, s: Any) -> fx.Node:
        origin = self._origins.get(s)
        if origin is not None:
            return origin()
        # A symbol without an origin may be known to equal others that have one.
        replacement = self.env.simplify(s)
        if replacement is s:
            raise Break("data-dependent-number", f"{s}, which no operation returned")
        replaced = self.node(replacement)
        return replaced if isinstance(replaced, fx.Node) else self._call(int, (replaced,))

    def _call(self, target: Callable[..., Any], args: tuple[Any, ...]) -> fx.Node:
        return self.trace.graph.operation(target, args, {}, self.trace.stack(), False)

    def _chain(self, target: Callable[..., Any], parts: list[Any]) -> fx.Node:
        first, *rest = parts
        for part in rest:
            first = self._call(target, (first, part))
        return first

    def _sum(self, expr: Expr) -> fx.Node:
        parts = [self._term(product, c) for product, c in expr.terms]
        return self._chain(operator.add, parts + ([expr.const] if expr.const else []))

    def _term(self, product: Expr, c: int) -> Any:
        factor = self.node(product)
        return factor if c == 1 else self._call(operator.mul, (factor, c))

    def _product(self, expr: Expr) -> fx.Node:
        parts = [
            self.node(factor) if e == 1 else self._call(operator.pow, (self.node(factor), e))
            for factor, e in expr.factors
        ]
        return self._chain(operator.mul, parts)


def input_shapes(trace: Trace) -> Shapes:
    """What is known of the inputs of the graph, for the backend."""
    env = trace.sizes.env
    numbers = {
        binding.source.source: binding.expr
        for binding in env.bindings
        if isinstance(binding.source, Load) and binding.source.what == "value"
    }
    # Residual code passes those that it draws, too, though no guard binds them.
    for info in env.symbols.values():
        if isinstance(info.source, Load) and isinstance(info.source.source, DrawnNumber):
            numbers[info.source.source] = info.symbol
    shapes: list[Any] = []
    for entry in trace.graph.inputs:
        if entry.layout is not None and not _has_another_shape(trace, entry):
            shapes.append(entry.layout)
        else:
            shapes.append(numbers.get(entry.source))
    return Shapes(env, tuple(shapes))


def _has_another_shape(trace: Trace, entry: GraphInput) -> bool:
    """Whether the program has given an input another shape (`resize_`), or may have: backends can't
    do that."""
    if id(entry.fake) not in trace.world.reshaped:
        return False
    assert entry.fake is not None and entry.layout is not None
    now, before, env = layout_of(entry.fake), entry.layout, trace.sizes.env
    if len(now.sizes) != len(before.sizes):
        return True
    pairs = zip((*now.sizes, *now.strides), (*before.sizes, *before.strides))
    return not all(env.known(eq(n, b)) for n, b in pairs)


def _compared(target: Callable[..., Any]) -> Callable[[SizeNodes, Any], fx.Node]:
    return lambda nodes, cond: nodes._call(target, (nodes.node(cond.args[0]), 0))


def _combined(target: Callable[..., Any]) -> Callable[[SizeNodes, Any], fx.Node]:
    return lambda nodes, cond: nodes._chain(target, [nodes.node(part) for part in cond.args])


_SPECIAL: dict[str, Callable[[SizeNodes, Any], fx.Node]] = {
    "add": SizeNodes._sum,
    "mul": SizeNodes._product,
    "le0": _compared(operator.le),
    "eq0": _compared(operator.eq),
    "ne0": _compared(operator.ne),
    "and": _combined(operator.and_),
    "or": _combined(operator.or_),
}

_TARGETS: dict[str, Callable[..., Any]] = {
    "floordiv": operator.floordiv,
    "mod": operator.mod,
    "pow": operator.pow,
    "min": min,
    "max": max,
    "abs": abs,
    "bitand": operator.and_,
    "bitor": operator.or_,
    "bitxor": operator.xor,
    "if": torch.sym_ite,
    "fif": torch.sym_ite,
    "to_float": float,
    "fadd": operator.add,
    "fsub": operator.sub,
    "fmul": operator.mul,
    "truediv": operator.truediv,
    "ffloordiv": operator.floordiv,
    "fmod": operator.mod,
    "fpow": operator.pow,
    "fneg": operator.neg,
    "fabs": abs,
    "fmin": min,
    "fmax": max,
    "fround": round,
    "floor": math.floor,
    "ceil": math.ceil,
    "trunc": math.trunc,
    "round": round,
    "fle": operator.le,
    "flt": operator.lt,
    "feq": operator.eq,
    "fne": operator.ne,
    "not": operator.not_,
    **{f"math.{name}": function for name, function in MATH.items()},
}
