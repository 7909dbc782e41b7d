"""What kernels are called for people: in profiles, and in the source that logs show.

The one idea: a name tells what was fused, the lines of the program where that is. Neither is part
of what a kernel computes: equal kernels are one kernel, and have the name of the first of them.
"""

from __future__ import annotations

import linecache
import re
from collections.abc import Collection, Sequence
from typing import Final

from pliant.graph.ir import Node

LONGEST: Final = 48
MOST_LINES: Final = 6  # of the program above a kernel


def label_of(nodes: Sequence[Node]) -> str:
    """The operators in their order, each once: `mul_softmax`. Short, and an identifier."""
    names = list(dict.fromkeys([_short(node.name) for node in nodes]))
    label, shown = "", 0
    for name in names:
        longer = f"{label}_{name}" if label else name
        if len(longer) > LONGEST - len("_and_99_more"):
            break
        label, shown = longer, shown + 1
    rest = len(names) - shown
    return f"{label}_and_{rest}_more" if rest else label


def _short(name: str) -> str:
    """`aten._softmax.default` is `softmax`."""
    parts = name.split(".")
    plain = parts[1] if len(parts) > 1 else name
    return re.sub(r"\W+", "_", plain).strip("_")[: LONGEST // 2] or "call"


def lines_of(nodes: Collection[Node]) -> list[str]:
    """Comments: the lines of the program that the operators are from."""
    places = dict.fromkeys([node.stack[-1] for node in nodes if node.stack])
    seen: dict[tuple[str, int], str] = {}
    for place in places:
        text = linecache.getline(place.file, place.line).strip()
        seen[place.file, place.line] = f"# {place.file}:{place.line}: {text}"
    comments = list(seen.values())
    rest = len(comments) - MOST_LINES
    return [*comments[:MOST_LINES], *[f"# and {rest} more lines"][: rest > 0]]
