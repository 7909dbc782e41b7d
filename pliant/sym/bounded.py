"""Bounds on the depth of expressions.

The one idea: an expression shares its parts, so its depth bounds the work of walking
it. A program that computes with sizes in a loop makes deeper and deeper ones. From some depth
on, the answers that simplify an expression are worth a guard: first which argument of min, max,
abs and choices it is, as for these inputs (the result holds for many sizes), and where that is not
enough, its value.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, Protocol

from pliant.sym.cond import Cond, ge, le
from pliant.sym.expr import Expr, integer, rebuild

MOST_DEPTH: Final = 32
MOST_UNBACKED: Final = 96  # there is no other way for these: a graph break


class Asked(Protocol):
    """What of a ShapeEnv is needed here."""

    def simplify(self, node: Any) -> Any: ...
    def hint(self, node: Any) -> Any: ...
    def range(self, expr: Expr) -> Any: ...
    def evaluate(self, cond: Cond, asker: str) -> bool: ...
    def specialise(self, expr: Expr, asker: str) -> int: ...


def bounded(env: Asked, node: Any, asker: str) -> Any:
    """The same number, in an expression no deeper than `MOST_DEPTH`, if it has a hint. One without
    a hint may be up to `MOST_UNBACKED` deep; beyond that this raises DataDependentError."""
    node = env.simplify(node)
    if node.depth <= MOST_DEPTH:
        return node
    # Without a hint there is no side to take, so unbacked expressions may grow deeper before the
    # compiler gives up.
    if env.hint(node) is None:
        if node.depth > MOST_UNBACKED and isinstance(node, Expr):
            env.specialise(node, asker)  # which raises: the value is unknown
        return node
    # First the choices, which keep the result right for many sizes.
    node = env.simplify(_Chooser(env, asker).visit(node))
    if node.depth <= MOST_DEPTH or not isinstance(node, Expr):
        return node
    value = env.range(node).value  # what was specialised before is known
    return integer(env.specialise(node, asker) if value is None else value)


class _Chooser:
    """Replaces choices by what is chosen for these inputs."""

    def __init__(self, env: Asked, asker: str) -> None:
        self.env = env
        self.asker = asker
        self.memo: dict[Any, Any] = {}

    def visit(self, node: Any) -> Any:
        if not node.symbols or node.op in ("symbol", "fsymbol"):
            return node
        if node not in self.memo:
            choose = _CHOOSE.get(node.op)
            self.memo[node] = rebuild(node, self.visit) if choose is None else choose(self, node)
        return self.memo[node]

    def extreme(self, node: Any) -> Any:
        """The argument that the min or max has the value of for these inputs, with guards that it
        is. The parts are visited first, so that the questions are about simple expressions."""
        pick, compare = (min, le) if node.op == "min" else (max, ge)
        args = [self.env.simplify(self.visit(arg)) for arg in node.args]
        chosen = pick(args, key=self.env.hint)
        for other in args:
            if other is not chosen:
                # The guard: for sizes for which another one is chosen, the program is compiled
                # again.
                self.env.evaluate(compare(chosen, other), self.asker)
        return chosen

    def absolute(self, node: Any) -> Any:
        arg = self.visit(node.args[0])
        return arg if self.env.evaluate(ge(arg, 0), self.asker) else -arg

    def choice(self, node: Any) -> Any:
        condition, a, b = node.args
        return self.visit(a if self.env.evaluate(condition, self.asker) else b)


_CHOOSE: Final[dict[str, Callable[[_Chooser, Any], Any]]] = {
    "min": _Chooser.extreme,
    "max": _Chooser.extreme,
    "abs": _Chooser.absolute,
    "if": _Chooser.choice,
}
