"""A ShapeEnv as PyTorch's shape functions see it.

The one idea: PyTorch asks in many ways (`guard_bool`, `guard_or_false`, `expect_true`, a hint, a
range), and all of them come down to a few questions to a ShapeEnv. A bridge translates. It also
keeps the nodes, one for each expression, and the answers that were given since the facts last
changed: C++ asks the same thing again and again.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from pliant.base.python_errors import names_value
from pliant.sym import cond as conds
from pliant.sym import floats, node_layout
from pliant.sym.bounded import MOST_DEPTH
from pliant.sym.cond import FALSE, TRUE, Cond
from pliant.sym.env import ShapeEnv
from pliant.sym.explain import data_dependent, named
from pliant.sym.expr import Expr, if_else, integer
from pliant.sym.floats import FloatExpr
from pliant.sym.node_asker import ALLOCATES, asker_of, asking_frame, is_general, meaning
from pliant.sym.records import Question

AnyExpr = Expr | FloatExpr | Cond

ALLOCATABLE: Final = 1 << 47
"""More bytes than a process has addresses for. Eager PyTorch fails to allocate a tensor of such a
size; code that needs no memory for it would run on."""


class Bridge:
    """A ShapeEnv as PyTorch's shape functions see it.

    `asker` gives the name of the operation that is being run, for the record; where it gives none,
    the place in PyTorch that asks is named.
    """

    _translation_validation_enabled = False
    prefer_deferred_runtime_asserts_over_guards = False

    def __init__(self, env: ShapeEnv, make: Callable[[AnyExpr, Bridge], Any]) -> None:
        self.env = env
        self.make = make  # a node of this bridge
        self.asker: Callable[[], str] = lambda: ""
        self.nodes: dict[Any, Any] = {}
        self.answers: dict[Cond, bool] = {}
        self.answers_of: Any = None  # the facts that `answers` follow from

    def node(self, expr: AnyExpr) -> Any:
        if expr.depth > MOST_DEPTH:
            # Not to be remembered for the deep expression: it holds as long as the guards do.
            expr = self.env.bounded(expr, self.who("", 0))
        node = self.nodes.get(expr)
        if node is None:
            node = self.nodes[expr] = self.make(expr, self)
        return node

    def forget(self) -> None:
        """Drop the nodes. Their numbers in C++ keep them alive in a way that garbage collection
        can't see."""
        self.asker = lambda: ""
        for node in self.nodes.values():
            node._shell = None
        self.nodes.clear()

    def who(self, file: str, line: int) -> str:
        return self.asker() or asker_of(file, line)

    # Questions

    def decide(self, cond: Cond, ask: Callable[[Cond], bool]) -> bool:
        """The answer to `cond`: a remembered one, if the facts have not changed since, otherwise
        that of `ask`."""
        answer = self.remembered(cond)
        if answer is None:
            answer = ask(cond)
            # Learning replaces the facts by a new object (`ShapeEnv._learn`), so identity tells
            # whether remembered answers are still complete.
            if self.answers_of is not self.env.facts:
                self.answers.clear()
                self.answers_of = self.env.facts
            self.answers[cond] = answer
        return answer

    def remembered(self, cond: Cond) -> bool | None:
        if cond is TRUE or cond is FALSE:
            return cond is TRUE
        return self.answers.get(cond) if self.answers_of is self.env.facts else None

    def guard_bool(self, cond: Cond, file: str = "", line: int = 0) -> bool:
        answer = self.remembered(cond)
        if answer is None and not file:
            answer = self.step(cond, None)
        if answer is None:
            answer = self.decide(cond, lambda c: self.env.evaluate(c, self.who(file, line)))
        return answer

    def guard_or(self, cond: Cond, default: bool, file: str = "", line: int = 0) -> bool:
        answer = self.remembered(cond)
        if answer is None:
            answer = self.step(cond, default) if not file else self.in_general(cond, default, file)
        if answer is None:
            asker = self.who(file, line)
            answer = self.decide(cond, lambda c: self.env.guard_or(c, default, asker))
        return answer

    def in_general(self, cond: Cond, default: bool, file: str) -> bool | None:
        """If that place in C++ is right with either answer: what follows from the facts, else the
        default. None for any other place."""
        if not is_general(file, cond, self.env):
            return None
        answer = self.env.known(cond)
        return default if answer is None else answer

    def step(self, cond: Cond, default: bool | None) -> bool | None:
        """The answer to a question that is a step of a Python function (`node_asker`); None for any
        other question. What the function finds out as a whole is asked first, and leaves the guard.
        """
        frame = asking_frame()
        condition = meaning(frame) if frame is not None else None
        if condition is None:
            return None
        if callable(condition):
            condition = condition(lambda sizes, strides: is_dense(self, sizes, strides))
        asker = self.who("", 0)
        # The whole condition first: it leaves the guard. The steps then follow the hints without
        # any.
        if default is None:
            self.decide(condition, lambda c: self.env.evaluate(c, asker))
        else:
            self.decide(condition, lambda c: self.env.guard_or(c, False, asker))
        if condition is TRUE:
            answer = self.env.known(cond)
            return default if answer is None else answer
        return self.env.hint(cond) if self.env.hint(cond) is not None else default

    def size_oblivious(self, cond: Cond, file: str = "", line: int = 0) -> bool:
        return self.decide(cond, lambda c: self.env.size_oblivious(c, self.who(file, line)))

    def expect_true(self, cond: Cond, file: str = "", line: int = 0) -> bool:
        """Demand a condition without which PyTorch fails: by a guard, or for unbacked sizes by a
        test when the code runs."""
        # With a hint this is a guard: a call on the other side is compiled for itself. Without one
        # it can only be tested when the code runs.
        if cond is TRUE or cond is FALSE or self.env.hint(cond) is not None:
            return self.guard_bool(cond, file, line)
        holds = self.env.check(cond, f"{self.who(file, line)} needs {cond}").answer
        if holds and cond.op == "le0" and file.endswith(ALLOCATES):
            return self.expect_true(conds.le(-cond.args[0], ALLOCATABLE))
        return bool(holds)

    def specialise(self, expr: AnyExpr, file: str = "", line: int = 0) -> Any:
        """The value of the expression, which becomes a constant."""
        if expr.value is not None:
            return expr.value
        return _SPECIALISE[type(expr)](self, expr, self.who(file, line))

    def need(self, cond: Cond, error: Exception) -> None:
        """Demand a condition before an operation that has no value otherwise; raises `error` if it
        is false."""
        frame = asking_frame() if self.remembered(cond) is None else None
        if frame is not None and meaning(frame) is not None and self.env.hint(cond) is not False:
            return  # what is computed is only used for a question that is a step: see `step`
        if not self.expect_true(cond):
            raise error

    def defined(self, expr: AnyExpr, where: Cond = TRUE) -> Any:
        """The node of an expression that has a value only `where` this holds; where it has none,
        this raises what Python raises when it computes it."""
        holds = self.expect_true(where)
        # Computing the hint tells whether the expression has a value for these inputs.
        try:
            self.env.hint(expr)
        except (ArithmeticError, ValueError) as error:
            if holds or names_value(error):
                self._specialise_all(expr)  # so that it raises for these values only
            raise
        if not holds:
            raise ValueError("math domain error")
        return self.node(expr)

    def _specialise_all(self, expr: AnyExpr) -> None:
        symbols: list[Any] = sorted(expr.symbols, key=lambda s: s.order)
        for s in symbols:
            self.specialise(s)

    # What PyTorch's shape functions call

    def evaluate_sym_node(
        self, node: Any, size_oblivious: bool = False, fallback_value: bool | None = None
    ) -> Any:
        if not isinstance(node.expr, Cond):
            return self.specialise(node.expr)
        if fallback_value is not None:
            return self.guard_or(node.expr, fallback_value)
        return (self.size_oblivious if size_oblivious else self.guard_bool)(node.expr)

    def guard_or_defer_runtime_assert(self, cond: Cond, msg: str, **more: Any) -> bool:
        return self.expect_true(cond, msg)

    def _maybe_evaluate_static(self, expr: AnyExpr, **more: Any) -> Any:
        """The value if it follows from the facts, otherwise None."""
        return self.env.known(expr) if isinstance(expr, Cond) else self.env.simplify(expr).value

    def replace(self, expr: AnyExpr) -> Any:
        return self.env.simplify(expr)

    simplify = replace

    def guarding_hint_or_throw(self, expr: AnyExpr) -> Any:
        hint = self.env.hint(expr)
        if hint is None:
            raise _unknown(self.env, expr, self.who("", 0))
        return hint

    def optimization_hint(self, expr: AnyExpr, fallback: int | None = None) -> Any:
        hint = self.env.hint(expr)
        return hint if hint is not None else 8192 if fallback is None else fallback

    def is_unbacked_symint(self, expr: Any) -> bool:
        info = self.env.symbols.get(expr)
        return info is not None and info.hint is None

    def _constrain_range(self, expr: Expr, least: Any = None, most: Any = None) -> None:
        for bound, compare in ((least, conds.ge), (most, conds.le)):
            if bound is not None and abs(bound) < 2**62:
                self.expect_true(compare(expr, int(bound)))

    def _constrain_range_for_size(self, expr: Expr, least: Any = None, most: Any = None) -> None:
        unbacked = self.is_unbacked_symint(expr)
        limit = ALLOCATABLE if unbacked and most is None else most
        self._constrain_range(expr, 0 if least is None else least, limit)
        if unbacked:
            self.env.mark_size_like(expr)


