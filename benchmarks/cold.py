"""How long it takes until there is a first result, from nothing: in fresh processes, with and
without what earlier ones left on disk.

`cold_start` runs in those processes. torch.compile's caches are emptied by giving it a new
directory for them; pliant's alike.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

from benchmarks.cold_start import SUITE, has
from benchmarks.compared import OURS, STOCK, Goal, geometric_mean, report
from benchmarks.timing import machine, table

ROOT = Path(__file__).parents[1]


def fresh(task: str, system: str, directory: str, names: Sequence[str] = ()) -> dict[str, float]:
    """What a new process measured, with its caches in the directory."""
    environment = {
        **os.environ,
        "PLIANT_CACHE_DIR": os.path.join(directory, "pliant"),
        "TORCHINDUCTOR_CACHE_DIR": os.path.join(directory, "inductor"),
        "TRITON_CACHE_DIR": os.path.join(directory, "triton"),
        "PYTHONPATH": os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")]),
    }
    for name in ("PLIANT_CACHE", "PYTHONDONTWRITEBYTECODE"):
        environment.pop(name, None)
    command = [sys.executable, "-m", "benchmarks.cold_start", task, system, *names]
    done = subprocess.run(command, env=environment, cwd=ROOT, capture_output=True, text=True)
    if done.returncode:
        print(f"{task}, {system}: exit status {done.returncode}\n{done.stderr[-1500:]}")
        return {}
    found: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return found


def first_results(rounds: int) -> dict[str, dict[str, float]]:
    """Medians of seconds by step, of each system with empty and with filled caches."""
    with tempfile.TemporaryDirectory() as directory:
        fresh("first", OURS, directory)  # Python's own bytecode, as an installed package has it
    taken: dict[str, list[dict[str, float]]] = {}
    for _ in range(rounds):
        for system in (STOCK, OURS):
            with tempfile.TemporaryDirectory() as directory:
                for filled in (False, True):
                    found = fresh("first", system, directory)
                    title = f"{system}, {'filled' if filled else 'empty'} cache"
                    taken.setdefault(title, []).append(found)
    return {title: medians(found) for title, found in taken.items()}


def medians(found: Sequence[Mapping[str, float]]) -> dict[str, float]:
    found = [one for one in found if one]
    return {k: statistics.median([one[k] for one in found]) for k in (found[0] if found else ())}


def compile_times(rounds: int, names: Sequence[str]) -> dict[str, dict[str, float]]:
    """Seconds by program, of each system, always with empty caches."""
    taken: dict[str, list[dict[str, float]]] = {STOCK: [], OURS: []}
    for _ in range(rounds):
        for system, found in taken.items():
            with tempfile.TemporaryDirectory() as directory:
                found.append(fresh("suite", system, directory, names))
    return {system: medians(found) for system, found in taken.items()}


def main(quick: bool = False) -> None:
    first = first_results(1 if quick else 5)
    steps = list(dict.fromkeys([step for found in first.values() for step in found]))
    rows = [
        [title, *[f"{found[s] * 1e3:.0f}" if s in found else "" for s in steps]]
        for title, found in first.items()
    ]
    title = "Milliseconds from `import torch` to the first result of a small fused function"
    table(f"{title} ({machine()})", ["in a fresh process", *steps], rows)
    names = [name for name, program in SUITE.items() if has(program)]
    compiled = compile_times(1 if quick else 3, names[::4] if quick else names)
    theirs, ours = compiled[STOCK], compiled[OURS]
    both = [name for name in theirs if name in ours]
    rows = [
        [n, f"{theirs[n] * 1e3:.0f}", f"{ours[n] * 1e3:.0f}", f"{theirs[n] / ours[n]:.1f}x"]
        for n in both
    ]
    head = ["program", STOCK, OURS, "ratio"]
    table("Milliseconds of the first call, less that of a later one, empty caches", head, rows)
    missing = [name for name, program in SUITE.items() if not has(program)]
    if missing:
        print(f"\nNot installed, so left out: {', '.join(missing)}. `make test-models` helps.")
    goals = []
    for cache in ("empty", "filled"):
        found = first.get(f"{OURS}, {cache} cache", {}).get("all", float("nan"))
        text = f"seconds to the first result, {cache} cache"
        goals.append(Goal(text, found, 0.15, at_least=False, digits=3))
    mean = geometric_mean([theirs[n] / ours[n] for n in both])
    goals.append(Goal("compile time, torch.compile / pliant, geometric mean", mean, 10.0))
    report(goals)
