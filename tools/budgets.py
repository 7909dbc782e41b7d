"""Budgets on the tail: the longest file, function, class and ladder of pliant, and its C++ in all.

    python tools/budgets.py [ROOT]

Prints what is over budget and ends with status 1, or says that all is well. An excess that can't be
mended at once stands in `tools/budgets_exceptions.txt`, one line each:

    kind path::name value        for example: function pliant/capture/frame.py::Frame.run 72

The list may only shrink: an entry that is no longer needed, or whose value could be lower, is an
error.
"""

from __future__ import annotations

import argparse
import ast
import fnmatch
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

LIMITS = {
    "file": 800,
    "table": 1500,  # a file of pure tables
    "function": 60,
    "class": 400,
    "methods": 30,
    "ladder": 4,
    "import": 0,  # imports inside functions
    "native": 6650,  # all of csrc/ together: decisions 0010, 0014, 0051, 0082 and 0085
}
UNITS = {
    "file": "lines in the file",
    "table": "lines in the table",
    "function": "lines in the function",
    "class": "lines in the class",
    "methods": "methods in the class",
    "ladder": "branches in one if/elif or match",
    "import": "imports inside the function",
    "native": "lines of C++ in all",
}
TABLES = ("*table*.py", "py31?.py")
NATIVE = (".cpp", ".cc", ".c", ".h", ".hpp")
# Packages that may be missing; only what needs them imports them.
OPTIONAL = {"jinja2", "llvmlite", "numpy", "rich", "triton"}
EXCEPTIONS = Path("tools/budgets_exceptions.txt")


@dataclass(frozen=True, slots=True)
class Measure:
    """The value of one budget at one place."""

    kind: str
    place: str
    value: int
    line: int = 1

    @property
    def key(self) -> str:
        return f"{self.kind} {self.place}"

    @property
    def over(self) -> bool:
        return self.value > LIMITS[self.kind]

    def __str__(self) -> str:
        where = self.place.replace("::", f":{self.line}: ", 1)
        return f"{where}: {self.value} {UNITS[self.kind]}, the limit is {LIMITS[self.kind]}"


def measure(root: Path) -> list[Measure]:
    """The worst value of each budget at each place: file, class or function."""
    worst: dict[str, Measure] = {}
    for item in _measure_all(root):
        if item.key not in worst or worst[item.key].value < item.value:
            worst[item.key] = item
    return list(worst.values())


def _measure_all(root: Path) -> Iterator[Measure]:
    for path in sorted((root / "pliant").rglob("*.py")):
        name = path.relative_to(root).as_posix()
        text = path.read_text()
        is_table = any(fnmatch.fnmatch(path.name, pattern) for pattern in TABLES)
        yield Measure("table" if is_table else "file", name, len(text.splitlines()))
        yield from _inside(ast.parse(text, name), name, "", in_function=False)
    native = [path for path in (root / "csrc").rglob("*") if path.suffix in NATIVE]
    yield Measure("native", "csrc", sum(len(path.read_text().splitlines()) for path in native))


def _inside(node: ast.AST, file: str, owner: str, *, in_function: bool) -> Iterator[Measure]:
    """Measures of everything below `node`, which belongs to the definition named `owner`."""
    for child in ast.iter_child_nodes(node):
        name, inside = owner, in_function
        if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            name = f"{owner}.{child.name}" if owner else child.name
            inside = not isinstance(child, ast.ClassDef)
            yield from _definition(child, f"{file}::{name}")
        place = f"{file}::{owner}" if owner else file
        if isinstance(child, ast.If | ast.Match):
            yield Measure("ladder", place, _branches(child), child.lineno)
        if in_function and isinstance(child, ast.Import | ast.ImportFrom):
            yield Measure("import", place, len(_required(child)), child.lineno)
        yield from _inside(child, file, name, in_function=inside)


def _definition(
    node: ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef, place: str
) -> Iterator[Measure]:
    lines = (node.end_lineno or node.lineno) - node.lineno + 1
    if not isinstance(node, ast.ClassDef):
        yield Measure("function", place, lines, node.lineno)
        return
    methods = sum(isinstance(item, ast.FunctionDef | ast.AsyncFunctionDef) for item in node.body)
    yield Measure("class", place, lines, node.lineno)
    yield Measure("methods", place, methods, node.lineno)


def _branches(node: ast.If | ast.Match) -> int:
    """Conditions tried one after the other: `if`, each `elif`; each `case` but a bare `case _`."""
    if isinstance(node, ast.Match):
        return sum(
            ast.unparse(case.pattern) != "_" or case.guard is not None for case in node.cases
        )
    count = 1
    while len(node.orelse) == 1 and isinstance(node.orelse[0], ast.If):
        if node.orelse[0].col_offset != node.col_offset:
            break  # an `else:` with an `if` in it, not an `elif`
        node = node.orelse[0]
        count += 1
    return count


def _required(node: ast.Import | ast.ImportFrom) -> list[str]:
    """The modules an import names, less the optional ones."""
    if isinstance(node, ast.ImportFrom):
        names = ["." * node.level + (node.module or "")]
    else:
        names = [alias.name for alias in node.names]
    return [name for name in names if name.partition(".")[0] not in OPTIONAL]


def read_exceptions(root: Path) -> dict[str, int]:
    """The list of exceptions: the highest value allowed, by kind and place."""
    path = root / EXCEPTIONS
    exceptions: dict[str, int] = {}
    for line in path.read_text().splitlines() if path.exists() else ():
        entry = line.partition("#")[0].split()
        if entry:
            kind, place, value = entry
            exceptions[f"{kind} {place}"] = int(value)
    return exceptions


def check(measures: list[Measure], exceptions: dict[str, int]) -> list[str]:
    """What is wrong, one line each."""
    found = {item.key: item for item in measures if item.over}
    problems = [
        f"{item} (and its exception allows {exceptions[key]})" if key in exceptions else str(item)
        for key, item in found.items()
        if item.value > exceptions.get(key, 0)
    ]
    for key, allowed in exceptions.items():
        if key not in found:
            problems.append(f"{EXCEPTIONS}: '{key}' is within its budget: delete the entry")
        elif found[key].value < allowed:
            problems.append(f"{EXCEPTIONS}: '{key}' is {found[key].value} now: lower the entry")
    return problems


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("root", nargs="?", type=Path, default=Path(__file__).parent.parent)
    root = parser.parse_args(arguments).root
    measures = measure(root)
    exceptions = read_exceptions(root)
    problems = check(measures, exceptions)
    for problem in problems:
        print(problem)
    if not problems:
        print(f"budgets: {len(measures)} measures within limits, {len(exceptions)} exceptions")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
