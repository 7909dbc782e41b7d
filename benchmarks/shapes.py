"""How often programs are compiled when sizes change, how long that takes, and whether it is right.

Eager PyTorch is the referee. `torch.compile(backend="eager")` and pliant get the same inputs in the
same order and start each program afresh; torch.compile also gets the settings that let it capture
sizes which depend on data.
"""

from __future__ import annotations

import contextlib
import logging
import random
import statistics
import time
import types
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
import torch._dynamo
from torch.utils._pytree import tree_flatten

import pliant
from benchmarks.capture import first_call
from benchmarks.programs import MLP, Transformer
from benchmarks.shape_programs import PROGRAMS, REFUSED, Program
from benchmarks.timing import interleaved, machine, table
from pliant.base import events


@dataclass(slots=True)
class Tally:
    """What a system did so far: compilations begun (of anything), graphs given to the backend,
    and, by `entries()`, compilations of the function itself that it keeps."""

    entries: Callable[[], int]
    begun: int = 0
    graphs: int = 0

    def backend(self, graph: torch.fx.GraphModule, examples: list[Any]) -> Callable[..., Any]:
        self.graphs += 1
        return graph.forward


Session = contextlib.AbstractContextManager[tuple[Callable[..., Any], Tally]]


@contextlib.contextmanager
def torch_compile(program: Program) -> Iterator[tuple[Callable[..., Any], Tally]]:
    torch._dynamo.reset()
    code = program.function.__code__
    tally = Tally(lambda: len(torch._dynamo.eval_frame._debug_get_cache_entry_list(code)))

    def begun(args: Any) -> None:
        tally.begun += 1

    handler = torch._dynamo.callback.callback_handler
    handler.register_start_callback(begun)
    settings = {"capture_scalar_outputs": True, "capture_dynamic_output_shape_ops": True}
    try:
        with (
            torch._dynamo.config.patch(settings if program.fullgraph else {}),
            torch.compiler.config.patch(dict(program.sources)),
        ):
            yield (
                torch.compile(
                    program.function,
                    backend=tally.backend,
                    fullgraph=program.fullgraph,
                    dynamic=program.dynamic,
                ),
                tally,
            )
    finally:
        handler.remove_start_callback(begun)


@contextlib.contextmanager
def pliant_compile(program: Program) -> Iterator[tuple[Callable[..., Any], Tally]]:
    pliant.reset()
    tally = Tally(lambda: len(compiled.entries))

    def begun(event: events.Event) -> None:
        tally.begun += isinstance(event, events.CompileStarted)

    compiled = pliant.compile(
        program.function,
        backend=tally.backend,
        fullgraph=program.fullgraph,
        dynamic=program.dynamic,
        options={**program.options, **program.sources},
    )
    with events.listening(begun):
        yield compiled, tally


@dataclass(frozen=True, slots=True)
class System:
    """A compiler: how to begin with a program, and whose marks it reads."""

    name: str
    session: Callable[[Program], Session]
    marks: Any


TORCH_MARKS = types.SimpleNamespace(
    mark_dynamic=torch._dynamo.mark_dynamic,
    mark_unbacked=torch._dynamo.decorators.mark_unbacked,
)
SYSTEMS = (
    System("torch.compile", torch_compile, TORCH_MARKS),
    System("pliant", pliant_compile, pliant),
)


@dataclass(frozen=True, slots=True)
class Call:
    """What one call gave, and how long it took."""

    seconds: float
    result: Any = None
    error: Exception | None = None


def call(function: Callable[..., Any], args: tuple[Any, ...]) -> Call:
    started = time.perf_counter()
    try:
        result = function(*args)
    except Exception as error:
        return Call(time.perf_counter() - started, error=error.with_traceback(None))
    return Call(time.perf_counter() - started, result)


def inputs_of(program: Program) -> Iterator[tuple[Any, ...]]:
    """The inputs of all calls, the same ones each time."""
    torch.manual_seed(0)
    random.seed(0)
    made = [args if isinstance(args, tuple) else (args,) for args in program.inputs()]
    return iter(made)


