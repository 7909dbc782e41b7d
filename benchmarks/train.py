"""Training steps: the time of one, the memory it needs, and how long it takes to compile."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Mapping, Sequence
from typing import Any
from unittest import mock

import torch

import pliant
from benchmarks import whole_steps
from benchmarks.cold import fresh, medians
from benchmarks.compared import (
    BACKEND,
    EAGER,
    FAILED,
    OURS,
    STOCK,
    Goal,
    Made,
    best,
    differs,
    geometric_mean,
    report,
    threads,
)
from benchmarks.models import COLUMNS, SYSTEMS, Row, peak
from benchmarks.programs import MLP
from benchmarks.timing import machine, table
from benchmarks.training_programs import PROGRAMS, QUICK, Program, Trained, optimizer_step
from pliant._native import AutogradStep
from pliant.base import events
from pliant.runtime import differentiable

COMPILE: Mapping[str, Callable[[Callable[..., Any]], Callable[..., Any]]] = {
    EAGER: lambda function: function,
    STOCK: lambda function: torch.compile(function, dynamic=False),
    OURS: lambda function: pliant.compile(function, backend=BACKEND, dynamic=False),
}
OPTIMIZER = "AdamW.step, 100 of 16x16"


def gradients_after(trained: Trained, step: Callable[[], None]) -> list[torch.Tensor]:
    torch.manual_seed(0)  # for dropout
    step()
    return [leaf.grad.clone() for leaf in trained.leaves if leaf.grad is not None]


def measure(program: Program, count: int, quick: bool) -> Row:
    torch.manual_seed(0)
    trained = program.make()
    expected = gradients_after(trained, trained.step(trained.function))
    made = Made()
    steps: dict[str, Callable[[], None]] = {}
    peaks: dict[str, int] = {}
    wrong = []
    for name in SYSTEMS:
        try:
            step = trained.step(COMPILE[name](trained.function))
            with events.listening(made):
                gradients = gradients_after(trained, step)
            # torch.compile draws other random numbers.
            if name == OURS and differs(gradients, expected):
                wrong.append(name)
            step()
            trained.clear()
            peaks[name] = peak(step)
            steps[name] = step
        except Exception as error:
            print(f"{program.name}, {name}: {type(error).__name__}: {str(error)[:300]}")
    times = best(steps, *((3, 0.01) if quick else (25, 0.02)))
    return Row(program.name, count, times, peaks, str(made), tuple(wrong))


def measure_optimizer(count: int, quick: bool) -> Row:
    made = Made()
    steps: dict[str, Callable[[], Any]] = {}
    peaks: dict[str, int] = {}
    for name in SYSTEMS:
        try:
            step = optimizer_step(None if name == EAGER else COMPILE[name])
            with events.listening(made):
                step()
                step()
            peaks[name] = peak(step)
            steps[name] = step
        except Exception as error:
            print(f"{OPTIMIZER}, {name}: {type(error).__name__}: {str(error)[:300]}")
    times = best(steps, *((3, 0.01) if quick else (25, 0.02)))
    return Row(OPTIMIZER, count, times, peaks, str(made))


# --------------------------------------------------------------------------------------------------
# What a training call adds


class Recorded:
    """A launcher, and what it was called with last."""

    def __init__(self, launcher: Callable[..., Any]) -> None:
        self.launcher = launcher
        self.args: tuple[Any, ...] = ()

    def __call__(self, *args: Any) -> Any:
        self.args = args
        return self.launcher(*args)

    def again(self) -> Any:
        return self.launcher(*self.args)


def launchers_of(model: torch.nn.Module, x: torch.Tensor) -> list[Recorded]:
    """Those of the forward and the backward, with the arguments of a step."""
    recorded: list[Recorded] = []

    def step(**plan: Any) -> AutogradStep:
        make_backward = plan["make_backward"]

        def recorded_backward(*which: Any) -> Any:
            code, gradients = make_backward(*which)
            recorded.append(Recorded(code))
            return recorded[-1], gradients

        recorded.append(Recorded(plan["forward"]))
        return AutogradStep(**{**plan, "forward": recorded[0], "make_backward": recorded_backward})

    with mock.patch.object(differentiable, "AutogradStep", step):
        output = COMPILE[OURS](model)(x)
        output.backward(torch.ones_like(output))
    return recorded


def added(quick: bool) -> dict[str, float]:
    """Seconds that calls of the 20-layer MLP, and of its node, take beyond their kernels."""
    model, x = MLP(), torch.randn(2, 16)
    forward, backward = launchers_of(model, x)
    compiled = COMPILE[OURS](model)
    output = compiled(x)
    tangent = torch.ones_like(output)
    node = output.grad_fn
    assert node is not None
    # Without the engine, whose work for 40 parameters is the same under all systems.
    with torch.no_grad():
        node(tangent)  # compiles it
        back = {"backward": lambda: node(tangent), "its kernels": backward.again}
        times = best(back, *((20, 0.005) if quick else (50, 0.02)))
        taken = times["backward"] - times["its kernels"]
    ahead = {"forward": lambda: compiled(x), "its kernels": forward.again}
    times = best(ahead, *((20, 0.005) if quick else (50, 0.02)))
    return {"forward": times["forward"] - times["its kernels"], "backward": taken}


# --------------------------------------------------------------------------------------------------
# Reports


def compile_times(rounds: int, names: Sequence[str]) -> dict[str, dict[str, float]]:
    """Seconds of a first step less a later one, by program and system, with empty caches."""
    taken: dict[str, list[dict[str, float]]] = {STOCK: [], OURS: []}
    for _ in range(rounds):
        for system, found in taken.items():
            with tempfile.TemporaryDirectory() as directory:
                found.append(fresh("train", system, directory, names))
    return {system: medians(found) for system, found in taken.items()}


def main(quick: bool = False, only: str | None = None) -> None:
    wanted = [p for p in (QUICK if quick else PROGRAMS) if only is None or only in p.name]
    programs = [program for program in wanted if not program.missing]
    rows: list[Row] = []
    optimizers: list[Row] = []
    whole: list[Row] = []
    networks = [*whole_steps.SMALL, *whole_steps.LARGE]
    networks = [n for n in networks if only is None or only in f"whole step: {n.name}"]
    for count in (2, 1):
        with threads(count):
            some = [measure(program, count, quick) for program in programs]
            rows += some
            if only is None or only in OPTIMIZER:
                optimizers.append(measure_optimizer(count, quick))
                some.append(optimizers[-1])
            whole += [whole_steps.measure(n, count, quick) for n in networks[:: 3 if quick else 1]]
            some += [row for row in whole if row.threads == count]
            words = "1 thread" if count == 1 else f"{count} threads"
            title = f"Microseconds per training step and KB at its peak, {words} ({machine()})"
            table(title, ["step", *COLUMNS], [row.cells() for row in some])
    cold = compile_times(1 if quick else 3, [program.name for program in programs])
    compile_table(cold)
    with threads(1):
        call = added(quick)
    print("\nWhat a training call of a 20-layer MLP adds to its kernels, microseconds:", end=" ")
    print(", ".join([f"{name} {seconds * 1e6:.1f}" for name, seconds in call.items()]))
    others = other_goals(optimizers, cold, sum(call.values()))
    report([*goals(rows), *whole_steps.goals(whole), *others])
    if len(programs) < len(wanted):
        print("\ntransformers isn't installed: its networks are left out.")
    print("\npeak: tensors that a step allocates, gradients included; not the parameters.")
    print("kernels: how many, + calls of PyTorch; ! where a graph runs operator by operator.")


def compile_table(cold: Mapping[str, Mapping[str, float]]) -> None:
    theirs, ours = cold[STOCK], cold[OURS]
    rows = [
        [n, f"{theirs[n] * 1e3:.0f}", f"{ours[n] * 1e3:.0f}", f"{theirs[n] / ours[n]:.1f}x"]
        for n in theirs
        if n in ours
    ]
    title = "Milliseconds to compile forward and backward: a first step less a later one"
    table(f"{title}, empty caches", ["program", STOCK, OURS, "ratio"], rows)


def goals(rows: Sequence[Row]) -> list[Goal]:
    found = []
    for count in (2, 1):
        some = [row for row in rows if row.threads == count]
        theirs, eager = [r.over(STOCK) for r in some], [r.over(EAGER) for r in some]
        words = f"threads: {count}"
        text = f"{STOCK} / pliant, geometric mean, {words}"
        found.append(Goal(text, geometric_mean(theirs), 1.5))
        found.append(Goal(f"{STOCK} / pliant, lowest, {words}", lowest(theirs), 0.95))
        found.append(Goal(f"{EAGER} / pliant, lowest, {words}", lowest(eager), 1.0))
    both = [r for r in rows if OURS in r.peaks and STOCK in r.peaks]
    more = sorted({r.name for r in both if r.peaks[OURS] > r.peaks[STOCK]})
    if more:
        print(f"\nMore memory than torch.compile: {'; '.join(more)}")
    found.append(Goal("steps with a higher peak than torch.compile", len(more), 0, False, 0))
    return found


def lowest(ratios: Sequence[float]) -> float:
    return min([r for r in ratios if r == r], default=FAILED)


def other_goals(
    optimizers: Sequence[Row], cold: Mapping[str, Mapping[str, float]], call: float
) -> list[Goal]:
    found = [
        Goal(f"{row.name}, {system} / pliant, threads: {row.threads}", row.over(system), 1.5)
        for row in optimizers
        for system in (STOCK, EAGER)
    ]
    theirs, ours = cold[STOCK], cold[OURS]
    mean = geometric_mean([theirs[n] / ours[n] for n in theirs if n in ours])
    found.append(Goal("compile time, torch.compile / pliant, geometric mean", mean, 10.0))
    text = "microseconds that a training call of a 20-layer MLP adds to its kernels"
    found.append(Goal(text, call * 1e6, 8.0, at_least=False, digits=1))
    return found
