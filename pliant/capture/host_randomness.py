"""Random numbers of Python and NumPy: drawn when the residual code runs, before its graph.

The one idea: a draw is a line of residual code, in the order of the program, and what it gives is a
number that is not known. So generators are in the state that the program would leave them in, also
where a number is drawn and not used. If the graph fails, the state from before is put back.
"""

from __future__ import annotations

from itertools import takewhile
from operator import attrgetter
from typing import TYPE_CHECKING, Any

from pliant.base.external import PLAIN
from pliant.base.values import dataclass
from pliant.capture.value import Value
from pliant.guards.source import Source

if TYPE_CHECKING:
    from pliant.capture.residual import Emitter


class DrawnNumber(Source):
    """What the residual code has drawn, by number."""

    __slots__ = ("what",)
    verb = "drawn"

    def __init__(self, number: int, what: str) -> None:
        super().__init__(None, number)
        self.what = what

    def arguments(self) -> tuple[Any, ...]:
        return (*self._key, self.what)

    def _written(self) -> str:
        return f"{self.verb}_{self._key[0]}"


class KeptResult(DrawnNumber):
    """What a function under `lru_cache` gave the residual code, by number."""

    __slots__ = ()
    verb = "kept"


PLAIN.update((DrawnNumber, KeptResult))


@dataclass(frozen=True, slots=True)
class RandomDraw:
    """One call of a random generator of Python or NumPy, or another one that comes before the
    graph, to be written as a line of residual code."""

    targets: tuple[DrawnNumber, ...]
    generator: Value  # or a module of functions that share a state
    call: str  # "{}.randint(1, 6)"
    state: tuple[str, str] | None  # how the state is read and put back; None: it is new
    arguments: tuple[Value, ...] = ()  # that are no constants: "{}.setstate({})"
    pure: bool = False  # it changes nothing from outside

    @property
    def can_be_repeated(self) -> bool:
        return self.pure or self.state is not None


@dataclass(frozen=True, slots=True)
class EarlyLines:
    """The lines that draw and then call the graph."""

    lines: list[str]
    before_graph: int  # so many come before the call
    repeatable: int  # after an error in one of so many the function can run anew


def write_random_draws(emit: Emitter, draws: list[RandomDraw], graph_call: list[str]) -> EarlyLines:
    """If something fails, the generators are put back into their states."""
    before: list[str] = []
    undo: dict[str, str] = {}
    lines: list[str] = []
    for draw in draws:
        generator = emit.expression(draw.generator)
        # Once for each generator, before its first draw.
        if draw.state is not None and generator not in undo:
            saved = emit.fresh("state")
            before.append(f"    {saved} = {draw.state[0].format(generator)}")
            undo[generator] = draw.state[1].format(generator, saved)
        names = "".join(f"{emit.slot(target)}, " for target in draw.targets)
        names = names.removesuffix(", ") if len(draw.targets) == 1 else names
        call = draw.call.format(generator, *map(emit.expression, draw.arguments))
        lines.append(f"    {names} = {call}" if names else f"    {call}")
    may_fail = any(draw.pure for draw in draws)  # draws themselves don't
    repeatable = len([*takewhile(attrgetter("can_be_repeated"), draws)]) if may_fail else 0
    if not undo or not (graph_call or may_fail):
        return EarlyLines([*lines, *graph_call], len(lines), repeatable)
    inner = [f"    {line}" for line in (*lines, *graph_call)]
    last = ["    except BaseException:", *(f"        {line}" for line in undo.values())]
    first = [*before, "    try:"]
    repeatable += len(first) if repeatable else 0
    return EarlyLines([*first, *inner, *last, "        raise"], len(first) + len(lines), repeatable)
