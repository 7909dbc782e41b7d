"""Which of many entries a call can fit: what tells them apart, chosen among their guards.

The one idea: a guard that demands a certain value of something cheap to look at (a number, a size,
a class) is an answer to a question that can be asked of a call before any entry is tried. Entries
are filed by what they answer to a few such questions, and a call is compared with those alone that
answer as it does. All others would fail that very guard, so the entry that is found is the one that
trying all of them in order finds.

For a function compiled for twenty values of `n`, one question is asked: what is `L['n']`? A call
with `n=7` is compared with the entry for 7, and with entries that have no guard on `n`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any, Final

from pliant._native import Dispatcher, Entry
from pliant.guards.guard import Guard
from pliant.guards.kinds import CLASS, IDENTITY, TENSOR
from pliant.guards.source import DictItem, InstanceDict, Local, SeqItem, Source

FEWEST: Final = 8
"""Fewer entries than this are tried one after the other."""
MOST_QUESTIONS: Final = 3
LONGEST_WAY: Final = 6

IndexQuestion = tuple[int, tuple[str | int | None, ...], int, int]
"""Parameter, steps from it, mode, dimension: as `csrc/index.h` has them."""


def update(dispatcher: Dispatcher, new: Entry) -> None:
    """Bring the index up to date after `new` was installed: file it by the present questions, or
    choose new ones each time the number of entries has doubled."""
    count = len(dispatcher.entries)
    if count < FEWEST:
        return
    # At powers of two, so that choosing anew costs a constant share of all compilations.
    if count & (count - 1) == 0:
        _choose(dispatcher)
    elif dispatcher.questions:
        _file(dispatcher, new, demands(new.info.bindings.guards))


def _choose(dispatcher: Dispatcher) -> None:
    """Choose the questions that tell the present entries apart best, and file all entries by
    them."""
    entries = dispatcher.entries
    tables = [demands(entry.info.bindings.guards) for entry in entries]
    questions = chosen(tables)
    dispatcher.index(questions)
    if questions:
        for entry, table in zip(entries, tables, strict=True):
            _file(dispatcher, entry, table)


def _file(dispatcher: Dispatcher, entry: Entry, table: dict[IndexQuestion, Any]) -> None:
    """File an entry by its answers. One that doesn't answer every question stays unfiled, and is
    tried on every call."""
    questions = dispatcher.questions
    # One that is not filed is tried on every call, whatever the call answers.
    if all(question in table for question in questions):
        dispatcher.file(entry, tuple([table[question] for question in questions]))


def demands(guards: Sequence[Guard]) -> dict[IndexQuestion, Any]:
    """The questions that these guards answer, each with the answer that they demand."""
    table: dict[IndexQuestion, Any] = {}
    for guard in guards:
        answers = guard.kind.record.answers
        if answers is not None and guard.source is not None:
            way = _way(guard.source)
            if way is not None:
                for mode, dim, expected in answers(guard.expected):
                    # Two guards on one thing demand the same, or no call fits at all.
                    table.setdefault((*way, mode, dim), expected)
    return table


def _way(source: Source) -> tuple[int, tuple[str | int | None, ...]] | None:
    """The index of a parameter and the steps from it to the value, or None for a path that an index
    may not take."""
    steps: list[str | int | None] = []
    while not isinstance(source, Local):
        step = _STEPS.get(type(source), lambda source: ())(source)
        # Attributes and calls may run code of the program, which an index must not.
        if step == () or source.parent is None or len(steps) == LONGEST_WAY:
            return None
        steps.append(step)
        source = source.parent
    return source.index, tuple(reversed(steps))


_STEPS: Final[dict[type[Source], Callable[[Any], Any]]] = {
    InstanceDict: lambda source: None,
    DictItem: lambda source: source.key if type(source.key) is str else (),
    SeqItem: lambda source: source.index,
}


def _mark(mode: int, expected: Any) -> Any:
    """A hashable key for an answer, in place of the answer. Two answers have the same key if the
    native index can't tell them apart: it compares fewer properties of a tensor than a guard does.
    """
    if mode in (IDENTITY, CLASS):
        return id(expected)
    if mode == TENSOR:
        return (expected.dtype, len(expected.sizes), expected.requires_grad, expected.dispatch_keys)
    return expected


def chosen(tables: Sequence[dict[IndexQuestion, Any]]) -> list[IndexQuestion]:
    """Up to `MOST_QUESTIONS` questions that split the entries best.

    A greedy search: each round takes the question that leaves the fewest entries to try, as long as
    that is at most three quarters of what it was before. It is linear in entries times questions.
    """
    answered = Counter(question for table in tables for question in table)
    marks: dict[IndexQuestion, list[Any]] = {}
    for question, count in answered.items():
        # Entries without an answer are tried on every call, so a question that few answer gains
        # nothing.
        if count * 2 > len(tables):
            column = [_mark(question[2], t[question]) if question in t else _NONE for t in tables]
            # With one answer for all entries, the question tells nothing apart.
            if len({mark for mark in column if mark is not _NONE}) > 1:
                marks[question] = column
    questions: list[IndexQuestion] = []
    keys: list[Any] = [()] * len(tables)
    tried = float(len(tables))
    while marks and len(questions) < MOST_QUESTIONS:
        after = {question: _joined(keys, column) for question, column in marks.items()}
        best = min(after, key=lambda question: _tried(after[question]))
        # Each question costs every call something, also the calls that the first entry fits.
        if _tried(after[best]) > 0.75 * tried:
            break
        questions.append(best)
        keys, tried = after[best], _tried(after[best])
        del marks[best]
    return questions


_NONE: Final = object()


def _joined(keys: Sequence[Any], marks: Sequence[Any]) -> list[Any]:
    """The keys of the entries, each extended by its mark; None for entries that don't answer every
    question."""
    return [
        None if key is None or mark is _NONE else (*key, mark)
        for key, mark in zip(keys, marks, strict=True)
    ]


def _tried(keys: Sequence[Any]) -> float:
    """How many entries a call that fits one of them has to try, on average."""
    counts = Counter(keys)
    # Entries without a key are tried on every call.
    always = counts.pop(None, 0)
    # A call that fits an entry of a class of n tries (n + 1) / 2 of them; n will do for comparing
    # questions.
    alike = sum([count * count for count in counts.values()])
    return always + alike / max(len(keys), 1)
