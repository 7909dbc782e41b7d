"""The oracle of the tests here: the same call on real tensors, compared in all but values."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch

from pliant.fake import Fake, TensorSpec, World, kind_without_fake, metadata
from pliant.sym.env import ShapeEnv
from pliant.sym.expr import as_expr, evaluate, mul
from pliant.sym.node import from_torch, to_torch

Path = tuple[Any, ...]
Values = dict[Any, Any]  # of symbols
SYMBOLIC = (torch.SymInt, torch.SymFloat, torch.SymBool)


def leaves(value: Any, path: Path = ()) -> dict[Path, Any]:
    """Everything inside nested containers, by path; the containers' own types included."""
    if isinstance(value, (list, tuple)):
        found: dict[Path, Any] = {(*path, "type"): type(value)}
        for i, item in enumerate(value):
            found.update(leaves(item, (*path, i)))
        return found
    if isinstance(value, dict):
        found = {(*path, "type"): type(value)}
        for key, item in value.items():
            found.update(leaves(item, (*path, key)))
        return found
    return {path: value}


def rebuild(value: Any, change: Callable[[torch.Tensor], Any]) -> Any:
    """`value` with every tensor changed."""
    if isinstance(value, torch.Tensor):
        return change(value)
    if isinstance(value, (list, tuple)):
        items = [rebuild(item, change) for item in value]
        return type(value)(*items) if hasattr(value, "_fields") else type(value)(items)
    if isinstance(value, dict):
        return {key: rebuild(item, change) for key, item in value.items()}
    return value


def look(value: Any, values: Values | None = None) -> Any:
    """What can be seen of a result; symbolic numbers in it at these values of their symbols."""
    if not isinstance(value, torch.Tensor):
        return number(value, values or {})
    seen = metadata(value)
    if not value._has_symbolic_sizes_strides:
        return seen
    return at(seen, values or {})


def number(value: Any, values: Values) -> Any:
    return evaluate(from_torch(value), values) if isinstance(value, SYMBOLIC) else value


def at(spec: TensorSpec, values: Values) -> TensorSpec:
    sizes, strides = (
        tuple(number(n, values) for n in numbers) for numbers in (spec.sizes, spec.strides)
    )
    return replace(spec, sizes=sizes, strides=strides, offset=number(spec.offset, values))


def from_data(
    fakes: dict[Path, Any], reals: dict[Path, Any], known: Values | None = None
) -> Values:
    """The symbols that results brought with them, with the values they have in the real ones."""
    found: Values = dict(known or {})
    for path in fakes.keys() & reals.keys():
        for symbolic, value in zip(numbers(fakes[path]), numbers(reals[path])):
            if isinstance(symbolic, SYMBOLIC):
                solve(from_torch(symbolic), value, found)
    return found


def numbers(value: Any) -> tuple[Any, ...]:
    if not isinstance(value, torch.Tensor):
        return (value,)
    return (*value.size(), value.storage_offset())


def solve(expr: Any, value: Any, found: Values) -> None:
    """The value of the one symbol in `expr`, from that of `expr`."""
    unknown = expr.symbols - found.keys()
    if len(unknown) != 1:
        return
    (s,) = unknown
    fits = (n for n in (value, *range(-9, 10)) if evaluate(expr, found | {s: n}) == value)
    found.update({s: n for n in itertools.islice(fits, 1)})


def must_hold(env: ShapeEnv, values: Values) -> None:
    """What was said about numbers from data is true of them."""
    for s, value in values.items():
        assert value in env.symbols[s].declared, f"{s} is {value}"
    for promise in (*env.guards(), *env.runtime_asserts):
        if promise.condition.symbols <= values.keys():  # others are of results inside the function
            assert evaluate(promise.condition, values), promise


def assumed_wrong(env: ShapeEnv, values: Values) -> dict[str, bool]:
    """Assumptions that do not hold, with the answers that would have been right."""
    return {
        assumption.key: not assumption.answer
        for assumption in env.assumptions
        if assumption.condition.symbols <= values.keys()
        and not evaluate(assumption.condition, values)
    }


def relations(tensors: dict[Path, torch.Tensor]) -> dict[tuple[Path, Path], tuple[bool, ...]]:
    """For each pair: is it the same object, does it share memory, is one the base of the other."""
    items = list(tensors.items())
    return {
        (p, q): (
            a is b,
            a.untyped_storage()._cdata == b.untyped_storage()._cdata,
            a._base is b,
            b._base is a,
        )
        for i, (p, a) in enumerate(items)
        for q, b in items[:i]
    }


def only_tensors(found: dict[Path, Any]) -> dict[Path, torch.Tensor]:
    return {p: v for p, v in found.items() if isinstance(v, torch.Tensor)}


def versions(tensors: dict[Path, torch.Tensor]) -> dict[Path, int]:
    return {p: t._version for p, t in tensors.items() if not t.is_inference()}


