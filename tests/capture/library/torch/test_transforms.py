"""`torch.func` and control flow of PyTorch: one graph, with the functions given as parts of it."""

import pytest
import torch
from torch._higher_order_ops import map as map_over
from torch._higher_order_ops import scan, while_loop
from torch.func import (
    functional_call,
    grad,
    grad_and_value,
    hessian,
    jacfwd,
    jacrev,
    jvp,
    vjp,
    vmap,
)

import pliant
from tests.support.against_eager import check
from tests.support.programs import Programs

program = Programs()
X = torch.tensor([[1.0, -2.0, 0.5], [0.5, 3.0, -1.0]])
Y = torch.tensor([[2.0, 1.0, 1.0], [-1.0, 0.25, 0.5]])
MODEL = torch.nn.Linear(3, 3)
outer_weight = torch.tensor([1.0, 2.0, 3.0])


def model_loss(params, x):
    return functional_call(MODEL, params, (x,)).pow(2).mean()


@grad
def decorated(x):
    return (x * outer_weight).sin().sum()


TRANSFORMS = [
    lambda x, y: grad(lambda t: (t.sin() * y).sum())(x),
    lambda x, y: grad(lambda a, b: (a * b).sum(), argnums=(0, 1))(x, y),
    lambda x, y: grad(lambda a, b: (a * b.sin()).sum(), argnums=-1)(x, y * x),
    lambda x, y: grad(lambda t: (t.pow(2).sum(), t * y), has_aux=True)(x),
    lambda x, y: grad_and_value(lambda t, scale=1.0: (t * scale).pow(2).sum())(x, scale=3.0),
    lambda x, y: grad(lambda t: grad(lambda u: u.pow(3).sum())(t).sum())(x),
    lambda x, y: decorated(x) + y,
    lambda x, y: grad(model_loss)({k: v.detach() for k, v in MODEL.named_parameters()}, x),
    lambda x, y: vmap(lambda t: t.sum() * 2)(x),
    lambda x, y: vmap(lambda a, b: a * b.sum(), in_dims=(0, None), out_dims=1)(x, y),
    lambda x, y: vmap(lambda pair: pair["a"] + pair["b"][0], in_dims=({"a": 0, "b": (1,)},))(
        {"a": x, "b": (y.T,)}
    ),
    lambda x, y: vmap(grad(lambda t: t.sin().sum()))(x),
    lambda x, y: vmap(vmap(lambda a, b: a * b + y.sum()))(x, y),
    lambda x, y: vmap(lambda t: t + torch.rand(3), randomness="different")(x),
    lambda x, y: vmap(torch.dot)(x, y),
    lambda x, y: jvp(torch.sin, (x,), (y,)),
    lambda x, y: jacrev(torch.sin)(x),
    lambda x, y: jacfwd(lambda t: t * y)(x),
    lambda x, y: hessian(lambda t: t.pow(3).sum())(x),
    lambda x, y: vjp(lambda t: (t * y).sin(), x)[1](y)[0],
]


@pytest.mark.parametrize("function", TRANSFORMS)
def test_transforms(function):
    check(function, X, Y)
    check(function, X, Y, dynamic=True)


CONTROL = [
    lambda x: torch.cond(x.sum() > 0, lambda t: t.sin(), lambda t: t.cos(), (x,)),
    lambda x: torch.cond(x.sum() > 0, lambda: x + 1, lambda: x - outer_weight),
    lambda x: torch.cond(x.shape[0] > 1, lambda t: t.sin(), lambda t: t.cos(), (x,)),
    lambda x: torch.cond(x.sum() > 9, lambda t: (t + 1, t * 2), lambda t: (t - 1, t * 3), (x,)),
    lambda x: while_loop(
        lambda i, t: i < 3, lambda i, t: (i + 1, t * 2 + outer_weight), (torch.tensor(0), x)
    ),
    lambda x: scan(lambda carry, row: (carry + row, carry * row), torch.zeros(3), x),
    lambda x: scan(lambda carry, row: (carry + row, carry * row), torch.zeros(3), x, reverse=True),
    lambda x: map_over(lambda row: row.sin() * outer_weight, x),
]


@pytest.mark.parametrize("function", CONTROL)
def test_control_flow(function):
    check(function, X)
    check(function, -X)


def test_both_ways_of_a_condition_are_in_one_compilation():
    compiled = pliant.compile(
        lambda x: torch.cond(x.sum() > 0, lambda t: t + 1, lambda t: t - 1, (x,)), fullgraph=True
    )
    assert torch.equal(compiled(X.abs()), X.abs() + 1)
    assert torch.equal(compiled(-X.abs()), -X.abs() - 1)
    assert pliant.counters["compilations"] == 1


