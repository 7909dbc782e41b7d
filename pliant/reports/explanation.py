"""Everything about the compilations of one function, in one value that prints well.

The one idea: nothing is worked out anew. Each compilation left a `Compiled`; this puts them side by
side.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from torch import fx

from pliant.base.errors import counted
from pliant.base.late import Late
from pliant.base.position import format_position
from pliant.base.values import dataclass
from pliant.capture.breaks import BREAKS
from pliant.guards.guard import Guard
from pliant.stages import BreakInfo, Captured, Compiled
from pliant.sym.records import Provenance

if TYPE_CHECKING:
    import html
else:
    html = Late("html")  # which notebooks need


@dataclass(frozen=True, slots=True)
class Explanation:
    """What `pliant.explain(f)(*args)` returns: the result of the call, and everything about what
    was compiled for it and for earlier calls. It prints in short; `details()` is the long form, and
    a notebook shows both."""

    result: Any
    """What the call returned."""
    compiled: tuple[Compiled, ...]
    """Each compilation of the function and of its resume functions."""

    @property
    def captured(self) -> tuple[Captured, ...]:
        """What was captured at each compilation, as data."""
        return tuple(compilation.captured for compilation in self.compiled)

    @property
    def graphs(self) -> list[fx.GraphModule]:
        """The captured graphs."""
        graphs = [compilation.bindings.graph for compilation in self.compiled]
        return [graph for graph in graphs if graph is not None]

    @property
    def breaks(self) -> list[BreakInfo]:
        """Where graphs ended early, with the code, the cause and the position of each break. One
        that only goes on from an earlier break in the same expression `follows` it."""
        return [captured.broken for captured in self.captured if captured.broken is not None]

    @property
    def guards(self) -> list[Guard]:
        """What was assumed, without what only says that code and classes are as they were."""
        return [
            g for compilation in self.compiled for g in compilation.bindings.guards if not g.routine
        ]

    @property
    def symbols(self) -> list[Provenance]:
        """Why each dimension of the inputs, and each number, is a constant or a symbol."""
        return [why for captured in self.captured for why in captured.symbols]

    @property
    def graph_count(self) -> int:
        """How many graphs there are."""
        return len(self.graphs)

    @property
    def graph_break_count(self) -> int:
        """How many graph breaks there are, as `counters` counts them: without those that follow."""
        return len(self._own_breaks())

    @property
    def op_count(self) -> int:
        """How many operations all graphs have together."""
        return sum(_operations(graph) for graph in self.graphs)

    def __str__(self) -> str:
        """The short form: what was compiled, where and why graphs break and what to do about it,
        which sizes became constants."""
        lines = [self._headline()]
        for broken, times in Counter(self._own_breaks()).items():
            repeated = f"  ({times} times)" if times > 1 else ""
            lines += ["", f"breaks at {broken.what} [{broken.code}]{repeated}", *_place(broken)]
            cause = BREAKS[broken.code]
            lines += [f"  why: {cause.why}"] * bool(cause.why)
            lines += [f"  what to do: {cause.remedy}"] * bool(cause.remedy)
        special = [why for why in self.symbols if why.state == "specialised"]
        lines += [f"constant: {text}" for text in dict.fromkeys(map(str, special))]
        return "\n".join([*lines, "", "Guards, sizes and graphs of each compilation: details()"])

    def details(self) -> str:
        """The long form: graph, guards and sizes of each compilation."""
        lines = [self._headline()]
        for number, compilation in enumerate(self.compiled):
            name = compilation.captured.name
            lines += ["", f"{number}: {name}", *(f"  {line}" for line in _about(compilation))]
        return "\n".join(lines)

    def _headline(self) -> str:
        graphs = f"{counted(self.graph_count, 'graph')} with {counted(self.op_count, 'operation')}"
        breaks = counted(self.graph_break_count, "graph break")
        return f"{counted(len(self.compiled), 'compilation')}, {graphs}, {breaks}"

    def _own_breaks(self) -> list[BreakInfo]:
        """Without those that only go on from an earlier one in the same expression."""
        return [broken for broken in self.breaks if not broken.follows]

    def _repr_html_(self) -> str:
        """For notebooks: the short form, and the long one to unfold."""
        short = str(self).rpartition("\n\n")[0]
        parts = [f"<pre>{html.escape(short)}</pre>"]
        for number, compilation in enumerate(self.compiled):
            graph = compilation.bindings.graph
            code = "" if graph is None else graph.print_readable(print_output=False)
            text = html.escape("\n".join([*_about(compilation), "", code]).rstrip())
            title = html.escape(f"{number}: {compilation.captured.name}")
            parts.append(f"<details><summary>{title}</summary><pre>{text}</pre></details>")
        return "\n".join(parts)

    def __repr__(self) -> str:
        return str(self)


def _about(compiled: Compiled) -> Iterator[str]:
    captured, bindings = compiled.captured, compiled.bindings
    count = 0 if bindings.graph is None else _operations(bindings.graph)
    yield f"graph: {counted(count, 'operation')}"
    shown = [guard for guard in bindings.guards if not guard.routine]
    yield from _listed("guards", [str(guard) for guard in shown])
    yield from _listed("symbols", [str(why) for why in captured.symbols])
    if captured.broken is not None:
        yield f"breaks at {captured.broken.what} [{captured.broken.code}]"
        yield from _place(captured.broken)


def _place(broken: BreakInfo) -> Iterator[str]:
    """Of a break inside a library, the line of the program that led there comes first."""
    position = broken.position
    if position is None:
        return
    lines = format_position(position).splitlines()
    if position.library:
        callers = [caller for caller in broken.stack if not caller.library]
        for caller in callers[-1:]:
            yield from format_position(caller).splitlines()
        lines[0] = f"  in {position.library}.{position.function}, line {position.line}"
    yield from lines


def _listed(name: str, texts: Sequence[str]) -> Iterator[str]:
    if texts:
        yield f"{name}:"
    for text, times in Counter(texts).items():
        yield f"  {text}" + (f"  ({times} times)" if times > 1 else "")


def _operations(graph: fx.GraphModule) -> int:
    return sum(node.op.startswith("call_") for node in graph.graph.nodes)
