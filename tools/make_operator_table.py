"""Runs PyTorch's database of operators through pliant and writes docs/operators.md.

    python tools/make_operator_table.py [--samples N] [--processes N] [--rows FILE]

Every operator, with its first N samples for each dtype, with fixed and with symbolic sizes, against
eager PyTorch (tests/operators/database.py). An operator that ends the process is broken, and the
others go on. Ends with status 1 if any operator is broken.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from collections import Counter, defaultdict
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import torch

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from tests.operators import database  # noqa: E402

PAGE = ROOT / "docs" / "operators.md"
WORST_FIRST = ("broken", "broke", "not recorded", "called", "lowered")
SLOW = 1.0  # seconds of processor time

Row = dict[str, object]
"""What became of one sample: op, how, why, dtype, dynamic, seconds."""


# --------------------------------------------------------------------------------------------------
# One process: some of the operators


def work(part: str, samples: int, after: str) -> None:
    """Print a line of JSON for each sample, and one before each operator."""
    start, step = map(int, part.split(":"))
    operators = database.operators()[start::step]
    names = [database.name_of(op) for op in operators]
    for name, op in list(zip(names, operators))[names.index(after) + 1 if after else 0 :]:
        print(json.dumps({"op": name, "how": "begins"}), flush=True)
        for row in attempts(op, samples):
            print(json.dumps(row), flush=True)


def attempts(op: Any, samples: int) -> Iterator[Row]:
    """What became of each sample of an operator."""
    for dtype in database.DTYPES:
        for dynamic in (None, True):
            compiled = database.Compiled()
            for sample in database.samples(op, dtype, samples):
                done = database.attempt(op, dtype, sample, dynamic, compiled)
                row = {"op": database.name_of(op), "how": done.how, "why": done.why}
                row |= {"seconds": done.seconds, "dtype": str(dtype), "dynamic": bool(dynamic)}
                yield row | {"source": sample.source}


def rows_of(part: str, samples: int) -> list[Row]:
    """What a process says about its part; another one goes on where it ended."""
    rows: list[Row] = []
    after = ""
    while True:
        command = [sys.executable, __file__, "--part", part, "--samples", str(samples)]
        environment = os.environ | {"OMP_NUM_THREADS": "1"}
        done = subprocess.run(
            [*command, "--after", after], stdout=subprocess.PIPE, env=environment, text=True
        )
        rows += [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
        if done.returncode == 0:
            return rows
        if not rows or rows[-1]["op"] == after:
            raise RuntimeError(f"nothing came from the process: status {done.returncode}")
        after = str(rows[-1]["op"])
        rows.append({"op": after, "how": "broken", "why": f"ended with {done.returncode}"})


# --------------------------------------------------------------------------------------------------
# The page


def release() -> str:
    """Of PyTorch, without what patches change: the database is another one in each."""
    return ".".join(torch.__version__.split(".")[:2])


def page(rows: list[Row], samples: int) -> str:
    by_op: dict[str, list[Row]] = defaultdict(list)
    for row in rows:
        if row["how"] not in ("begins", "skipped"):
            by_op[str(row["op"])].append(row)
    counts = Counter(map(verdict, by_op.values()))
    hows = Counter(str(row["how"]) for of_one in by_op.values() for row in of_one)
    total = sum(hows.values())
    lines = [INTRODUCTION.format(samples=samples, release=release())]
    lines += ["| | operators | means |", "|---|---:|---|"]
    lines += [f"| {name} | {counts[name]} | {means} |" for name, means in MEANINGS.items()]
    lines += [
        "",
        f"Of {total} samples: "
        + ", ".join(f"{hows[how]} {WORDS[how]}" for how in reversed(WORST_FIRST))
        + ".",
        "",
    ]
    lines += ["| operator | | lowered | PyTorch | not recorded | broken | what is not lowered |"]
    lines += ["|---|---|---:|---:|---:|---:|---|"]
    names = sorted(by_op, key=str.lower)
    lines += [line(name, by_op[name]) for name in names]
    return "\n".join(lines) + "\n"


def line(name: str, rows: list[Row]) -> str:
    """The line of one operator, of what became of its samples."""
    seen = Counter(str(row["how"]) for row in rows)
    unrecorded = seen["not recorded"] + seen["broke"]
    numbers = f"{seen['lowered']} | {seen['called']} | {unrecorded} | {seen['broken']}"
    return f"| `{name}` | {verdict(rows)} | {numbers} | {reasons(rows)} |"


def verdict(rows: list[Row]) -> str:
    hows = {str(row["how"]) for row in rows}
    if "broken" in hows:
        return "broken"
    if hows == {"lowered"}:
        return "lowered"
    if "lowered" in hows:
        return "partly"
    return "PyTorch" if "called" in hows else "not recorded"


def reasons(rows: list[Row]) -> str:
    """The most frequent ones, one line each operator or cause."""
    seen: Counter[str] = Counter()
    for row in rows:
        if row["how"] != "lowered":
            seen.update(_short(part) for part in str(row["why"]).split("; "))
    return "; ".join(text for text, _ in seen.most_common(3)).replace("|", "\\|")


def _short(text: str) -> str:
    text = text.removeprefix("aten.").replace(": no rule", "").replace("\n", " ")
    return text if len(text) <= 70 else text[:67] + "..."


WORDS = {
    "lowered": "lowered",
    "called": "run by PyTorch in part or whole",
    "not recorded": "not recorded",
    "broke": "not in one graph",
    "broken": "broken",
}
MEANINGS = {
    "lowered": "every sample became kernels, and nothing else",
    "partly": "some samples did; for others PyTorch runs an operator",
    "PyTorch": "PyTorch runs it, launched by the compiled program",
    "not recorded": "the graph runs as it was captured, operator by operator, or in parts",
    "broken": "a sample gave another result than eager PyTorch, or an error",
}
INTRODUCTION = """# What is compiled, operator by operator

