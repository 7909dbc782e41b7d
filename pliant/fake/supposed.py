"""Algorithms of eager PyTorch on symbolic numbers, for sizes of which none is 0 or 1.

The one idea: how a result lies in memory is worked out by comparing sizes and strides. `numbers.py`
has these algorithms for plain numbers; here the same code runs on numbers whose comparisons are
answered

    from what is known;
    else from what follows if every size is at least 2, unless it is known not to be. Calls with
    sizes of 0 and 1 are looked at when they come (decision 0030), so this needs no guard;
    else from the numbers at hand, and the answer becomes a guard.

So what comes out is right for every call that passes the guards and has no such size, not only for
the one that was captured.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from pliant.fake.numbers import Layout
from pliant.fake.order import hint
from pliant.sym.cond import Cond, ge
from pliant.sym.decide import decide
from pliant.sym.env import ShapeEnv
from pliant.sym.expr import Expr
from pliant.sym.facts import Contradiction, Facts


class Undecidable(Exception):
    """The algorithm compares unbacked numbers, and nothing known or supposed decides it."""


class Supposition:
    """The supposition that each of these sizes is at least 2, unless it is known not to be."""

    def __init__(self, sizes: Iterable[Any]) -> None:
        self._sizes: dict[Expr, None] = {}
        self._env: ShapeEnv | None = None
        self._known: Facts | None = None
        self._supposed: Facts | None = None
        for size in sizes:
            if type(size) is not int:
                self._sizes[size.node.expr] = None
                self._env = size.node.env

    def holds(self, question: Any) -> bool:
        """The answer to a comparison of symbolic numbers: from facts, from the supposition, or from
        the hints, which leaves a guard."""
        if isinstance(question, bool):
            return question
        node = question.node
        cond: Cond = node.expr
        answer = node.env.known(cond)
        if answer is None:
            answer = decide(self._facts(node.env), cond)
        if answer is None:
            if node.hint is None:
                raise Undecidable(str(cond))
            answer = bool(question)
        return answer

    def _facts(self, env: ShapeEnv) -> Facts:
        """The facts of the ShapeEnv, with the supposition learnt on top."""
        # `env` puts new facts in place of the old ones when it learns, as it does by each guard
        # that `holds` adds.
        if self._supposed is None or self._known is not env.facts:
            self._known = supposed = env.facts
            for size in self._sizes:
                try:
                    # A contradiction leaves facts that are of no use, so each size is tried on a
                    # copy.
                    larger = supposed.copy()
                    larger.learn(ge(size, 2))
                    supposed = larger
                except Contradiction:  # it is 0 or 1
                    continue
            self._supposed = supposed
        return self._supposed


class SupposedNumber:
    """A symbolic number whose comparisons are answered under a supposition."""

    __slots__ = ("_supposition", "value")
    __hash__ = None  # type: ignore[assignment]  # equality is a question

    def __init__(self, value: Any, supposition: Supposition) -> None:
        self.value = value
        self._supposition = supposition

    def __eq__(self, other: object) -> bool:
        return self._supposition.holds(self.value == _plain(other))

    def __ne__(self, other: object) -> bool:
        return not self == other

    def __lt__(self, other: Any) -> bool:
        return self._supposition.holds(self.value < _plain(other))

    def __gt__(self, other: Any) -> bool:
        return self._supposition.holds(self.value > _plain(other))

    def __mul__(self, other: Any) -> Any:
        return _wrapped(self.value * _plain(other), self._supposition)

    __rmul__ = __mul__


def _plain(value: Any) -> Any:
    return value.value if type(value) is SupposedNumber else value


def _wrapped(value: Any, supposition: Supposition) -> Any:
    return value if type(value) is int else SupposedNumber(value, supposition)


Algorithm = Callable[[Sequence[Layout], tuple[int, ...]], tuple[int, ...] | None]


def for_larger_sizes(
    algorithm: Algorithm, layouts: Sequence[tuple[Any, Any]], sizes: Sequence[Any]
) -> tuple[Any, ...] | None:
    """The strides that `algorithm` gives a result of these sizes from operands with these layouts,
    if no size is 0 or 1. Raises Undecidable."""
    supposition = Supposition([n for layout in layouts for n in layout[0]] + list(sizes))

    def wrapped(numbers: Iterable[Any]) -> tuple[Any, ...]:
        return tuple([_wrapped(n, supposition) for n in numbers])

    pairs = [(wrapped(own), wrapped(strides)) for own, strides in layouts]
    strides = algorithm(pairs, wrapped(sizes))
    return None if strides is None else tuple(map(_plain, strides))


def as_now(
    algorithm: Algorithm, layouts: Sequence[tuple[Any, Any]], sizes: Sequence[Any]
) -> tuple[int, ...] | None:
    """The strides that `algorithm` gives for the present numbers. Raises Undecidable if one of them
    is unbacked."""
    pairs = [(_now(own), _now(strides)) for own, strides in layouts]
    return algorithm(pairs, _now(sizes))


def _now(numbers: Iterable[Any]) -> tuple[int, ...]:
    now = tuple(map(hint, numbers))
    if None in now:
        raise Undecidable("a number is in the data")
    return now
