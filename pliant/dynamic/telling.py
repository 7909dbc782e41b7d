"""Tells what happened to the sizes of a compilation: records of the ShapeEnv become events.

The one idea: a capture only takes notes (`listener()` is what a ShapeEnv takes as its listener);
they are told when it is over, like everything else about it. So an attempt that is given up tells
nothing, and texts are made when somebody looks.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import field
from typing import Any, Final

from pliant.base import events
from pliant.base.position import Position
from pliant.base.values import dataclass
from pliant.dynamic.choose import Choice
from pliant.sym.records import (
    Assumption,
    Guard,
    Question,
    RuntimeAssert,
    Specialised,
    SymbolInfo,
)


@dataclass(frozen=True, slots=True)
class Constant:
    """An input that is a constant from the start, and why."""

    source: object
    value: int | float
    why: str
    position: Position | None = None


Record = SymbolInfo | Question | Specialised | Guard | Constant


@dataclass(slots=True)
class Teller:
    """The notes of one capture. It is called with each record; `len` and `back_to` take back what
    was noted since, as `ShapeEnv.restore` does; `tell` tells it all."""

    records: list[Record] = field(default_factory=list)

    def __call__(self, record: Record) -> None:
        self.records.append(record)

    def __len__(self) -> int:
        return len(self.records)

    def back_to(self, length: int) -> None:
        """Forget all but the first `length` records."""
        del self.records[length:]

    def constant(
        self, source: object, value: int | float, choice: Choice, position: Position | None = None
    ) -> None:
        """Note an input that is a constant, which the ShapeEnv doesn't hear of."""
        self.records.append(Constant(source, value, choice.why, position))

    def tell(self, function: str, position: Position | None = None, index: int = 0) -> None:
        """Emit an event for each record: compilation `index` of `function`, defined at
        `position`."""
        about = _About(function, position, index)
        for record in self.records:
            _TOLD[type(record)](about, record)


def listener() -> Teller:
    """What a ShapeEnv takes as `listener`."""
    return Teller()


class _About:
    """What all events of one compilation have in common."""

    def __init__(self, function: str, position: Position | None, index: int) -> None:
        self.common: dict[str, Any] = {"function": function, "position": position, "index": index}
        self.sources: dict[object, object] = {}  # of symbols


def _text(thing: object) -> events.Text:
    return thing if isinstance(thing, str) else lambda: str(thing)


def _constant(about: _About, constant: Constant) -> None:
    events.emit(
        events.StayedConstant(
            source=_text(constant.source),
            value=constant.value,
            why=constant.why,
            line=constant.position,
            **about.common,
        )
    )


def _symbol(about: _About, info: SymbolInfo) -> None:
    about.sources[info.symbol] = info.source
    events.emit(
        events.SymbolMade(
            name=info.name,
            source=_text(info.source),
            hint=info.hint,
            range=str(info.declared),
            why=info.why or "computed from data",
            line=info.position,
            **about.common,
        )
    )


def _specialised(about: _About, done: Specialised) -> None:
    events.emit(
        events.SymbolSpecialised(
            name=str(done.symbol),
            source=_text(about.sources.get(done.symbol, "")),
            value=done.value,
            asker=done.asker,
            line=done.position,
            **about.common,
        )
    )


def _question(about: _About, question: Question) -> None:
    events.emit(
        events.SizeAsked(
            condition=_text(question.condition),
            asker=question.asker,
            answer=question.answer,
            reason=_REASONS[question.reason],
            line=question.position,
            **about.common,
        )
    )
    if question.effect is not None:
        _TOLD[type(question.effect)](about, question.effect)


_REASONS: Final[dict[str, str]] = {
    "constant": "it contains no symbol",
    "known": "it follows from what is known",
    "hint": "it is so for this call, hence a guard",
    "assumed": "assumed",
    "general": "what is done then is right in both cases",
    "checked": "the program says so",
    "undecided": "",
}


def _guard(about: _About, guard: Guard) -> None:
    events.emit(
        events.SizeGuarded(
            condition=_text(guard.condition),
            asker=guard.asker,
            line=guard.position,
            **about.common,
        )
    )


def _assumption(about: _About, assumption: Assumption) -> None:
    events.emit(
        events.SizeAssumed(
            condition=_text(assumption.condition),
            asker=assumption.asker,
            policy=assumption.policy,
            line=assumption.position,
            **about.common,
        )
    )


def _assertion(about: _About, assertion: RuntimeAssert) -> None:
    events.emit(
        events.SizeAsserted(
            condition=_text(assertion.condition),
            message=assertion.message,
            line=assertion.position,
            **about.common,
        )
    )


_TOLD: Final[dict[type, Callable[[_About, Any], None]]] = {
    SymbolInfo: _symbol,
    Specialised: _specialised,
    Question: _question,
    Guard: _guard,
    Assumption: _assumption,
    RuntimeAssert: _assertion,
    Constant: _constant,
}
