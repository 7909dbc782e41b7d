"""Everything noteworthy that pliant does, as one stream of typed events.

The one idea: the compiler says once what it did (`emit`), and everything that shows it is a view of
that stream: the counters here, the logs and warnings in `logs`, later the explanations and reports.

    >>> with listening(print):        # or unsubscribe = subscribe(print)
    ...     compiled(x)

Compilations are rare and slow, events are cheap: a small frozen object each. Texts that cost
something to make (a printed graph, a listing of guards) are given as functions of no arguments, and
run only when a listener looks (`render`).
"""

from __future__ import annotations

import logging
import threading
from collections import Counter
from collections.abc import Callable, Container, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import field
from typing import Any, ClassVar

from pliant._native import locked
from pliant.base.errors import PliantWarning, choices, explain
from pliant.base.position import Position
from pliant.base.values import dataclass

Text = str | Callable[[], str]
"""A text, or how to make it."""


def render(text: Text) -> str:
    """The text itself."""
    return text if isinstance(text, str) else text()


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """Something that happened to `function`, the user's name for it.

    `position` is the line concerned: of the `def`, unless the event says otherwise. `index` numbers
    the compilations of the function from 0.
    """

    counter: ClassVar[str] = ""  # the name under which `counters` counts this event, if it does

    function: str
    position: Position | None = None
    index: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class CompileStarted(Event):
    """No compiled entry fits the call: a compilation begins."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkBegan(Event):
    """A part of a compilation begins: `work` says which. `done`, where it can be told, counts the
    `unit`s that are finished by now, out of `total` if that is known."""

    work: str
    unit: str = ""
    done: Callable[[], int] | None = None
    total: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class CompileFinished(Event):
    """A compilation succeeded and its entry is installed. `phases`: seconds by phase, in order."""

    counter: ClassVar[str] = "compilations"
    seconds: float
    phases: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class CompileAbandoned(Event):
    """A compilation ended without an entry: nothing could be captured, or it failed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GraphCaptured(Event):
    """Tensor operations were recorded as a graph. `nodes` counts the operations; `drawing` is each
    node, with what it reads and the calls that led to it."""

    counter: ClassVar[str] = "graphs"
    graph: Text
    nodes: int
    drawing: Callable[[], list[Mapping[str, object]]] = list