def test_modules_as_branches():
    class Chooses(torch.nn.Module):
        def __init__(self):
            super().__init__()
            torch.manual_seed(0)
            self.one, self.other = torch.nn.Linear(3, 3), torch.nn.Linear(3, 3)

        def forward(self, x):
            return torch.cond(x.sum() > 0, self.one, self.other, (x,))

    model = Chooses()
    compiled = pliant.compile(model, fullgraph=True)
    for x in (X.abs(), -X.abs()):
        torch.testing.assert_close(compiled(x), (model.one if x.sum() > 0 else model.other)(x))


def test_a_function_with_effects():
    def function(x, log):
        def loss(t):
            log.append("called")
            return t.sin().sum()

        return grad(loss)(x)

    check(function, X, [])


def test_what_a_transformed_function_reads_is_assumed(monkeypatch):
    compiled = pliant.compile(lambda x: vmap(lambda t: t * factor)(x), fullgraph=True)
    assert torch.equal(compiled(X), X * 2)
    monkeypatch.setitem(globals(), "factor", 5)
    assert torch.equal(compiled(X), X * 5)


factor = 2


def test_a_break_inside_leaves_the_whole_call_to_python():
    def function(x):
        def loss(t):
            pliant.graph_break()
            return t.sin().sum()

        return grad(loss)(x) + 1

    check(function, X, breaks=1)


def test_writing_to_a_tensor_around_a_derivative_is_refused_as_in_eager():
    def function(x):
        seen = x.clone()

        def loss(t):
            seen.add_(1)
            return t.sum()

        return grad(loss)(x), seen

    check(function, X, breaks=1)


def test_conditions_in_conditions():
    def function(x):
        return torch.cond(
            x.sum() > 100,
            lambda: x.sin(),
            lambda: torch.cond(x.sum() > 0, lambda: x.cos(), lambda: x.tan()),
        )

    check(function, X)
    check(function, -X)


def test_the_mode_around_does_not_reach_into_a_derivative():
    def function(x):
        with torch.no_grad():
            return grad(lambda t: (t * t).sum())(x), torch.is_grad_enabled()

    check(function, X)


def test_an_operator_itself_is_compiled():
    compiled = pliant.compile(map_over, fullgraph=True)
    torch.testing.assert_close(compiled(lambda row: row.sin() * 2, X), X.sin() * 2)
    compiled = pliant.compile(torch.cond, fullgraph=True)
    for x in (X, -X):
        expected = x.sin() if x.sum() > 0 else x.cos()
        result = compiled(x.sum() > 0, lambda t: t.sin(), lambda t: t.cos(), (x,))
        torch.testing.assert_close(result, expected)


# ---- functions that change Python objects


class Seen:
    calls = 0


def changing_lists(x, seen):
    count = 0

    def inner(a):
        nonlocal count
        count += 1
        seen.append(a.shape)
        seen.append(x)
        Seen.calls += 1
        return (a * 2).sum()

    results = [
        torch.func.grad(inner)(x), torch.vmap(inner)(x), torch.func.jacrev(inner)(x),
        torch.func.jvp(inner, (x,), (x,)), torch.func.vjp(inner, x)[0],
    ]  # fmt: skip
    return results, count


def test_functions_that_are_called_once_may_change_objects():
    compiled = pliant.compile(changing_lists, backend="eager", fullgraph=True)
    for _ in range(2):
        outcomes = []
        for function in (changing_lists, compiled):
            Seen.calls, x, seen = 0, torch.randn(2, 3), []
            _, count = function(x, seen)
            outcomes.append((count, Seen.calls, len(seen), seen[::2], seen[1] is x))
        assert outcomes[0] == outcomes[1]


def test_a_function_called_for_each_chunk_may_not_change_objects():
    def program(x):
        seen = []
        result = torch.vmap(lambda a: seen.append(1) or a * 2, chunk_size=1)(x)
        return result, seen

    assert pliant.compile(program, backend="eager")(torch.ones(3))[1] == [1, 1, 1]


def test_what_a_function_keeps_of_its_own_results():
    def program(x):
        kept = []
        torch.func.grad(lambda a: kept.append(a * 2) or a.sum())(x)
        return len(kept), x + 1

    assert pliant.compile(program, backend="eager")(torch.ones(3))[0] == 1
