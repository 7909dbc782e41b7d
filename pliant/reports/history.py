"""The records of a run, put in order: functions, their compilations, and what belongs to each.

The one idea: a record belongs to the compilation that was under way in its thread. What comes
afterwards (a backward is compiled when it is first needed) names its function.
"""

from __future__ import annotations

import inspect
import linecache
from collections.abc import Callable, Iterable
from typing import Any

from pliant.base.records import Record

Compilation = dict[str, Any]


def history(records: Iterable[Record]) -> dict[str, Any]:
    """Everything a report shows, as a value of JSON."""
    order = _History()
    ordered = sorted(records, key=lambda record: record["time"])
    for record in ordered:
        order.add(record)
    start = ordered[0]["time"] if ordered else 0.0
    for compilation in order.compilations:
        compilation["start"] -= start
    functions = list(order.functions.values())
    for function in functions:
        function["source"] = _source(function)
        del function["notes"]
    return {
        "functions": functions,
        "processes": list(order.processes.values()),
        "seconds": ordered[-1]["time"] - start if ordered else 0.0,
        "counts": _counts(functions),
    }


class _History:
    def __init__(self) -> None:
        self.functions: dict[tuple[str, str], dict[str, Any]] = {}
        self.compilations: list[Compilation] = []
        self.processes: dict[int, dict[str, Any]] = {}
        self._owners: list[dict[str, Any]] = []  # the function of each compilation
        self._open: dict[tuple[int, int], Compilation] = {}  # by process and thread
        self._reasons: dict[tuple[int, int], list[Any]] = {}  # of the next compilation there
        self._latest: dict[str, Compilation] = {}  # by the short name of the function

    def add(self, record: Record) -> None:
        process = record["process"]
        known = {"process": process, "rank": record.get("rank")}
        self.processes.setdefault(process, known)
        place = process, record["thread"]
        handler = _HANDLERS.get(record["event"])
        if record["event"] == "CompileStarted":
            self._start(record, place)
        elif record["event"] == "Recompiled":
            self._reasons[place] = record["reasons"]
        elif record["event"] == "EntryUsed":
            self._used(record)
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
        }
        self.compilations.append(compilation)
        self._owners.append(function)
        function["compilations"].append(compilation)
        self._open[place] = self._latest[_short_name(record)] = compilation

    def _used(self, record: Record) -> None:
        function = self.functions.get(_written(record), {"compilations": []})
        for compilation in reversed(function["compilations"]):
            same = compilation["name"], compilation["index"], compilation["process"]
            if same == (record["function"], record["index"], record["process"]):
                compilation["hits"] = record["hits"]
                return

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
    compilation.update(graph=record["graph"], nodes=record["nodes"])


def _guarded(compilation: Compilation, record: Record) -> None:
    compilation.update(guards=record["guards"], routine=len(record["routine"]))


def _residual(compilation: Compilation, record: Record) -> None:
    compilation["residual"] = record["source"]


def _broke(compilation: Compilation, record: Record) -> None:
    fields = ("code", "what", "why", "remedy", "position")
    compilation["breaks"].append({name: record[name] for name in fields})


def _generated(compilation: Compilation, record: Record) -> None:
    fields = ("function", "kernels", "lowered", "called")
    compilation["programs"].append({name: record[name] for name in fields})


def _stage(compilation: Compilation, record: Record) -> None:
    stage = {"stage": record["stage"], "of": record["function"], "text": record["text"]}
    compilation["stages"].append(stage)


def _partitioned(compilation: Compilation, record: Record) -> None:
    compilation["partition"] = record["report"]


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
