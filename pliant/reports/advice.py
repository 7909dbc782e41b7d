"""What to look at first in a run, and what to do about it."""

from __future__ import annotations

import os.path
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

from pliant.base.errors import counted

Advice = dict[str, Any]
SHOWN = 3
SLOW = 5.0  # seconds of compilation


def advice(history: dict[str, Any]) -> list[Advice]:
    """The most important findings, each with the function concerned. The kinds are in the order of
    what they cost: code that does not run compiled before code that takes long to compile."""
    ordered = (item for kind in KINDS for item in kind(history))
    return [item for item, _ in zip(ordered, range(SHOWN))]


def _not_compiled(history: dict[str, Any]) -> Iterator[Advice]:
    for function, compilation in _compilations(history):
        for trouble in compilation["troubles"]:
            yield _about(function, f"{function['name']} does not run compiled code", trouble)
            break


def _most_breaks(history: dict[str, Any]) -> Iterator[Advice]:
    breaks: dict[int, list[Any]] = {}
    for function, compilation in _compilations(history):
        breaks.setdefault(function["id"], []).extend(compilation["breaks"])
    for number, broken in sorted(breaks.items(), key=lambda item: -len(item[1])):
        if broken:
            function = history["functions"][number]
            causes = Counter(_cause(graph_break) for graph_break in broken)
            (text, _), *others = causes.most_common()
            more = f" (and {len(others)} more)" if others else ""
            title = f"{function['name']} has {counted(len(causes), 'graph break')}"
            yield _about(function, title, text + more)


def _most_compiled(history: dict[str, Any]) -> Iterator[Advice]:
    ordered = sorted(history["functions"], key=lambda f: len(f["compilations"]), reverse=True)
    for function in ordered:
        recompiled = [c for c in function["compilations"] if c["reasons"]]
        if len(recompiled) < 2:
            return
        reasons = Counter(c["reasons"][-1]["guard"].partition(", got ")[0] for c in recompiled)
        (reason, _), *others = reasons.most_common()
        more = f" and {counted(len(others), 'other assumption')}" if others else ""
        title = f"{function['name']} was recompiled {len(recompiled)} times"
        remedy = next(
            c["remedy"] for c in recompiled if c["reasons"][-1]["guard"].startswith(reason)
        )
        if ".size()" in reason:
            remedy = "pliant.mark_dynamic before the first call saves recompilations for sizes."
        yield _about(function, title, f"{reason}{more} did not hold. {remedy}".strip())


def _slowest(history: dict[str, Any]) -> Iterator[Advice]:
    times = [
        (sum(c["seconds"] or 0.0 for c in function["compilations"]), function)
        for function in history["functions"]
    ]
    total = sum(seconds for seconds, _ in times)
    for seconds, function in sorted(times, key=lambda pair: -pair[0])[:1]:
        if seconds > SLOW:
            share = f"{seconds:.1f} s of the {total:.1f} s of all compilations. "
            remedy = (
                "If it is a stack of equal layers, compile one layer instead of the whole: its "
                "code serves all of them."
            )
            yield _about(function, f"{function['name']} is slow to compile", share + remedy)


KINDS: tuple[Callable[[dict[str, Any]], Iterator[Advice]], ...] = (
    _not_compiled, _most_breaks, _most_compiled, _slowest,
)  # fmt: skip


def _compilations(history: dict[str, Any]) -> Iterator[tuple[dict[str, Any], dict[str, Any]]]:
    for function in history["functions"]:
        for compilation in function["compilations"]:
            yield function, compilation


def _cause(broken: dict[str, Any]) -> str:
    position = broken.get("position")
    where = f"{os.path.basename(position['file'])}:{position['line']}: " if position else ""
    return f"{where}{broken['what']}. {broken['remedy']}".strip()


def _about(function: dict[str, Any], title: str, text: str) -> Advice:
    return {"function": function["id"], "title": title, "text": text}
