"""Where time goes in calls of compiled functions: spans that native code records, put in order.

The one idea: there is one buffer of spans in the process, and several may want them (a profile, a
report). Whoever begins or ends empties the buffer for all.
"""

from __future__ import annotations

import os
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import field
from typing import Any, Final

from pliant._native import Dispatcher, Entry, locked, profile
from pliant.base.position import Position
from pliant.base.values import dataclass
from pliant.launch.launch_info import CALL, KERNEL, LaunchInfo, MeasuredStep
from pliant.stages import Compiled

_CALL: Final = -1
_FIELDS: Final = 7  # of a span, in native code

Describe = Callable[[Any], Mapping[str, Any]]
"""The user's name for a function (`function`), and its `position`."""

_lock = threading.Lock()
_receivers: dict[SpanRecorder, int] = {}


@dataclass(slots=True, eq=False)
class SpanRecorder:
    """Receives all spans between `start` and `stop`; about `limit` of them, if there are more."""

    limit: int
    batches: list[tuple[list[tuple[Any, int]], bytes]] = field(default_factory=list)
    process: int = field(default_factory=os.getpid)
    # From the clock of the spans to seconds since 1970.
    epoch: int = field(default_factory=lambda: time.time_ns() - time.monotonic_ns())

    def start(self) -> None:
        locked(_lock, self._change, True)

    def stop(self) -> None:
        locked(_lock, self._change, False)

    def collect(self) -> None:
        """Take the spans so far out of the native buffer."""
        locked(_lock, self._change, None)

    def _change(self, record: bool | None) -> None:
        receivers = tuple(_receivers)
        if record is True:
            _receivers[self] = self.limit
        elif record is False:
            _receivers.pop(self, None)
        # Empties the native buffer, so that all receivers get the batch.
        batch = profile(max(_receivers.values(), default=0))
        for receiver in receivers:
            receiver.batches.append(batch)


@dataclass(slots=True, eq=False)
class CallSpan:
    """A call of a function, with times in nanoseconds. `inner` is the time in compiled functions
    that it calls. `guards` is the time of its guards; None if no entry fitted, so that it was
    compiled or ran eagerly."""

    start: int
    stop: int
    thread: int
    guards: int | None = None
    inner: int = 0


@dataclass(slots=True, eq=False)
class StepTimes:
    """A step of a launcher, over all its runs. Times are those of the runs that were measured."""

    what: MeasuredStep
    number: int
    graph: int  # its address
    measured: int = 0
    nanoseconds: int = 0
    least: int = 0
    bytes: int = 0
    runs: int = 0
    spans: list[tuple[int, int, int]] = field(default_factory=list)  # start, stop, thread

    @property
    def total(self) -> float:
        """Seconds of all runs, measured or not."""
        return self.nanoseconds / 1e9 * self.runs / max(self.measured, 1)


