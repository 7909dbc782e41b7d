"""Programs on tensors with symbolic sizes, against eager PyTorch over a grid of sizes.

Each size of each tensor is a symbol of its own, as in a compilation. Whatever a program was told at
one pair of sizes has to hold at every other pair for which its guards do: 0 and 1 included. And
guards must not keep away more than they have to.
"""

from __future__ import annotations

import itertools
import re
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import pytest
import torch
from torch.overrides import TorchFunctionMode

from pliant.fake import World
from pliant.sym.env import ShapeEnv
from pliant.sym.expr import as_expr, evaluate, mul
from pliant.sym.node import from_torch, to_torch
from tests.fake.symbolic_table import GROUPS

GRID = (0, 1, 2, 3, 5)
POINTS = tuple(itertools.product(GRID, GRID))
SYMBOLIC = (torch.SymInt, torch.SymFloat, torch.SymBool)
Point = tuple[int, int]


@dataclass(frozen=True)
class Spec:
    """A tensor as the table writes it."""

    dims: tuple[str, ...]
    kind: str
    high: int
    form: str

    @staticmethod
    def of(text: str) -> Spec:
        found = re.fullmatch(r"([^:/]*)(?::([a-z]+)(\d*))?(?:/(\w+))?", text)
        assert found is not None, text
        dims, kind, high, form = found.groups()
        return Spec(tuple(dims.split()), kind or "f", int(high or 2), form or "")

    def sizes(self, point: Point) -> list[int]:
        a, b = point
        return [eval(dim, {"a": a, "b": b}) for dim in self.dims]

    def order(self) -> list[int]:
        """The dimensions as they lie in memory, the innermost first."""
        rank = len(self.dims)
        inward = list(reversed(range(rank)))
        if self.form == "T":
            inward[:2] = inward[1::-1]
        return [1, *range(rank - 1, 1, -1), 0] if self.form == "cl" else inward

    def real(self, point: Point, grad: bool = False) -> torch.Tensor:
        outward = self.order()[::-1]
        shape = [self.sizes(point)[d] for d in outward]
        if self.form == "s":
            shape[-1] += 2
        t = KINDS[self.kind](shape, self.high)
        if self.form == "s":
            t = t[..., 1:-1]
        t = t.permute([outward.index(d) for d in range(len(shape))])
        return t.detach().requires_grad_(grad and t.is_floating_point() and self.kind != "n")


KINDS: dict[str, Callable[[list[int], int], torch.Tensor]] = {
    "f": lambda shape, _: torch.randn(shape),
    "n": lambda shape, _: torch.randn(shape),  # without a gradient
    "d": lambda shape, _: torch.randn(shape, dtype=torch.float64),
    "h": lambda shape, _: torch.randn(shape, dtype=torch.bfloat16),
    "c": lambda shape, _: torch.randn(shape, dtype=torch.complex64),
    "p": lambda shape, _: torch.rand(shape) * 0.8 + 0.1,
    "b": lambda shape, _: torch.rand(shape) > 0.5,
    "i": lambda shape, high: torch.randint(0, high, shape),
}


class EachCall(TorchFunctionMode):
    """Runs each PyTorch function on its own in the world, as a capture does."""

    READS = ("__get__", "size", "stride", "dim", "numel", "is_floating_point")

    def __init__(self, world: World) -> None:
        super().__init__()
        self.world = world

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if getattr(func, "__name__", "") in self.READS:
            return func(*args, **(kwargs or {}))
        return self.world.run(func, tuple(args), kwargs).value


@dataclass
class Run:
    """A program run on symbolic sizes: its result, and what each symbol is read from."""

    env: ShapeEnv
    result: Any = None
    error: Exception | None = None
    memory: set[int] = field(default_factory=set)
    sources: dict[Any, tuple[int, str, int]] = field(default_factory=dict)


def symbolic_run(program: Any, specs: list[Spec], point: Point, grad: bool, constants: bool) -> Run:
    """`constants`: whether the sizes that do not vary are symbols too."""
    env = ShapeEnv(duck=False)
    world, run = World(env), Run(env)
    fakes = []
    for number, spec in enumerate(specs):
        real = spec.real(point, grad)
        layout = symbolic_layout(run, number, spec, real, constants)
        fakes.append(world.from_real(real, layout))
    run.memory = {t.untyped_storage()._cdata for t in fakes}
    try:
        with EachCall(world):
            run.result = program(*fakes)
    except Exception as error:
        run.error = error
    run.keep = (world, fakes)  # type: ignore[attr-defined]
    return run


def symbolic_layout(run: Run, number: int, spec: Spec, real: torch.Tensor, constants: bool) -> Any:
    def symbol(method: str, dim: int) -> Any:
        hint = getattr(real, method)(dim)
        found = run.env.add_input(f"x{number}.{method}({dim})", hint, size_like=method == "size")
        run.sources[found] = (number, method, dim)
        return found

    varies = [constants or not dim.isdigit() for dim in spec.dims]
    sizes = [symbol("size", d) if varies[d] else as_expr(real.size(d)) for d in range(real.dim())]
    strides, step = [as_expr(0)] * real.dim(), as_expr(1)
    for depth, d in enumerate(spec.order()):
        strides[d] = symbol("stride", d) if spec.form == "s" and depth == 1 else step
        step = mul(strides[d], sizes[d])
    return tuple(tuple(to_torch(n, run.env) for n in numbers) for numbers in (sizes, strides))


def leaves(value: Any) -> Iterator[Any]:
    if isinstance(value, list | tuple):
        for item in value:
            yield from leaves(item)
    else:
        yield value


