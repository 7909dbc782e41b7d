"""`torch.func` inside of a compiled function whose inputs require grad: part of the program."""

import pytest
import torch
from torch.func import functional_call, grad, grad_and_value, hessian, jacrev, jvp, vjp, vmap

import pliant
from pliant.base import events
from tests.training.gradients_of import check

W = torch.randn(3, 3)


def energy(x):
    return (x.sin() ** 2).sum()


def pulled_back(x):
    out, back = vjp(lambda t: t.exp() * x.sum(), x)
    return out + back(torch.ones_like(out))[0]


def with_a_random_number(x):
    return vmap(lambda row: row * torch.rand(3), randomness="different")(x)


class PerSample(torch.nn.Module):
    """The gradient of each sample, which the loss is made of."""

    def __init__(self):
        super().__init__()
        self.inner = torch.nn.Linear(3, 2)

    def forward(self, x):
        def loss(parameters, row):
            return functional_call(self.inner, parameters, (row.unsqueeze(0),)).pow(2).sum()

        parameters = dict(self.inner.named_parameters())
        gradients = vmap(grad(loss), in_dims=(None, 0))(parameters, x)
        return gradients["weight"].pow(2).sum((1, 2)) + self.inner(x).sum(1)


class Trained(torch.nn.Module):
    """A step of gradient descent inside, as in meta-learning."""

    def __init__(self):
        super().__init__()
        self.inner = torch.nn.Linear(3, 1)

    def forward(self, x):
        parameters = dict(self.inner.named_parameters())
        slopes, value = grad_and_value(
            lambda p: functional_call(self.inner, p, (x,)).pow(2).mean(),
        )(parameters)
        stepped = {name: p - 0.1 * slopes[name] for name, p in parameters.items()}
        return functional_call(self.inner, stepped, (x,)) + value


PROGRAMS = {
    "grad": lambda x: grad(energy)(x) * x,
    "second derivative": lambda x: grad(lambda t: grad(energy)(t).sum())(x),
    "of one of two": lambda x: grad(lambda a, b: (a * b.exp()).sum(), argnums=1)(x, x * 2),
    "value too": lambda x: grad_and_value(energy)(x),
    "aux": lambda x: grad(lambda t: (energy(t), t.cos()), has_aux=True)(x),
    "vmap": lambda x: vmap(lambda row: (row @ W).tanh())(x),
    "vmap with numbers": lambda x: vmap(lambda row: row.sum() * 2 + row.mean() / 0.7 - True)(x),
    "vmap over columns": lambda x: vmap(lambda c: c.softmax(0), in_dims=1, out_dims=1)(x),
    "vmap of grad": lambda x: vmap(grad(lambda row: (row @ W).sin().sum()))(x),
    "vjp": pulled_back,
    "jacrev": lambda x: jacrev(lambda t: t.sin())(x[0]),
    "what is around": lambda x: grad(lambda t: (t * x.exp()).sum())(x * 2),
}


@pytest.fixture
def x():
    return torch.randn(4, 3, requires_grad=True)


@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("name", PROGRAMS)
def test_transforms(name, dynamic, x) -> None:
    check(PROGRAMS[name], x, dynamic=dynamic)


@pytest.mark.parametrize("module", [PerSample, Trained], ids=lambda module: module.__name__)
def test_parameters(module, x) -> None:
    check(module(), x)
    check(module(), x.detach())


def test_forward_mode_is_left_to_pytorch(x) -> None:
    check(lambda x: jvp(torch.sin, (x,), (x * 2,))[1], x, generated=False)
    check(lambda x: hessian(lambda t: t.pow(3).sum())(x[0]), x, generated=False)
    check(lambda x: vmap(lambda r: jvp(torch.sin, (r,), (r,))[1])(x), x, generated=False)


def test_forward_mode_without_gradients(x) -> None:
    """PyTorch runs the transform as a whole, with tuples where the program gave tuples."""

    def function(x):
        return jvp(torch.sin, (x,), (x * 2,))[1] + 1

    compiled = pliant.compile(function, backend="llvm")
    torch.testing.assert_close(compiled(x.detach()), function(x.detach()))
    assert events.counters["fallbacks"] == events.counters["not_generated"] == 0


def test_random_numbers(x) -> None:
    check(with_a_random_number, x)
