"""Graphs break where the back end can't compile an operation, instead of not being compiled."""

import gc
import random
import weakref
from dataclasses import dataclass

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import nn

import pliant
from pliant.backends.registry import lookup
from pliant.base import events
from tests.support.against_eager import check
from tests.support.training_programs import rows, trains_alike


def around(operation):
    """The operation between others, enough of them for a break to be worth its time."""

    def function(x):
        x = ((x * 2).sin() + 1).cos() * x
        x = operation(x)
        return ((x.exp() + 2).tanh() * 3).sum(0) - x.mean()

    return function


def through_numpy(x):
    return torch.from_numpy(x.numpy() * 2)


def listed(x):
    items = x.flatten().tolist()
    return x + (items[0] + items[-1])


def test_the_rest_is_compiled() -> None:
    function, x = around(listed), torch.randn(9, 8)
    torch.testing.assert_close(pliant.compile(function, backend="llvm")(x), function(x))
    assert events.counters["not_generated"] == 0
    assert events.counters["graphs"] == 2
    assert dict(events.counters.breaks) == {"not-generated": 1}


def test_sizes_that_vary_behind_the_break() -> None:
    function = around(listed)
    compiled = pliant.compile(function, backend="llvm")
    for size in (3, 5, 9, 1):
        x = torch.randn(size, 4)
        torch.testing.assert_close(compiled(x), function(x))
    assert events.counters["not_generated"] == 0


def test_under_fullgraph_pytorch_runs_the_graph() -> None:
    compiled = pliant.compile(around(listed), backend="llvm", fullgraph=True)
    compiled(torch.randn(9, 8))
    assert events.counters["not_generated"] == 1


def test_a_few_operations_are_not_worth_a_break() -> None:
    check(lambda x: through_numpy(x) + 1, torch.randn(3), fullgraph=False, backend="llvm")
    assert events.counters["not_generated"] == 1


def test_where_there_is_no_break() -> None:
    """The operation is in a function that C code calls, which can't stop half-way."""

    def function(x):
        rows = sorted(x.sin().cos().exp().unbind(), key=lambda row: row.numpy().shape[0])
        return (rows[0] * 2 + rows[1]).tanh().sum() + x.mean() * x.std()

    check(function, torch.randn(3, 4), breaks=None, fullgraph=False, backend="llvm")


