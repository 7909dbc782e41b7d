"""Where cost must not leap: writes to a small part of a large buffer, optimizer steps, programs of
many operations or tensors, functions of many compilations.

Calls are measured beside eager and torch.compile. Growth is measured at sizes four times apart, as
the time for each operation, tensor or entry: where cost is linear, these columns are the same.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from itertools import pairwise
from typing import Any

import torch

import pliant
from benchmarks.compared import Goal, report
from benchmarks.timing import interleaved, machine, table

Call = Callable[[], Any]


# ---- calls


def cache_row(k: torch.Tensor, v: torch.Tensor) -> None:
    k[0, 0, :4] = v


def cache_block(k: torch.Tensor, v: torch.Tensor, at: int) -> torch.Tensor:
    k[:, :, at : at + 1] = v
    return k[:, :, : at + 1].sum()


def one_element(buffer: torch.Tensor) -> None:
    buffer[7, 3] = 1.0


def rows_added(buffer: torch.Tensor, update: torch.Tensor) -> None:
    buffer[5:9].add_(update)


def index_added(buffer: torch.Tensor, index: torch.Tensor, update: torch.Tensor) -> None:
    buffer.index_add_(0, index, update)


def index_copied(buffer: torch.Tensor, index: torch.Tensor, update: torch.Tensor) -> None:
    buffer.index_copy_(0, index, update)


def index_incremented(buffer: torch.Tensor, index: torch.Tensor) -> None:
    buffer[index] += 1


def halves_filled(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    out = torch.empty(a.shape[0], a.shape[1] + b.shape[1])
    out[:, : a.shape[1]] = a
    out[:, a.shape[1] :] = b
    return out


def writes() -> Iterator[tuple[str, Callable[..., Any], tuple[Any, ...]]]:
    cache = torch.zeros(1, 8, 8192, 64)
    buffer = torch.zeros(65536, 64)
    index = torch.tensor([5, 700, 60000])
    yield "k[0, 0, :4] = v, 16 MB", cache_row, (cache, torch.randn(4, 64))
    yield "k[:, :, i:i+1] = v, sum, 16 MB", cache_block, (cache, torch.randn(1, 8, 1, 64), 5)
    yield "buf[7, 3] = 1., 16 MB", one_element, (buffer,)
    yield "buf[5:9].add_(o), 16 MB", rows_added, (buffer, torch.randn(4, 64))
    yield "index_add_ of 3 rows, 16 MB", index_added, (buffer, index, torch.randn(3, 64))
    yield "index_copy_ of 3 rows, 16 MB", index_copied, (buffer, index, torch.randn(3, 64))
    yield "buf[i] += 1, 3 rows, 16 MB", index_incremented, (buffer, index)
    yield "two halves of a new 2 MB", halves_filled, (torch.randn(512, 512), torch.randn(512, 512))


def optimizer_step(kind: str, sizes: list[int]) -> Callable[[], Any]:
    parameters = [torch.nn.Parameter(torch.randn(size)) for size in sizes]
    for parameter in parameters:
        parameter.grad = torch.randn_like(parameter)
    extra: dict[str, Any] = {"fused": True} if kind == "fused" else {"foreach": kind == "foreach"}
    return torch.optim.AdamW(parameters, lr=1e-3, **extra).step


def optimizers() -> Iterator[tuple[str, Callable[..., Any], tuple[Any, ...]]]:
    for kind in ("foreach", "fused"):
        yield f"AdamW {kind}, 4M in 4", optimizer_step(kind, [1 << 20] * 4), ()
        yield f"AdamW {kind}, 100 of 1,000", optimizer_step(kind, [1000] * 100), ()


def calls(quick: bool) -> list[Goal]:
    rows, worst = [], float("inf")
    for name, function, args in (*writes(), *optimizers()):
        torch._dynamo.reset()
        pliant.reset()
        stock, ours = torch.compile(function), pliant.compile(function)
        compiled = [seconds(lambda call=call, args=args: call(*args)) for call in (stock, ours)]
        times = interleaved(
            [lambda call=call, args=args: call(*args) for call in (function, stock, ours)],
            5 if quick else 30,
            10,
        )
        eager, theirs, mine = times
        worst = min(worst, eager / mine)
        cells = [f"{s * 1e6:.1f}" for s in times]
        ratios = [f"{eager / mine:.2f}", f"{theirs / mine:.2f}"]
        rows.append([name, *cells, *ratios, *[f"{s * 1e3:.0f}" for s in compiled]])
    head = ["call", "eager, µs", "torch.compile", "pliant", "eager / pliant",
            "torch.compile / pliant", "first call, ms: torch.compile", "pliant"]  # fmt: skip
    table(f"Writes and optimizer steps ({machine()})", head, rows)
    return [Goal("eager / pliant, worst call", worst, 0.9)]


def seconds(call: Call) -> float:
    started = time.perf_counter()
    call()
    return time.perf_counter() - started


# ---- growth


def chain(count: int) -> Call:
    """First call of a chain of pointwise operations."""

    def run(x: torch.Tensor) -> torch.Tensor:
        for _ in range(count):
            x = x * 1.0001 + 0.5
        return x

    x = torch.randn(16)
    return lambda: pliant.compile(run)(x)


def views(count: int) -> Call:
    def run(x: torch.Tensor) -> torch.Tensor:
        for _ in range(count):
            x = x.transpose(0, 1)
        return x + 1

    x = torch.randn(3, 4)
    return lambda: pliant.compile(run)(x)


def tensors(count: int) -> Call:
    """First call of a function of many tensors in and out."""

    def run(inputs: list[torch.Tensor]) -> list[torch.Tensor]:
        return [x + 1 for x in inputs]

    inputs = [torch.randn(4) for _ in range(count)]
    return lambda: pliant.compile(run)(inputs)


def concatenated(count: int) -> Call:
    def run(inputs: list[torch.Tensor]) -> torch.Tensor:
        return torch.cat(inputs) * 2

    inputs = [torch.randn(4) for _ in range(count)]
    return lambda: pliant.compile(run)(inputs)


def writes_in_a_loop(count: int) -> Call:
    def run(x: torch.Tensor) -> torch.Tensor:
        out = torch.zeros(count, 4)
        for i in range(count):
            out[i] = x * (count + i)  # factors of its own: the kernels of other counts are cached
        return out

    x = torch.randn(4)
    return lambda: pliant.compile(run)(x)


def optimizer(count: int) -> Call:
    step = optimizer_step("foreach", [100] * count)
    return lambda: pliant.compile(step)()


def constants(count: int) -> tuple[Callable[..., Any], list[str]]:
    """A function compiled anew for each of its strings."""

    def run(x: torch.Tensor, name: str) -> torch.Tensor:
        return x + len(name) if name else x

    limit = count + 1
    with pliant.config.patch(recompile_limit=limit, accumulated_recompile_limit=limit):
        return pliant.compile(run), [f"name {i}" for i in range(count)]


def recompilations(count: int) -> Call:
    run, names = constants(count)
    x = torch.randn(4)

    def call() -> None:
        for name in names:
            run(x, name)

    return call


GROWTH: dict[str, tuple[Callable[[int], Call], tuple[int, ...]]] = {
    "a pair of pointwise operations in a chain": (chain, (625, 2_500, 10_000)),
    "a view in a chain": (views, (1_250, 5_000, 20_000)),
    "a tensor in and out": (tensors, (125, 500, 2_000)),
    "a tensor of a cat": (concatenated, (125, 500, 2_000)),
    "a row written in a loop": (writes_in_a_loop, (125, 500, 2_000)),
    "a parameter of AdamW": (optimizer, (25, 100, 400)),
    "a recompilation": (recompilations, (125, 500, 2_000)),
}


def growth(quick: bool) -> list[Goal]:
    rows, worst = [], 0.0
    for name, (make, counts) in GROWTH.items():
        per_item = []
        for count in counts[:2] if quick else counts:
            pliant.reset()
            per_item.append(seconds(make(count)) / count)
        ratio = max(later / earlier for earlier, later in pairwise(per_item))
        worst = max(worst, ratio)
        cells = [f"{s * 1e3:.3f}" for s in per_item] + [""] * (len(counts) - len(per_item))
        rows.append([name, f"{counts[0]:,} to {counts[-1]:,}", *cells, f"{ratio:.2f}"])
    head = ["milliseconds to compile", "at", "first", "x 4", "x 16", "worst growth"]
    table("First calls, for each item", head, rows)
    return [Goal("growth of the time for an item over 4 times as many", worst, 1.5, at_least=False)]


def entries(quick: bool) -> list[Goal]:
    rows, times = [], {}
    x = torch.randn(4)
    for count in (1, 8, 64):
        pliant.reset()
        run, names = constants(count)

        def call(names: list[str] = names, run: Callable[..., Any] = run) -> None:
            for name in names:
                run(x, name)

        (taken,) = interleaved([call], 10 if quick else 60, 2000 // count)
        times[count] = taken / count
        rows.append([f"{count}", f"{times[count] * 1e6:.2f}"])
    table("Microseconds per call, entries in turn", ["entries", "pliant"], rows)
    return [Goal("64 entries / 1 entry", times[64] / times[1], 2.0, at_least=False)]


def main(quick: bool = False) -> None:
    with torch.no_grad():
        goals = calls(quick)
        goals += growth(quick)
        goals += entries(quick)
    report(goals)
