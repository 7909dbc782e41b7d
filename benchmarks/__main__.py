"""Measurements: what a call adds, what a capture costs, what breaks, what changing sizes do, how
fast generated code is and how long it takes to make."""

from __future__ import annotations

import argparse

import pliant
from benchmarks import (
    algebra,
    breaks,
    capture,
    cliffs,
    cold,
    gpu,
    kernels,
    models,
    overhead,
    shapes,
    train,
)

BENCHMARKS = {
    "overhead": overhead.main,
    "capture": capture.main,
    "algebra": algebra.main,
    "shapes": shapes.main,
    "breaks": breaks.main,
    "kernels": kernels.main,
    "models": models.main,
    "train": train.main,
    "cold": cold.main,
    "cliffs": cliffs.main,
    "gpu": gpu.main,
}
MODELS = {"overhead": overhead.models, "capture": capture.models}
ONLY = {
    "breaks": breaks.main,
    "kernels": kernels.main,
    "models": models.main,
    "train": train.main,
}


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("name", choices=[*BENCHMARKS, "all"])
    parser.add_argument("--quick", action="store_true", help="fewer repetitions")
    parser.add_argument(
        "--models", action="store_true", help="overhead, capture: of transformers models instead"
    )
    parser.add_argument(
        "--only",
        metavar="TEXT",
        help="breaks, kernels, models, train: those whose name has this in it",
    )
    arguments = parser.parse_args()
    if arguments.models and arguments.name not in MODELS:
        parser.error(f"--models is for {' and '.join(MODELS)}")
    if arguments.only is not None and arguments.name not in ONLY:
        parser.error(f"--only is for {', '.join(ONLY)}")
    pliant.config.raise_on_fallback = True  # eager execution must not pass for ours
    if arguments.only is not None:
        ONLY[arguments.name](arguments.quick, arguments.only)
        return
    known = MODELS if arguments.models else BENCHMARKS
    names = list(known) if arguments.name == "all" else [arguments.name]
    for name in names:
        known[name](quick=arguments.quick)


main()
