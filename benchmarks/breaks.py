"""Where real programs are cut into pieces: graphs, graph breaks and compilations, beside eager.

Each program is called at three shapes (A, B, a batch of one) under `torch.compile(backend="eager")`
and under pliant, each with a model of its own that has the same weights, and starting afresh. Eager
PyTorch is the referee.
"""

from __future__ import annotations

import contextlib
import importlib.util
import io
import logging
import sys
import warnings
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
import torch._dynamo
from torch._dynamo.utils import (
    clear_compilation_metrics,
    get_compilation_metrics,
    set_compilation_metrics_limit,
)
from torch._dynamo.utils import counters as stock_counters
from torch.utils._python_dispatch import TorchDispatchMode

import pliant
from benchmarks.library_programs import PROGRAMS, Program
from benchmarks.model_zoo import INSTALL, SHAPES, tensors
from benchmarks.timing import machine, table

Compile = Callable[[Callable[..., Any]], Any]


FOOTER = """
Graphs, breaks and the share of all ATen operations that run inside graphs: at the first call.
Compilations: of functions and of the pieces left by breaks, at all three shapes. Equal: the outputs
of all three calls. The breaks of torch.compile: as it counts them, or the graphs that end at one if
those are more, because it does not count them all; and the functions that it leaves to eager as a
whole because of a break inside them (in a loop, say), which it does not count either."""


class Counting(TorchDispatchMode):
    """Counts ATen operations."""

    supports_higher_order_operators = True

    def __init__(self) -> None:
        super().__init__()
        self.count = 0

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Any = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        self.count += 1
        return func(*args, **(kwargs or {}))


inside = Counting()  # graphs


def counted(graph: torch.fx.GraphModule) -> Callable[..., Any]:
    def call(*args: Any) -> Any:
        with inside:
            return graph.forward(*args)

    return call


@dataclass(frozen=True, slots=True)
class System:
    """A compiler, how to make it forget, and its counts: graphs, breaks, compilations."""

    compile: Compile
    reset: Callable[[], None]
    counts: Callable[[], tuple[int, int, int]]


# Graphs of torch.compile that end at a break, for it does not count all of those itself.
broken: list[torch.fx.GraphModule] = []


def stock_backend(graph: torch.fx.GraphModule, examples: list[Any]) -> Callable[..., Any]:
    reason: Any = graph.compile_subgraph_reason
    if reason.graph_break:
        broken.append(graph)
    return counted(graph)


def pliant_backend(graph: torch.fx.GraphModule, examples: list[Any]) -> Callable[..., Any]:
    return counted(graph)


def stock_reset() -> None:
    broken.clear()
    torch._dynamo.reset()
    stock_counters.clear()
    clear_compilation_metrics()


def stock_counts() -> tuple[int, int, int]:
    graphs = stock_counters["stats"]["unique_graphs"]
    records = get_compilation_metrics()
    given_up = sum(record.fail_type == "Unsupported" for record in records)
    compilations = sum(record.fail_type is None for record in records)
    breaks = max(sum(stock_counters["graph_break"].values()), len(broken)) + given_up
    return graphs, breaks, compilations


def pliant_counts() -> tuple[int, int, int]:
    counts = pliant.counters
    return counts["graphs"], counts["graph_breaks"], counts["compilations"]


SYSTEMS = (
    System(partial(torch.compile, backend=stock_backend), stock_reset, stock_counts),
    System(partial(pliant.compile, backend=pliant_backend), pliant.reset, pliant_counts),
)


def outputs(
    program: Program,
    compile: Compile,
    after: Callable[[], None],
    around: AbstractContextManager[Any] | None = None,
) -> list[Any]:
    """What the program gives at each shape; what is done `after` each call and `around` it."""
    torch.manual_seed(0)
    function = program.make(compile)
    results = []
    for number, (batch, length) in enumerate(SHAPES):
        torch.manual_seed(number)
        inputs = program.inputs(batch, length)
        with around or contextlib.nullcontext():
            results.append(function(**inputs) if isinstance(inputs, dict) else function(*inputs))
        after()
    return results


def same(got: Any, expected: Any) -> bool:
    mine, theirs = tensors(got), tensors(expected)
    return len(mine) == len(theirs) and all(
        tensor.shape == wanted.shape
        and tensor.dtype == wanted.dtype
        and torch.allclose(tensor, wanted, rtol=1e-4, atol=1e-5, equal_nan=True)
        for tensor, wanted in zip(mine, theirs, strict=True)
    )


def short(error: BaseException) -> str:
    """The class of an error and its first line, as one cell of a table."""
    message = next(iter(str(error).strip().splitlines()), "")
    return f"{type(error).__name__}: {message}".replace("|", "/")[:70]


def measure(program: Program, system: System, expected: list[Any], total: int) -> list[str]:
    """Graphs and breaks of the first call, the share of the operations in graphs, compilations of
    all calls, and whether equal to eager."""
    seen: list[tuple[int, ...]] = []
    system.reset()
    inside.count = 0
    try:
        note = lambda: seen.append((*system.counts(), inside.count))  # noqa: E731
        results = outputs(program, system.compile, note)
        equal = sum(same(got, wanted) for got, wanted in zip(results, expected, strict=True))
        verdict = "yes" if equal == len(expected) else f"{equal} of {len(expected)} calls"
    except Exception as error:
        verdict = short(error)
    finally:
        system_counts = system.counts()
        system.reset()
    graphs, breaks, _, ran = seen[0] if seen else (*system_counts, 0)
    share = f"{min(100, round(100 * ran / max(total, 1)))}%"
    return [str(graphs), str(breaks), share, str(system_counts[2]), verdict]


def row(program: Program) -> list[str]:
    quiet = io.StringIO()  # some libraries print
    with torch.set_grad_enabled(program.grad), contextlib.redirect_stdout(quiet):
        try:
            total: list[int] = []
            eager = Counting()
            note = lambda: total.append(eager.count)  # noqa: E731
            expected = outputs(program, lambda function: function, note, eager)
        except ImportError as error:  # of something that the package itself needs
            return [program.name, f"not installed: {error.name}", *[""] * 9]
        except Exception as error:
            return [program.name, f"eager: {short(error)}", *[""] * 9]
        cells = [
            cell for system in SYSTEMS for cell in measure(program, system, expected, total[0])
        ]
    return [program.name, *cells]


def main(quick: bool = False, only: str = "") -> None:
    warnings.simplefilter("ignore")
    logging.getLogger("torch._dynamo").setLevel(logging.CRITICAL)
    set_compilation_metrics_limit(10_000)
    rows = []
    missing = set()
    for program in PROGRAMS:
        if only not in program.name:
            continue
        if importlib.util.find_spec(program.package) is None:
            missing.add(program.package)
            rows.append([program.name, "not installed", *[""] * 9])
            continue
        rows.append(row(program))
        print("  ".join(rows[-1]), file=sys.stderr, flush=True)
    head = ["program", *("graphs", "breaks", "in graphs", "compilations", "equal to eager") * 2]
    head[1], head[6] = f"torch.compile: {head[1]}", f"pliant: {head[6]}"
    table(f'Three shapes each, backend="eager" ({machine()})', head, rows)
    print(FOOTER)
    if missing:
        print(f"\nNot installed: {', '.join(sorted(missing))}. Those of `make test-models`:")
        print(f"    {INSTALL}")
