"""What to look at first in a run, and what to do about it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

Advice = dict[str, Any]
SHOWN = 3


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
            causes = Counter(
                f"{graph_break['what']}. {graph_break['remedy']}".strip() for graph_break in broken
            )
            (text, _), *others = causes.most_common()
            more = f" (and {len(others)} more)" if others else ""
            yield _about(function, f"{function['name']} breaks its graph", text + more)


def _most_compiled(history: dict[str, Any]) -> Iterator[Advice]:
    ordered = sorted(history["functions"], key=lambda f: len(f["compilations"]), reverse=True)
    for function in ordered:
        recompiled = [c for c in function["compilations"] if c["reasons"]]
        if len(recompiled) < 2:
            return
        reason = recompiled[-1]["reasons"][0]["guard"]
        title = f"{function['name']} was compiled again {len(recompiled)} times"
        yield _about(
            function, title, f"The last time because of {reason}. pliant.mark_dynamic may help."
        )


def _slowest(history: dict[str, Any]) -> Iterator[Advice]:
    times = [
        (sum(c["seconds"] or 0.0 for c in function["compilations"]), function)
        for function in history["functions"]
    ]
    total = sum(seconds for seconds, _ in times)
    for seconds, function in sorted(times, key=lambda pair: -pair[0])[:1]:
        if total and seconds > 1:
            share = f"{seconds:.1f} of {total:.1f} s of compilation"
            yield _about(function, f"{function['name']} took longest to compile", share)


KINDS: tuple[Callable[[dict[str, Any]], Iterator[Advice]], ...] = (
    _not_compiled, _most_breaks, _most_compiled, _slowest,
)  # fmt: skip


def _compilations(history: dict[str, Any]) -> Iterator[tuple[dict[str, Any], dict[str, Any]]]:
    for function in history["functions"]:
        for compilation in function["compilations"]:
            yield function, compilation


def _about(function: dict[str, Any], title: str, text: str) -> Advice:
    return {"function": function["id"], "title": title, "text": text}
