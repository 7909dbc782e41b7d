"""Runs the tutorial and writes what its cells print: docs/tutorial.ipynb.

    python tools/notebook.py            run the cells and write their outputs
    python tools/notebook.py --check    only say which outputs are out of date, with status 1

A notebook is JSON. A cell is run as Jupyter runs it: its last expression is shown, as HTML if it
has that. Times and numbers that vary are not compared.
"""

from __future__ import annotations

import argparse
import ast
import contextlib
import io
import json
import linecache
import os
import re
import sys
import tempfile
from pathlib import Path
from typing import Any

NOTEBOOK = Path(__file__).parent.parent / "docs" / "tutorial.ipynb"


def run_cell(source: str, number: int, scope: dict[str, Any]) -> list[dict[str, Any]]:
    """What a cell prints and shows."""
    name = f"<tutorial cell {number}>"
    linecache.cache[name] = (len(source), None, source.splitlines(keepends=True), name)
    tree = ast.parse(source)
    last = tree.body.pop() if tree.body and isinstance(tree.body[-1], ast.Expr) else None
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        exec(compile(tree, name, "exec"), scope)
        shown = None
        if isinstance(last, ast.Expr):
            shown = eval(compile(ast.Expression(last.value), name, "eval"), scope)
    outputs: list[dict[str, Any]] = []
    if printed.getvalue():
        outputs.append(
            {"output_type": "stream", "name": "stdout", "text": lines(printed.getvalue())}
        )
    if shown is not None:
        data = {"text/plain": lines(repr(shown))}
        if hasattr(shown, "_repr_html_"):
            data["text/html"] = lines(shown._repr_html_())
        result = {"output_type": "execute_result", "metadata": {}, "execution_count": number}
        outputs.append({**result, "data": data})
    return outputs


def lines(text: str) -> list[str]:
    """Without the paths of this machine."""
    return re.sub(r"[^\s\"'&;]*(?:site|dist)-packages/", "", text).splitlines(keepends=True)


def run(notebook: dict[str, Any]) -> dict[str, Any]:
    """The notebook with the outputs of its cells, in a folder of its own."""
    scope: dict[str, Any] = {"__name__": "__main__"}
    number = 0
    cells = []
    before = os.getcwd()
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        try:
            for cell in notebook["cells"]:
                if cell["cell_type"] == "code":
                    number += 1
                    outputs = run_cell("".join(cell["source"]), number, scope)
                    cell = {**cell, "execution_count": number, "outputs": outputs}
                cells.append(cell)
        finally:
            os.chdir(before)
    return {**notebook, "cells": cells}


def comparable(cell: dict[str, Any]) -> str:
    """The outputs without numbers, units and what is aligned by them, and without carets below
    source lines, which versions of Python place differently."""
    text = json.dumps(cell.get("outputs", []), ensure_ascii=False)
    text = re.sub(r'"[ ^]*\^[ ^]*(\\n)?"(, )?', "", text)
    text = re.sub(r"\d+(\.\d+)?( (µs|ms|s|B|kB|MB|GB)\b)?", "#", text)
    return re.sub(r"[ -]+", " ", text)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--check", action="store_true", help="write nothing")
    chosen = parser.parse_args()
    notebook = json.loads(NOTEBOOK.read_text(encoding="utf-8"))
    fresh = run(notebook)
    pairs = zip(notebook["cells"], fresh["cells"], strict=True)
    old = [new for cell, new in pairs if comparable(cell) != comparable(new)]
    if not chosen.check:
        NOTEBOOK.write_text(
            json.dumps(fresh, indent=1, ensure_ascii=False) + "\n", encoding="utf-8"
        )
        return 0
    for cell in old:
        print(f"cell {cell['execution_count']} is out of date:\n{''.join(cell['source'])}")
    return 1 if old else 0


if __name__ == "__main__":
    sys.exit(main())
