"""Compiled functions called under transforms of `torch.func` and under dispatch modes: the graph is
captured once, and PyTorch runs it under them."""

import pytest
import torch
from torch.func import functionalize, grad, hessian, jacfwd, jacrev, jvp, vjp, vmap
from torch.utils._python_dispatch import TorchDispatchMode

import pliant
from pliant.base import events
from tests.support.against_eager import same

X = torch.tensor([[1.0, -2.0, 0.5, 0.1], [0.5, 3.0, -1.0, 2.0]])
W = torch.tensor([0.5, 1.0, -1.0, 2.0])


def loss(x, w=W):
    y = x * w + x.shape[0]
    return (y.sin() @ y).relu() if x.dim() == 1 else y.sum()


def with_transforms(x, w=W):
    return vmap(lambda row: row.sin() * w)(x[None]).sum() + grad(lambda t: t.pow(3).sum())(x).sum()


AROUND = {
    "vmap": lambda f: vmap(f)(X),
    "vmap of a closed-over tensor": lambda f: vmap(f, (None, 0))(X[0], X),
    "grad": lambda f: grad(f)(X[0]),
    "grad of an argument": lambda f: grad(f, argnums=1)(X[0], W),
    "samples": lambda f: vmap(grad(f, argnums=1), (0, None))(X, W),
    "nested": lambda f: vmap(vmap(lambda x, w: f(x[None], w), (0, None)), (None, 0))(X, X),
    "jacobian": lambda f: jacrev(f)(X[0]),
    "forward": lambda f: (jacfwd(f)(X[0]), jvp(f, (X[0],), (W,))),
    "hessian": lambda f: hessian(f)(X[0]),
    "vjp": lambda f: vjp(f, X[0])[1](torch.tensor(2.0)),
    "functionalize": lambda f: functionalize(f)(X[0]),
}


@pytest.mark.parametrize("function", [loss, with_transforms])
@pytest.mark.parametrize("around", AROUND.values(), ids=AROUND)
def test_as_in_eager(around, function):
    compiled = pliant.compile(function, fullgraph=True)
    expected = around(function)
    same(around(compiled), expected)
    same(around(compiled), expected)
    same(compiled(X[0]), function(X[0]))


@pytest.mark.parametrize("transform", [vmap, grad, lambda f: vmap(grad(f))])
def test_one_compilation(transform):
    compiled = pliant.compile(lambda x: x.sin().pow(2).sum(), fullgraph=True)
    x = X if transform is not grad else X[0]
    events.counters.reset()
    for _ in range(3):
        transform(compiled)(x)
    assert events.counters["compilations"] == 1


def test_another_transform_is_another_compilation():
    compiled = pliant.compile(lambda x: x.sin())
    vmap(compiled, randomness="same")(X)
    with pliant.config.patch(error_on_recompile=True):
        vmap(compiled, randomness="same")(X)
        with pytest.raises(pliant.errors.RecompileError):
            vmap(compiled, randomness="error")(X)


def test_transforms_leave_room_for_other_calls():
    compiled = pliant.compile(lambda x: x.sin().sum(), fullgraph=True)
    for depth in range(1, 12):
        nested = compiled
        for _ in range(depth):
            nested = vmap(nested)
        assert nested(torch.zeros([1] * (depth + 1))).shape == (1,) * depth
    events.counters.reset()
    for rank in range(3):
        compiled(torch.ones([2] * rank))
    assert events.counters["compilations"] == 3 and events.counters["limit_reached"] == 0


def test_a_function_that_breaks_is_left_to_python():
    def function(x):
        y = x.sin()
        pliant.graph_break()
        return y.cos().sum()

    for fullgraph in (False, True):
        compiled = pliant.compile(function, fullgraph=fullgraph)
        same(grad(compiled)(W), grad(function)(W))
        events.counters.reset()
        same(grad(compiled)(W), grad(function)(W))
        assert events.counters["compilations"] == events.counters["graph_breaks"] == 0


def test_random_numbers_and_writes():
    def function(x):
        noise = torch.rand_like(x)
        y = x + noise
        y.mul_(2)
        return y

    compiled = pliant.compile(function, fullgraph=True)
    for randomness in ("same", "different"):
        results = []
        for called in (function, compiled):
            torch.manual_seed(0)
            results.append(vmap(called, randomness=randomness)(X))
        same(*results)
    with pytest.raises(RuntimeError, match="randomness"):
        vmap(compiled)(X)


def test_writes_to_inputs():
    compiled = pliant.compile(lambda x, y: x.add_(y), fullgraph=True)
    x = X.clone()
    result = vmap(compiled)(x, X)
    assert torch.equal(result, X + X) and torch.equal(x, X + X)


class Counting(TorchDispatchMode):
    """Says that compilers need not know of it."""

    def __init__(self):
        super().__init__()
        self.seen = []

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        self.seen.append(func.name())
        return func(*args, **(kwargs or {}))

    @classmethod
    def ignore_compile_internals(cls):
        return True


def test_a_dispatch_mode_sees_the_operators_of_the_program():
    def function(x):
        return torch.relu(x.sin() + 1) if x.shape[0] == 2 else x

    compiled = pliant.compile(function, fullgraph=True)
    modes = Counting(), Counting()
    events.counters.reset()
    for called, mode in zip((function, compiled), modes, strict=True):
        with mode:
            same([called(X), called(X)], [function(X), function(X)])
    assert modes[0].seen == modes[1].seen
    assert events.counters["compilations"] == 1
    with Counting():  # another object at each call must not fill the cache
        same(compiled(X), function(X))
    assert events.counters["compilations"] == 1


def test_a_mode_that_compiles():
    class Compiling(Counting):
        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            return inner(*args)

    inner = pliant.compile(lambda x, y: x - y, fullgraph=True)
    outer = pliant.compile(lambda x, y: torch.add(x, y), fullgraph=True)
    with Compiling():
        result = outer(X, X)
    assert torch.equal(result, torch.zeros_like(X))
    assert torch.equal(outer(X, X), 2 * X)


def test_a_mode_under_which_the_program_may_be_compiled():
    class Multiplying(TorchDispatchMode):
        @classmethod
        def _should_skip_dynamo(cls):
            return False

        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            return torch.ops.aten.mul.Tensor(*args)

    events.counters.reset()
    for function in (torch.add, lambda x, y: x + y):
        compiled = pliant.compile(function, fullgraph=True)
        with Multiplying():
            result = compiled(X, X)
        assert torch.equal(result, X * X)
    assert events.counters["compilations"] == 2
