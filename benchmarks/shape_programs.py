"""The programs of `benchmarks shapes`: functions called with one size after another.

Each is a row of `PROGRAMS`: a function, its inputs in order, and what both systems are told about
it. The inputs are made anew for each system, from the same seed, because marks stay on a tensor.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
import torch.nn.functional as F

from benchmarks.programs import Transformer

randn, tensor = torch.randn, torch.tensor
WEIGHT, BIAS = randn(16, 16), randn(16)
TRANSFORMER = Transformer().eval()
Inputs = Callable[[], Iterable[Any]]


@dataclass(frozen=True, slots=True)
class Program:
    """A function and the calls made of it.

    `mark(system, *args)` marks the inputs of a call; `system` is the module whose mark_dynamic and
    mark_unbacked to use. `sources` are inputs named as dynamic_sources or unbacked_sources.
    `options` are pliant's own. `refused`: the right answer to every call is an error.
    """

    name: str
    function: Callable[..., Any]
    shown: str
    inputs: Inputs
    dynamic: bool | None = None
    fullgraph: bool = False
    mark: Callable[..., None] | None = None
    sources: Mapping[str, str] = field(default_factory=dict)
    options: Mapping[str, Any] = field(default_factory=dict)
    refused: bool = False


def sized(*sizes: int) -> Inputs:
    return lambda: map(randn, sizes)


def rows(width: int, *sizes: int) -> Inputs:
    return lambda: [randn(size, width) for size in sizes]


def pairs(*sizes: tuple[int, int]) -> Inputs:
    return lambda: [(randn(a), randn(b)) for a, b in sizes]


def data(*values: list[int]) -> Inputs:
    return lambda: map(tensor, values)


def mark_first(system: Any, x: torch.Tensor, *others: Any) -> None:
    system.mark_dynamic(x, 0)


def mark_unbacked(system: Any, x: torch.Tensor) -> None:
    system.mark_unbacked(x, 0)


# ---- the first size change


def times_size(x):
    return x * x.size(0)


def branches(x):
    if x.size(0) == 10:
        return x + 1
    if x.size(0) <= 30:
        return x * 2
    return x - 1


def add(x, y):
    return x + y


BATCHED: dict[str, Callable[..., Any]] = {
    "pointwise": lambda x: torch.relu(x * 2 + 1).sin(),
    "bias": lambda x: x + BIAS,
    "layer norm": lambda x: F.layer_norm(x, (16,)),
    "softmax": lambda x: F.softmax(x, -1),
    "sum": lambda x: (x.sum(), x.sum(0), x.sum(1)),
    "matmul": lambda x: x @ WEIGHT,
}


def likes() -> Iterable[Any]:
    """A hundred features, of each of which a user has none, one, two or many."""
    draw = random.Random(0)
    for _ in range(200):
        sizes = [draw.choice([0, 1, 2, draw.randint(3, 50)]) for _ in range(100)]
        yield ([randn(size, 4) for size in sizes],)


def pooled(tensors):
    together = torch.cat(tensors)
    return torch.stack([together.sum(0), together.mean(0), together.amax(0)])


def word_ids() -> Iterable[Any]:
    return [torch.randint(0, 100, size) for size in ((2, 16), (3, 12), (5, 20), (1, 8))]


def batched() -> list[Program]:
    sizes = (5, 8, 1, 0, 2, 64)
    return [
        *(
            Program(f"{name}, {words}", function, "5 8 1 0 2 64", rows(16, *sizes), dynamic=dynamic)
            for dynamic, words in ((None, "default"), (True, "dynamic=True"))
            for name, function in BATCHED.items()
        ),
        *(
            Program(f"{name}, marked", function, "5 8 1 0", rows(16, *sizes[:4]), mark=mark_first)
            for name, function in BATCHED.items()
        ),
    ]


SIZES = [
    Program("x * size, dynamic=False", times_size, "10 20 30 40", sized(10, 20, 30, 40), False),
    Program("x * size, dynamic=True", times_size, "10 20 30 40", sized(10, 20, 30, 40), True),
    Program("x * size, default", times_size, "10 20 30 40", sized(10, 20, 30, 40)),
    Program("three branches", branches, "10 20 30 40 50", sized(10, 20, 30, 40, 50), True),
    *batched(),
    Program("x + y, then broadcast", add, "(5,5) (7,7) (7,1)", pairs((5, 5), (7, 7), (7, 1))),
    Program("x + y, only x marked", add, "5 8", pairs((5, 5), (8, 8)), mark=mark_first),
    Program("100 features pooled", pooled, "200 draws", likes),
    Program("12-layer transformer", lambda ids: TRANSFORMER(ids), "4 sizes", word_ids, True),
    Program(
        "int argument",
        lambda x, n: x * n + n // 2,
        "3 4 5 6",
        lambda: [(randn(3), n) for n in (3, 4, 5, 6)],
    ),
    Program(
        "float argument",
        lambda x, f: x * (f * 2 + 1),
        "0.5 0.7 0.9",
        lambda: [(randn(3), f) for f in (0.5, 0.7, 0.9)],
    ),
]


# ---- sizes that are in the data


def checked_zeros(x):
    n = x.sum().item()
    torch._check(n >= 0)
    torch._check(n < 100)
    return torch.zeros(n)


def samples() -> Iterable[Any]:
    return [*(randn(6, 4) for _ in range(3)), torch.zeros(6, 4), torch.ones(6, 4)]


def masks(*hits: int) -> Inputs:
    return lambda: [torch.arange(6) < count for count in hits]


def masks_and(size: int, *hits: int) -> Inputs:
    return lambda: [(torch.arange(6) < count, randn(size)) for count in hits]


def with_rows(tensors: Inputs, *size: int) -> Inputs:
    return lambda: [(randn(size), values) for values in tensors()]


# A graph that calls torch.squeeze again at run time gives eager's shape even where the shape that
# was computed while capturing is another one. Using that shape brings it to light.


def just_squeezed(x):
    return torch.squeeze(x)


def squeezed_then_sized(x):
    y = torch.squeeze(x)
    return y.reshape(y.size(0), -1)


def found_then_sized(m):
    y = torch.nonzero(m).squeeze(0)
    return y.reshape(y.size(0), -1), y.dim()


REPEATS = with_rows(data([1, 2, 3], [0, 0, 1], [0, 0, 0], [9, 9, 9]), 3, 2)
PARTS = with_rows(data([1, 2, 3], [0, 0, 6], [2, 2, 2]), 6)
NUMBERS = data([1, 2], [3, 4], [0, 0], [50, 49], [50, 50], [0, -1])
FROM_DATA: list[tuple[str, Callable[..., Any], str, Inputs]] = [
    ("checked item(), zeros(n)", checked_zeros, "3 7 0 99 100 -1", NUMBERS),
    ("nonzero", lambda x: torch.nonzero(x > 0), "5 samples", samples),
    ("boolean mask", lambda x: x[x > 0] * 2 + 1, "5 samples", samples),
    ("rows by mask", lambda x: x[x.sum(1) > 0].sum(0), "5 samples", samples),
    ("unique", lambda x: torch.unique((x * 2).int()), "5 samples", samples),
    ("repeat_interleave", lambda x, r: torch.repeat_interleave(x, r, dim=0), "4 counts", REPEATS),
    ("tolist", lambda x: sum(x.tolist()) + x, "3 lists", data([1, 2, 3], [0, 0, 1], [0, 0, 0])),
    ("split by data", lambda x, parts: torch.split(x, parts.tolist()), "3 lists", PARTS),
    ("nonzero, squeeze", lambda m: torch.nonzero(m).squeeze(0), "3 1 0 1 5", masks(3, 1, 0, 1, 5)),
    ("nonzero, squeeze, its size", found_then_sized, "3 1 0 1 5", masks(3, 1, 0, 1, 5)),
    ("nonzero + y of 1", lambda m, y: torch.nonzero(m)[:, 0] + y, "3 1 0", masks_and(1, 3, 1, 0)),
    ("nonzero + y of 3", lambda m, y: torch.nonzero(m)[:, 0] + y, "3 1 3", masks_and(3, 3, 1, 3)),
]


def branch_on_data(x):
    n = x.sum().item()
    return x + 1 if n > 3 else x - 1


def unbacked_rows() -> Iterable[Any]:
    return [randn(size, 20, 1) for size in (5, 1, 7)]


def squeezed(name: str, function: Callable[..., Any], policy: str) -> Program:
    return Program(
        f"{name}, {policy}",
        function,
        "5 1 7",
        unbacked_rows,
        mark=mark_unbacked,
        options={"oblivious": policy},
    )


DATA = [
    *(
        Program(name, function, shown, inputs, fullgraph=True)
        for name, function, shown, inputs in FROM_DATA
    ),
    Program("branch on item()", branch_on_data, "3 lists", data([1, 2], [3, 4], [0, 0])),
    *(
        squeezed(name, function, policy)
        for name, function in (
            ("squeeze, unbacked", just_squeezed),
            ("squeeze, its size", squeezed_then_sized),
        )
        for policy in ("recompile", "error", "torch")
    ),
]


# ---- what users name


def broken(x, y):
    z = x + 1
    torch._dynamo.graph_break()
    return z * y.size(0), z.size(0) * y


def named(name: str, function: Callable[..., Any], kind: str, sources: str, inputs: Inputs) -> Any:
    return Program(name, function, "3 sizes", inputs, dynamic=False, sources={kind: sources})


LONGER = pairs((4, 5), (6, 7), (9, 10))
SOURCES = [
    named("named L['x']", times_size, "dynamic_sources", "L['x']", sized(4, 6, 9)),
    named("named, across a break", broken, "dynamic_sources", r"L\['[xyz]'\]", LONGER),
    named(
        "named int",
        lambda x, n: x * n,
        "dynamic_sources",
        "L['n']",
        lambda: [(randn(3), n) for n in (2, 3, 4)],
    ),
    named("named unbacked", lambda x: x * 2, "unbacked_sources", "L['x']", sized(5, 1, 0)),
]


# ---- what sizes become


def checked_equal(a, b):
    torch._check(a.size(0) == b.size(0))
    return torch.cat([a, b]) * torch.ones(2 * b.size(0))


def doubled(x, y):
    return torch.cat([x, x]) * y


def moving() -> Iterable[Any]:
    table = randn(100, 4)
    return [table[start : start + size] for start, size in ((0, 3), (3, 4), (20, 9), (1, 2))]


SHAPED: dict[str, Callable[..., Any]] = {
    "view(-1, 4)": lambda x: x.view(-1, 4) * 1,
    "reshape of transposed": lambda x: x.t().reshape(-1),
    "expand": lambda x: x.unsqueeze(1).expand(-1, 3, -1) + 1,
    "chunk": lambda x: [t + 1 for t in x.chunk(2, 1)],
    "unfold": lambda x: x.unfold(0, 2, 1) * 2,
    "strided slice": lambda x: x[1::2] + 1,
    "half of it": lambda x: x[: x.size(0) // 2] * 2,
    "as_strided": lambda x: torch.as_strided(x, (x.size(0) - 1, 4), (8, 1)) + 1,
}
LAID_OUT: dict[str, Callable[[int], torch.Tensor]] = {
    "transposed input": lambda size: randn(8, size).t(),
    "sliced input": lambda size: randn(16, 8)[2 : 2 + size],
    "input sliced within rows": lambda size: randn(4, 16)[:, 2 : 2 + size],
    "stepped input": lambda size: randn(2 * size, 8)[::2],
}


def doubled_and_summed(x):
    return x * 2 + 1, x.sum(-1)


def laid_out(make: Callable[[int], torch.Tensor]) -> Inputs:
    return lambda: map(make, (4, 6, 8, 10, 12))


SHAPES = [
    Program(
        "_check of equal sizes",
        checked_equal,
        "3 4 5 9",
        pairs(*((size, size) for size in (3, 4, 5, 9))),
    ),
    Program(
        "cat, times y of s, 2s",
        doubled,
        "5 pairs, 1 unfit",
        pairs((3, 6), (4, 8), (9, 18), (3, 5), (4, 1)),
    ),
    *(
        Program(name, function, "4 6 8 10 12", rows(8, 4, 6, 8, 10, 12))
        for name, function in SHAPED.items()
    ),
    *(
        Program(name, doubled_and_summed, "4 6 8 10 12", laid_out(make))
        for name, make in LAID_OUT.items()
    ),
    Program("storage offset that moves", lambda x: x[1:] * 2, "4 slices", moving),
]
PROGRAMS = [*SIZES, *DATA, *SOURCES, *SHAPES]


# ---- what can't be compiled as the user demands


def made_constant(x):
    return x.view(5) + 1


REFUSED = [
    Program(
        "branch on item(), fullgraph",
        branch_on_data,
        "1 list",
        data([1, 2]),
        fullgraph=True,
        refused=True,
    ),
    Program("marked, then view(5)", made_constant, "5", sized(5), mark=mark_first, refused=True),
]
