"""PyTorch's own tests of Dynamo, run against pliant.

    python tools/conformance.py PYTORCH [--files test_sets,test_misc] [--report docs/conformance.md]

PYTORCH is a source tree of PyTorch 2.13; nothing of it is kept here but names. The tests are those
of `tools/conforming/tests.txt`: what torch.compile passes, that is about behaviour rather than the
texts and insides of Dynamo, and that a `compile` which does nothing does not pass. Where
torch.compile makes a graph, a test counts as passed only if pliant makes one too.
`tools/conforming/differences.txt` names the tests that are not to be satisfied, with the reason.
"""

from __future__ import annotations

import argparse
import datetime
import json
import os
import subprocess
import sys
import tempfile
from collections import Counter, defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
FOLDER = ROOT / "tools" / "conforming"
MOST_RESTARTS = 40


@dataclass(frozen=True)
class ListedTest:
    """A test of PyTorch's. `graphs`: torch.compile makes one in it."""

    id: str
    graphs: bool

    @property
    def file(self) -> str:
        return self.id.partition("::")[0]


def read_tests(path: Path = FOLDER / "tests.txt") -> list[ListedTest]:
    """The tests, grouped in the file: `[file::Class]`, then a name a line, `-` if without graph."""
    tests, group = [], ""
    for line in path.read_text().splitlines():
        if line.startswith("["):
            group = line.strip("[]")
        elif line and not line.startswith("#"):
            name = line.removeprefix("- ")
            tests.append(ListedTest(f"{group}::{name}", graphs=name == line))
    return tests


def read_differences(path: Path = FOLDER / "differences.txt") -> dict[str, str]:
    """Of each test that is not to be satisfied, the reason: `# reason`, then ids, a line each."""
    differences, reason = {}, ""
    for line in path.read_text().splitlines():
        if line.startswith("## "):
            reason = line.removeprefix("## ")
        elif line and not line.startswith("#"):
            differences[line] = reason
    return differences


def run_file(folder: Path, file: str, ids: Iterable[str]) -> dict[str, dict[str, Any]]:
    """The results of the tests of one file, each in a process that is started again if it dies."""
    left, results = set(ids), dict[str, dict[str, Any]]()
    for _ in range(MOST_RESTARTS):
        started = _run(folder, file, left, results)
        if started is not None:
            results[started] = {"outcome": "crash", "graphs": 0, "text": ""}
        if started is None or not (left := left - results.keys()):
            break
    for test in left - results.keys():
        results[test] = {"outcome": "not run", "graphs": 0, "text": ""}
    return results


def _run(folder: Path, file: str, ids: set[str], results: dict[str, dict[str, Any]]) -> str | None:
    """Run the tests once; the one that was running when the process died."""
    with tempfile.TemporaryDirectory() as name:
        log, wanted = Path(name) / "log", Path(name) / "tests"
        log.touch()
        wanted.write_text(json.dumps(sorted(ids)))
        environment = {k: v for k, v in os.environ.items() if not k.startswith("TORCH")}
        environment |= {
            "CONFORMANCE_LOG": str(log),
            "CONFORMANCE_TESTS": str(wanted),
            "PYTHONPATH": os.pathsep.join([str(ROOT), str(folder)]),
        }
        plugins = ["tools.conforming.plugin", *(f"no:{p}" for p in ("cacheprovider", "xdist"))]
        options = [part for plugin in plugins for part in ("-p", plugin)]
        command = [sys.executable, "-m", "pytest", "-q", "--tb=line", "-c", os.devnull, *options]
        command += ["--rootdir", str(folder), "-W", "ignore", file]
        subprocess.run(command, cwd=folder, env=environment, capture_output=True, check=False)
        running: str | None = None
        for line in log.read_text().splitlines():
            event = json.loads(line)
            running = event.pop("test")
            if "outcome" in event:
                results[str(running)], running = event, None
        return running


def passed(test: ListedTest, result: dict[str, Any]) -> bool:
    return result["outcome"] == "passed" and bool(result["graphs"] or not test.graphs)


# ---- the report


def report(
    tests: list[ListedTest], results: dict[str, dict[str, Any]], differences: dict[str, str]
) -> str:
    """`docs/conformance.md`."""
    rows: dict[str, Counter[str]] = defaultdict(Counter)
    for test in tests:
        if test.id in results:
            word = "passed" if passed(test, results[test.id]) else _failure(test, differences)
            rows[test.file].update([word, "all"])
    total = sum(rows.values(), Counter())
    meant = Counter(differences[test.id] for test in tests if test.id in differences)
    lines = [
        "# Conformance",
        "",
        "PyTorch's own tests of Dynamo, run against pliant by `make conformance PYTORCH=…`",
        "(`tools/conformance.py` says which, and what counts as passed). "
        f"As of {datetime.datetime.now(datetime.UTC).date()}, of {total['all']} tests",
        f"**{total['passed']} pass** ({100 * total['passed'] / max(total['all'], 1):.1f}%), and "
        f"{total['meant']} differ on purpose.",
        "",
        "## Differences that are meant",
        "",
        "Each test is named in `tools/conforming/differences.txt`, below its reason.",
        "",
        "| reason | tests |",
        "|---|---|",
        *(f"| {reason} | {count} |" for reason, count in meant.most_common()),
        "",
        "## By file",
        "",
        "| file | tests | passed | meant | open |",
        "|---|---|---|---|---|",
        *(
            f"| `{file}` | {row['all']} | {row['passed']} | {row['meant']} | {row['open']} |"
            for file, row in sorted(rows.items())
        ),
        "",
    ]
    return "\n".join(lines)


def _failure(test: ListedTest, differences: dict[str, str]) -> str:
    return "meant" if test.id in differences else "open"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("pytorch", type=Path, help="a source tree of PyTorch 2.13")
    parser.add_argument("--files", default="", help="names of test files, by commas")
    parser.add_argument("--out", type=Path, help="results as JSON")
    parser.add_argument("--report", type=Path, help="the page to write")
    arguments = parser.parse_args()
    chosen = set(filter(None, arguments.files.split(",")))
    tests = [t for t in read_tests() if not chosen or Path(t.file).stem in chosen]
    results: dict[str, dict[str, Any]] = {}
    for file in dict.fromkeys(test.file for test in tests):
        of_file = [test for test in tests if test.file == file]
        results |= run_file(arguments.pytorch / "test", file, [test.id for test in of_file])
        count = sum(passed(test, results[test.id]) for test in of_file)
        print(f"{file}: {count} of {len(of_file)}", flush=True)
    differences = read_differences()
    for test in tests:
        if not passed(test, results[test.id]) and test.id not in differences:
            print(f"open: {test.id}: {results[test.id]['outcome']}")
    print(f"{sum(passed(test, results[test.id]) for test in tests)} of {len(tests)} pass")
    if arguments.out is not None:
        arguments.out.write_text(json.dumps(results, indent=1))
    if arguments.report is not None:
        arguments.report.write_text(report(tests, results, differences))


if __name__ == "__main__":
    main()