def same(found: Call, expected: Call) -> bool:
    """An exception of the same class, or the same result: structure, types, values, sizes,
    strides. A subclass will do: who catches eager's exception catches it as well."""
    if found.error is not None or expected.error is not None:
        return isinstance(found.error, type(expected.error))
    (ours, our_structure), (theirs, their_structure) = map(
        tree_flatten, (found.result, expected.result)
    )
    return our_structure == their_structure and all(map(same_leaf, ours, theirs))


def same_leaf(found: Any, expected: Any) -> bool:
    if type(found) is not type(expected):
        return False
    if not isinstance(found, torch.Tensor):
        return bool(found == expected)
    layouts = [(t.shape, t.dtype, t.stride()) for t in (found, expected)]
    # equal_nan: the mean of nothing is NaN in eager too
    return layouts[0] == layouts[1] and torch.allclose(found, expected, 0, 0, equal_nan=True)


@dataclass(slots=True)
class Outcome:
    """A program under one system. `failed` compilations ended in an exception, and are tried again
    when the call is. `seconds` is the time of the calls in which something was compiled or refused,
    less that of the same calls in eager. `errors` are those that eager does not raise; they are
    among the `wrong`."""

    compiled: int = 0
    failed: int = 0
    graphs: int = 0
    seconds: float = 0.0
    wrong: int = 0
    errors: list[str] = field(default_factory=list)


def outcome(program: Program, system: System, eager: Sequence[Call]) -> Outcome:
    with system.session(program) as (compiled, tally):
        found = Outcome()
        for args, expected in zip(inputs_of(program), eager, strict=True):
            if program.mark is not None:
                program.mark(system.marks, *args)
            begun, entries = tally.begun, tally.entries()
            made = call(compiled, args)
            unexpected = made.error is not None and expected.error is None
            tried = tally.begun != begun
            if tried or unexpected:
                found.seconds += max(made.seconds - expected.seconds, 0.0)
            found.failed += tried and made.error is not None and tally.entries() == entries
            if unexpected:
                found.errors.append(str(made.error))
            found.wrong += not (unexpected if program.refused else same(made, expected))
        found.compiled, found.graphs = tally.entries(), tally.graphs
    return found


def measured(program: Program, rounds: int) -> list[Outcome]:
    """The outcome under each system; the seconds are medians over the rounds."""
    eager = [call(program.function, args) for args in inputs_of(program)]
    eager = [call(program.function, args) for args in inputs_of(program)]  # warm
    taken = [[outcome(program, system, eager) for system in SYSTEMS] for _ in range(rounds)]
    for number, first in enumerate(taken[0]):
        first.seconds = statistics.median(row[number].seconds for row in taken)
    return taken[0]


# ---- the tables


def cells(found: Outcome) -> list[str]:
    several = found.graphs > found.compiled + found.failed
    notes = [f" + {found.failed} failed"] * bool(found.failed)
    notes += [f" ({found.graphs} graphs)"] * several
    errors = f" ({len(found.errors)} raised)" if found.errors else ""
    compilations = f"{found.compiled}{''.join(notes)}"
    return [compilations, f"{found.seconds:.3f}", f"{found.wrong}{errors}"]


def programs(rounds: int) -> None:
    found = {program.name: measured(program, rounds) for program in PROGRAMS}
    rows = [
        [
            program.name,
            program.shown,
            *(cell for each in found[program.name] for cell in cells(each)),
        ]
        for program in PROGRAMS
    ]
    head = ["program", "inputs in order"]
    head += [f"{s.name}: {what}" for s in SYSTEMS for what in ("compilations", "seconds", "wrong")]
    table(f'Sizes that change, backend="eager" ({machine()})', head, rows)
    print()
    for number, system in enumerate(SYSTEMS):
        wrong = [name for name, each in found.items() if each[number].wrong]
        print(f"{system.name} is wrong in {len(wrong)} of {len(rows)} programs:", "; ".join(wrong))
    tried = {name: [each.compiled + each.failed for each in both] for name, both in found.items()}
    fewer = sum(ours < theirs for theirs, ours in tried.values())
    more = [name for name, (theirs, ours) in tried.items() if ours > theirs]
    print(f"pliant compiles {fewer} programs less often than torch.compile, more often:", end=" ")
    print("; ".join(more) or "none")


