"""Draws docs/architecture.svg: the path of a call, the stages of a compilation, and the layers.

    python tools/make_architecture.py            write the picture
    python tools/make_architecture.py --check    only say whether it is out of date, with status 1

Nothing in it is written twice. A stage is a class that `STEPS` names, and its text is the first
sentence of its docstring; the function that is said to make it must be annotated so, and no class
of pliant/stages.py may be left out. The layers are those of the contracts in .importlinter: a
package stands above all that it may import.
"""

from __future__ import annotations

import argparse
import ast
import configparser
import html
import itertools
import re
import sys
import textwrap
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PICTURE = ROOT / "docs" / "architecture.svg"
WIDTH = 1000

STEPS = (  # each stage, where it is defined, who makes it, and what that is called
    ("Captured", "stages.py", "capture/capture.py", "capture", "bytecode capture"),
    (
        "Functional", "graph/ir.py", "graph/functionalize.py", "functionalize",
        "functionalization, CSE",
    ),
    (
        "Scheduled", "loop/scheduled.py", "loop/scheduled.py", "plan_schedule",
        "lowering, fusion, scheduling, buffer reuse",
    ),
    ("Kernels", "launch/kernels.py", "launch/kernels.py", "write_kernels", "code generation"),
    ("Program", "launch/program.py", "launch/sequence.py", "sequence", "launch sequence"),
    ("Compiled", "stages.py", "driver/pipeline.py", "Compiler._backend", "loading"),
)  # fmt: skip

STYLE = """
.architecture {
  --ink: var(--color-foreground-primary, #1b1f24);
  --quiet: var(--color-foreground-muted, #6a737d);
  --line: var(--color-foreground-border, #8c959f);
  --card: var(--color-background-secondary, #f6f8fa);
  font-family: system-ui, "Segoe UI", Helvetica, Arial, sans-serif; font-size: 14px;
}
@media (prefers-color-scheme: dark) {
  .architecture {
    --ink: var(--color-foreground-primary, #e6edf3);
    --quiet: var(--color-foreground-muted, #9198a1);
    --line: var(--color-foreground-border, #6e7681);
    --card: var(--color-background-secondary, #161b22);
  }
}
.architecture text { fill: var(--ink); }
.architecture .title { font-size: 16px; font-weight: 600; }
.architecture .name { font-weight: 600; }
.architecture .small { font-size: 12.5px; fill: var(--quiet); }
.architecture .code { font-family: ui-monospace, Menlo, Consolas, monospace; font-size: 12.5px; }
.architecture .box { fill: var(--card); stroke: var(--line); }
.architecture .front { fill: #3b82f6; fill-opacity: .16; stroke: #3b82f6; }
.architecture .back { fill: #f59e0b; fill-opacity: .18; stroke: #d97706; }
.architecture .shared { fill: #8b8f98; fill-opacity: .16; stroke: #8b8f98; }
.architecture .around { fill: #10b981; fill-opacity: .15; stroke: #10b981; }
.architecture .arrow { stroke: var(--line); stroke-width: 1.5; fill: none; }
.architecture .head { fill: var(--line); }
.architecture a { text-decoration: none; }
.architecture a:hover rect { stroke-width: 2.5; }
"""


# ---- what the code says


@dataclass(frozen=True)
class Stage:
    """A value that one stage hands to the next, and the function that makes it."""

    name: str
    text: str
    file: str
    maker: str
    function: str
    step: str


def stages() -> list[Stage]:
    """The stages in the order of `STEPS`. Fails if one of pliant/stages.py is not among them."""
    chain = []
    for name, file, maker, function, step in STEPS:
        classes = classes_of(f"pliant/{file}")
        made = returned(f"pliant/{maker}", function)
        if name not in classes or not re.search(rf"\b{name}(Builder)?\b", made):
            raise LookupError(f"{maker}: {function} returns {made}, and not the {name} of {file}")
        chain.append(Stage(name, first_sentence(classes[name]), file, maker, function, step))
    shared = classes_of("pliant/stages.py")
    known = {stage.name for stage in chain}
    for owner, node in shared.items():  # the parts of stages, and the parts of those
        text = ast.unparse(node)
        known |= {name for name in shared if name != owner and re.search(rf"\b{name}\b", text)}
    missing = [name for name in shared if name not in known]
    if missing:
        raise LookupError(f"pliant/stages.py has {missing}: no step of {__name__} leads there")
    return chain