class Clamped(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.mark_dirty(x)
        x.clamp_(min=0)
        ctx.save_for_backward(x)
        return x

    @staticmethod
    def backward(ctx, gradient):
        (y,) = ctx.saved_tensors
        return gradient * (y > 0)


def network():
    return nn.Sequential(
        nn.Linear(8, 16),
        nn.LayerNorm(16),
        nn.GELU(),
        nn.Linear(16, 16),
        nn.Tanh(),
        nn.Linear(16, 2),
    )


def writing(model, x):
    hidden = Clamped.apply(model[3](model[2](model[1](model[0](x)))).sin())
    return model[5](model[4](hidden))


class Noise(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x.clone()

    @staticmethod
    def backward(ctx, gradient):
        return gradient + torch.randn_like(gradient) * 0.1


def noisy(model, x):
    hidden = Noise.apply(model[3](model[2](model[1](model[0](x)))).sin())
    return model[5](model[4](hidden))


@pytest.mark.parametrize("whole", [False, True])
@pytest.mark.parametrize("forward", [writing, noisy])
def test_functions_of_the_program_in_training(forward, whole: bool) -> None:
    def make(compile):
        model = network()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        run = forward if whole else compile(forward)

        def step(x, y):
            optimizer.zero_grad()
            loss = F.mse_loss(run(model, x), y)
            loss.backward()
            optimizer.step()
            return loss

        return compile(step) if whole else step, [model, optimizer]

    trains_alike(make, rows(), breaks=None)
    assert events.counters.breaks["not-generated"] > 0


def test_sparse_gradients() -> None:
    def make(compile):
        embed, model = nn.Embedding(30, 8, sparse=True), network()
        optimizer = torch.optim.SGD([*embed.parameters(), *model.parameters()], lr=0.1)
        run = compile(lambda x: model(embed(x).mean(1)).sin())

        def step(x, y):
            optimizer.zero_grad()
            loss = F.mse_loss(run(x), y)
            loss.backward()
            optimizer.step()
            return loss.detach(), embed.weight.detach()

        return step, model

    batches = [lambda n=n: (torch.randint(30, (n, 4)), torch.randn(n, 2)) for n in (4, 4, 7, 3)]
    trains_alike(make, batches, breaks=None)
    assert events.counters.breaks["not-generated"] > 0


def test_an_optimizer_that_calls_the_loss() -> None:
    """Its step begins without gradients, and computes them inside."""

    def make(compile):
        model = network()
        optimizer = torch.optim.LBFGS(model.parameters(), max_iter=2)

        @compile
        def step(x, y):
            def closure():
                optimizer.zero_grad()
                loss = F.mse_loss(model(x), y)
                loss.backward()
                return loss

            return optimizer.step(closure)

        return step, model

    trains_alike(make, rows(4, 4), breaks=None, close=(1e-2, 1e-3))


def test_gradients_that_use_up_the_history() -> None:
    """As an estimate of the diagonal of a Hessian does."""

    def make(compile):
        model = nn.Sequential(nn.Linear(8, 16), nn.Tanh(), nn.Linear(16, 2))
        weights = list(model.parameters())
        optimizer = torch.optim.SGD(weights, lr=0.1)

        @compile
        def step(x, y):
            loss = F.mse_loss(model(x), y)
            gradients = torch.autograd.grad(loss, weights, create_graph=True)
            signs = [torch.randint_like(w, 0, 2) * 2 - 1 for w in weights]
            products = torch.autograd.grad(gradients, weights, signs)
            for weight, gradient, product in zip(weights, gradients, products, strict=True):
                weight.grad = gradient.detach() / (1 + product.abs())
            optimizer.step()
            return loss

        return step, [model, optimizer]

    trains_alike(make)


def looked_at(x):
    return float(x.detach().numpy().sum())


def by_an_inner_tensor(x):
    hidden = (x.sin() * 2).exp()
    result = (hidden.cos() + 1).tanh() * hidden
    number = looked_at(result)
    (gradient,) = torch.autograd.grad(result.sum(), hidden)
    return gradient * number


def by_an_inner_tensor_of_one_graph(x):
    hidden = (x.sin() * 2).exp()
    result = (hidden.cos() + 1).tanh() * hidden
    (gradient,) = torch.autograd.grad((result * through_numpy(result.detach())).sum(), hidden)
    return gradient


def retained(x):
    hidden = (x.sin() * 2).exp()
    hidden.retain_grad()
    result = (hidden.cos() + 1).tanh() * hidden
    (result * through_numpy(result.detach())).sum().backward()
    return hidden.grad, x.grad


def retained_later(x):
    hidden = (x.sin() * 2).exp()
    result = (hidden.cos() + 1).tanh() * hidden
    result = result * through_numpy(result.detach())
    hidden.retain_grad()
    result.sum().backward()
    return hidden.grad, x.grad


def hooked(x):
    hidden = (x.sin() * 2).exp()
    hidden.register_hook(lambda gradient: gradient * 2)
    result = (hidden.cos() + 1).tanh() * hidden
    (result * through_numpy(result.detach()) + hidden).sum().backward()
    return x.grad


def hooked_later(x):
    hidden = (x.sin() * 2).exp()
    result = (hidden.cos() + 1).tanh() * hidden
    result = result * through_numpy(result.detach()) + hidden
    hidden.register_hook(lambda gradient: gradient * 2)
    result.sum().backward()
    return x.grad


@pytest.mark.parametrize(
    "function",
    [
        by_an_inner_tensor,
        by_an_inner_tensor_of_one_graph,
        retained,
        retained_later,
        hooked,
        hooked_later,
    ],
)
def test_gradients_of_what_is_computed_before(function) -> None:
    """For autograd the results of a graph don't depend on each other, so it stays whole."""
    mine = torch.randn(3, 4, requires_grad=True)
    theirs = mine.detach().clone().requires_grad_()
    compiled = pliant.compile(function, backend="llvm")
    torch.testing.assert_close(compiled(mine), function(theirs))


def test_gradients_that_are_enabled_behind_a_break() -> None:
    """The graph behind it starts without gradients, and its results have a history."""

    def function(x, w):
        with torch.no_grad():
            y = through_numpy(x.sin().cos() * 2 + 1)
            pliant.graph_break()
        return (w * y).sum()

    x, w = torch.randn(3), torch.ones(3, requires_grad=True)
    for run in (pliant.compile(function, backend="llvm"), function):
        result = run(x, w)
        assert result.requires_grad
        (gradient,) = torch.autograd.grad(result, w)
        torch.testing.assert_close(gradient, x.sin().cos() * 4 + 2)


def test_effects_come_once() -> None:
    """Random numbers, writes and Python's own effects, in front of the break and behind it."""
    seen = []

    def function(x):
        seen.append(x.shape[0])
        y = (x + torch.rand_like(x)).sin().cos() * random.random()
        x.add_(1)
        z = listed(y) * torch.randn(x.shape[0], 1) * np.random.rand()
        x.mul_(z.tanh())
        seen.append(z)
        return (x * 2 + y).exp().tanh() + torch.rand(1)

    def run(run, size):
        torch.manual_seed(size)
        random.seed(size)
        np.random.seed(size)
        x = torch.randn(size, 32)
        seen.clear()
        return run(x), x, torch.rand(1), random.random(), np.random.rand(), list(seen)

    compiled = pliant.compile(function, backend="llvm")
    for size in (3, 3, 5, 1, 7):
        torch.testing.assert_close(run(compiled, size), run(function, size))
    assert events.counters.breaks["not-generated"] > 0


def test_loops() -> None:
    """Each time around, the graph could break: it is captured a limited number of times."""

    def function(x):
        for row in x:
            x = x + (row.sin().cos() * 2 + through_numpy(row) * 2).tanh()
        return x

    compiled = pliant.compile(function, backend="llvm")
    for size in (3, 5, 40):
        x = torch.randn(size, 4) / 8
        torch.testing.assert_close(compiled(x), function(x))
    assert events.counters["backend_calls"] < 30


def test_many_operations_without_code() -> None:
    """Gradients are refused from the last one on, so each time the graph is cut shorter."""
    embeddings = nn.ModuleList([nn.Embedding(20, 4, sparse=True) for _ in range(12)])

    def function(x):
        return sum((e(x[:, i]).tanh() * 2 + 1).sin() for i, e in enumerate(embeddings))

    compiled = pliant.compile(function, backend="llvm")
    for size in (3, 5):
        gradients = []
        for run in (compiled, function):
            embeddings.zero_grad()
            run(torch.arange(size * 12).reshape(size, 12) % 20).sum().backward()
            gradients.append([p.grad.to_dense() for p in embeddings.parameters()])
        torch.testing.assert_close(*gradients)
    assert events.counters["backend_calls"] < 100


def test_other_backends_get_whole_graphs() -> None:
    graphs = []

    def backend(graph, examples):
        graphs.append(graph)
        return lookup("llvm")(graph, examples)

    function, x = around(through_numpy), torch.randn(9, 8)
    torch.testing.assert_close(pliant.compile(function, backend=backend)(x), function(x))
    assert len(graphs) == 1
    assert events.counters["not_generated"] == 1


def test_nothing_is_kept() -> None:
    function, x = around(through_numpy), torch.randn(9, 8)
    compiled = pliant.compile(function, backend="llvm")
    compiled(x)
    gone = weakref.ref(x)
    del x
    gc.collect()
    assert gone() is None


def test_an_error_of_the_program_with_attributes_of_its_own() -> None:
    @dataclass(frozen=True)
    class Refused(RuntimeError):
        pliant_culprit: str = "mine"

    class Raises(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x.clone()

        @staticmethod
        def backward(ctx, gradient):
            raise Refused("here")

    function, x = around(Raises.apply), torch.randn(9, 8, requires_grad=True)
    result = pliant.compile(function, backend="llvm")(x)
    with pytest.raises(Refused, match="here"):
        result.sum().backward()
