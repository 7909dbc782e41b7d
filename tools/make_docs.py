"""Keeps the documentation true: writes what can be made from the code, and what examples print.

    python tools/make_docs.py            rewrite README.md and docs/*.md in place
    python tools/make_docs.py --check    only say which pages are out of date, with status 1

Three things are made. The picture docs/architecture.svg is drawn by `make_architecture`. A part
between `<!-- made: NAME -->` and `<!-- end -->` is a table from the code. And a block of Python
that is followed by a block of `text` is a program and what it prints (logs included): it is
run, each block by itself, as the file `demo.py`. A block that begins with ```python no-run is a
fragment, to be read only.
"""

from __future__ import annotations

import argparse
import ast
import contextlib
import difflib
import inspect
import io
import os
import re
import sys
import tempfile
import textwrap
import warnings
from collections.abc import Callable
from dataclasses import fields
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "tools")]

import make_architecture  # noqa: E402
import torch  # noqa: E402

import pliant  # noqa: E402
from pliant.base import events, logs  # noqa: E402
from pliant.base.options import Options  # noqa: E402
from pliant.capture.breaks import BREAKS  # noqa: E402
from pliant.guards.guard import GuardKind  # noqa: E402

PART = re.compile(r"(<!-- made: ([\w-]+)((?: \S+)*) -->\n).*?(<!-- end -->)", re.DOTALL)


def pages() -> list[Path]:
    return [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]


def renewed(text: str) -> str:
    """A page with its made parts and its outputs as they should be."""
    text = PART.sub(lambda found: found[1] + PARTS[found[2]](*found[3].split()) + found[4], text)
    done, rest = "", text
    while found := re.search(r"```python\n(.*?)```\n", rest, re.DOTALL):
        done += rest[: found.end()]
        rest = rest[found.end() :]
        following = re.match(r"((?:(?!```).)*?)```text\n(.*?)```\n", rest, re.DOTALL)
        printed = run(found[1])
        if following is not None:
            done += f"{following[1]}```text\n{printed}```\n"
            rest = rest[following.end() :]
        elif printed:
            raise ValueError(f"nobody shows what this prints:\n{found[1]}\nit prints:\n{printed}")
    return done + rest


def run(program: str) -> str:
    """What a program prints (stdout and stderr) when it is run as `demo.py` in an empty folder."""
    pliant.reset()
    torch.manual_seed(0)
    shown = io.StringIO()
    defaults = {item.name: getattr(Options(), item.name) for item in fields(Options)}
    before = os.getcwd()
    with tempfile.TemporaryDirectory() as folder, contextlib.ExitStack() as stack:
        stack.callback(os.chdir, before)
        os.chdir(folder)
        file = Path(folder, "demo.py")
        file.write_text(program)
        stack.callback(pliant.set_logs)
        stack.enter_context(pliant.config.patch(defaults))
        stack.enter_context(warnings.catch_warnings())
        warnings.simplefilter("default")
        warnings.showwarning = _show_warning  # whoever runs this may have put something else there
        stack.enter_context(contextlib.redirect_stdout(shown))
        stack.enter_context(contextlib.redirect_stderr(shown))
        exec(compile(program, str(file), "exec"), {"__name__": "__main__"})
    return shown.getvalue().replace(f"{folder}{os.sep}", "")


def _show_warning(message, category, filename, lineno, file=None, line=None) -> None:
    print(
        warnings.formatwarning(message, category, filename, lineno, line), end="", file=sys.stderr
    )


# ---- the parts that are made from the code


