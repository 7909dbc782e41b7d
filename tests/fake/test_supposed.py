"""Layouts of results are eager's for every size and stride that the guards let pass."""

import random

import pytest
import torch

import pliant
from pliant.fake import numbers
from pliant.fake.supposed import Undecidable, for_larger_sizes
from pliant.sym.env import ShapeEnv
from pliant.sym.expr import as_expr, evaluate
from pliant.sym.node import from_torch, to_torch


def symbols(env, values, size_like, constant):
    """Symbols for numbers; constants for some."""
    return tuple(
        value
        if constant(value)
        else to_torch(env.add_input(f"x{at}", value, size_like=size_like), env)
        for at, value in enumerate(values)
    )


def layout(chance, rank):
    sizes = tuple(chance.choice([1, 1, 2, 3]) for _ in range(rank))
    return sizes, tuple(chance.choice([0, 1, 2, 3, 4, 6]) for _ in sizes)


ALGORITHMS = {
    "pointwise": numbers.pointwise,
    "with a number": lambda layouts, sizes: numbers.pointwise(layouts, sizes, False),
    "like": lambda layouts, sizes: numbers.like(layouts[0]),
    "viewed": lambda layouts, sizes: numbers.viewed(layouts[0], sizes),
}


@pytest.mark.parametrize("operands", [1, 2])
@pytest.mark.parametrize("name", ALGORITHMS)
def test_right_wherever_the_guards_hold(name, operands):
    """Sizes of 1 are constants, all strides are symbols: other numbers for which the guards hold
    give what the algorithm gives for them."""
    chance, compared = random.Random(0), 0
    for _ in range(60):
        env, rank = ShapeEnv(duck=False), chance.choice([2, 3])
        sizes, _ = layout(chance, rank)
        strides = [layout(chance, rank)[1] for _ in range(operands)]
        named = symbols(env, sizes, True, lambda size: size == 1)
        layouts = [(named, symbols(env, s, False, lambda stride: False)) for s in strides]
        told = for_larger_sizes(ALGORITHMS[name], layouts, named)
        guards = [guard.condition for guard in env.guards()]
        for _ in range(40):
            values = {
                symbol: chance.choice([2, 3, 4] if info.size_like else [0, 1, 2, 3, 4, 6])
                for symbol, info in env.symbols.items()
            }
            if not all(evaluate(guard, values) for guard in guards):
                continue

            def now(given, values=values):
                return tuple(evaluate(as_expr(from_torch(n)), values) for n in given)

            plain = [(now(own), now(steps)) for own, steps in layouts]
            assert ALGORITHMS[name](plain, now(named)) == (told and now(told)), (plain, guards)
            compared += 1
    assert compared > 100


def test_nothing_is_guarded_where_sizes_tell():
    env = ShapeEnv(duck=False)
    height, width = (to_torch(env.add_input(name, 5), env) for name in ("h", "w"))
    own = ((1, height, width), (7 * height * width, width, 1))
    assert for_larger_sizes(numbers.pointwise, [own], own[0]) == (height * width, width, 1)
    assert not env.guards()


def test_a_stride_in_the_data_is_not_guessed():
    env = ShapeEnv()
    stride = to_torch(env.add_unbacked("u"), env)
    with pytest.raises(Undecidable):
        for_larger_sizes(numbers.pointwise, [((1, 3), (stride, 2))], (1, 3))


FUNCTIONS = {
    "a number": lambda x: x * 0.5,
    "uniform": lambda x: torch.neg(x),
    "of another dtype": lambda x: x.to(torch.int32) * 0.5,
    "two": lambda x: x + x.double(),
    "narrow": lambda x: x.narrow(0, 0, 1) * 0.5,
    "clone": lambda x: x.clone(),
    "zeros_like": lambda x: torch.zeros_like(x[:1]),
    "to": lambda x: x[:1].double(),
    "indices": lambda x: torch.ones(2)[..., x.long() * 0],
    "indices around": lambda x: torch.ones(1, 2, 1)[:, x.long() * 0],
    "index": lambda x: x[:, torch.tensor([0])],
    "view": lambda x: x.view(x.shape[0], 1, x.shape[1]),
    "reshape": lambda x: x.reshape(1, x.shape[0], x.shape[1]),
    "index_fill": lambda x: x.index_fill(0, torch.tensor([0]), 1),
    "index_copy": lambda x: x.index_copy(0, torch.tensor([0]), x[:1]),
    "flip": lambda x: x.flip(0),
    "strides": lambda x: (torch.neg(x), torch.neg(x).stride()),
}
CALLS = {
    "a row": [((1, 3), (8, 2)), ((1, 4), (9, 3)), ((1, 5), (1, 2)), ((1, 5), (2, 2))],
    "a column": [((2, 1), (1, 2)), ((3, 1), (1, 1)), ((3, 1), (1, 3)), ((2, 1), (3, 1))],
    "rows": [((2, 2), (1, 2)), ((1, 1), (1, 1)), ((2, 2), (1, 2)), ((3, 2), (1, 3))],
    "one": [((2, 3), (3, 1)), ((1, 1), (1, 1)), ((1, 1), (2, 5)), ((1, 1), (4, 1))],
    "gaps": [((2, 3), (8, 1)), ((1, 3), (8, 1)), ((1, 4), (2, 1)), ((1, 4), (1, 2))],
}


@pytest.mark.parametrize("calls", CALLS)
@pytest.mark.parametrize("name", FUNCTIONS)
def test_calls_with_other_strides(name, calls):
    """What fits one call is not taken for what fits all."""
    function = FUNCTIONS[name]
    for dtype in (torch.float32, torch.int64):
        compiled = pliant.compile(function, backend="llvm")
        for place in CALLS[calls]:
            x = torch.ones(60, dtype=dtype).as_strided(*place)
            try:
                expected = function(x)
            except RuntimeError:  # there is no such view
                continue
            actual = compiled(x)
            if isinstance(expected, tuple):
                assert actual[1] == expected[1], place
                expected, actual = expected[0], actual[0]
            assert actual.shape == expected.shape
            assert actual.stride() == expected.stride(), place
