"""The program's own code in the backward: `autograd.Function`, and hooks of tensors."""

import gc
import random

import pytest
import torch

import pliant
from pliant.base import events
from pliant.fake.tensor import Fake
from tests.training.gradients_of import check


class Doubled(torch.autograd.Function):
    """An exponential with twice its gradient."""

    @staticmethod
    def forward(ctx, x):
        y = x.exp()
        ctx.save_for_backward(y)
        return y

    @staticmethod
    def backward(ctx, grad):
        (y,) = ctx.saved_tensors
        return 2 * grad * y


class StraightThrough(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x.sign()

    @staticmethod
    def backward(ctx, grad):
        return grad.clamp(-0.5, 0.5)


class Scaled(torch.autograd.Function):
    """With a context that is made apart, and an argument that is no tensor."""

    @staticmethod
    def forward(x, factor):
        return x * factor

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.factor = inputs[1]

    @staticmethod
    def backward(ctx, grad):
        return grad * ctx.factor, None


class Reversed(torch.autograd.Function):
    """A view whose gradient is not that of a view."""

    @staticmethod
    def forward(ctx, x):
        return x.view_as(x)

    @staticmethod
    def backward(ctx, grad):
        return -grad


class Pair(torch.autograd.Function):
    """Two results; the gradients are not linear in theirs."""

    @staticmethod
    def forward(ctx, a, b):
        ctx.save_for_backward(a, b)
        return a * b, a + b

    @staticmethod
    def backward(ctx, first, second):
        a, b = ctx.saved_tensors
        needed = ctx.needs_input_grad
        return (
            (first * b).clamp(min=0.1) + second.clamp(min=0.2) if needed[0] else None,
            first * a + second.cos() if needed[1] else None,
        )


class Masked(torch.autograd.Function):
    """A gradient that is written to in part."""

    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x.clamp(min=0)

    @staticmethod
    def backward(ctx, grad):
        (x,) = ctx.saved_tensors
        result = grad.clone()
        result[x < 0] = 0.25
        return result


class Unmaterialized(torch.autograd.Function):
    """Gets None for a gradient that isn't there: always for that of its second result."""

    @staticmethod
    def forward(ctx, x):
        ctx.set_materialize_grads(False)
        ctx.save_for_backward(x)
        kept = x > 0
        ctx.mark_non_differentiable(kept)
        return x.sin(), kept

    @staticmethod
    def backward(ctx, grad, nothing):
        (x,) = ctx.saved_tensors
        return grad * x.cos() if nothing is None else grad * 100


class UnmaterializedPair(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.set_materialize_grads(False)
        return x * 2, x * 3

    @staticmethod
    def backward(ctx, first, second):
        gradients = [g * n for g, n in ((first, 2), (second, 3)) if g is not None]
        return sum(gradients) if len(gradients) > 1 else gradients[0].clone() * 10


calls = []


class Telling(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x * 2

    @staticmethod
    def backward(ctx, grad):
        calls.append(tuple(grad.shape))
        return grad * 2


class Drawing(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x * 2

    @staticmethod
    def backward(ctx, grad):
        return grad * torch.rand(4)


@pytest.fixture
def x():
    return torch.randn(6, 4, requires_grad=True)


PROGRAMS = {
    "saved result": lambda x: Doubled.apply(x.sin()) * x,
    "straight through": lambda x: StraightThrough.apply(x @ x.T).sum(1),
    "own context": lambda x: Scaled.apply(x.sin(), 3.0) + 1,
    "view": lambda x: Reversed.apply(x * 2).sin(),
    "view of an input": lambda x: Reversed.apply(x).sin(),
    "two results": lambda x: Pair.apply(x * 2, x.sin()),
    "one of two results": lambda x: Pair.apply(x * 2, x.sin())[1] * 3,
    "some inputs": lambda x: Pair.apply(x * 2, x.detach())[0],
    "written gradient": lambda x: Masked.apply(x * 1),
    "inside of each other": lambda x: Doubled.apply(StraightThrough.apply(Doubled.apply(x))),
    "twice": lambda x: Scaled.apply(x, 2.0) + Scaled.apply(x, 3.0),
    "no zeros for two": lambda x: torch.mul(*UnmaterializedPair.apply(x * 1)),
    "no zeros for one of two": lambda x: UnmaterializedPair.apply(x * 1)[1].sin(),
    "no zeros": lambda x: torch.where(*Unmaterialized.apply(x * 2)[::-1], x),
}


@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("name", PROGRAMS)
def test_functions(name, dynamic, x) -> None:
    check(PROGRAMS[name], x, dynamic=dynamic)


@pytest.mark.parametrize("name", ["saved result", "view", "two results", "written gradient"])
def test_without_gradients(name, x) -> None:
    compiled = pliant.compile(PROGRAMS[name], backend="llvm")
    with torch.no_grad():
        torch.testing.assert_close(compiled(x), PROGRAMS[name](x))
    assert events.counters["not_generated"] == 0


def test_views_that_are_returned(x) -> None:
    """The view is made behind the compiled step, where the function's gradient can't be."""
    check(lambda x: (Reversed.apply(x), x * 2), x, generated=False)
    check(lambda x: Reversed.apply(x * 2)[0], x, generated=False)


@pytest.mark.parametrize("used", [(0,), (1,), (2,), (0, 1), (0, 2), (1, 2), (0, 1, 2)])
def test_results_without_a_gradient(used, x) -> None:
    """A function is called with zeros, or not at all."""

    def function(a):
        first, second = Pair.apply(a * 2, a.sin())
        return first, second, Doubled.apply(a)

    compiled = pliant.compile(function, backend="llvm")
    gradients = []
    for run in (function, compiled):
        x.grad = None
        outputs = run(x)
        sum(outputs[at].sum() for at in used).backward()
        gradients.append(x.grad)
    torch.testing.assert_close(*gradients)


@pytest.mark.parametrize("used", [(0,), (1,), (0, 1)])
def test_none_for_one_of_two_gradients(used, x) -> None:
    """Which of them are there is known when it runs: PyTorch calls the backward."""

    def function(x):
        return UnmaterializedPair.apply(x.sin())

    def gradient(run):
        outputs = run(x)
        return torch.autograd.grad(sum(outputs[at].sum() for at in used), x)[0]

    compiled = pliant.compile(function, backend="llvm")
    torch.testing.assert_close(gradient(compiled), gradient(function))


def test_a_backward_with_effects_is_called_each_time(x) -> None:
    compiled = pliant.compile(lambda x: Telling.apply(x.sin()), backend="llvm", fullgraph=True)
    calls.clear()
    for _ in range(3):
        compiled(x).sum().backward()
    assert calls == [(6, 4)] * 3


class Printing(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x * 2

    @staticmethod
    def backward(ctx, grad):
        if grad.sum() > 0:
            print("backward", end="")
        return grad * 2


def test_a_backward_that_depends_on_data(x, capsys) -> None:
    compiled = pliant.compile(lambda x: Printing.apply(x.sin()), backend="llvm", fullgraph=True)
    for sign in (1, -1, 1):
        (sign * compiled(x)).sum().backward()
    assert capsys.readouterr().out == "backward" * 2


class Dicing(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x * 2

    @staticmethod
    def backward(ctx, grad):
        return grad * random.random()


def test_a_backward_that_draws_in_python(x) -> None:
    def function(x):
        return Dicing.apply(x.sin())

    gradients = []
    for run in (function, pliant.compile(function, backend="llvm")):
        random.seed(0)
        for _ in range(3):
            gradients.append(torch.autograd.grad(run(x).sum(), x)[0])
    torch.testing.assert_close(gradients[:3], gradients[3:])


def test_a_backward_that_draws(x) -> None:
    check(lambda x: Drawing.apply(x.sin()), x, generated=False)


def test_gradients_of_gradients(x) -> None:
    x = x.detach().double().requires_grad_()

    def second(run):
        (first,) = torch.autograd.grad(run(x).sum(), x, create_graph=True)
        return torch.autograd.grad(first.pow(2).sum(), x)

    function = PROGRAMS["saved result"]
    torch.testing.assert_close(second(pliant.compile(function, backend="llvm")), second(function))


def test_another_backward_in_the_same_class(x) -> None:
    class Changing(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x * 2

        @staticmethod
        def backward(ctx, grad):
            return grad * 3

    def function(x):
        return Changing.apply(x.sin())

    compiled = pliant.compile(function, backend="llvm")
    compiled(x).sum().backward()
    Changing.backward = staticmethod(lambda ctx, grad: grad * 5)
    x.grad = None
    compiled(x).sum().backward()
    torch.testing.assert_close(x.grad, 5 * x.cos())


# --------------------------------------------------------------------------------------------------
# Hooks


def hooked(x):
    y = x.sin()
    y.register_hook(lambda grad: grad.clamp(-0.1, 0.1))
    return y.exp() * x


def returned(x):
    y = x.sin()
    y.register_hook(lambda grad: grad.abs() + 1)
    return y, y.exp()


def removed(x):
    y = x.sin()
    handle = y.register_hook(lambda grad: grad * 2)
    handle.remove()
    return y.exp()


def several(x):
    y = x.sin()
    y.register_hook(lambda grad: grad * 2)
    y.register_hook(lambda grad: grad + 1)
    y.register_hook(lambda grad: None)
    return y.exp()


def around(x, w):
    y = x.sin()
    y.register_hook(lambda grad: grad * w)
    return y.exp()


@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("function", [hooked, returned, removed, several])
def test_hooks(function, dynamic, x) -> None:
    check(function, x, dynamic=dynamic)


def test_a_hook_that_uses_a_tensor(x) -> None:
    check(around, x, torch.randn(6, 4))


@pytest.mark.parametrize("used", [(0,), (1,), (0, 1)])
def test_hooks_where_no_gradient_arrives(used, x) -> None:
    def function(x):
        y = x.sin()
        y.register_hook(lambda grad: grad + 1)
        return y.exp(), x * 2

    gradients = []
    for run in (function, pliant.compile(function, backend="llvm")):
        x.grad = None
        outputs = run(x)
        sum(outputs[at].sum() for at in used).backward()
        gradients.append(x.grad)
    torch.testing.assert_close(*gradients)


def test_hooks_on_views_that_are_returned(x) -> None:
    def function(x):
        y = x.view(-1)
        y.register_hook(lambda grad: grad * 2)
        return y, x * 2

    check(function, x, generated=False)


def test_nothing_is_left_behind(x) -> None:
    def fakes():
        gc.collect()
        return sum(type(o) is Fake for o in gc.get_objects())

    def make():
        for function in (hooked, PROGRAMS["saved result"], PROGRAMS["view"]):
            pliant.compile(function, backend="llvm")(x).sum().backward()

    make()
    before = fakes()
    make()
    assert fakes() <= before