def _unknown(env: ShapeEnv, expr: AnyExpr, asker: str) -> Exception:
    question = Question(asker, conds.eq(number(expr), 0), None, "undecided")
    return data_dependent(env, question, f"needs the value of {named(env, expr)}")


def _specialise_float(bridge: Bridge, expr: FloatExpr, asker: str) -> float:
    """The value of a float, guarded. Equality isn't enough: 0.0 == -0.0, and nan differs from
    itself."""
    env = bridge.env
    hint: float | None = env.hint(expr)
    if hint is None:
        raise _unknown(env, expr, asker)
    if hint != hint:
        env.evaluate(conds.ne(expr, expr), asker)
        return hint
    env.evaluate(conds.eq(expr, hint), asker)
    if hint == 0:
        # Whichever sign it has, the answer becomes the guard.
        env.evaluate(conds.lt(floats.math_call("copysign", 1, expr), 0), asker)
    return hint


_SPECIALISE: Final[dict[type, Callable[[Bridge, Any, str], Any]]] = {
    Expr: lambda bridge, expr, asker: bridge.env.specialise(expr, asker),
    FloatExpr: _specialise_float,
    Cond: lambda bridge, cond, asker: bridge.env.evaluate(cond, asker),
}


def is_dense(bridge: Bridge, sizes: tuple[Expr, ...], strides: tuple[Expr, ...]) -> Cond:
    """The condition that a tensor is non-overlapping and dense.

    It is tried with the dimensions in the order that their strides have now. If that fails, all
    orders are, unless there are too many: then sizes and strides become constants.
    """
    env = bridge.env
    hints = [env.hint(stride) for stride in strides]
    order = [*range(len(sizes) - 1, -1, -1)]
    if None not in hints:
        order.sort(key=hints.__getitem__)
    cond = node_layout.is_dense_in_order(sizes, strides, tuple(order))
    if cond is TRUE or env.hint(cond) is True:
        return cond
    if len(sizes) > node_layout.MOST_DIMS:
        sizes = tuple([integer(bridge.specialise(size)) for size in sizes])
        strides = tuple([integer(bridge.specialise(stride)) for stride in strides])
    return node_layout.is_non_overlapping_and_dense(sizes, strides)


# --------------------------------------------------------------------------------------------------
# Kinds of expressions


def number(e: AnyExpr) -> Expr | FloatExpr:
    """A condition as a number, 1 or 0; any other expression as it is."""
    return if_else(e, 1, 0) if isinstance(e, Cond) else e


def whole(e: AnyExpr) -> Expr:
    if type(e) is Expr:
        return e
    if isinstance(e, Cond):
        return if_else(e, 1, 0)
    raise TypeError(f"an integer is needed, not {e}")


def truth_of(e: AnyExpr) -> Cond:
    return e if isinstance(e, Cond) else conds.ne(e, 0)
