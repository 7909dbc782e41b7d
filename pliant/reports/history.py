"""The records of a run, put in order: functions, their compilations, and what belongs to each.

The one idea: a record belongs to the compilation that was under way in its thread. What comes
afterwards (a backward is compiled when it is first needed) names its function.
"""

from __future__ import annotations

import inspect
import linecache
import os.path
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from operator import itemgetter
from typing import Any, cast

from pliant.base.records import Record

Compilation = dict[str, Any]


def history(records: Iterable[Record]) -> dict[str, Any]:
    """Everything that a report shows, as a value of JSON: functions with their compilations, calls
    and processes. Times count from the first event."""
    order = _History()
    ordered = sorted(records, key=lambda record: record["time"])
    for record in ordered:
        order.add(record)
    spans = [span for calls in order.calls for span in calls["spans"]]
    # What is reported at the end happened before.
    moments = [record["time"] for record in ordered if record["event"] not in _LATER]
    moments += [moment for span in spans for moment in span[:2]]
    start = min(moments, default=0.0)
    end = max(moments, default=0.0)
    for compilation in order.compilations:
        compilation["start"] -= start
    for span in spans:
        span[0], span[1] = span[0] - start, span[1] - start
    functions = list(order.functions.values())
    for function in functions:
        function["source"] = _source(function)
        del function["notes"]
    for compilation in order.compilations:
        compilation["sizes"] = _once(compilation["sizes"])
    return {
        "functions": functions,
        "calls": order.calls,
        "processes": sorted(order.processes.values(), key=lambda one: one["rank"] or 0),
        "seconds": end - start,
        "counts": _counts(functions),
    }


class _History:
    def __init__(self) -> None:
        self.functions: dict[tuple[str, str], dict[str, Any]] = {}
        self.compilations: list[Compilation] = []
        self.calls: list[dict[str, Any]] = []
        self.processes: dict[int, dict[str, Any]] = {}
        self._owners: list[dict[str, Any]] = []  # the function of each compilation
        self._open: dict[tuple[int, int], Compilation] = {}  # by process and thread
        self._reasons: dict[tuple[int, int], Record] = {}  # of the next compilation there
        self._latest: dict[str, Compilation] = {}  # by the name of the function

    def add(self, record: Record) -> None:
        process = record["process"]
        process_record = self.processes.setdefault(process, {"process": process, "rank": None})
        if process_record["rank"] is None:  # until torch.distributed has told it
            process_record["rank"] = record.get("rank")
        place = process, record["thread"]
        handler = _HANDLERS.get(record["event"])
        if record["event"] == "CompileStarted":
            self._start(record, place)
        elif record["event"] == "Recompiled":
            self._reasons[place] = record
        elif record["event"] in _LATER:
            _LATER[record["event"]](self, record)
        elif handler is not None:
            self._add_to(handler, record, place)

    def _start(self, record: Record, place: tuple[int, int]) -> None:
        function = self._function(record)
        again = self._reasons.pop(place, {})
        compilation: Compilation = {
            "id": len(self.compilations),
            "name": record["function"],
            "index": record["index"],
            "process": record["process"],
            "start": record["time"],
            "seconds": None,
            "recording": 0.0,
            "phases": {},
            "reasons": again.get("reasons", []),
            "remedy": again.get("remedy", ""),
            "graph": None,
            "nodes": 0,
            "guards": [],
            "routine": 0,
            "residual": None,
            "residual_lines": {},
            "programs": [],
            "stages": [],
            "sizes": [],
            "breaks": [],
            "partition": None,
            "troubles": [],
            "hits": None,
            "drawing": [],
            "saved": [],
            "computed_again": [],
            "measured": [],
        }
        self.compilations.append(compilation)
        self._owners.append(function)
        function["compilations"].append(compilation)
        self._open[place] = self._latest[_forward_name(record)] = compilation

    def _compiled(self, record: Record) -> Compilation | None:
        """The compilation that a record names, or None."""
        function = self.functions.get(_written(record), {"compilations": []})
        for compilation in reversed(function["compilations"]):
            key = compilation["name"], compilation["index"], compilation["process"]
            if key == (record["function"], record["index"], record["process"]):
                return cast(Compilation, compilation)
        return None

    def _used(self, record: Record) -> None:
        if (compilation := self._compiled(record)) is not None:
            compilation["hits"] = record["hits"]

    def _called(self, record: Record) -> None:
        self.calls.append(
            {"function": self._function(record)["id"], "name": record["function"],
             "process": record["process"], "calls": record["calls"],
             "seconds": record["seconds"], "spans": record["spans"]}
        )  # fmt: skip

    def _ran(self, record: Record) -> None:
        if (compilation := self._compiled(record)) is not None:
            fields = ("program", "bandwidth", "arithmetic", "steps")
            compilation["measured"].append({name: record[name] for name in fields})
            compilation["measured"].sort(key=itemgetter("program"))  # a backward after its forward

    def _function(self, record: Record) -> dict[str, Any]:
        key = _written(record)
        if key not in self.functions:
            self.functions[key] = {
                "id": len(self.functions),
                "name": key[1],
                "file": key[0],
                "line": record["position"]["line"] if record["position"] else 0,
                "compilations": [],
                "notes": [],
            }
        return self.functions[key]

    def _add_to(
        self, handler: Callable[[Compilation, Record], None], record: Record, place: tuple[int, int]
    ) -> None:
        compilation = self._open.get(place)
        if compilation is None:
            compilation = self._latest.get(_forward_name(record))
        if compilation is not None:
            handler(compilation, record)
        if record["event"] in ("CompileFinished", "CompileAbandoned"):
            self._open.pop(place, None)
        self._note(record, compilation)

    def _note(self, record: Record, compilation: Compilation | None) -> None:
        """Note what is shown at a line of the function's source."""
        if compilation is None:
            return
        function = self._owners[compilation["id"]]
        for kind, text, places in _notes(record):
            own = [place for place in places if place and place["file"] == function["file"]]
            own.sort(key=lambda place: place["function"] != function["name"])
            if own:
                function["notes"].append({"line": own[0]["line"], "kind": kind, "text": text})


