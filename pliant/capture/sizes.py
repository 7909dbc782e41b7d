"""The symbolic numbers of one capture: the questions about them, and what the answers leave behind.

The one idea: what the environment was asked about symbolic numbers becomes guards where inputs
decide it, and otherwise checks in the graph, right behind the operation that made it decidable.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from itertools import islice
from typing import TYPE_CHECKING, Any, Final

import torch
from torch import fx

from pliant.base.checks import assume, check, forbid
from pliant.base.errors import DataDependentError
from pliant.base.position import Position
from pliant.base.weak import weakly
from pliant.capture.size_nodes import SizeNodes, Symbolic
from pliant.capture.value import Break, Const, Value
from pliant.capture.values.number import Number
from pliant.capture.values.ragged_sizes import is_ragged, ragged_size
from pliant.dynamic.shape_log import ShapeLog
from pliant.guards.guard import Guard, GuardKind, Load, ShapeCondition
from pliant.guards.predicates import Fulfils
from pliant.sym.cond import Cond, eq, ne, not_
from pliant.sym.env import ShapeEnv
from pliant.sym.explain import provenance
from pliant.sym.expr import Expr, symbol
from pliant.sym.node import bridge_of, from_torch
from pliant.sym.printing import to_python
from pliant.sym.program import compile_program
from pliant.sym.records import Assumption, Provenance

if TYPE_CHECKING:
    from pliant.capture.trace import Trace


MOST_TERMS: Final = 64  # of a sum, and factors of a product, that are numbers from data


class Sizes:
    """The symbolic numbers of one capture."""

    def __init__(self, trace: Trace, answers: Mapping[str, bool]) -> None:
        self.trace = trace
        self.shape_log = ShapeLog()
        self.env = ShapeEnv(
            trace.options.oblivious,  # type: ignore[arg-type]
            duck=False,  # sizes that happen to be equal are the same once an operation asks
            where=weakly(trace.position),  # fakes lead to this through C++
            listener=self.shape_log,
            answers=answers,
        )
        self.nodes = SizeNodes(trace, self.env)
        self._following: list[tuple[Load, Expr]] = []  # of inputs, that have to be so
        bridge_of(self.env).asker = weakly(self._asker, "")
        self._symbols_before = 0  # how many symbols there were when the last node was made
        trace.graph.new_symbols = self._new_symbols
        self._emitted = 0  # how many of the environment's assertions are in the graph
        self._assumed = 0  # how many of its assumptions are

    def _asker(self) -> str:
        return self.trace.world.running()

    def _new_symbols(self) -> tuple[Any, ...]:
        """The symbols made from data since the last call: those of the node that is being made."""
        count = len(self.env.symbols)
        before, self._symbols_before = min(self._symbols_before, count), count
        if before == count:
            return ()
        # From the end: a program that reads thousands of numbers would look through all of them
        # each time.
        new = [*islice(reversed(self.env.symbols.items()), count - before)]
        return tuple([s for s, info in reversed(new) if info.origin == "computed"])

    def forget(self) -> None:
        """Drop references to the capture: PyTorch's symbolic numbers lead here in a way that
        garbage collection does not see."""
        self.env.where = lambda: None
        bridge_of(self.env).forget()
        self.nodes.forget()

    # ---- values

    def value(self, number: Any) -> Value:
        """A number that a PyTorch function has returned, as a value."""
        if is_ragged(number):
            return ragged_size(self.trace, number)
        expr = from_torch(number)
        simplified = self.env.simplify(expr)
        return Const(simplified.value) if simplified.value is not None else Number(self, expr)

    def narrowed(self, expr: Expr) -> Expr:
        """The same number. A sum or product of very many unbacked numbers gets a symbol of its own:
        adding n of them one by one would take O(n²), since each partial sum has all terms so far.
        """
        width = max(len(expr.terms), len(expr.factors))
        if width <= MOST_TERMS or self.env.hint(expr) is not None:
            return expr
        description = f"a calculation with {width} numbers"
        declared = self.env.range(expr)
        new = self.env.add_unbacked(description, declared=declared, why="computed from data")
        self._new_symbols()  # no operator makes it
        node = self.nodes.node(expr)
        assert isinstance(node, fx.Node)
        self.nodes.set_origin(new, lambda: node)
        return new

    def specialise(self, expr: Symbolic) -> Any:
        """The number itself, which becomes a constant. Breaks the graph if it depends on data."""
        try:
            return self._specialised(expr)
        except DataDependentError as error:
            raise Break("data-dependent-number", error.what, error=error) from error

    def _specialised(self, expr: Symbolic) -> Any:
        asker = self.trace.asker()
        if isinstance(expr, Cond):
            return self._answer(expr, asker)
        if isinstance(expr, Expr):
            return self.env.specialise(expr, asker)
        for s in expr.symbols:
            self._fix(s)
        return self.env.hint(expr)

    def _answer(self, cond: Cond, asker: str) -> bool:
        try:
            return self.env.evaluate(cond, asker)
        except DataDependentError:
            # It may be a number of the program's state, whose present value can be guarded.
            answer: bool | None = self.trace.state_numbers.answer(self.env.simplify(cond))
            if answer is None:
                raise
        self.env.learn(cond if answer else not_(cond), asker)
        return answer

    def _fix(self, s: Any) -> None:
        """Make a constant of a float, or of an integer that a float is computed from."""
        info = self.env.symbols[s]
        if info.hint is None:
            raise Break("data-dependent-number", f"the value of {info.source}")
        if isinstance(s, Expr):
            self.env.specialise(s, self.trace.asker())
        else:
            assert isinstance(info.source, Load)
            self.trace.guard(GuardKind.EQUALS, info.source.source, info.hint)

    def truth(self, expr: Symbolic) -> bool:
        """The truth value of a symbolic number or condition, with a guard that it is this one."""
        return bool(self.specialise(expr if isinstance(expr, Cond) else ne(expr, 0)))

    # ---- checks in the graph

    def emit_checks(self) -> None:
        """Put what was asserted and assumed since the last time into the graph. Assumptions come
        first: where one fails, what was asserted on account of it says nothing."""
        if self.env.supposed:
            self.env.assume_supposed(self.trace.asker())
        while self._assumed < len(self.env.assumptions):
            made_up = self.env.assumptions[self._assumed]
            self._assumed += 1
            if made_up.policy == "recompile" and not self._decided_by_inputs(made_up):
                self._run_again_if_it_fails()
                self._test(assume, made_up.condition, made_up.key)
        while self._emitted < len(self.env.runtime_asserts):
            runtime_assert = self.env.runtime_asserts[self._emitted]
            self._emitted += 1
            self._test(
                forbid if runtime_assert.assumed else check,
                runtime_assert.condition,
                runtime_assert.message,
            )

    def _run_again_if_it_fails(self) -> None:
        """Note that the function is run again if the next test fails. If an effect before it can't
        be undone, the graph has to break here instead."""
        trace, effects = self.trace, self.trace.graph_effects
        effects.guard()
        # `Attempt._finisher` breaks the graph at this step if it comes to that.
        if (effects.other or effects.final) and trace.frames:
            cause = Break("data-dependent-number", f"{trace.asker()}, which assumes a size")
            effects.late_assertions.append((trace.frames[-1].step, cause.at(trace.stack())))

    def as_assumed(self, node: fx.Node, result: torch.Tensor) -> fx.Node:
        """The result with the sizes that were assumed, as a `reshape` in the graph: under the
        policy "torch" nothing tests them."""
        if self.env.policy != "torch":
            return node
        sizes = tuple(self.nodes.node(from_torch(size)) for size in result.size())
        args = (node, sizes)
        return self.trace.graph.operation("reshape", args, {}, self.trace.stack(), False)

    def _test(self, target: Callable[..., Any], cond: Cond, text: str) -> None:
        condition = self.nodes.node(cond)
        self.trace.graph.operation(target, (condition, text), {}, self.trace.stack(), True)

    def _decided_by_inputs(self, assumption: Assumption) -> bool:
        inputs = {binding.expr for binding in self.env.bindings}
        return assumption.condition.symbols <= inputs

    # ---- guards

    def must_be(self, load: Load, expr: Expr) -> None:
        """Note that a size or stride of an input follows from others, which is guarded."""
        self._following.append((load, expr))

    def guards(self) -> list[Guard]:
        """All guards on sizes and numbers: on answers that were given, assumptions about inputs,
        and strides that follow from sizes."""
        conditions = [(g.condition, g.position) for g in self.env.guards()]
        for assumption in self.env.assumptions:
            if assumption.policy == "recompile" and self._decided_by_inputs(assumption):
                conditions.append((assumption.condition, assumption.position))
        loads = self._loads()
        guards = [guard for cond, position in conditions for guard in self._guards(cond, position)]
        for load, expr in self._following:
            number = symbol(str(load))
            guards.append(_shape_guard(eq(number, expr), {**loads, number: load}, None))
        return guards

    def provenance(self) -> Iterator[Provenance]:
        return provenance(self.env, self.env.specialised)

    def assumptions(self) -> tuple[tuple[str, bool], ...]:
        """The assumptions that can fail when the code runs, in order, as `(text of the question,
        answer)`."""
        return tuple((a.key, a.answer) for a in self.env.assumptions if a.policy == "recompile")

    def _loads(self) -> dict[Any, Any]:
        """Where the value of each symbol is found: at its first place."""
        # Reversed, so that the first place of a symbol is the one that stays.
        return {binding.expr: binding.source for binding in reversed(self.env.bindings)}

    def _guards(self, cond: Cond, position: Position | None) -> list[Guard]:
        loads = self._loads()
        try:
            return [_shape_guard(cond, loads, position)]
        except NotImplementedError:  # floats, which Python has to compare
            if len(cond.symbols) > 1:  # a predicate is given one value: these stay what they are
                return [self._seen(s, loads[s], position) for s in cond.symbols]
        (s,) = cond.symbols
        load = loads[s]
        holds = Fulfils(cond, s, load.what, load.dim, to_python(cond, {s: load.text("v")}))
        return [Guard(GuardKind.PREDICATE, load.source, holds, position)]

    def _seen(self, s: Any, load: Load, position: Position | None) -> Guard:
        """The guard that the symbol has its present value."""
        hint = self.env.hints[s]
        if isinstance(s, Expr):
            return _shape_guard(eq(s, int(hint)), {s: load}, position)
        return Guard(GuardKind.EQUALS, load.source, hint, position)


def _shape_guard(cond: Cond, loads: Mapping[Any, Any], position: Any) -> Guard:
    program = compile_program(cond)
    names = {s: str(loads[s]) for s in program.symbols}
    read = tuple(loads[s] for s in program.symbols)
    return Guard(
        GuardKind.SHAPE, None, ShapeCondition(program, read, to_python(cond, names)), position
    )