def classes_of(file: str) -> dict[str, ast.ClassDef]:
    return {node.name: node for node in ast.parse(read(file)).body if is_class(node)}


def returned(file: str, function: str) -> str:
    """What a function is annotated as returning."""
    body: list[ast.stmt] = ast.parse(read(file)).body
    *owners, name = function.split(".")
    for owner in owners:
        body = next(node.body for node in body if is_class(node) and node.name == owner)
    for node in body:
        if isinstance(node, ast.FunctionDef) and node.name == name and node.returns is not None:
            return ast.unparse(node.returns)
    raise LookupError(f"{file} has no {function} with an annotation of what it returns")


def is_class(node: ast.AST) -> bool:
    return isinstance(node, ast.ClassDef) and not node.name.startswith("_")


def first_sentence(node: ast.ClassDef) -> str:
    text = " ".join((ast.get_docstring(node) or "").split())
    return re.split(r"(?<=\.) ", text)[0].replace("`", "")


def read(path: str) -> str:
    return (ROOT / path).read_text()


@dataclass(frozen=True)
class Package:
    """A part of pliant, the row it stands in (0 is the lowest), and which half it belongs to."""

    name: str
    row: int
    half: str


def packages() -> list[Package]:
    contracts = dict(layer_contracts(read(".importlinter")))
    below: dict[str, set[str]] = {}
    for layers in contracts.values():
        for upper, lower in itertools.pairwise(layers):
            for name in upper:
                below.setdefault(name, set()).update(lower)
    names = {name for layers in contracts.values() for layer in layers for name in layer}
    there = sorted(name for name in names if path_of(name) is not None)

    def row(name: str) -> int:
        return max((row(lower) + 1 for lower in below.get(name, ())), default=0)

    def half(name: str) -> str:
        sides = [side for side in ("front", "back") if any(name in one for one in contracts[side])]
        return {1: sides[0] if sides else "", 2: "shared"}.get(len(sides), "around")

    return [Package(name, row(name), half(name)) for name in there]


def layer_contracts(text: str) -> Iterator[tuple[str, list[list[str]]]]:
    """The contracts about layers, highest layer first, by the last part of their names."""
    parser = configparser.ConfigParser()
    parser.read_string(text)
    for section in parser.sections():
        if parser[section].get("type") == "layers":
            lines = parser[section]["layers"].split("\n")
            layers = [re.findall(r"pliant\.([\w.]+)", line) for line in lines if line.strip()]
            yield section.rpartition(":")[2], layers


def path_of(package: str) -> str | None:
    path = "pliant/" + package.replace(".", "/")
    return next((name for name in (path, f"{path}.py") if (ROOT / name).exists()), None)


# ---- drawing


def text(x: float, y: float, content: str, kind: str = "", anchor: str = "middle") -> str:
    shown = html.escape(content, quote=False)
    return f'<text x="{x:g}" y="{y:g}" class="{kind}" text-anchor="{anchor}">{shown}</text>'


def box(x: float, y: float, w: float, h: float, kind: str = "box") -> str:
    size = f'width="{w:g}" height="{h:g}" rx="{min(7.0, h / 4):g}"'
    return f'<rect x="{x:g}" y="{y:g}" {size} class="{kind}"/>'


def arrow(*points: tuple[float, float]) -> str:
    path = "M" + " L".join(f"{x:g},{y:g}" for x, y in points)
    return f'<path d="{path}" class="arrow" marker-end="url(#head)"/>'


def linked(path: str, *parts: str) -> str:
    return "\n".join([f'<a href="../{path}">', *parts, "</a>"])


def card(x: float, y: float, w: float, name: str, about: str, path: str) -> str:
    """A box with a name and a line below it, that links to the code."""
    middle = x + w / 2
    lines = text(middle, y + 22, name, "name"), text(middle, y + 41, about, "small")
    return linked(path, box(x, y, w, 54), *lines)