def _notes(record: Record) -> Iterator[tuple[str, str, list[Any]]]:
    """The kind, the text, and the positions that it may stand at: the innermost of the function."""
    if record["event"] == "GuardsBuilt":
        for text, line in zip(record["guards"], record.get("lines", ()), strict=False):
            yield "guard", text, [line]
    elif record["event"] in _NOTES:
        kind, write = _NOTES[record["event"]]
        innermost = record.get("line") or record["position"]
        yield kind, write(record), [innermost, *reversed(record.get("stack", ()))]


def _linked(position: dict[str, Any]) -> str:
    return f"{os.path.basename(position['file'])}:{position['line']}"


def _written(record: Record) -> tuple[str, str]:
    """The file and name of the function in the user's source. A resume function is part of the
    function it continues."""
    position = record["position"] or {"file": "", "function": ""}
    return position["file"], position["function"] or record["function"]


def _forward_name(record: Record) -> str:
    """The name of the function that a record is about. The backward of a function counts as that
    function."""
    name: str = record["function"].removesuffix(" backward")
    return name


def _finished(compilation: Compilation, record: Record) -> None:
    # The events come when everything is made, and writing them takes time too.
    recording = record["time"] - compilation["start"] - record["seconds"]
    compilation.update(
        seconds=record["seconds"], phases=record["phases"], recording=max(recording, 0.0)
    )


def _abandoned(compilation: Compilation, record: Record) -> None:
    compilation["seconds"] = record["time"] - compilation["start"]
    compilation["troubles"].append("nothing was compiled")


def _captured(compilation: Compilation, record: Record) -> None:
    drawing = record.get("drawing", [])
    compilation.update(graph=record["graph"], nodes=record["nodes"], drawing=drawing)


def _guarded(compilation: Compilation, record: Record) -> None:
    lines = record.get("lines") or [None] * len(record["guards"])
    guards = [
        {"text": text, "line": line and _linked(line)}
        for text, line in zip(record["guards"], lines, strict=True)
    ]
    compilation.update(guards=guards, routine=len(record["routine"]))


def _residual(compilation: Compilation, record: Record) -> None:
    compilation.update(residual=record["source"], residual_lines=record.get("lines", {}))


def _broke(compilation: Compilation, record: Record) -> None:
    fields = ("code", "what", "why", "remedy", "position")
    compilation["breaks"].append({name: record[name] for name in fields})


def _generated(compilation: Compilation, record: Record) -> None:
    fields = ("function", "kernels", "lowered", "called", "memory", "fusion")
    compilation["programs"].append({name: record.get(name, []) for name in fields})


def _stage(compilation: Compilation, record: Record) -> None:
    stage = {"stage": record["stage"], "of": record["function"], "text": record["text"]}
    compilation["stages"].append(stage)


def _partitioned(compilation: Compilation, record: Record) -> None:
    saved, recomputed = record.get("saved", []), record.get("computed_again", [])
    compilation.update(partition=record["report"], saved=saved, computed_again=recomputed)


