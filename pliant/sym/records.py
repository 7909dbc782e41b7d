"""What a `ShapeEnv` writes down: symbols, questions, guards, assumptions, assertions. All values.

The one idea: whatever was decided about a size can be told afterwards: who asked, at which line of
the user's, what the answer was, why, and what now depends on it.
"""

from __future__ import annotations

from typing import Literal

from pliant.base.external import PLAIN, STRUCTURES
from pliant.base.position import Position
from pliant.base.values import dataclass, replace
from pliant.sym.cond import Cond
from pliant.sym.expr import Expr
from pliant.sym.floats import FloatExpr
from pliant.sym.ranges import Range

Policy = Literal["recompile", "error", "torch"]
SymbolOrigin = Literal["input", "computed"]
Reason = Literal["constant", "known", "hint", "assumed", "general", "checked", "undecided"]


@dataclass(frozen=True, slots=True)
class SymbolInfo:
    """A symbol of one compilation.

    `source` is where its value comes from: a text, or an object whose text is shown. `hint` is its
    value in this compilation; None makes it unbacked. `declared` holds without a guard. A `strict`
    symbol (`mark_dynamic`) must not turn out to be a constant. `why` it is a symbol, in words.
    """

    symbol: Expr | FloatExpr
    source: object
    origin: SymbolOrigin
    hint: int | float | None
    size_like: bool
    declared: Range
    strict: bool
    why: str
    position: Position | None

    @property
    def name(self) -> str:
        return str(self.symbol.args[0])

    def __str__(self) -> str:
        hint = f"hint {self.hint}" if self.hint is not None else "no hint"
        return f"{self.name} = {self.source} ({hint}, in {self.declared}): {self.why}"


@dataclass(frozen=True, slots=True)
class InputBinding:
    """An input whose value is the expression. The first binding of a symbol says where to read it;
    the others must agree with it: that is checked like a guard."""

    source: object
    expr: Expr | FloatExpr


def _at(position: Position | None) -> str:
    return f" at {position}" if position else ""


@dataclass(frozen=True, slots=True)
class SizeGuard:
    """The compilation holds only for inputs that fulfil the condition."""

    condition: Cond
    asker: str
    position: Position | None = None

    def __str__(self) -> str:
        return f"{self.condition}  (asked by {self.asker}{_at(self.position)})"


@dataclass(frozen=True, slots=True)
class Assumption:
    """An undecidable condition that was taken to hold.

    What `policy` says happens when it doesn't: "recompile" compiles for that case, "error" raises,
    "torch" goes on with what may be a wrong shape, as torch.compile does. `key` is the text of the
    question, by which the same question is known in another compilation, and `answer` its answer.
    """

    condition: Cond
    asker: str
    policy: Policy
    position: Position | None = None
    key: str = ""
    answer: bool = True

    @property
    def enforced(self) -> bool:
        return self.policy != "torch"

    def __str__(self) -> str:
        return f"assumed {self.condition}  (for {self.asker}, {self.policy})"


@dataclass(frozen=True, slots=True)
class RuntimeAssert:
    """A condition that the compiled code tests; if it fails, it raises with the message.
    `assumed`: not the program demands it, but an assumption under the policy "error"."""

    condition: Cond
    message: str
    position: Position | None = None
    assumed: bool = False

    def __str__(self) -> str:
        return f"assert {self.condition}, {self.message!r}"


@dataclass(frozen=True, slots=True)
class Question:
    """A condition that had to be decided. `answer` None: it can't be. `reason`: "constant"
    (no symbol in it), "known" (it follows from facts), "hint" (its value now, hence a guard),
    "assumed" (hence an assumption), "general" (the asker's default is right either way), "checked"
    (hence an assertion) or "undecided"."""

    asker: str
    condition: Cond
    answer: bool | None
    reason: Reason
    effect: SizeGuard | Assumption | RuntimeAssert | None = None
    position: Position | None = None

    def __str__(self) -> str:
        text = f"{self.asker}: {self.condition}? {self.answer} ({self.reason})"
        return text if self.effect is None else f"{text} -> {self.effect}"


@dataclass(frozen=True, slots=True)
class Specialised:
    """A symbol that became a constant: through which question, asked where."""

    symbol: Expr
    value: int
    asker: str
    position: Position | None = None

    def __str__(self) -> str:
        asked = f"{self.asker} asked{_at(self.position)}"
        return f"{self.symbol} is {self.value} from now on: {asked}"


@dataclass(frozen=True, slots=True)
class Provenance:
    """Why an input is what it is. `state`: "dynamic" (a symbol with a hint), "unbacked" (without),
    "specialised" (was a symbol, became a constant), "static" (never was a symbol)."""

    source: object
    state: Literal["dynamic", "unbacked", "specialised", "static"]
    expr: Expr | FloatExpr | int | float
    why: str
    asker: str = ""
    position: Position | None = None

    def __str__(self) -> str:
        text = f"{self.source} is {self.state} ({self.expr}): {self.why}"
        return f"{text}, at {self.position}" if self.position else text


# Expressions are data; where an input comes from is a path, which may lead through objects.
PLAIN.update((Expr, FloatExpr, Cond))
STRUCTURES[Provenance] = lambda why, mapper: replace(why, source=mapper.visit(why.source))