PyTorch has a database of its operators with sample inputs, for its own tests. This table is made by
`python tools/make_operator_table.py` from a run of all that PyTorch {release} has, on CPU: for each
operator the first {samples} samples in float32, float64, bfloat16, int64 and bool, each with fixed
and with symbolic sizes (`dynamic=True`). Every sample is compiled with default options and compared
with eager PyTorch: values (within PyTorch's own tolerances), shapes, strides, dtypes, and which
tensors share memory. The tests compare all samples, and those of in-place methods and in other
memory layouts as well (`make test-long`).

An operator that is not lowered is still part of the compiled program, with what stands around it
fused; the right-hand column says what is left to PyTorch, and why if it isn't that there is no rule
for it.
"""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--samples", type=int, default=4)
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--rows", help="write what became of each sample to this file")
    parser.add_argument("--part", help=argparse.SUPPRESS)
    parser.add_argument("--after", default="", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.part is not None:
        work(options.part, options.samples, options.after)
        return 0
    parts = [f"{index}:{options.processes}" for index in range(options.processes)]
    with ThreadPoolExecutor(options.processes) as pool:
        rows_by_part = list(pool.map(lambda part: rows_of(part, options.samples), parts))
    rows = [row for part in rows_by_part for row in part]
    if options.rows:
        Path(options.rows).write_text("\n".join(map(json.dumps, rows)) + "\n")
    PAGE.write_text(page(rows, options.samples))
    bad = [row for row in rows if row["how"] == "broken"]
    slow = {row["op"] for row in rows if float(str(row.get("seconds", 0))) > SLOW}
    for row in bad:
        print(f"broken: {row['op']}: {row['why']}\n{row.get('source', '')}", file=sys.stderr)
    print(f"{len(rows)} rows, {len(bad)} broken; slow to compile: {sorted(map(str, slow))}")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
