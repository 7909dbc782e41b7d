"""The records of a run, put in order: functions, their compilations, and what belongs to each.

The one idea: a record belongs to the compilation that was under way in its thread. What comes
afterwards (a backward is compiled when it is first needed) names its function.
"""

from __future__ import annotations

import inspect
import linecache
from collections.abc import Callable, Iterable
from operator import itemgetter
from typing import Any, cast

from pliant.base.records import Record

Compilation = dict[str, Any]


def history(records: Iterable[Record]) -> dict[str, Any]:
    """Everything a report shows, as a value of JSON."""
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
        self._reasons: dict[tuple[int, int], list[Any]] = {}  # of the next compilation there
        self._latest: dict[str, Compilation] = {}  # by the short name of the function

    def add(self, record: Record) -> None:
        process = record["process"]
        process_record = {"process": process, "rank": record.get("rank")}
        self.processes.setdefault(process, process_record)
        place = process, record["thread"]
        handler = _HANDLERS.get(record["event"])
        if record["event"] == "CompileStarted":
            self._start(record, place)
        elif record["event"] == "Recompiled":
            self._reasons[place] = record["reasons"]
        elif record["event"] in _LATER:
            _LATER[record["event"]](self, record)
        elif handler is not None:
            self._add_to(handler, record, place)

    def _start(self, record: Record, place: tuple[int, int]) -> None:
        function = self._function(record)
        compilation: Compilation = {
            "id": len(self.compilations),
            "name": record["function"],
            "index": record["index"],
            "process": record["process"],
            "start": record["time"],
            "seconds": None,
            "phases": {},
            "reasons": self._reasons.pop(place, []),
            "graph": None,
            "nodes": 0,
            "guards": [],
            "routine": 0,
            "residual": None,
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
        self._open[place] = self._latest[_short_name(record)] = compilation

    def _compiled(self, record: Record) -> Compilation | None:
        """The compilation that a record names."""
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
            compilation = self._latest.get(_short_name(record))
        if compilation is not None:
            handler(compilation, record)
        if record["event"] in ("CompileFinished", "CompileAbandoned"):
            self._open.pop(place, None)
        self._note(record, compilation)

    def _note(self, record: Record, compilation: Compilation | None) -> None:
        """What is shown at a line of the source."""
        text = _NOTES.get(record["event"])
        line = record.get("line") if isinstance(record.get("line"), dict) else record["position"]
        if text is None or line is None or compilation is None:
            return
        function = self._owners[compilation["id"]]
        if function["file"] == line["file"]:
            kind, write = text
            function["notes"].append(
                {"line": line["line"], "kind": kind, "text": write(record),
                 "compilation": compilation["id"]}
            )  # fmt: skip


def _written(record: Record) -> tuple[str, str]:
    """The function that the user wrote: what goes on after a break is part of it."""
    position = record["position"] or {"file": "", "function": ""}
    return position["file"], position["function"] or record["function"]


def _short_name(record: Record) -> str:
    """As backends call a function: without where it is defined, and which part of it it is."""
    name: str = record["function"].removesuffix(" backward").partition(" from line ")[0]
    return name.rpartition(".")[2]


def _finished(compilation: Compilation, record: Record) -> None:
    compilation.update(seconds=record["seconds"], phases=record["phases"])


def _abandoned(compilation: Compilation, record: Record) -> None:
    compilation["seconds"] = record["time"] - compilation["start"]
    compilation["troubles"].append("nothing was compiled")


def _captured(compilation: Compilation, record: Record) -> None:
    drawing = record.get("drawing", [])
    compilation.update(graph=record["graph"], nodes=record["nodes"], drawing=drawing)


def _guarded(compilation: Compilation, record: Record) -> None:
    compilation.update(guards=record["guards"], routine=len(record["routine"]))


def _residual(compilation: Compilation, record: Record) -> None:
    compilation["residual"] = record["source"]


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


SIZES: dict[str, tuple[str, Callable[[Record], str]]] = {
    "SymbolMade": (
        "symbol",
        lambda r: f"{r['name']} is {r['source']}, now {r['hint']}, in {r['range']}: {r['why']}",
    ),
    "StayedConstant": ("constant", lambda r: f"{r['source']} is {r['value']}: {r['why']}"),
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
        if name not in ("SymbolMade", "StayedConstant")
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
    notes: dict[int, list[Any]] = {}
    for note in function["notes"]:
        line = notes.setdefault(note["line"], [])
        if not any(other["text"] == note["text"] for other in line):
            line.append(note)
    return [
        {"line": first + i, "text": text.rstrip("\n"), "notes": notes.get(first + i, [])}
        for i, text in enumerate(block)
    ]


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
