"""`python -m benchmarks overhead`, `capture`, `algebra` or `shapes`, or everything with `all`."""

from __future__ import annotations

import argparse

import pliant
from benchmarks import algebra, capture, overhead, shapes

BENCHMARKS = {
    "overhead": overhead.main,
    "capture": capture.main,
    "algebra": algebra.main,
    "shapes": shapes.main,
}


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("name", choices=[*BENCHMARKS, "all"])
    parser.add_argument("--quick", action="store_true", help="fewer repetitions")
    arguments = parser.parse_args()
    pliant.config.raise_on_fallback = True  # eager execution must not pass for ours
    chosen = BENCHMARKS if arguments.name == "all" else {arguments.name: BENCHMARKS[arguments.name]}
    for run in chosen.values():
        run(quick=arguments.quick)


main()
