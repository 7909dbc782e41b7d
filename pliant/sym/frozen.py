"""What is known of the sizes of a finished capture, and nothing more.

The one idea: guards are made when a capture ends. What is found out afterwards may only use what
they say; a question to which that is no answer is an error to those who ask, and they do without.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from pliant.base.position import Position
from pliant.base.values import dataclass
from pliant.sym.cond import Cond, eq, ge, not_
from pliant.sym.env import ShapeEnv
from pliant.sym.expr import Expr
from pliant.sym.facts import Facts
from pliant.sym.floats import FloatExpr
from pliant.sym.records import Question, SizeGuard
from pliant.sym.symbols import range_conditions


class Undecided(Exception):
    """What is known leaves the question open."""


class FrozenEnv(ShapeEnv):
    """The ShapeEnv of a finished capture: it answers from facts alone, and makes no new guards.

    The backend runs the graph on fakes once more. Questions that come up then must follow from the
    guards, or from what was `checked` so far; otherwise they raise `Undecided`. A number computed
    from data gets the symbol that it had in the capture: `expected` are those that come next. What
    an operation demands of such numbers, or of floats, is passed to `demand`, to be tested when the
    code runs. `ones` are sizes that are taken to be 1.
    """

    in_capture = False

    def __init__(self, shapes: Shapes, ones: Iterable[Expr] = ()) -> None:
        env = shapes.env
        super().__init__(env.policy, duck=False)
        # A copy: what is asked here must not reach the capture's own ShapeEnv.
        self.restore(env.snapshot())
        inputs = {binding.expr for binding in self.bindings}
        self.unread = inputs - shapes.read()
        self.expected: list[Any] = []
        self.demand: Callable[[Cond, str], None] | None = None
        # Learnt anew from guards alone: facts of the capture also come from checks, which hold only
        # from their place in the program on.
        self.facts = Facts(self._rank)
        for s, info in self.symbols.items():
            if isinstance(s, Expr):
                for cond in range_conditions(s, info.declared):
                    self.facts.learn(cond)
        assumed = [a for a in self.assumptions if a.enforced and a.condition.symbols <= inputs]
        conditions = [record.condition for record in self.recorded]
        for condition in [*conditions, *[record.condition for record in assumed]]:
            self.facts.learn(condition)
        for size in ones:  # in this part of the calls
            self.facts.learn(eq(size, 1))

    def _rank(self, s: Expr, within: Expr) -> Any:
        """The code has to find every number among the inputs of the graph, so these are not
        expressed by sizes that only guards read."""
        if s in self.unread:
            return (True, *super()._rank(s, within))
        return (
            (False, *super()._rank(s, within)) if self.unread.isdisjoint(within.symbols) else None
        )

    def bounded(self, node: Any, asker: str) -> Any:
        try:
            return super().bounded(node, asker)
        except Undecided:
            return node  # as deep as it was in the capture, where no guard was needed

    def checked(self, cond: Cond) -> None:
        """Learn `cond`, which the code tests at this place: from here on it holds, because the code
        raises where it doesn't."""
        self.facts.learn(cond)
        self._rule_out()

    def expect(self, expr: Expr) -> int:
        """The size to optimise for: the one in the capture, or 64 where it has none."""
        return int(self.hint_or(expr, 64))

    def is_natural(self, expr: Expr) -> bool:
        """Whether a number is surely at least 0."""
        return self.known(ge(expr, 0)) is True

    def _rule_out(self) -> None:
        """Learn the remaining alternative of each `or` of which all others are refuted by now."""
        for truth in [truth for truth in self.facts.truths if truth.op == "or"]:
            left = [case for case in truth.args if self.known(case) is not False]
            if len(left) == 1:
                self.facts.learn(left[0])

    def _guard(self, cond: Cond, asker: str, position: Position | None) -> SizeGuard:
        if self.demand is None or not any(isinstance(s, FloatExpr) for s in cond.symbols):
            # The guards are settled. What they leave open can't be decided here, so the graph is
            # not compiled as it is.
            raise Undecided(f"{asker} asks whether {cond}")
        self.demand(cond, f"{asker} needs {cond}")  # guards know no floats
        self.checked(cond)
        return SizeGuard(cond, asker, position)

    def _assume(self, question: Question, answer: bool) -> bool:
        """Answer as in the capture. The graph tests an assumption only behind the operation that
        asked, so it is tested here too."""
        asked = question.condition
        for assumption in self.assumptions:
            assumed = assumption.condition
            answers = assumption.enforced and assumed in (asked, not_(asked))
            if answers and self.demand is not None:
                self.demand(assumed, f"{question.asker} needs {assumed}")
                self.checked(assumed)
                return assumed == asked
        raise Undecided(f"{question.asker} asks whether {asked}")

    def check(self, cond: Cond, message: str = "", position: Position | None = None) -> Question:
        if self.known(cond) is not True:
            inputs = {binding.expr for binding in self.bindings}
            if self.demand is None or self.known(cond) is False or cond.symbols <= inputs:
                raise Undecided(f"a check of {cond}")
            self.demand(cond, message)
            self.checked(cond)
        return Question("check", cond, True, "known", None, position)

    def add_unbacked(self, source: object, **more: Any) -> Expr:
        return self._expected(Expr, source)

    def add_float(self, source: object, hint: float | None, **more: Any) -> FloatExpr:
        return self._expected(FloatExpr, source)

    def _expected(self, kind: type, source: object) -> Any:
        if not self.expected or type(self.expected[0]) is not kind:
            raise Undecided(f"a number that the capture did not see: {source}")
        # Running a node again makes its unbacked symbols in the same order.
        return self.expected.pop(0)


@dataclass(frozen=True, slots=True)
class InputLayout:
    """The sizes and strides of an input tensor. For a wrapper subclass, `inner` has the tensors
    that it is made of, by attribute."""

    sizes: tuple[Expr, ...]
    strides: tuple[Expr, ...]
    inner: tuple[tuple[str, InputLayout], ...] = ()


@dataclass(frozen=True, slots=True)
class Shapes:
    """What a capture knows of the inputs of its graph, in order: the layout of a tensor, the symbol
    of a number, None for anything else."""

    env: ShapeEnv
    inputs: tuple[InputLayout | Expr | FloatExpr | None, ...]

    def read(self) -> set[Any]:
        """The symbols that are a size, a stride or a number of these inputs."""
        symbols: set[Any] = set()
        for item in self.inputs:
            symbols.update(
                (*item.sizes, *item.strides) if isinstance(item, InputLayout) else (item,)
            )
        return symbols


META = "pliant"
"""Under this key the graph of a capture has its `Shapes` in `meta`, for backends that use them."""


SYMBOLS = "symbols"
"""Under this key a node of the graph has the symbols that were made for its result, in order."""


def shapes_of(meta: Mapping[str, Any]) -> Shapes | None:
    shapes = meta.get(META)
    return shapes if isinstance(shapes, Shapes) else None