def table(head: list[str], rows: list[list[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "".join(f"| {' | '.join(row)} |\n" for row in lines)


def graph_breaks() -> str:
    rows = [[f"`{code}`", cause.why, cause.remedy] for code, cause in sorted(BREAKS.items())]
    return table(["code", "why", "what to do"], rows)


def options() -> str:
    rows = [
        [
            f"`{item.name}`",
            f"`{item.default!r}`",
            item.metadata["kind"].words,
            item.metadata["doc"] + ("" if is_read(item.name) else " *(accepted, no effect yet)*"),
        ]
        for item in fields(Options)
    ]
    return table(["option", "default", "takes", "what it does"], rows)


def is_read(option: str) -> bool:
    """Whether some part of pliant looks at the option."""
    return re.search(rf"options\.{option}\b", _source()) is not None


def is_raised(error: type) -> bool:
    return re.search(rf"(raise |return ){error.__name__}\(", _source()) is not None


def _source() -> str:
    files = (ROOT / "pliant").rglob("*.py")
    return "\n".join(file.read_text() for file in sorted(files))


def log_channels() -> str:
    rows = [[f"`{name}`", channel.doc] for name, channel in logs.CHANNELS.items()]
    return table(["channel", "what it shows"], rows)


def event_kinds() -> str:
    rows = []
    for kind in events.KINDS:
        counter = f"`{kind.counter}`" if kind.counter else ""
        rows.append([f"`{kind.__name__}`", _first_paragraph(kind), counter])
    return table(["event", "what happened", "counter"], rows)


def errors() -> str:
    parts = []
    for name, kind in vars(pliant.errors).items():  # in the order of their definitions
        if name in pliant.errors.__all__ and isinstance(kind, type) and issubclass(kind, Exception):
            bases = ", ".join(f"`{base.__name__}`" for base in kind.__bases__)
            reserved = ["*Nothing raises it yet.*"] if _is_reserved(kind) else []
            text = [f"## {name}", f"Derived from {bases}.", *reserved, inspect.getdoc(kind) or ""]
            parts.append("\n\n".join(text) + "\n\n")
    return "\n" + "".join(parts)


def _is_reserved(kind: type) -> bool:
    if kind.__subclasses__() or issubclass(kind, Warning):
        return False
    return not is_raised(kind)


def _first_paragraph(kind: type) -> str:
    text = (inspect.getdoc(kind) or "").split("\n\n")[0]
    return " ".join(text.split())


def guard_kinds() -> str:
    records = [(kind.name, kind.record) for kind in GuardKind]
    rows = [[f"`{name}`", f"`{record.example}`", record.doc] for name, record in records]
    return table(["kind", "prints as", "what is assumed"], rows)


def packages() -> str:
    """The packages in the order of the layers, the highest first, and what their docstrings say."""
    layers = sorted(make_architecture.packages(), key=lambda package: -package.row)
    rows = []
    for package in layers:
        path = make_architecture.path_of(package.name)
        file = ROOT / path / "__init__.py" if (ROOT / path).is_dir() else ROOT / path
        docstring = ast.get_docstring(ast.parse(file.read_text())) or ""
        about = " ".join(docstring.split("\n\n")[0].split())
        rows.append([f"[{package.name}](../{path})", about])
    return table(["package", "what it owns"], rows)


def source(path: str, *names: str) -> str:
    """Code as it is in a file: what is defined as `name`, or `Class.name`, or the statement that
    mentions `'name'`."""
    text = (ROOT / path).read_text()
    tree = ast.parse(text)
    parts = [statement(text, tree.body, name) for name in names]
    return "\n```python no-run\n" + "\n\n\n".join(parts) + "\n```\n\n"


def statement(text: str, body: list[ast.stmt], name: str) -> str:
    first, _, rest = name.partition(".")
    for node in body:
        if rest and isinstance(node, ast.ClassDef) and node.name == first:
            return statement(text, node.body, rest)
    for node in body:
        targets = node.targets if isinstance(node, ast.Assign) else [node]
        named = {getattr(target, "name", getattr(target, "id", None)) for target in targets}
        strings = [part.value for part in ast.walk(node) if isinstance(part, ast.Constant)]
        if name in named or name in strings:
            start = min([node.lineno, *(one.lineno for one in getattr(node, "decorator_list", []))])
            return textwrap.dedent("\n".join(text.split("\n")[start - 1 : node.end_lineno]))
    raise LookupError(f"there is no {name}")


PARTS: dict[str, Callable[..., str]] = {
    "source": source,
    "graph-breaks": graph_breaks,
    "options": options,
    "log-channels": log_channels,
    "events": event_kinds,
    "errors": errors,
    "packages": packages,
    "guard-kinds": guard_kinds,
}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--check", action="store_true", help="write nothing")
    check = parser.parse_args().check
    stale = 0
    for page in [make_architecture.PICTURE, *pages()]:
        old = page.read_text() if page.exists() else ""
        new = make_architecture.picture() if page.suffix == ".svg" else renewed(old)
        if new == old:
            continue
        stale += 1
        print(f"{page.relative_to(ROOT)} {'is out of date' if check else 'is new'}")
        print("".join(difflib.unified_diff(old.splitlines(True), new.splitlines(True), n=1)))
        if not check:
            page.write_text(new)
    return 1 if check and stale else 0


if __name__ == "__main__":
    sys.exit(main())