@dataclass(slots=True, eq=False)
class FunctionTimes:
    """A compiled function, the rest of one after a graph break, or a backward."""

    name: str
    position: Position | None
    calls: int = 0
    hits: int = 0
    measured: int = 0
    spans: list[CallSpan] = field(default_factory=list)
    steps: dict[tuple[int, int], StepTimes] = field(default_factory=dict)
    entries: dict[int, int] = field(default_factory=dict)  # graph by address, to its compilation
    compilation: int | None = None  # of a backward

    @property
    def scale(self) -> float:
        return self.calls / self.measured if self.measured else 1.0

    @property
    def seconds(self) -> float:
        """In its calls, without calls of other compiled functions within them; of a backward, in
        its steps."""
        if not self.spans:
            return sum(step.total for step in self.steps.values())
        return sum(s.stop - s.start - s.inner for s in self.spans) / 1e9 * self.scale

    @property
    def miss_seconds(self) -> float:
        """In calls that no entry fitted: which were compiled, or ran eagerly."""
        missed = [s for s in self.spans if s.guards is None]
        return sum(s.stop - s.start - s.inner for s in missed) / 1e9 * self.scale

    @property
    def guard_seconds(self) -> float:
        return sum(s.guards or 0 for s in self.spans) / 1e9 * self.scale

    @property
    def kernel_seconds(self) -> float:
        return sum(step.total for step in self.steps.values() if step.what.kind is KERNEL)

    @property
    def torch_seconds(self) -> float:
        return sum(step.total for step in self.steps.values() if step.what.kind is CALL)

    @property
    def bytes(self) -> int:
        """The bytes that kernels read and wrote, if each touches every element of its tensors
        once."""
        kernels = [step for step in self.steps.values() if step.what.kind is KERNEL]
        return sum(step.bytes * step.runs // max(step.measured, 1) for step in kernels)


def functions_of(recorder: SpanRecorder, describe: Describe) -> list[FunctionTimes]:
    """What was measured, by function: those first that took longest."""
    order = _Order(describe)
    for owners, data in recorder.batches:
        order.add(owners, data)
    functions = [*order.functions.values(), *order.backwards.values()]
    return sorted(functions, key=lambda function: -function.seconds)


class _Order:
    """Spans by the function that they belong to."""

    def __init__(self, describe: Describe) -> None:
        self._describe = describe
        self.functions: dict[int, FunctionTimes] = {}  # by the address of the dispatcher
        self.backwards: dict[tuple[int, str], FunctionTimes] = {}
        self._of_graph: dict[int, FunctionTimes] = {}
        self._kept: list[Any] = []  # while addresses stand for objects

    def add(self, owners: list[tuple[Any, int]], data: bytes) -> None:
        self._kept.append(owners)
        rows: defaultdict[int, list[tuple[int, ...]]] = defaultdict(list)
        numbers = memoryview(data).cast("q")
        for at in range(0, len(numbers), _FIELDS):
            row = tuple(numbers[at : at + _FIELDS])
            rows[row[0]].append(row[1:])
        by_type: dict[type, list[tuple[Any, int, list[tuple[int, ...]]]]] = {}
        for number, (owner, turns) in enumerate(owners):
            by_type.setdefault(type(owner), []).append((owner, turns, rows[number]))
        calls: dict[tuple[int, int], tuple[FunctionTimes, CallSpan]] = {}
        for owner, turns, spans in by_type.get(Dispatcher, ()):
            self._calls(owner, turns, spans, calls)
        _nest(span for _, span in calls.values())
        for owner, turns, spans in by_type.get(Entry, ()):
            self._hits(owner, turns, spans, calls)
        for owner, turns, spans in by_type.get(LaunchInfo, ()):
            self._steps(owner, turns, spans)

    def _calls(
        self,
        dispatcher: Dispatcher,
        turns: int,
        spans: list[tuple[int, ...]],
        calls: dict[tuple[int, int], tuple[FunctionTimes, CallSpan]],
    ) -> None:
        about = self._describe(dispatcher.fn)
        function = self.functions.setdefault(
            id(dispatcher), FunctionTimes(about["function"], about["position"])
        )
        function.calls += turns
        function.measured += len(spans)
        for _, thread, _, start, stop, _ in spans:
            span = CallSpan(start, stop, thread)
            function.spans.append(span)
            calls[thread, start] = function, span
        for entry in dispatcher.entries:
            self._belongs(entry, function)

    def _belongs(self, entry: Entry, function: FunctionTimes) -> None:
        compiled = entry.info
        if isinstance(compiled, Compiled) and compiled.bindings.graph is not None:
            graph = compiled.bindings.graph
            self._kept.append(graph)
            self._of_graph[id(graph)] = function
            function.entries[id(graph)] = compiled.index

    def _hits(
        self,
        entry: Entry,
        turns: int,
        spans: list[tuple[int, ...]],
        calls: dict[tuple[int, int], tuple[FunctionTimes, CallSpan]],
    ) -> None:
        owner: FunctionTimes | None = None
        hits = 0
        for _, thread, _, start, _, began in spans:
            function, span = calls.get((thread, began), (None, None))
            if function is not None and span is not None:
                owner = function
                span.guards = start - began
            hits += began != 0
        if owner is not None:
            owner.hits += turns * hits // len(spans)
            self._belongs(entry, owner)

    def _steps(self, info: LaunchInfo, turns: int, spans: list[tuple[int, ...]]) -> None:
        key = id(info.graph)
        self._kept.append(info)
        function = self._of_graph.get(key)
        if function is None or info.function.endswith(" backward"):
            name = info.function if function is None else f"{function.name} backward"
            place = None if function is None else function.position
            compilation = None if function is None else function.entries.get(key)
            function = self.backwards.setdefault(
                (key, name), FunctionTimes(name, place, compilation=compilation)
            )
            function.calls += turns
            function.hits += turns
        for _, thread, number, start, stop, size in spans:
            step = function.steps.get((id(info), number))
            if step is None:
                step = StepTimes(info.describe(number), number, key, least=stop - start)
                function.steps[id(info), number] = step
                step.runs = turns
            step.measured += 1
            step.nanoseconds += stop - start
            step.least = min(step.least, stop - start)
            step.bytes += size
            step.spans.append((start, stop, thread))


def _nest(spans: Iterable[CallSpan]) -> None:
    """Note for each call how long the calls directly inside it took: a sweep over the calls in
    order of their start, with a stack for each thread."""
    open_calls: dict[int, list[CallSpan]] = {}
    # Of two that start together, the longer one is around the other.
    for span in sorted(spans, key=lambda span: (span.start, -span.stop)):
        around = open_calls.setdefault(span.thread, [])
        while around and around[-1].stop <= span.start:
            around.pop()
        if around:
            around[-1].inner += span.stop - span.start
        around.append(span)
