"""Sizes that move: what programs compute over many sizes, and how often they are compiled."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable
from typing import Any

import pytest
import torch
import torch.nn.functional as F

import pliant
from pliant.base import events
from tests.support.against_eager import run, same_outcome

randn = torch.randn
WEIGHT, BIAS = randn(16, 16), randn(16)


def over(
    function: Callable[..., Any],
    inputs: Iterable[Any],
    compilations: int | tuple[int, ...],
    mark: Callable[..., None] | None = None,
    **settings: Any,
) -> Any:
    """Call the compiled function with each of the inputs, and compare with eager PyTorch: values,
    sizes, strides, types, exceptions. It has to be compiled so often."""
    compiled = pliant.compile(function, **settings)
    for args in inputs:
        args = args if isinstance(args, tuple) else (args,)
        if mark is not None:
            mark(*args)
        same_outcome(run(compiled, args), run(function, args))
    allowed = compilations if isinstance(compilations, tuple) else (compilations,)
    assert len(compiled.entries) in allowed, shape_guards(compiled)
    return compiled


def shape_guards(compiled: Any) -> list[list[str]]:
    return [
        [str(g) for g in entry.info.bindings.guards if g.kind.name in ("SHAPE", "TENSOR", "EQUALS")]
        for entry in compiled.entries
    ]


def graph_text(compiled: Any) -> str:
    return str(compiled.entries[0].info.bindings.graph.graph)


# ---- the first size change


@pytest.mark.parametrize(("dynamic", "compilations"), [(False, 4), (True, 1), (None, 2)])
def test_the_setting_dynamic(dynamic: bool | None, compilations: int) -> None:
    over(lambda x: x * x.size(0), map(randn, (10, 20, 30, 40)), compilations, dynamic=dynamic)


def test_each_side_of_a_branch_is_compiled_once() -> None:
    def f(x):
        if x.size(0) == 10:
            return x + 1
        if x.size(0) <= 30:
            return x * 2
        return x - 1

    over(f, map(randn, (10, 20, 30, 40, 50)), 3, dynamic=True)


BATCHED: dict[str, Callable[[torch.Tensor], Any]] = {
    "pointwise": lambda x: torch.relu(x * 2 + 1).sin(),
    "bias": lambda x: x + BIAS,
    "layer norm": lambda x: F.layer_norm(x, (16,)),
    "softmax": lambda x: F.softmax(x, -1),
    "sum": lambda x: (x.sum(), x.sum(0), x.sum(1)),
    "matmul": lambda x: x @ WEIGHT,
    "linear": lambda x: F.linear(x, WEIGHT, BIAS),
    "all": lambda x: F.softmax(F.layer_norm(x @ WEIGHT + BIAS, (16,)), -1).sum(0),
}


@pytest.mark.parametrize("name", BATCHED)
@pytest.mark.parametrize(("dynamic", "compilations"), [(None, 2), (True, 1)])
def test_one_compilation_for_every_batch(
    name: str, dynamic: bool | None, compilations: int
) -> None:
    batches = [randn(size, 16) for size in (5, 8, 1, 0, 2, 64)]
    over(BATCHED[name], batches, compilations, dynamic=dynamic)


@pytest.mark.parametrize("name", BATCHED)
def test_one_compilation_for_a_marked_batch(name: str) -> None:
    batches = [randn(size, 16) for size in (5, 8, 1, 0)]
    over(BATCHED[name], batches, 1, mark=lambda x: pliant.mark_dynamic(x, 0))


def test_broadcasting_is_another_compilation() -> None:
    pairs = [(randn(a), randn(b)) for a, b in ((5, 5), (7, 7), (7, 1), (3, 3), (4, 1))]
    over(lambda x, y: x + y, pairs, 3)


def test_a_mark_carries_over_to_the_other_operand() -> None:
    pairs = [(randn(s), randn(s)) for s in (5, 8, 3)]
    over(lambda x, y: x + y, pairs, 1, mark=lambda x, y: pliant.mark_dynamic(x, 0))


def test_many_small_tensors_of_any_size() -> None:
    """A hundred features, of each of which a user has none, one, two or many."""
    draw = random.Random(0)

    def features() -> list[torch.Tensor]:
        sizes = [draw.choice([0, 1, 2, draw.randint(3, 50)]) for _ in range(100)]
        return [randn(size, 4).double() for size in sizes]

    def pooled(tensors):
        together = torch.cat(tensors)
        return torch.stack([together.sum(0), together.mean(0), together.amax(0)])

    over(pooled, [(features(),) for _ in range(200)], (1, 2))


# ---- numbers


def test_an_int_that_changes() -> None:
    over(lambda x, n: x * n + n // 2, [(randn(3), n) for n in (3, 4, 5, 6)], 2)


def test_a_float_that_changes() -> None:
    over(lambda x, f: x * (f * 2 + 1), [(randn(3), f) for f in (0.5, 0.7, 0.9)], 2)


def test_sizes_made_of_ints() -> None:
    over(lambda n, m: torch.zeros(n * 2, m), [(3, 4), (4, 5), (5, 6), (9, 2)], 2)


# ---- sizes and numbers that are in the data


def test_a_number_read_from_a_tensor_is_a_size() -> None:
    def f(x):
        n = x.sum().item()
        torch._check(n >= 0)
        torch._check(n < 100)
        return torch.zeros(n)

    inputs = data([1, 2], [3, 4], [0, 0], [50, 49], [50, 50], [0, -1])
    over(f, inputs, 1, fullgraph=True)


def data(*rows: list[int]) -> list[torch.Tensor]:
    return [torch.tensor(row) for row in rows]


SAMPLES = [randn(6, 4) for _ in range(3)] + [torch.zeros(6, 4), torch.ones(6, 4)]
REPEATS = [(randn(3, 2), r) for r in data([1, 2, 3], [0, 0, 1], [0, 0, 0], [9, 9, 9])]
PARTS = [(randn(6), p) for p in data([1, 2, 3], [0, 0, 6], [2, 2, 2])]
FROM_DATA: dict[str, tuple[Callable[..., Any], list[Any]]] = {
    "nonzero": (lambda x: torch.nonzero(x > 0), SAMPLES),
    "where": (lambda x: torch.where(x > 0), SAMPLES),
    "mask": (lambda x: x[x > 0] * 2 + 1, SAMPLES),
    "rows by mask": (lambda x: x[x.sum(1) > 0].sum(0), SAMPLES),
    "masked select": (lambda x: torch.masked_select(x, x > 0), SAMPLES),
    "unique": (lambda x: torch.unique((x * 2).int()), SAMPLES),
    "unique with counts": (lambda x: torch.unique((x * 2).int(), return_counts=True), SAMPLES),
    "repeat_interleave": (lambda x, r: torch.repeat_interleave(x, r, dim=0), REPEATS),
    "tolist": (lambda x: sum(x.tolist()) + x, data([1, 2, 3], [0, 0, 1], [0, 0, 0])),
    "split": (lambda x, parts: torch.split(x, parts.tolist()), PARTS),
    "number of hits": (lambda x: torch.nonzero(x > 0).size(0) * x, SAMPLES),
}


@pytest.mark.parametrize("name", FROM_DATA)
def test_sizes_from_data(name: str) -> None:
    function, inputs = FROM_DATA[name]
    over(function, inputs, 1, fullgraph=True)


def hits(count: int) -> torch.Tensor:
    return torch.arange(6) < count


def test_squeezing_what_was_found() -> None:
    masks = [hits(n) for n in (3, 1, 0, 1, 5, 1)]
    over(lambda m: torch.nonzero(m).squeeze(0), masks, 2, fullgraph=True)


@pytest.mark.parametrize("dynamic", [None, True])
@pytest.mark.parametrize("size", [1, 3])
def test_adding_to_what_was_found(size: int, dynamic: bool | None) -> None:
    y = randn(size)
    masks = [(hits(n), y) for n in ((3, 1, 0, 3) if size == 1 else (3, 1, 3, 1))]
    over(lambda m, y: torch.nonzero(m)[:, 0] + y, masks, (1, 2), fullgraph=True, dynamic=dynamic)


def test_a_branch_on_data_breaks_the_graph() -> None:
    def f(x):
        return x + 1 if x.sum().item() > 3 else x - 1

    over(f, data([1, 2], [3, 4], [0, 0]), 1)


def test_a_branch_on_data_is_refused_with_what_to_do() -> None:
    def f(x):
        n = x.sum().item()
        return x + 1 if n > 3 else x - 1

    with pytest.raises(pliant.errors.DataDependentError) as caught:
        pliant.compile(f, fullgraph=True)(torch.tensor([1, 2]))
    text = str(caught.value)
    for part in ("asks whether", ">= 4", "item()", "return x + 1 if n > 3", "pliant.check("):
        assert part in text


# ---- sizes without a value


def squeezed(policy: str) -> Any:
    return pliant.compile(lambda x: torch.squeeze(x), options={"oblivious": policy})


def unbacked(size: int) -> torch.Tensor:
    x = randn(size, 20, 1)
    pliant.mark_unbacked(x, 0)
    return x


def test_an_unbacked_size_is_taken_to_be_no_1() -> None:
    shapes = []

    def backend(graph: torch.fx.GraphModule, examples: list[Any]) -> Any:
        shapes.append(graph)
        return graph

    compiled = pliant.compile(lambda x: torch.squeeze(x), backend=backend)
    assert compiled(unbacked(5)).shape == (5, 20)
    symbols = compiled.entries[0].info.captured.symbols
    assert [(str(why.expr), why.state) for why in symbols if why.state != "static"] == [
        ("u0", "unbacked")
    ]


def test_oblivious_torch() -> None:
    compiled = squeezed("torch")
    assert [tuple(compiled(unbacked(s)).shape) for s in (5, 1, 7)] == [(5, 20), (1, 20), (7, 20)]
    assert len(compiled.entries) == 1


def test_oblivious_error() -> None:
    compiled = squeezed("error")
    assert compiled(unbacked(5)).shape == (5, 20)
    with pytest.raises(pliant.errors.ShapeConstraintError, match="squeeze assumed that u0 != 1"):
        compiled(unbacked(1))
    assert compiled(unbacked(7)).shape == (7, 20)


def test_oblivious_recompile() -> None:
    compiled = squeezed("recompile")
    assert [tuple(compiled(unbacked(s)).shape) for s in (5, 1, 7)] == [(5, 20), (20,), (7, 20)]
    assert len(compiled.entries) == 2


# ---- marks and lists of sources


def test_a_marked_size_must_not_become_a_constant() -> None:
    x = randn(5)
    pliant.mark_dynamic(x, 0)
    with pytest.raises(pliant.errors.ShapeConstraintError) as caught:
        pliant.compile(lambda x: x.view(5) + 1)(x)
    text = str(caught.value)
    for part in ("L['x'].size()[0]", "has to be 5", "view asked", "x.view(5) + 1"):
        assert part in text


def test_a_declared_range_is_a_guard() -> None:
    compiled = pliant.compile(lambda x: x + 1)
    for size in (5, 9, 30):
        x = randn(size)
        pliant.mark_dynamic(x, 0, min=2, max=10)
        if size > 10:
            with pytest.raises(pliant.errors.ShapeConstraintError, match="declared"):
                compiled(x)
        else:
            compiled(x)
    assert len(compiled.entries) == 1


def broken(x, y):
    z = x + 1
    pliant.graph_break()
    return z * y.size(0), z.size(0) * y


@pytest.mark.parametrize("name", ["PLIANT_DYNAMIC_SOURCES", "TORCH_COMPILE_DYNAMIC_SOURCES"])
@pytest.mark.parametrize("sources", ["L['x'], L['y']", r"L\['[xy]'\]", "L['x'],L\\['y.*'\\]"])
def test_sources_win_over_static(monkeypatch: Any, name: str, sources: str) -> None:
    monkeypatch.setenv(name, sources + r", L\['z'\]")
    pairs = [(randn(s), randn(s + 1)) for s in (4, 6, 9)]
    compiled = over(broken, pairs, 1, dynamic=False)
    assert "L['y'].size()" not in str(shape_guards(compiled))


def test_sources_name_parts_of_modules(monkeypatch: Any) -> None:
    monkeypatch.setenv("PLIANT_DYNAMIC_SOURCES", "L['self'].weight")
    layer = torch.nn.Linear(3, 4)
    compiled = pliant.compile(layer, dynamic=False)
    for rows in (4, 5, 6):
        layer.weight, layer.bias = torch.nn.Parameter(randn(rows, 3)), None
        assert torch.equal(compiled(x := randn(2, 3)), F.linear(x, layer.weight))
    assert len(compiled._dispatcher.entries) == 1


def test_sources_of_ints(monkeypatch: Any) -> None:
    monkeypatch.setenv("PLIANT_DYNAMIC_SOURCES", "L['n']")
    over(lambda x, n: x * n, [(randn(3), n) for n in (2, 3, 4)], 1, dynamic=False)


def test_unbacked_sources(monkeypatch: Any) -> None:
    monkeypatch.setenv("PLIANT_UNBACKED_SOURCES", "L['x']")
    compiled = over(lambda x: x * 2, map(randn, (5, 1, 0)), 1, dynamic=False)
    assert compiled.entries[0].info.captured.symbols[0].state == "unbacked"


# ---- what sizes become


def test_a_stated_equality_substitutes() -> None:
    def f(a, b):
        torch._check(a.size(0) == b.size(0))
        return torch.cat([a, b]) * torch.ones(2 * b.size(0))

    over(f, [(randn(s), randn(s)) for s in (3, 4, 5, 9)], 2)


def test_sizes_that_do_not_fit_are_pytorchs_error() -> None:
    def f(x, y):
        return torch.cat([x, x]) * y

    pairs = [(randn(s), randn(t)) for s, t in ((3, 6), (4, 8), (9, 18), (3, 5), (4, 1))]
    over(f, pairs, (2, 3, 4))


SHAPED: dict[str, Callable[[torch.Tensor], Any]] = {
    "view": lambda x: x.view(-1, 4) * 1,
    "view by half": lambda x: x.view(x.size(0) // 2, -1),
    "reshape of transposed": lambda x: x.t().reshape(-1),
    "flatten": lambda x: x.flatten() + 1,
    "expand": lambda x: x.unsqueeze(1).expand(-1, 3, -1) + 1,
    "chunk": lambda x: [t + 1 for t in x.chunk(2, 1)],
    "unfold": lambda x: x.unfold(0, 2, 1) * 2,
    "step": lambda x: x[1::2] + 1,
    "half": lambda x: x[: x.size(0) // 2] * 2,
    "ends": lambda x: x[-2:] + x[:2],
    "as_strided": lambda x: torch.as_strided(x, (x.size(0) - 1, 4), (8, 1)) + 1,
    "transposed": lambda x: x.transpose(0, 1) @ x,
    "pad": lambda x: F.pad(x, (1, 1)),
    "stack": lambda x: torch.stack([x, x]),
    "roll": lambda x: torch.roll(x, 1, 0),
    "rows": lambda x: x[torch.arange(x.size(0))],
    "argmax": lambda x: x.argmax(0),
    "sort": lambda x: x.sort(0),
    "cumsum": lambda x: x.cumsum(0),
    "var": lambda x: x.var(0),
    "one_hot": lambda x: F.one_hot(torch.arange(x.size(0)) % 4, 4),
    "interpolate": lambda x: F.interpolate(x[None, None], scale_factor=2),
    "pool": lambda x: F.avg_pool1d(x[None], 2),
    "einsum": lambda x: torch.einsum("ij,kj->ik", x, x),
    "meshgrid": lambda x: torch.meshgrid(torch.arange(x.size(0)), torch.ones(3), indexing="ij"),
    "tril": lambda x: torch.tril(torch.ones(x.size(0), x.size(0))),
    "gather": lambda x: x.gather(1, torch.zeros(x.size(0), 1, dtype=torch.long)),
}


@pytest.mark.parametrize("name", SHAPED)
def test_one_compilation_through(name: str) -> None:
    over(SHAPED[name], [randn(size, 8) for size in (4, 6, 8, 10, 12)], 2)


INPUTS: dict[str, Callable[[int], torch.Tensor]] = {
    "transposed": lambda size: randn(8, size).t(),
    "sliced": lambda size: randn(16, 8)[2 : 2 + size],
    "sliced within rows": lambda size: randn(4, 16)[:, 2 : 2 + size],
    "stepped": lambda size: randn(2 * size, 8)[::2],
    "three dimensions": lambda size: randn(2, size, 8),
    "permuted": lambda size: randn(8, 2, size).permute(2, 0, 1),
    "expanded": lambda size: randn(1, 8).expand(size, 8),
}


@pytest.mark.parametrize("name", INPUTS)
def test_inputs_laid_out(name: str) -> None:
    inputs = [INPUTS[name](size) for size in (4, 6, 8, 10, 12)]
    over(lambda x: (x * 2 + 1, x.sum(-1)), inputs, 2)


def test_empty_inputs() -> None:
    shapes = [(2, 12, 0), (2, 0, 3), (0, 2, 3), (4, 5, 6), (1, 1, 1), (3, 0, 0)]
    over(lambda x: x + 1, [randn(*shape) for shape in shapes], (1, 2, 3), dynamic=True)


def test_the_strides_of_empty_tensors() -> None:
    inputs = [randn(*shape) for shape in ((3, 4, 5), (3, 0, 5), (2, 3, 0), (0, 2, 2), (6, 7, 8))]
    compiled = pliant.compile(lambda x: (x.stride(), x.stride(0), (x + 1).stride()), dynamic=True)
    for x in inputs:
        assert compiled(x) == (x.stride(), x.stride(0), (x + 1).stride())


def test_sizes_as_a_tuple_that_was_computed() -> None:
    function = lambda x, n: x.view((-1, 1) + (1,) * n)  # noqa: E731
    over(function, [(randn(4), 1), (randn(6), 1)], 2, fullgraph=True)


def test_selecting_by_a_number_from_data() -> None:
    x = randn(5, 3)
    places = [(x, torch.tensor(i)) for i in (1, 0, -1, 4, 5)]
    over(lambda x, i: x[i.item()] * 2, places, 1, fullgraph=True)
    over(lambda x, i: x[: i.item()] * 2, places, 1, fullgraph=True)


def test_a_storage_offset_that_moves() -> None:
    rows = randn(100, 4)
    inputs = [rows[start : start + size] for start, size in ((0, 3), (3, 4), (20, 9), (1, 2))]
    over(lambda x: x[1:] * 2, inputs, 2)


def _set_element(x, place):
    x[place] = 0


PLACES = {
    "set": _set_element,
    "get": lambda x, place: x[place],
    "select": lambda x, place: x.select(0, place.item()),
    "fill": lambda x, place: x.index_fill_(0, place.reshape(1), 1),
    "part": lambda x, place: x[place : place + 1],
}


@pytest.mark.parametrize("name", PLACES)
def test_places_in_the_data_of_tensors_that_may_be_empty(name: str) -> None:
    calls = [(torch.ones(n, 1), torch.tensor(at)) for n in (0, 1, 0, 3) for at in (1, 0, -1)]
    over(PLACES[name], calls, tuple(range(9)), dynamic=True)


@pytest.mark.parametrize("dtypes", [("float32", "int64"), ("int32", "float64")])
@pytest.mark.parametrize("shape", [(), (3,)])
def test_einsum_of_two_dtypes(shape: tuple[int, ...], dtypes: tuple[str, str]) -> None:
    """Of one element each it is a product of numbers; products of matrices are of one dtype."""

    left, right = (getattr(torch, dtype) for dtype in dtypes)

    def program(x: torch.Tensor) -> torch.Tensor:
        return torch.einsum("...i,...i->...", x, x.to(right)) + 1

    over(program, [torch.ones(*shape, 1, dtype=left)], 1, dynamic=True, backend="llvm")
    assert events.counters["graph_breaks"] == 0
    over(program, [torch.ones(*shape, 2, dtype=left)], 1, dynamic=True, backend="llvm")


def test_mode_along_the_last_dimension_needs_no_rows():
    """Which is its default: of no rows there are no modes, and that is no error."""

    def program(x):
        rows = x.argwhere()
        x.add_(0)
        return rows.mode(-1)

    compiled = pliant.compile(program, dynamic=True, fullgraph=True)
    for x in (torch.ones(2, 2), torch.zeros(2, 2), torch.ones(0, 3)):
        torch.testing.assert_close(compiled(x.clone()), program(x.clone()))