def draw_call(y: float) -> Iterator[str]:
    """The path of a call that some compilation fits, and where it leaves if none does."""
    yield text(20, y, "A call", "title", "start")
    y += 16
    cards = (
        (20, 190, "dispatcher", "guards of each entry", "csrc/dispatcher.cpp"),
        (310, 180, "residual code", "Python source", "pliant/runtime/residual.py"),
        (550, 190, "launcher", "allocates and calls", "csrc/launcher.cpp"),
        (800, 180, "kernels, ATen", "machine code", path_of("targets") or "pliant/emit"),
    )
    for x, w, *rest in cards:
        yield card(x, y, w, *rest)
    yield text(260, y + 18, "an entry fits", "small")
    for x, end in ((210, 308), (490, 548), (740, 798)):
        yield arrow((x, y + 27), (end, y + 27))
    yield arrow((120, y + 54), (120, y + 106))
    yield text(132, y + 84, "none fits: compile one, and use it", "small", "start")


def draw_stages(y: float, width: float) -> Iterator[str]:
    """Each stage as a box, and above it the function that makes it."""
    yield text(20, y, "The stages of a compilation", "title", "start")
    y += 14
    for stage in stages():
        yield arrow((120, y), (120, y + 36))
        yield text(132, y + 15, stage.step, "small", "start")
        label = text(132, y + 30, f"{stage.maker}  {stage.function}", "code", "start")
        yield linked(f"pliant/{stage.maker}", label)
        y += 38
        lines = textwrap.wrap(stage.text, 74)
        height = 32 + 17 * len(lines)
        texts = [text(36, y + 40 + 17 * i, line, "small", "start") for i, line in enumerate(lines)]
        name = text(36, y + 22, stage.name, "name", "start")
        yield linked(f"pliant/{stage.file}", box(20, y, width, height), name, *texts)
        y += height
    yield arrow((120, y), (120, y + 36))
    yield text(132, y + 23, "an entry of the dispatcher", "small", "start")


def draw_layers(x: float, y: float, width: float) -> Iterator[str]:
    """The packages, a row for each layer."""
    yield text(x, y, "Who may import whom", "title", "start")
    yield text(x, y + 20, "each row only what is below it", "small", "start")
    found = packages()
    sides = ("front", "shared", "around", "back")
    top = max(package.row for package in found)
    y += 34
    for row in range(top, -1, -1):
        members = [package for package in found if package.row == row]
        members.sort(key=lambda package: (sides.index(package.half), package.name))
        gap, each = 8.0, (width - 8.0 * (len(members) - 1)) / len(members)
        for at, package in enumerate(members):
            left = x + at * (each + gap)
            label = text(left + each / 2, y + 25, package.name, "name")
            path = path_of(package.name) or ""
            yield linked(path, box(left, y, each, 38, package.half), label)
        y += 46
    for half, label in zip(sides, ("front end", "both", "around them", "back end"), strict=True):
        yield box(x, y + 8, 14, 14, half)
        yield text(x + 20, y + 20, label, "small", "start")
        x += 40 + 7 * len(label)


def picture() -> str:
    body = [*draw_call(26), *draw_stages(170, 540), *draw_layers(600, 170, 380)]
    height = 24 + max(float(number) for number in re.findall(r' y="([\d.]+)"', "\n".join(body)))
    lines = [
        '<svg xmlns="http://www.w3.org/2000/svg" class="architecture" role="img"',
        f'viewBox="0 0 {WIDTH} {height:g}">',
        "<title>The path of a call, the stages of a compilation, and the layers of pliant</title>",
        f"<style>{STYLE}</style>",
        '<defs><marker id="head" viewBox="0 0 8 8" refX="7" refY="4" orient="auto"',
        'markerWidth="7" markerHeight="7"><path d="M0,0 L8,4 L0,8 z" class="head"/>',
        "</marker></defs>",
        *filter(None, body),
        "</svg>",
    ]
    return "\n".join(lines) + "\n"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--check", action="store_true", help="write nothing")
    check = parser.parse_args().check
    fresh = picture()
    stale = not PICTURE.exists() or PICTURE.read_text() != fresh
    if stale:
        print(f"{PICTURE.relative_to(ROOT)} {'is out of date' if check else 'is new'}")
    if stale and not check:
        PICTURE.write_text(fresh)
    return 1 if check and stale else 0


if __name__ == "__main__":
    sys.exit(main())
