"""The shape log of a capture: records of its ShapeEnv, which become events when it is over.

The one idea: records are only collected during capture (a `ShapeLog` is the listener of a
ShapeEnv), and emitted with the other events of the compilation. An attempt that is given up emits
nothing, and texts are made when somebody reads them.
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
    Question,
    RuntimeAssert,
    SizeGuard,
    Specialised,
    SymbolInfo,
)


@dataclass(frozen=True, slots=True)
class ConstantInput:
    """An input that was chosen to be a constant, and why."""

    source: object
    value: int | float
    why: str
    position: Position | None = None


LogRecord = SymbolInfo | Question | Specialised | SizeGuard | ConstantInput


@dataclass(slots=True)
class ShapeLog:
    """The records of one capture. A ShapeEnv calls it with each. `len` and `back_to` roll back to
    an earlier moment, as `ShapeEnv.restore` does."""

    records: list[LogRecord] = field(default_factory=list)

    def __call__(self, record: LogRecord) -> None:
        self.records.append(record)

    def __len__(self) -> int:
        return len(self.records)

    def back_to(self, length: int) -> None:
        """Drop all but the first `length` records."""
        del self.records[length:]

    def constant(
        self, source: object, value: int | float, choice: Choice, position: Position | None = None
    ) -> None:
        """Add an input that is a constant: the ShapeEnv has no symbol for it."""
        self.records.append(ConstantInput(source, value, choice.why, position))

    def emit(self, function: str, position: Position | None = None, index: int = 0) -> None:
        """Emit an event for each record: compilation `index` of `function`, defined at
        `position`."""
        about = _About(function, position, index)
        for record in self.records:
            _EMITTERS[type(record)](about, record)


class _About:
    """What all events of one compilation have in common."""

    def __init__(self, function: str, position: Position | None, index: int) -> None:
        self.common: dict[str, Any] = {"function": function, "position": position, "index": index}
        self.sources: dict[object, object] = {}  # of symbols


def _text(value: object) -> events.Text:
    # Most events are read by nobody, and expressions take long to print.
    return value if isinstance(value, str) else lambda: str(value)


def _constant(about: _About, constant: ConstantInput) -> None:
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
        _EMITTERS[type(question.effect)](about, question.effect)


_REASONS: Final[dict[str, str]] = {
    "constant": "it contains no symbol",
    "known": "it follows from what is known",
    "hint": "it is so for this call, hence a guard",
    "assumed": "assumed",
    "general": "what is done then is right in both cases",
    "checked": "the program says so",
    "undecided": "",
}


def _guard(about: _About, guard: SizeGuard) -> None:
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


_EMITTERS: Final[dict[type, Callable[[_About, Any], None]]] = {
    SymbolInfo: _symbol,
    Specialised: _specialised,
    Question: _question,
    SizeGuard: _guard,
    Assumption: _assumption,
    RuntimeAssert: _assertion,
    ConstantInput: _constant,
}
