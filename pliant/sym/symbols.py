"""The symbols of one compilation: which there are, where they come from, what their values are now.

The one idea: an integer input becomes a symbol with its present value as a hint; what the program
computes from data becomes a symbol without one ("unbacked"). Neither carries an assumption beyond
what its nature says: a size is at least 0.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Final

from pliant.base.errors import ShapeConstraintError
from pliant.base.position import Position
from pliant.base.values import replace
from pliant.sym.cond import Cond, ge, le
from pliant.sym.expr import BaseExpr, Expr, evaluate, symbol
from pliant.sym.facts import Facts
from pliant.sym.floats import FloatExpr, float_symbol
from pliant.sym.ranges import ALL, INF, NATURAL, Range
from pliant.sym.records import (
    InputBinding,
    Provenance,
    Question,
    Specialised,
    SymbolInfo,
    SymbolOrigin,
)
from pliant.sym.rules import simplify

EnvRecord = Question | Specialised | SymbolInfo
Where = Callable[[], Position | None]
NEVER_SHARED: Final = (0, 1)
"""Hints that don't make two sizes the same symbol: with broadcasting they are common by chance."""


class SymbolTable:
    """The symbols, their hints and the facts. `ShapeEnv` adds the questions."""

    def __init__(
        self, duck: bool, where: Where, listener: Callable[[EnvRecord], None] | None
    ) -> None:
        self.duck = duck
        self.where = where
        self.listener = listener
        self.facts = Facts(self._rank)
        self.symbols: dict[BaseExpr, SymbolInfo] = {}
        self.hints: dict[BaseExpr, int | float] = {}
        self.seen: dict[BaseExpr, int | float] = {}  # of inputs, also of those without a hint
        self.bindings: list[InputBinding] = []
        self.statics: list[Provenance] = []
        self.counts: dict[str, int] = {}  # of names, by prefix

    def add_input(
        self,
        source: object,
        hint: int | None,
        *,
        size_like: bool = True,
        declared: Range | None = None,
        strict: bool = False,
        seen: int | None = None,
        why: str = "",
    ) -> Expr:
        """The symbol for an integer that is read from the inputs. Without a hint it is unbacked.

        `declared` is a promise about the input (`mark_dynamic(min=, max=)`): it becomes a guard.
        `seen` is the present value of an unbacked one: which side an assumption takes.
        """
        # Duck shapes: sizes that are equal now share a symbol. A guard keeps them equal, which
        # saves a question about each pair.
        symbol = self._shared(hint, size_like, strict)
        if symbol is None:
            natural = NATURAL if size_like else ALL
            symbol = self._add(source, "input", hint, size_like, natural, strict, why)
        self.bindings.append(InputBinding(source, symbol))
        if seen is not None:
            self.seen[symbol] = seen
        if declared is not None:
            self._declare(symbol, declared, hint)
        return symbol

    def add_unbacked(
        self,
        source: object,
        *,
        size_like: bool = False,
        declared: Range | None = None,
        why: str = "",
    ) -> Expr:
        """The symbol for an integer that the program computes from data. `declared` is a range that
        follows from the operation (`nonzero` finds at most `numel` places), and needs no guard."""
        natural = (NATURAL if size_like else ALL) & (declared or ALL)
        named = self._as_written(source)
        return self._add(named, "computed", None, size_like, natural, False, why)

    def _as_written(self, source: object) -> object:
        """A number that is read from data by a call is named as the user wrote that call."""
        position = self.where() if str(source).endswith("()") else None
        return (position.segment() if position is not None else "") or source

    def add_float(self, source: object, hint: float | None, *, why: str = "") -> FloatExpr:
        """The symbol for a float: an input when it has a hint, else computed from data."""
        new = float_symbol(self._name("f" if hint is not None else "uf"))
        origin: SymbolOrigin = "input" if hint is not None else "computed"
        source = source if hint is not None else self._as_written(source)
        info = SymbolInfo(new, source, origin, hint, False, ALL, False, why, self.where())
        self._register(info)
        if origin == "input":
            self.bindings.append(InputBinding(source, new))
        return new

    def note_static(self, source: object, value: int | float, why: str) -> None:
        """Remember why an input is a constant from the start, for `provenance`."""
        self.statics.append(Provenance(source, "static", value, why, position=self.where()))

    def mark_size_like(self, s: Expr) -> None:
        """The unbacked symbol is used as a size. (That it is at least 0 has to be checked.)"""
        self.symbols[s] = replace(self.symbols[s], size_like=True)

    def _add(
        self,
        source: object,
        origin: SymbolOrigin,
        hint: int | None,
        size_like: bool,
        declared: Range,
        strict: bool,
        why: str,
    ) -> Expr:
        new = symbol(self._name("s" if hint is not None else "u"))
        self._register(
            SymbolInfo(new, source, origin, hint, size_like, declared, strict, why, self.where())
        )
        for cond in range_conditions(new, declared):
            self.facts.learn(cond)
        return new

    def _register(self, info: SymbolInfo) -> None:
        self.symbols[info.symbol] = info
        if info.hint is not None:
            self.hints[info.symbol] = info.hint
        self.tell(info)

    def _name(self, prefix: str) -> str:
        # Numbered anew in each compilation: equal programs then have the same interned expressions.
        number = self.counts.get(prefix, 0)
        self.counts[prefix] = number + 1
        return f"{prefix}{number}"

    def _shared(self, hint: int | None, size_like: bool, strict: bool) -> Expr | None:
        """The symbol of an earlier size with this hint. A mark on the new one holds for both."""
        if not self.duck or not size_like or hint is None or hint in NEVER_SHARED:
            return None
        for s, info in self.symbols.items():
            if info.size_like and info.hint == hint and isinstance(s, Expr):
                if self.facts.replacement(s).value is not None:
                    continue  # already a constant
                self.symbols[s] = replace(info, strict=info.strict or strict)
                return s
        return None

    def _declare(self, new: Expr, declared: Range, hint: int | None) -> None:
        for cond in range_conditions(new, declared):
            if hint is not None and not evaluate(cond, self.hints):
                raise ShapeConstraintError(
                    f"{self.symbols[new].source} was declared to be in {declared}, but is {hint}",
                    remedy="give mark_dynamic a min and max that hold for every call",
                    position=self.where(),
                )
            self.declare(cond)

    def declare(self, cond: Cond) -> None:
        """Make what was declared about an input a guard."""
        raise NotImplementedError

    def _rank(self, s: Expr, within: Expr) -> Any:
        """Which symbol of an equality is replaced: one without hint before one with, an unmarked
        one before a marked one, a later one before an earlier one."""
        info = self.symbols.get(s)
        if info is None:
            return (False, False, s.order)
        # Replacing a marked symbol by another would show the user a name that is not his.
        return (info.hint is None, not info.strict, s.order)

    # Their values

    def hint(self, node: Any) -> Any:
        """The value in this compilation, or None if a symbol in it has no hint."""
        # Without simplifying, if that is possible: it is asked very often.
        if node.symbols <= self.hints.keys():
            return evaluate(node, self.hints)
        simple = simplify(node, self.facts)
        return evaluate(simple, self.hints) if simple.symbols <= self.hints.keys() else None

    def hint_or(self, expr: Expr, fallback: int) -> int:
        """A number to optimise for: never a fact, never a guard."""
        hint = self.hint(expr)
        return fallback if hint is None else hint

    def simplify(self, node: Any) -> Any:
        return simplify(node, self.facts)

    def range(self, expr: Expr) -> Range:
        return self.facts.range(simplify(expr, self.facts))

    def tell(self, record: EnvRecord) -> None:
        if self.listener is not None:
            self.listener(record)


def range_conditions(s: Expr, declared: Range) -> Iterable[Cond]:
    if declared.lo != -INF:
        yield ge(s, int(declared.lo))
    if declared.hi != INF:
        yield le(s, int(declared.hi))