@dataclass(frozen=True, slots=True, kw_only=True)
class GraphBroke(Event):
    """The graph ends at `position`, because an operation has to run in plain Python.

    `code` is the break's stable name; `stack` the calls that led there from `function`, outermost
    first, without `position` itself.
    """

    counter: ClassVar[str] = "graph_breaks"
    code: str
    what: str
    why: str = ""
    remedy: str = ""
    stack: tuple[Position, ...] = ()

    def explain(self) -> str:
        return explain(
            self.what,
            why=self.why,
            remedy=self.remedy,
            position=self.position,
            code=self.code,
            stack=self.stack,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class GuardsBuilt(Event):
    """The assumptions under which a compiled entry is valid. `guards` makes one text each;
    `routine` the same for those that only say that code and classes are what they were. `lines`
    has the user's line that made each of the `guards` necessary, where one did."""

    guards: Callable[[], list[str]]
    lines: Callable[[], list[Position | None]] = list
    routine: Callable[[], list[str]] = list


@dataclass(frozen=True, slots=True, kw_only=True)
class FailedGuard:
    """Why the compiled entry `entry` did not fit a call: its first guard that failed, with what was
    found instead (`L['x'].size()[0] == 3, got 4`), and the user's line that made the assumption."""

    entry: int
    guard: str
    position: Position | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Recompiled(Event):
    """A function that had compiled entries is compiled again, for these reasons, one per entry.
    `remedy` says what to do about the most frequent one."""

    counter: ClassVar[str] = "recompiles"
    reasons: tuple[FailedGuard, ...] = ()
    remedy: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class LimitReached(Event):
    """The function was compiled `limit` times (the value of the option named `option`); calls that
    fit no entry run eagerly from now on. `varied` says what changed from call to call, `remedy`
    what to do about it."""

    counter: ClassVar[str] = "limit_reached"
    limit: int
    option: str = "recompile_limit"
    varied: str = ""
    remedy: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class EntryUsed(Event):
    """How often calls have used a compiled entry until now: for reports, never emitted."""

    hits: int


@dataclass(frozen=True, slots=True, kw_only=True)
class CallsMeasured(Event):
    """How long calls of a function took until now: for reports, never emitted. `spans` are
    stretches of time: start and end (seconds since 1970), how many calls, and whether an entry
    fitted them."""

    calls: int
    seconds: float
    spans: tuple[tuple[float, float, int, bool], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class StepsMeasured(Event):
    """How long kernels and operators of a program took until now: for reports, never emitted.
    `bandwidth` (bytes a second) and `arithmetic` (operations a second) are what the machine can
    do."""

    program: str
    bandwidth: float
    arithmetic: float
    steps: tuple[Mapping[str, object], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class RanOriginal(Event):
    """A method of a compiled module, called for the first time, called the original module, which
    is not compiled."""

    counter: ClassVar[str] = "uncompiled_methods"


@dataclass(frozen=True, slots=True, kw_only=True)
class FellBack(Event):
    """The function runs eagerly, because pliant failed on it."""

    counter: ClassVar[str] = "fallbacks"
    reason: str
    error: BaseException | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ResidualMade(Event):
    """The Python code that stands in for the function: fetches the inputs of the graph, calls it,
    replays side effects and builds the result. `lines` are the lines of the program that each of
    its lines comes from, by its number."""

    source: Text
    lines: Callable[[], Mapping[int, list[str]]] = dict


@dataclass(frozen=True, slots=True, kw_only=True)
class StageFinished(Event):
    """A stage of the compilation handed this value to the next one."""

    stage: str
    text: Text


@dataclass(frozen=True, slots=True, kw_only=True)
class BytecodeRead(Event):
    """The instructions of the function, as capture reads them."""

    listing: Text


@dataclass(frozen=True, slots=True, kw_only=True)
class BackendCalled(Event):
    """A backend compiled a graph, in `seconds`."""

    counter: ClassVar[str] = "backend_calls"
    backend: str
    seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class CodeGenerated(Event):
    """A graph became kernels and calls of PyTorch: the kernels as text, how often each operator was
    turned into loops or is called, and the bytes in use at each step (`memory`). `fusion` is each
    kernel with its operators, and why those that it reads from are not part of it."""

    counter: ClassVar[str] = "programs"
    kernels: Callable[[], list[str]]
    lowered: Mapping[str, int]
    called: Mapping[str, int]
    memory: Callable[[], list[tuple[str, int]]] = list
    fusion: Callable[[], list[dict[str, Any]]] = list


@dataclass(frozen=True, slots=True, kw_only=True)
class GraphPartitioned(Event):
    """A graph with gradients was cut into forward and backward: what is saved between them, and
    what is computed again. `saved` and `computed_again` are its operations, with bytes."""

    report: Callable[[], str]
    saved: Callable[[], list[tuple[str, int]]] = list
    computed_again: Callable[[], list[tuple[str, int]]] = list


@dataclass(frozen=True, slots=True, kw_only=True)
class NotGenerated(Event):
    """No code was generated for a graph: it runs operator by operator."""

    counter: ClassVar[str] = "not_generated"
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelFailed(Event):
    """A kernel could not be compiled: PyTorch runs its operators, the rest of the graph is
    compiled."""

    counter: ClassVar[str] = "failed_kernels"
    operators: tuple[str, ...]
    reason: str
    error: BaseException | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SizeEvent(Event):
    """Something about the sizes and numbers of a compilation. `line` is the user's line that the
    capture was at."""

    line: Position | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SymbolMade(SizeEvent):
    """A size or number became symbolic. `hint` is its value now (None: not looked at), `range`
    where it lies, `why` it is symbolic."""

    name: str
    source: Text
    hint: int | float | None
    range: str
    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class StayedConstant(SizeEvent):
    """A size or number of an input is a constant of the compilation, and why."""

    source: Text
    value: int | float
    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class SizeAsked(SizeEvent):
    """A condition on sizes was asked about by an operation. `answer` None: it can't be told.
    `reason`: what the answer rests on."""

    condition: Text
    asker: str
    answer: bool | None
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class SizeGuarded(SizeEvent):
    """A condition on sizes became a guard, because an operation asked about it."""

    condition: Text
    asker: str


@dataclass(frozen=True, slots=True, kw_only=True)
class SizeAssumed(SizeEvent):
    """A condition on sizes that can't be known was taken to hold. `policy`: what happens where it
    doesn't."""

    condition: Text
    asker: str
    policy: str


@dataclass(frozen=True, slots=True, kw_only=True)
class SizeAsserted(SizeEvent):
    """A condition on sizes is tested by the compiled code, which raises the message if it fails."""

    condition: Text
    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class SymbolSpecialised(SizeEvent):
    """A symbol became a constant, because the answer to a question holds for one value only."""

    name: str
    source: Text
    value: int
    asker: str


Listener = Callable[[Event], object]

_lock = threading.Lock()
# With the kinds of events that each gets; None: all of them. Replaced, never changed: `emit` reads
# it without the lock.
_listeners: tuple[tuple[Listener, Container[type[Event]] | None], ...] = ()
_log = logging.getLogger("pliant")


def emit(event: Event) -> None:
    """Count the event and pass it to all listeners, in the order in which they subscribed.

    A listener that raises is reported and does not disturb the compilation. A `PliantWarning` that
    the user has turned into an error is meant to get out.
    """
    counters.count(event)
    # A snapshot: a listener may unsubscribe while it is called.
    for listener, kinds in _listeners:
        if kinds is not None and type(event) not in kinds:
            continue
        try:
            listener(event)
        except (PliantWarning, MemoryError):
            raise
        except Exception:
            _log.exception("a listener of pliant's events failed on %s", type(event).__name__)


def heard() -> bool:
    """Whether a listener gets every event. If not, those that are not even counted need not be
    made."""
    return any(kinds is None for _, kinds in _listeners)


def subscribe(
    listener: Listener, kinds: Container[type[Event]] | None = None
) -> Callable[[], None]:
    """Call `listener` with every event from now on, or with every one of these kinds. Returns how
    to end that."""
    entry = listener, kinds
    locked(_lock, _add, entry)
    active = True

    def remove() -> None:
        nonlocal active
        if active:
            active = False
            _remove(entry)

    def unsubscribe() -> None:
        locked(_lock, remove)

    return unsubscribe


def _add(entry: tuple[Listener, Container[type[Event]] | None]) -> None:
    global _listeners
    _listeners = (*_listeners, entry)


def _remove(entry: tuple[Listener, Container[type[Event]] | None]) -> None:
    global _listeners
    listeners = list(_listeners)
    listeners.remove(entry)
    _listeners = tuple(listeners)


@contextmanager
def listening(listener: Listener) -> Iterator[None]:
    """Call `listener` with every event inside the `with` block."""
    unsubscribe = subscribe(listener)
    try:
        yield
    finally:
        unsubscribe()


KINDS: tuple[type[Event], ...] = (
    CompileStarted,
    WorkBegan,
    CompileFinished,
    CompileAbandoned,
    GraphCaptured,
    GraphBroke,
    GuardsBuilt,
    Recompiled,
    LimitReached,
    EntryUsed,
    CallsMeasured,
    StepsMeasured,
    RanOriginal,
    FellBack,
    ResidualMade,
    StageFinished,
    BytecodeRead,
    BackendCalled,
    GraphPartitioned,
    CodeGenerated,
    NotGenerated,
    KernelFailed,
    SymbolMade,
    StayedConstant,
    SizeAsked,
    SizeGuarded,
    SizeAssumed,
    SizeAsserted,
    SymbolSpecialised,
)
COUNTED = tuple(sorted(kind.counter for kind in KINDS if kind.counter))
"""The names of all counters."""


class Counters(Mapping[str, int]):
    """How often things happened since the start of the process, or since `reset()`.

    ::

        pliant.counters["graph_breaks"]     # a number, 0 if none
        dict(pliant.counters)               # all of them
        pliant.counters.breaks              # graph breaks by code
        pliant.counters.reset()

    The names: `compilations` (finished), `graphs`, `graph_breaks`, `recompiles`, `limit_reached`,
    `fallbacks` (functions that run eagerly because pliant failed), `backend_calls`, `programs` and
    `not_generated` (graphs that became code, or didn't), `failed_kernels` (left to PyTorch),
    `uncompiled_methods` (of compiled modules, which run the original).
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._counts: Counter[str] = Counter()
        self._breaks: Counter[str] = Counter()

    def count(self, event: Event) -> None:
        """Take note of an event."""
        if event.counter:
            locked(self._lock, self._increment, event)

    def _increment(self, event: Event) -> None:
        self._counts[event.counter] += 1
        if isinstance(event, GraphBroke):
            self._breaks[event.code] += 1

    def reset(self) -> None:
        """Set all counters to 0."""
        locked(self._lock, self._clear)

    def _clear(self) -> None:
        self._counts.clear()
        self._breaks.clear()

    @property
    def breaks(self) -> dict[str, int]:
        """Graph breaks by code, the most frequent first."""
        return dict(locked(self._lock, self._breaks.most_common))

    def __getitem__(self, name: str) -> int:
        if name not in COUNTED:
            raise KeyError(f"no counter is named {name!r}; {choices(str(name), COUNTED)}")
        return self._counts[name]

    def __contains__(self, name: object) -> bool:
        return name in COUNTED

    def __iter__(self) -> Iterator[str]:
        return iter(COUNTED)

    def __len__(self) -> int:
        return len(COUNTED)

    def __repr__(self) -> str:
        return f"Counters({dict(self)})"


counters = Counters()