def _trouble(compilation: Compilation, record: Record) -> None:
    compilation["troubles"].append(record["reason"])


def _limited(compilation: Compilation, record: Record) -> None:
    text = f"compiled {record['limit']} times, as often as {record['option']} allows"
    compilation["troubles"].append(f"{text}. {record['varied']} {record['remedy']}".strip())


def _size(compilation: Compilation, record: Record) -> None:
    kind, write = SIZES[record["event"]]
    line = record.get("line")
    compilation["sizes"].append({"kind": kind, "text": write(record), "position": line})


def _answer(record: Record) -> str:
    answer = {True: "yes", False: "no", None: "can't be told"}[record["answer"]]
    reason = f" ({record['reason']})" if record["reason"] else ""
    return f"{record['asker']} asks whether {record['condition']}: {answer}{reason}"


SIZES: dict[str, tuple[str, Callable[[Record], str]]] = {
    "SymbolMade": (
        "symbol",
        lambda r: f"{r['name']} is {r['source']}, now {r['hint']}, in {r['range']}: {r['why']}",
    ),
    "StayedConstant": ("constant", lambda r: f"{r['source']} is {r['value']}: {r['why']}"),
    "SizeAsked": ("question", _answer),
    "SizeGuarded": ("guard", lambda r: f"{r['condition']}: asked by {r['asker']}"),
    "SizeAssumed": ("assumption", lambda r: f"{r['condition']}: for {r['asker']}"),
    "SizeAsserted": ("assertion", lambda r: f"{r['condition']}, or else {r['message']!r}"),
    "SymbolSpecialised": (
        "specialised",
        lambda r: f"{r['name']} ({r['source']}) is {r['value']}: asked by {r['asker']}",
    ),
}
"""What is told of sizes: the kind, and a line about it."""

_LATER: dict[str, Callable[[_History, Record], None]] = {
    "EntryUsed": _History._used,
    "CallsMeasured": _History._called,
    "StepsMeasured": _History._ran,
}
"""What is told in the end, of what is there."""

_HANDLERS: dict[str, Callable[[Compilation, Record], None]] = {
    "CompileFinished": _finished,
    "CompileAbandoned": _abandoned,
    "GraphCaptured": _captured,
    "GuardsBuilt": _guarded,
    "ResidualMade": _residual,
    "GraphBroke": _broke,
    "CodeGenerated": _generated,
    "StageFinished": _stage,
    "GraphPartitioned": _partitioned,
    "FellBack": _trouble,
    "KernelFailed": _trouble,
    "NotGenerated": _trouble,
    "LimitReached": _limited,
    **dict.fromkeys(SIZES, _size),
}
_NOTES: dict[str, tuple[str, Callable[[Record], str]]] = {
    "GraphBroke": ("break", lambda record: f"graph break: {record['what']}"),
    **{
        name: (kind, write)
        for name, (kind, write) in SIZES.items()
        if name not in ("SymbolMade", "StayedConstant", "SizeAsked", "SizeGuarded")
    },
}


def _source(function: dict[str, Any]) -> list[dict[str, Any]]:
    """The lines of a function as the user wrote them, with what is to be said of each."""
    first = function["line"]
    lines = linecache.getlines(function["file"])
    try:
        block = inspect.getblock(lines[first - 1 :]) if first else []
    except (SyntaxError, IndentationError):
        block = []
    notes: dict[int, Counter[tuple[str, str]]] = {}
    for note in function["notes"]:
        notes.setdefault(note["line"], Counter())[note["kind"], note["text"]] += 1
    return [
        {
            "line": first + i,
            "text": text.rstrip("\n"),
            "notes": [
                {"kind": kind, "text": note, "times": times}
                for (kind, note), times in notes.get(first + i, {}).items()
            ],
        }
        for i, text in enumerate(block)
    ]


def _once(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Rows that are the same, as one with how often it is there."""
    times = Counter(map(str, rows))
    return [{**row, "times": times[text]} for text, row in {str(row): row for row in rows}.items()]


def _counts(functions: list[dict[str, Any]]) -> dict[str, float]:
    compilations = [c for function in functions for c in function["compilations"]]
    finished = [c for c in compilations if c["seconds"] is not None]
    return {
        "functions": len(functions),
        "compilations": len(compilations),
        "graphs": sum(c["graph"] is not None for c in compilations),
        "graph breaks": sum(len(c["breaks"]) for c in compilations),
        "recompilations": sum(bool(c["reasons"]) for c in compilations),
        "kernels": sum(len(p["kernels"]) for c in compilations for p in c["programs"]),
        "seconds of compilation": sum(c["seconds"] for c in finished),
    }