def look(value: Any, values: dict[Any, int], memory: set[int]) -> Any:
    """What can be seen of a result. Strides of dimensions of size 1 and of empty tensors say
    nothing."""

    def at(number: Any) -> Any:
        return evaluate(from_torch(number), values) if isinstance(number, SYMBOLIC) else number

    if not isinstance(value, torch.Tensor):
        return at(value)
    sizes = tuple(map(at, value.size()))
    seen = (value.dtype, sizes, value.requires_grad)
    if 0 in sizes:
        return seen
    strides = tuple(at(s) if n != 1 else None for n, s in zip(sizes, value.stride()))
    shared = value.untyped_storage()._cdata in memory
    return (*seen, strides, shared, at(value.storage_offset()) if shared else None)


class Eager:
    """The program for real, once for each pair of sizes."""

    def __init__(self, program: Any, specs: list[Spec], grad: bool) -> None:
        self.program, self.specs, self.grad = program, specs, grad
        self.known: dict[Point, Any] = {}

    def at(self, point: Point) -> list[Any] | None:
        """None: it raises."""
        if point not in self.known:
            args = [spec.real(point, self.grad) for spec in self.specs]
            memory = {t.untyped_storage()._cdata for t in args}
            try:
                result = self.program(*args)
                self.known[point] = [look(t, {}, memory) for t in leaves(result)]
            except Exception:
                self.known[point] = None
        return self.known[point]


def holds(condition: Any, values: dict[Any, int]) -> bool:
    """A condition that has no value does not hold, as in the native guards."""
    try:
        return bool(evaluate(condition, values))
    except ZeroDivisionError:
        return False


def compare(name: str, row: Any, point: Point, grad: bool, constants: bool) -> Iterator[str]:
    """What is wrong with the program; and which pairs of sizes were kept away needlessly."""
    program, specs = row[0], [Spec.of(text) for text in row[1:]]
    eager = Eager(program, specs, grad)
    if eager.at(point) is None:
        return
    run = symbolic_run(program, specs, point, grad, constants)
    if run.error is not None:
        yield f"{name} at {point} fails: {type(run.error).__name__} {str(run.error)[:200]}"
        return
    conditions = [g.condition for g in (*run.env.guards(), *run.env.runtime_asserts)]
    kept_away = []
    for other in (point, *POINTS):
        tensors = [spec.real(other) for spec in specs]
        values = {s: getattr(tensors[n], m)(d) for s, (n, m, d) in run.sources.items()}
        expected = eager.at(other)
        if not all(holds(condition, values) for condition in conditions):
            if other == point:
                yield f"{name} at {point}: the guards {conditions} exclude it"
            elif expected is not None:
                kept_away.append(other)
            continue
        if expected is None:
            if name not in REFUSED_BY_KERNELS:
                yield f"{name} at {point}: eager raises at {other}, the guards are {conditions}"
            continue
        found = [look(t, values, run.memory) for t in leaves(run.result)]
        if found != expected:
            yield f"{name} at {point}: {found} at {other}, {expected} for real; {conditions}"
    if kept_away and (point, grad, constants) == USUAL and name not in ASKING:
        yield f"{name} at {point} keeps away {kept_away}: {conditions}"


USUAL = ((5, 3), False, False)

# Eager PyTorch raises for reasons that are in the values, or in the library that does the work: the
# call is in the graph, and raises there as well.
REFUSED_BY_KERNELS = {
    "index dyn",  # from nothing
    "fft2",
    "convT2d",
    "convT3d",
    "aavg3d",
    "as_strided",
    "grid_sample",
    "max of all a b",
    "min of all a b",
}

# Programs that do ask. First those that have to:
ASKING = {
    *("split", "chunk", "chunk -1", "tensor_split", "make triu_ind"),  # how many parts
    *("contig T", "contig s", "reshape T", "reshape s", "squeeze", "squeeze dyn"),  # copy or view
    *("heads back c", "view merge T", "window", "repeat kv", "cartesian", "patch", "sdpa view"),
    *("sdpa heads", "prelu", "pixel_unshuffle", "setitem", "broadcast_tensors", "diff"),
    *(f"{n} two" for n in ("add", "sub", "mul")),
    # Then those that could do without.
    *("dropout1d", "dropout2d", "alpha_dropout", "instance_norm", "lrn", "addmv", "einsum ii->i"),
    *("tensordot", "bilinear", "kron", "inner", "convT1d", "max_pool2d cl", "aavg 1", "aavg cl"),
    *("aavg none", "grid_sample", "affine_grid", "unfold2", "fold", "channel_shuffle"),
    *("mha", "mha nw", "mha native", "pad cl", "diag", "diag_embed", "index apart", "index T"),
    *("index_fill", "masked_scatter", "ce 3", "ce prob", "multi margin", "inverse", "det"),
    *("cholesky", "svd", "qr", "eigh", "pinv", "stft", "sdpa gqa"),
}

RUNS = [
    USUAL,
    ((1, 3), True, True),
    *(
        pytest.param((point, grad, constants), marks=pytest.mark.long)
        for point in ((5, 3), (5, 1), (0, 3), (5, 0), (3, 3), (1, 1), (1, 3))
        for grad, constants in ((False, False), (True, True), (True, False))
        if ((point, grad, constants)) not in (USUAL, ((1, 3), True, True))
    ),
]


@pytest.mark.parametrize("how", RUNS, ids=str)
@pytest.mark.parametrize("group", GROUPS)
def test_the_result_holds_wherever_the_guards_do(group: str, how: Any) -> None:
    problems: list[str] = []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for name, row in GROUPS[group].items():
            problems += compare(name, row, *how)
    assert not problems, "\n".join(problems)