def refusals() -> None:
    rows = []
    for program in REFUSED:
        row = [program.name]
        for found in measured(program, 1):
            text = found.errors[0].strip() if found.errors else ""
            line = "yes" if "return x" in text else "no"
            row += [str(len(text.splitlines())), line] if text else ["no error", "-"]
        rows.append(row)
    head = ["program"]
    head += [f"{s.name}: {what}" for s in SYSTEMS for what in ("lines", "shows the user's line")]
    table("Errors where a demand can't be met: their length", head, rows)


def capture(rounds: int) -> None:
    """Capturing the transformer with symbolic sizes, beside constant ones."""
    model, ids = Transformer().eval(), torch.randint(0, 100, (2, 16))

    def theirs(dynamic: bool) -> Any:
        torch._dynamo.reset()
        return torch.compile(model, backend="eager", dynamic=dynamic)

    def ours(dynamic: bool) -> Any:
        pliant.reset()
        return pliant.compile(model, dynamic=dynamic)

    makers = [lambda m=m, d=d: m(d) for m in (theirs, ours) for d in (False, True)]
    taken: list[list[float]] = [[] for _ in makers]
    for number in range(rounds + 1):
        for make, times in zip(makers, taken, strict=True):
            seconds = first_call(make, (ids,))
            if number:  # the first round is for imports and caches
                times.append(seconds)
    medians = [statistics.median(times) * 1e3 for times in taken]
    rows = [
        [system.name, f"{static:.1f}", f"{symbolic:.1f}", f"{symbolic / static:.2f}x"]
        for system, static, symbolic in zip(SYSTEMS, medians[::2], medians[1::2], strict=True)
    ]
    head = ["12-layer transformer", "dynamic=False", "dynamic=True", "ratio"]
    table(f'Milliseconds to capture, backend="eager" ({machine()})', head, rows)


def own_code(module: torch.nn.Module) -> torch.nn.Module:
    """The module with a `forward` of its own: torch.compile keeps what it compiled at the code, and
    would look through the entries of the other variant."""
    forward = type(module).forward
    copy = types.FunctionType(forward.__code__.replace(), forward.__globals__, "forward")
    module.__class__ = type("MLP", (type(module),), {"forward": copy})
    return module


def guards(rounds: int) -> None:
    """What it costs to check symbolic sizes instead of constant ones."""
    batch = torch.randn(2, 16)
    answer = (MLP()(batch).detach(),)

    def known(graph: torch.fx.GraphModule, examples: list[Any]) -> Callable[..., Any]:
        return lambda *inputs: answer  # the operations would drown the difference

    torch._dynamo.reset()
    rows = []
    compilers = (torch.compile, pliant.compile)
    for system, compile in zip(SYSTEMS, compilers, strict=True):
        marked, another = batch.clone(), torch.randn(3, 16)
        system.marks.mark_dynamic(marked, 0)
        with torch.no_grad():
            static, symbolic = (compile(own_code(MLP().eval()), backend=known) for _ in range(2))
            symbolic(marked)
            chosen = ((static, batch), (symbolic, batch), (symbolic, another), (symbolic, marked))
            calls = [lambda f=f, x=x: f(x) for f, x in chosen]
            constant, *others = (s * 1e6 for s in interleaved(calls, rounds, 200))
        pairs = [(taken, taken - constant) for taken in others]
        rows.append(
            [
                system.name,
                f"{constant:.2f}",
                *(f"{round(t, 2) + 0.0:.2f}" for pair in pairs for t in pair),
            ]
        )
    head = ["20-layer MLP", "constant batch", "symbolic batch", "added", "at another size", "added",
            "tensor still marked", "added"]  # fmt: skip
    table(f"Microseconds per call, without the operations ({machine()})", head, rows)


def main(quick: bool = False) -> None:
    logging.disable(logging.ERROR)  # torch.compile logs what it can't do
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            for program in PROGRAMS[:3]:  # imports and caches of both
                measured(program, 1)
            programs(1 if quick else 3)
            refusals()
    finally:
        logging.disable(logging.NOTSET)
    capture(2 if quick else 7)
    guards(15 if quick else 100)