def check(
    func: Callable[..., Any],
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    answers: dict[str, bool] | None = None,
) -> Any:
    """Run on fakes, then for real; everything but the values must agree. Where what was assumed
    about numbers from data turns out wrong, once more with the right answers."""
    world = World(ShapeEnv(answers=answers))
    fakes = rebuild((args, kwargs), world.from_real)
    result = world.run(func, *fakes)
    real_inputs, fake_inputs = only_tensors(leaves((args, kwargs))), only_tensors(leaves(fakes))
    before = versions(real_inputs)
    state = torch.get_rng_state()
    copies = rebuild((args, kwargs), lambda t: t.detach().clone())
    real = func(*args, **kwargs)
    drew = not torch.equal(state, torch.get_rng_state())

    real_parts, fake_parts = leaves(real), leaves(result.value)
    values = from_data(fake_parts, real_parts)
    wrong = assumed_wrong(world.env, values)
    if wrong:
        assert answers is None, f"{wrong}, after {answers}"
        return check(func, *copies, answers=wrong)
    must_hold(world.env, values)
    assert {p: look(v, values) for p, v in fake_parts.items()} == {
        p: look(v) for p, v in real_parts.items()
    }, "the result looks different"
    assert all(type(t) is Fake for t in only_tensors(fake_parts).values())
    assert {p: look(t) for p, t in fake_inputs.items()} == {
        p: look(t) for p, t in real_inputs.items()
    }, "the arguments look different afterwards"
    after, fake_after = versions(real_inputs), versions(fake_inputs)
    bumped = {p for p in before if before[p] != after[p]}
    assert bumped == {p for p in before if before[p] != fake_after[p]}, "version counters"
    written = {p for p, t in fake_inputs.items() if any(t is m for m in result.mutated)}
    assert bumped <= written, "a write was missed"
    every_real = {("in", *p): t for p, t in real_inputs.items()} | only_tensors(real_parts)
    every_fake = {("in", *p): t for p, t in fake_inputs.items()} | only_tensors(fake_parts)
    assert relations(every_fake) == relations(every_real), "aliasing"
    assert result.random or not drew, "random numbers were drawn unnoticed"
    return result


def symbolic(world: World, t: torch.Tensor, values: Values) -> Any:
    """A fake of `t` whose sizes are symbols; and its strides, where they follow from sizes."""
    if kind_without_fake(t) is not None:
        return world.from_real(t)
    env = world.env
    sizes = [env.add_input(f"s{len(values)}_{d}", n) for d, n in enumerate(t.size())]
    values.update(zip(sizes, t.size()))
    strides, step, real = [as_expr(0)] * t.dim(), as_expr(1), 1
    for d in sorted(range(t.dim()), key=lambda d: (t.stride(d), -d)):
        strides[d] = step if t.stride(d) == real else as_expr(t.stride(d))
        step, real = mul(strides[d], sizes[d]), t.stride(d) * max(t.size(d), 1)
    layout = tuple(tuple(to_torch(n, env) for n in numbers) for numbers in (sizes, strides))
    return world.from_real(t, layout)


def roughly(value: Any, values: Values) -> Any:
    """As `look`, without what says nothing: strides of dimensions of size 1, and of nothing."""
    seen = look(value, values)
    if not isinstance(seen, TensorSpec):
        return seen
    pairs = zip(seen.sizes, seen.strides)
    strides = () if 0 in seen.sizes else tuple(n if size != 1 else 0 for size, n in pairs)
    return replace(seen, strides=strides, offset=0, is_leaf=True)


def check_symbolically(
    func: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
) -> None:
    world, values = World(ShapeEnv(duck=False)), {}
    made: dict[int, Any] = {}

    def fake(t: torch.Tensor) -> Any:
        if id(t) not in made:
            made[id(t)] = symbolic(world, t, values)
        return made[id(t)]

    result = world.run(func, *rebuild((args, kwargs), fake)).value
    fakes, reals = leaves(result), leaves(func(*args, **kwargs))
    values = from_data(fakes, reals, values)
    if assumed_wrong(world.env, values):
        return
    for guard in world.env.guards():
        if guard.condition.symbols <= values.keys():
            assert evaluate(guard.condition, values), f"{guard} excludes its own example"
    assert {p: roughly(v, values) for p, v in fakes.items()} == {
        p: roughly(v, values) for p, v in reals.items()
    }


def grown(t: torch.Tensor) -> torch.Tensor:
    """A float tensor as the result of an operation, so that in-place functions accept it."""
    if not (t.is_floating_point() or t.is_complex()):
        return t
    return torch.clone(t.detach().requires_grad_())


@pytest.fixture
def with_grad() -> Callable[[Any], Any]:
    """Every float tensor inside a value made to require grad."""
    return lambda value: rebuild(value, grown)


@pytest.fixture
def agree() -> Callable[..., Any]:
    """`agree(func, *args, **kwargs)`: fakes and eager must agree on this call."""
    return lambda func, *args, **kwargs: check(func, args, kwargs)


@pytest.fixture
def agree_symbolically() -> Callable[..., Any]:
    """`agree_symbolically(func, *args, **kwargs)`: the same, with symbols for sizes."""
    return lambda func, *args, **kwargs: check_symbolically(func, args, kwargs)


@pytest.fixture
def change() -> Callable[..., Any]:
    """`change(value, how)`: every tensor inside a value changed."""
    return rebuild
