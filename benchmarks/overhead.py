"""What a call costs on top of the operations themselves, once everything is compiled."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

import pliant
from benchmarks.model_zoo import LAYERED, build, tokens
from benchmarks.programs import MLP, Transformer, add_one
from benchmarks.timing import interleaved, machine, table


def programs() -> list[tuple[str, Callable[..., Any], tuple[Any, ...], int]]:
    return [
        ("x + 1, 4 elements", add_one, (torch.randn(4),), 2000),
        ("20-layer MLP, eval", MLP().eval(), (torch.randn(2, 16),), 100),
        ("12-layer transformer, eval", Transformer().eval(), (torch.randint(0, 100, (1, 8)),), 10),
    ]


def bare(function: Callable[..., Any], args: tuple[Any, ...]) -> Callable[[], Any]:
    """The captured operations alone, called directly: what no compiler can go below."""
    taken: list[Any] = []

    def keep(graph: torch.fx.GraphModule, examples: list[Any]) -> Callable[..., Any]:
        def call(*inputs: Any) -> Any:
            taken[:] = [graph.forward, inputs]
            return graph.forward(*inputs)

        return call

    pliant.compile(function, backend=keep)(*args)
    forward, inputs = taken
    return lambda: forward(*inputs)


def main(quick: bool = False) -> None:
    rows = []
    rounds = 15 if quick else 60
    for name, function, args, repeat in programs():
        with torch.no_grad():
            torch._dynamo.reset()
            stock = torch.compile(function, backend="eager")
            ours = pliant.compile(function, backend="eager")
            graph = bare(function, args)
            calls = [
                lambda function=function, args=args: function(*args),
                graph,
                lambda stock=stock, args=args: stock(*args),
                lambda ours=ours, args=args: ours(*args),
            ]
            eager, floor, theirs, mine = interleaved(calls, rounds, repeat)
        base = eager if function is add_one else floor
        added = [theirs - base, mine - base]
        ratio = f"{added[0] / added[1]:.0f}x" if added[1] > 0 else "-"
        rows.append(
            [name, *(f"{s * 1e6:.2f}" for s in (eager, floor, theirs, mine, *added)), ratio]
        )
    head = ["program", "eager", "its operations", "torch.compile", "pliant",
            "added by torch.compile", "added by pliant", "ratio"]  # fmt: skip
    table(f'Microseconds per call, backend="eager" ({machine()})', head, rows)
    print("\nAdded: above eager for x + 1; above the captured operations alone for modules, whose")
    print("eager time also contains Python's way through the modules.")


def remembered(graph: torch.fx.GraphModule, examples: list[Any]) -> Callable[..., Any]:
    """A backend whose code computes once and gives the same result ever after."""
    results: list[Any] = []

    def call(*inputs: Any) -> Any:
        if not results:
            results.append(graph.forward(*inputs))
        return results[0]

    return call


def added(function: Callable[..., Any], args: tuple[Any, ...], rounds: int) -> list[float]:
    """Seconds per call: eager, its operations alone, torch.compile, pliant, and the last two once
    more without the operations."""
    torch._dynamo.reset()
    pliant.reset()
    stock = torch.compile(function, backend="eager")
    ours = pliant.compile(function, backend="eager")
    graph = bare(function, args)
    calls = [
        lambda: function(*args),
        graph,
        lambda: stock(*args),
        lambda: ours(*args),
    ]
    whole = interleaved(calls, rounds, 5)
    torch._dynamo.reset()
    pliant.reset()
    stock_alone = torch.compile(function, backend=remembered)
    ours_alone = pliant.compile(function, backend=remembered)
    alone = interleaved([lambda: stock_alone(*args), lambda: ours_alone(*args)], rounds, 100)
    return whole + alone


@torch.no_grad()
def models(quick: bool = False) -> None:
    """Networks of the transformers library at toy width."""
    rows = []
    for name, title in LAYERED.items():
        for layers in (12, 24):
            times = added(build(name, layers), (tokens(2, 8),), 15 if quick else 60)
            eager, floor, theirs, mine, theirs_alone, mine_alone = (s * 1e6 for s in times)
            cells = [eager, floor, theirs - floor, mine - floor, theirs_alone, mine_alone]
            ratio = f"{theirs_alone / mine_alone:.0f}x"
            rows.append([f"{title}, {layers} layers", *(f"{us:.1f}" for us in cells), ratio])
    head = ["model", "eager", "its operations", "above them: torch.compile", "pliant",
            "without them: torch.compile", "pliant", "ratio"]  # fmt: skip
    table(f'Microseconds per call, backend="eager" ({machine()})', head, rows)
    print("\nAbove them: the whole call less the captured operations called directly, a small")
    print(
        "difference of large times. Without them: the code of the graph returns a result computed"
    )
    print("before, so that guards, arguments and the making of the output remain.")
