"""ShapeEnv: the sizes of one compilation, what is known about them, and every question about them.

The one idea: a question about sizes is asked by somebody, gets an answer for a reason, and may
leave a guard, an assumption or an assertion behind. Nothing is assumed before somebody asks. In
particular a size may be 0 or 1 until an operation asks whether it is, and only then is there a
guard.

Who answers, in this order:
  1. the facts, if the condition follows from them (`decide`): nothing is left behind;
  2. the hints (the sizes of this call), if all symbols are *backed*, that is, have one: the side
     they are on is taken, and becomes a guard;
  3. an assumption, if the asker can live with one (`size_oblivious`, `guard_or`);
  4. none of these: `evaluate` raises DataDependentError, which says what to check.

For `x.size(0) > 4` with the size s0 and the hint 7: the answer is True, with the guard `s0 >= 5`.
Asked again, it follows from the facts. For `u0 = x.nonzero().size(0)`, `u0 > 4` is an error;
after `pliant.check(u0 > 9)` it is True.

What is left behind is learnt as a fact. That is right for guards and enforced assumptions, because
the compiled code isn't used where they fail; and for checks, because from there on the program
raises where they fail. A guard that was asked before a check must not be dropped on account of
that check: `guards` therefore only looks at guards.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, ClassVar, Final

from pliant.base.errors import ShapeConstraintError
from pliant.base.position import Position
from pliant.base.values import replace
from pliant.sym import explain
from pliant.sym.bounded import MOST_DEPTH, bounded
from pliant.sym.cond import TRUE, Cond, and_, eq, ge, not_
from pliant.sym.decide import decide
from pliant.sym.expr import Expr, evaluate
from pliant.sym.facts import Contradiction, Facts
from pliant.sym.program import compile_program, run
from pliant.sym.records import (
    Assumption,
    Policy,
    Question,
    Reason,
    RuntimeAssert,
    SizeGuard,
    Specialised,
)
from pliant.sym.rules import simplify
from pliant.sym.symbols import EnvRecord, SymbolTable, Where, range_conditions

_KEPT: Final = [
    "facts",
    "symbols",
    "hints",
    "seen",
    "bindings",
    "statics",
    "counts",
    "recorded",
    "assumptions",
    "runtime_asserts",
    "questions",
    "specialised",
    "assumed",
]
"""What `snapshot` keeps: everything that changes."""


class ShapeEnv(SymbolTable):
    """The sizes of one compilation.

    `policy` says what becomes of an assumption: "recompile" tests it at run time and compiles again
    where it fails, "error" raises there, "torch" leaves it untested. With `duck`, inputs with equal
    hints share a symbol. `where` returns the user's line, for questions that have no position.
    `listener` is called with every record. `answers` overrides assumptions, by the text of the
    question: those that have failed in an earlier compilation.
    """

    in_capture: ClassVar[bool] = True  # so that new guards can be made

    def __init__(
        self,
        policy: Policy = "recompile",
        duck: bool = True,
        where: Where = lambda: None,
        listener: Callable[[EnvRecord], None] | None = None,
        answers: Mapping[str, bool] | None = None,
    ) -> None:
        super().__init__(duck, where, listener)
        self.policy = policy
        self.answers = answers or {}
        self.recorded: list[SizeGuard] = []  # as they came; `guards` leaves out what is superfluous
        self.assumptions: list[Assumption] = []
        self.runtime_asserts: list[RuntimeAssert] = []
        self.questions: list[Question] = []
        self.specialised: dict[Expr, Specialised] = {}
        self.assumed: dict[Cond, bool] = {}  # answers that are not facts, under the policy "torch"
        self.supposed: list[Cond] = []  # to be assumed once the symbols have a place in the graph
        self._takes_as_large = False

    @property
    def replacements(self) -> dict[Expr, Expr]:
        """What symbols are known to be equal to."""
        return self.facts.replacements

    def snapshot(self) -> dict[str, Any]:
        """The present state, for `restore`: rolling back to it takes back all that was asked and
        learnt since."""
        return {name: getattr(self, name).copy() for name in _KEPT}

    def restore(self, state: dict[str, Any]) -> None:
        """Roll back to a `snapshot`. The state may be restored again: it is copied."""
        for name in _KEPT:
            setattr(self, name, state[name].copy())

    # Questions

    def known(self, cond: Cond) -> bool | None:
        """The answer, if it follows from the facts."""
        return decide(self.facts, cond)

    def ask(self, cond: Cond, asker: str, position: Position | None = None) -> Question:
        """Answer `cond` from facts, then hints. The answer is None if neither decides it."""
        if cond.value is not None:
            return Question(asker, cond, cond.value, "constant")
        return self._note(self._answer(cond, asker, position))

    def _answer(self, cond: Cond, asker: str, position: Position | None) -> Question:
        """The question with its answer, guard included, but not recorded yet."""
        # The guard is for the simplified condition, which may have fewer symbols.
        simple = simplify(cond, self.facts)
        # The hint only tells `decide` which side is worth a proof: the other one can't be proved.
        hint = self.hint(simple)
        answer = decide(self.facts, simple, hint)
        if answer is not None:
            return Question(asker, cond, answer, "known", None, position)
        # An unbacked symbol is in it: nobody knows which side is right.
        if hint is None:
            return Question(asker, simple, None, "undecided", None, position)
        try:
            guard = self._guard(simple if hint else not_(simple), asker, position or self.where())
        except Contradiction:  # this call fails an earlier check; those that pass it are like this
            return Question(asker, simple, not hint, "known", None, position)
        return Question(asker, simple, bool(hint), "hint", guard, position)

    def evaluate(self, cond: Cond, asker: str, position: Position | None = None) -> bool:
        """Answer `cond` from facts, then hints. Raises DataDependentError if neither decides it,
        unless unbacked sizes are `taken_as_large`."""
        question = self.ask(cond, asker, position)
        if question.answer is not None:
            return question.answer
        answer = self.if_large(question.condition) if self._takes_as_large else None
        if answer is None:
            raise explain.data_dependent(self, question)
        return self._assume(question, answer)

    @contextmanager
    def taken_as_large(self) -> Iterator[None]:
        """Inside, what is asked of unbacked sizes is assumed to be as for sizes of at least 2."""
        # Under the policy "torch" nothing would test it.
        before, self._takes_as_large = self._takes_as_large, self.policy != "torch"
        try:
            yield
        finally:
            self._takes_as_large = before

    def guard_or(
        self,
        cond: Cond,
        default: bool,
        asker: str,
        *,
        general: bool = False,
        position: Position | None = None,
    ) -> bool:
        """Answer `cond` from facts, then hints, then `default`. The default becomes an assumption,
        unless `general` says that whatever the asker then does is right in both cases."""
        question = self._answer(cond, asker, position)
        if question.answer is not None:
            self._note(question)
            return question.answer
        if general:
            self._note(replace(question, answer=default, reason="general"))
            return default
        return self._assume(question, default)

    def suppose(self, cond: Cond) -> None:
        """Note that `cond` holds as a rule. `assume_supposed` makes it an assumption."""
        if self.in_capture:
            self.supposed.append(cond)

    def assume_supposed(self, asker: str) -> None:
        """Assume what was supposed of the results of the operation that has just been recorded.
        Under the policy "torch" nothing would test it, so it is dropped."""
        supposed, self.supposed = self.supposed, []
        for cond in supposed if self.policy == "recompile" else ():
            self.guard_or(cond, True, asker)

    def size_oblivious(self, cond: Cond, asker: str, position: Position | None = None) -> bool:
        """Answer `cond` from facts, then hints, then as if every unbacked size were at least 2. The
        last is an assumption."""
        question = self._answer(cond, asker, position)
        if question.answer is not None:
            self._note(question)
            return question.answer
        answer = self.if_large(question.condition)
        # Undecided for sizes of 2 and more, too: only the present inputs may tell.
        if answer is None:
            if self._seen_answer(question.condition) is None:
                raise explain.data_dependent(self, question)
            answer = False
        return self._assume(question, answer)

    def if_large(self, cond: Cond) -> bool | None:
        """The answer if every unbacked size is at least 2; None if it doesn't follow from that."""
        supposed = self.facts.copy()  # what is supposed here is no fact
        for s in sorted(cond.symbols, key=lambda s: s.order):
            info = self.symbols.get(s)
            if info is not None and info.size_like and info.hint is None and isinstance(s, Expr):
                larger = supposed.copy()  # what is learnt in part stays if it is a contradiction
                try:
                    larger.learn(ge(s, 2))
                except Contradiction:
                    continue  # this one is known to be 0 or 1
                supposed = larger
        return decide(supposed, cond)

    def specialise(self, expr: Expr, asker: str, position: Position | None = None) -> int:
        """The value of the expression, which becomes a constant: a guard fixes it to that. Raises
        DataDependentError if it has no hint."""
        simple: Expr = simplify(expr, self.facts)
        # A number that follows from the facts needs no guard.
        hint = simple.value if simple.value is not None else self.hint(simple)
        if hint is None or not self.evaluate(eq(simple, int(hint)), asker, position):
            question = Question(asker, eq(simple, 0), None, "undecided", None, position)
            raise explain.data_dependent(
                self, question, f"needs the value of {explain.named(self, simple)}"
            )
        return int(hint)

    def bounded(self, node: Any, asker: str) -> Any:
        """An equal expression that is at most `MOST_DEPTH` deep, if need be by guards on which
        branch of a min or max is taken. Conditions are returned as they are."""
        if node.depth <= MOST_DEPTH or isinstance(node, Cond):
            return node
        return bounded(self, node, asker)

    def check(self, cond: Cond, message: str = "", position: Position | None = None) -> Question:
        """The program says that `cond` holds: from here on it is a fact, tested when the code runs.

        The answer is False if it is known not to hold, for all inputs ("known") or for these
        ("hint"): then the program fails here, and it is for the caller to let it.
        """
        position = position or self.where()
        # Facts come before the hint. What fails for every input may be raised now; what fails for
        # these inputs only has to remain a test when the code runs.
        answer = self.known(cond)
        hint = None if answer is not None else self.hint(cond)
        if answer is not None or hint is False:
            reason: Reason = "known" if answer is not None else "hint"
            return self._note(Question("check", cond, bool(answer), reason, None, position))
        try:
            self._learn(cond, "check", position)
        except Contradiction:
            return self._note(Question("check", cond, False, "known", None, position))
        effect = RuntimeAssert(cond, message or f"expected {cond}", position)
        self.runtime_asserts.append(effect)
        return self._note(Question("check", cond, True, "checked", effect, position))

    # What answers leave behind

    def _guard(self, cond: Cond, asker: str, position: Position | None) -> SizeGuard:
        """Record a guard for the part of `cond` that doesn't follow from the facts, and learn it.
        Raises `Contradiction` if it can't hold."""
        # Parts that follow from the facts need no guard of their own.
        guard = SizeGuard(_unknown_part(self.facts, cond), asker, position)
        self._learn(guard.condition, asker, position)
        self.recorded.append(guard)
        return guard

    def _assume(self, question: Question, answer: bool) -> bool:
        """Record the assumption that the question has this answer, and return the answer. A known
        answer for the present inputs, or one given in `answers`, takes precedence."""
        if question.condition in self.assumed:  # two answers to one question would contradict
            return self.assumed[question.condition]
        key = str(question.condition)
        seen_answer = self._seen_answer(question.condition)
        answer = self.answers.get(key, answer) if seen_answer is None else seen_answer
        cond = question.condition if answer else not_(question.condition)
        position = question.position or self.where()
        effect = Assumption(cond, question.asker, self.policy, position, key, answer)
        # Otherwise it stays out of the facts: nothing tests it when the code runs.
        if effect.enforced:
            try:
                self._learn(cond, question.asker, position)
            except Contradiction:  # so it is known after all: the other way
                answer = not answer
                self._note(replace(question, answer=answer, reason="known"))
                return answer
        else:
            self.assumed[question.condition] = answer
        self.assumptions.append(effect)
        # The policy "recompile" tests it elsewhere: `Sizes.emit_checks`, or a guard.
        if self.policy == "error":
            message = f"{question.asker} assumed that {cond}, which is not so for these inputs"
            self.runtime_asserts.append(RuntimeAssert(cond, message, position, True))
        self._note(replace(question, answer=answer, reason="assumed", effect=effect))
        return answer

    def _seen_answer(self, cond: Cond) -> bool | None:
        """The answer for the present inputs, if the policy is "recompile" and all symbols are
        inputs: a call on the other side is compiled for itself then. Otherwise None."""
        if self.policy == "recompile" and cond.symbols <= self.seen.keys():
            return bool(evaluate(cond, self.seen))
        return None

    def learn(self, cond: Cond, asker: str) -> None:
        """Learn `cond`, for which the caller has a guard. A contradiction is ignored."""
        try:
            self._learn(cond, asker, self.where())
        except Contradiction:  # a check before this one fails for these inputs
            pass

    def _learn(self, cond: Cond, asker: str, position: Position | None) -> None:
        """Make `cond` a fact, and report symbols that become constants by it. Raises
        `Contradiction` and changes nothing if it can't hold."""
        new = self.facts.copy()  # a contradiction leaves facts behind that are of no use
        new.learn(cond)
        self.facts = new
        for s, value in new.replacements.items():
            # Reported once for each symbol, with the question that made it a constant.
            if value.value is not None and s not in self.specialised:
                done = Specialised(s, value.value, asker, position)
                self.specialised[s] = done
                self.tell(done)
                self._forbid_if_strict(done)

    def _forbid_if_strict(self, done: Specialised) -> None:
        """Raise ShapeConstraintError if the symbol was marked dynamic (strictly), and has become a
        constant."""
        info = self.symbols.get(done.symbol)
        # A program that checks the size itself wants it to be so.
        if info is None or not info.strict or done.asker == "check":
            return
        raise ShapeConstraintError(
            f"{info.source} was marked dynamic, but has to be {done.value}",
            why=f"{done.asker} asked about it, and the answer holds for {done.value} only",
            remedy="change that line, use maybe_mark_dynamic, or drop the mark",
            position=done.position,
        )

    def _note(self, question: Question) -> Question:
        self.questions.append(question)
        self.tell(question)
        return question

    def declare(self, cond: Cond) -> None:
        """Guard a promise about an input, such as `mark_dynamic(min=8)`, unless it is known."""
        if decide(self.facts, cond) is not True:
            self._guard(cond, "mark_dynamic", self.where())

    # Results

    def guards(self) -> list[SizeGuard]:
        """The guards that are needed, those with the fewest symbols first. A guard that follows
        from the others is left out."""
        # Not `self.facts`: those have what checks said, too, and guards are tested before checks.
        facts = Facts(self._rank)
        # What needs no guard: a size is at least 0.
        for s, info in self.symbols.items():
            if isinstance(s, Expr) and info.origin == "input":
                for cond in range_conditions(s, info.declared):
                    facts.learn(cond)
        guards: list[SizeGuard] = []
        # The latest first: they were asked knowing the earlier ones, so they are the stronger ones.
        for guard in reversed(self.recorded):
            condition = _unknown_part(facts, guard.condition)
            if condition is not TRUE:
                condition = self._computable(condition)
                guards.append(replace(guard, condition=condition))
                facts.learn(condition)
        guards.reverse()
        return sorted(guards, key=lambda guard: len(guard.condition.symbols))

    def _computable(self, cond: Cond) -> Cond:
        """The condition of a guard; one that takes numbers beyond 64 bits to compute would fail for
        the present inputs, too, and becomes that they are as they are."""
        try:
            program = compile_program(cond)
        except NotImplementedError:  # floats, which are Python's, or a number beyond 64 bits
            return cond
        known = [int(self.seen[s]) for s in program.symbols if s in self.seen]
        if len(known) < len(program.symbols) or run(program, known) is not None:
            return cond
        return and_(*map(eq, program.symbols, known))


def _unknown_part(facts: Facts, cond: Cond) -> Cond:
    """The parts of `cond` that don't follow from the facts: what has to be guarded for it to
    hold."""
    parts = cond.args if cond.op == "and" else (cond,)
    return and_(*[part for part in parts if decide(facts, part, True) is not True])
