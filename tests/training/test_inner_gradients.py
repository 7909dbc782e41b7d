"""`torch.autograd.grad` inside of a compiled function: forces, penalties, derivatives in losses."""

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import pliant
from pliant.base import events
from tests.training.gradients_of import check, compare, outcome


class Energy(nn.Module):
    """A potential, and forces that are trained too."""

    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 8), nn.GELU())
        self.head = nn.Linear(8, 2)

    def forward(self, x):
        energy = self.head(self.net(x)).sum()
        (force,) = torch.autograd.grad(energy, x, create_graph=True)
        return energy, -force


class Physics(nn.Module):
    """A residual with second derivatives by a coordinate that becomes a leaf inside."""

    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(2, 8), nn.Tanh(), nn.Linear(8, 2))

    def forward(self, t):
        t = t.detach().requires_grad_()
        u = self.net(t)
        (first,) = torch.autograd.grad(u.sum(), t, create_graph=True)
        (second,) = torch.autograd.grad(first.sum(), t, create_graph=True)
        return (second + u).pow(2).mean()


class Normed(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv, self.norm = nn.Conv1d(2, 3, 3), nn.BatchNorm1d(3)

    def forward(self, x):
        score = self.norm(self.conv(x)).relu().sum()
        (grad,) = torch.autograd.grad(score, x, create_graph=True)
        return (grad.flatten(1).norm(dim=1) - 1).pow(2).mean()


class Attention(nn.Module):
    def __init__(self):
        super().__init__()
        self.query, self.key = nn.Linear(4, 4), nn.Linear(4, 4)

    def forward(self, x):
        weights = F.softmax(self.query(x) @ self.key(x).transpose(-1, -2), -1)
        y = (weights @ x).sin()
        (grad,) = torch.autograd.grad(y.sum(), x, create_graph=True)
        return grad.pow(2).sum((1, 2)), y


MODELS = {
    "forces": (Energy, (6, 4)),
    "physics": (Physics, (6, 2)),
    "norms": (Normed, (5, 2, 9)),
    "batches of matrices": (Attention, (3, 5, 4)),
}


@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("name", MODELS)
def test_gradients_that_are_trained(name, dynamic) -> None:
    make, sizes = MODELS[name]
    x = torch.randn(sizes, requires_grad=name != "physics")
    # PyTorch's second derivative of batch norm wants plain sizes.
    check(make(), x, dynamic=dynamic, generated=not (dynamic and name == "norms"))


def test_gradients_that_are_not() -> None:
    def function(x, w):
        y = (x * w).sin().sum()
        (grad,) = torch.autograd.grad(y, x, retain_graph=True)
        return y + grad.sum(), grad

    check(function, torch.randn(6, 4, requires_grad=True), torch.randn(4, requires_grad=True))


def test_several_inputs_and_none() -> None:
    def function(a, b, c):
        grads = torch.autograd.grad((a * b).sum(), (a, b, c), create_graph=True, allow_unused=True)
        return [g * 2 for g in grads if g is not None]

    check(function, *[torch.randn(3, requires_grad=True) for _ in range(3)])


def test_no_input_requires_grad() -> None:
    """As in molecular dynamics: nothing is trained, and forces are wanted."""

    def forces(x):
        with torch.enable_grad():
            x = x.detach().requires_grad_()
            energy = (x[:, None] - x[None]).pow(2).sum(-1).add(1).log().sum()
            return -torch.autograd.grad(energy, x)[0], energy.detach()

    x = torch.randn(5, 3)
    for run in (forces, pliant.compile(forces, backend="llvm")):
        torch.testing.assert_close(run(x), forces(x))
    assert events.counters["not_generated"] == 0
    assert events.counters["programs"] == 1


def test_a_leaf_that_is_returned() -> None:
    def function(w):
        t = torch.ones(4).requires_grad_()
        return (t * w).sum(), t

    w = torch.randn(4, requires_grad=True)
    loss, t = pliant.compile(function, backend="llvm")(w)
    loss.backward()
    torch.testing.assert_close(t.grad, w.detach())


def test_hooks_on_an_input_run() -> None:
    def function(x):
        (grad,) = torch.autograd.grad(x.sin().sum(), x, create_graph=True)
        return grad.sum()

    x = torch.randn(4, requires_grad=True)
    run = pliant.compile(function, backend="llvm")
    compare(outcome(run, [x]), outcome(function, [x]))
    x.register_hook(lambda grad: grad * 2)
    torch.testing.assert_close(run(x), function(x))


def test_inputs_that_are_computed_outside() -> None:
    """What lies between them is not in the graph."""

    def function(a, b):
        (grad,) = torch.autograd.grad((a * b).sum(), a, create_graph=True)
        return grad

    run = pliant.compile(function, backend="llvm")
    for _ in range(2):
        a = torch.randn(4, requires_grad=True)
        b = a.exp()
        torch.testing.assert_close(run(a, b), function(a, b))
        torch.testing.assert_close(run(a, b.detach()), function(a, b.detach()))


def test_gradients_of_the_chosen_inputs_only() -> None:
    """`only_inputs` has no effect, and old code gives it, by name or in its place."""

    def by_name(x, w):
        (grad,) = torch.autograd.grad(
            (x * w).sin().sum(), x, create_graph=True, retain_graph=True, only_inputs=True
        )
        return (grad.norm(2, dim=1) - 1).pow(2).mean()

    def in_its_place(x, w):
        return torch.autograd.grad((x * w).sin().sum(), x, None, True, True, True)[0]

    def unused(x, w):
        return torch.autograd.grad(x.sin().sum(), (x, w), None, True, True, True)[0]

    x, w = torch.randn(5, 4, requires_grad=True), torch.randn(4, requires_grad=True)
    for function in (by_name, in_its_place):
        run = pliant.compile(function, backend="llvm", fullgraph=True)
        compare(outcome(run, [x, w]), outcome(function, [x, w]))
    with pytest.raises(RuntimeError, match="allow_unused"):
        pliant.compile(unused, backend="llvm")(x, w)


def test_only_inputs_warns_if_it_is_false() -> None:
    def function(x):
        return torch.autograd.grad(x.sin().sum(), x, only_inputs=False)[0]

    x = torch.randn(4, requires_grad=True)
    with pytest.warns(FutureWarning, match="only_inputs"):
        torch.testing.assert_close(pliant.compile(function, backend="llvm")(x), x.detach().cos())


def test_second_derivatives_are_laid_out_as_autograd_does() -> None:
    def function(x, v, w):
        loss = F.linear(torch.tanh(x @ v), w).pow(2).mean()
        grads = torch.autograd.grad(loss, (v, w), create_graph=True)
        return torch.autograd.grad([grad.sum() for grad in grads], (v, w))

    sizes = (5, 4), (4, 8), (3, 8)
    args = [torch.randn(size, requires_grad=True) for size in sizes]
    run = pliant.compile(function, backend="llvm", fullgraph=True)
    compare(outcome(run, args), outcome(function, args), rtol=1e-5, atol=1e-6)


def _forces(x, create: bool):
    scale = x.detach().abs().mean() + 1
    with torch.enable_grad():
        energy = ((x * scale).sin() * x).sum()
        (force,) = torch.autograd.grad(energy, x, create_graph=create)
    return energy, force, force * 2


CALLED_WITHOUT = {
    "computed": lambda x: (_enabled(lambda: (x * 2).sin()), x * 3),
    "forces": lambda x: _forces(x, False),
    "forces with a history": lambda x: _forces(x, True),
    "then without": lambda x: (_enabled(lambda: x.exp()) * 2, x + 1),
    "a view": lambda x: _enabled(lambda: (x * 2)[:1]),
    "written": lambda x: _enabled(lambda: (x * 2).mul_(x)),
    "left on": lambda x: (x.cos(), torch.set_grad_enabled(True), x * 2)[::2],
}


def _gradient(result, x):
    try:
        return torch.autograd.grad(result.sum(), x, retain_graph=True)[0]
    except RuntimeError:  # the history is used up
        return None


def _enabled(compute):
    with torch.enable_grad():
        return compute()


@pytest.mark.parametrize("leaf", (True, False))
@pytest.mark.parametrize("name", CALLED_WITHOUT)
def test_gradients_enabled_in_a_call_without(name, leaf) -> None:
    """Results have the history that they have in eager, and the mode is left alone."""
    program = CALLED_WITHOUT[name]
    runs = (program, pliant.compile(program, backend="llvm", dynamic=True))
    for size in (3, 5, 2, 1):
        given = torch.randn(size, 4)
        told = []
        for run in runs:
            x = given.clone().requires_grad_()
            x = x if leaf else x * 1
            with torch.no_grad():
                results = run(x)
                mode = torch.is_grad_enabled()
            results = results if isinstance(results, tuple) else (results,)
            graded = [r for r in results if r.requires_grad]
            gradients = [_gradient(r, x) for r in graded]
            told.append((mode, [r.requires_grad for r in results], results, gradients))
        assert told[1][:2] == told[0][:2]
        assert [g is None for g in told[1][3]] == [g is None for g in told[0][3]]
        torch.testing.assert_close(told[1][2], told[0][2])
        ours, theirs = ([g for g in run[3] if g is not None] for run in told[::-1])
        torch.testing.assert_close(ours, theirs)
    assert events.counters["fallbacks"] == 0
    # By inputs that are no leaves, PyTorch computes gradients that are asked for inside.
    assert events.counters["not_generated"] == (not leaf and name.startswith("forces"))


def test_a_graph_break_in_a_block_without_gradients() -> None:
    """What is computed behind the block has the history that it has in eager."""

    def program(x, y):
        hidden = x * 2
        with torch.no_grad():
            pliant.graph_break()
        return (hidden * y).sum()

    compiled = pliant.compile(program, backend="llvm")
    for size in (3, 5, 1):
        gradients = []
        for run in (program, compiled):
            x = torch.ones(size, requires_grad=True)
            run(x, torch.full((size,), 3.0)).backward()
            gradients.append(x.grad)
        torch.testing.assert_close(*gradients)
    assert events.counters["graph_breaks"] and events.counters["programs"]
    assert events.counters["not_generated"] == events.counters["fallbacks"] == 0


@pytest.mark.parametrize("used", (True, False))
def test_classes_out_of_range_beside_gradients(used) -> None:
    """The operators of `one_hot` that autograd sees don't look at the classes."""

    def program(x, classes):
        places = F.one_hot(classes, 3)
        return (places * x).sum() if used else x * 2

    compiled = pliant.compile(program, backend="llvm")
    x, classes = torch.ones(3, requires_grad=True), torch.tensor([0, 2])
    compare(outcome(compiled, [x, classes]), outcome(program, [x, classes]))
    for wrong in (3, -1):
        with pytest.raises(RuntimeError, match="Class values must be"):
            compiled(x, torch.tensor([0, wrong]))
    assert events.counters["programs"] and not events.counters["not_generated"]
