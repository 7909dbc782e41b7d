"""Writes to inputs that require grad: afterwards the caller's tensor has the graph's history."""

import gc
import weakref

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import pliant
from pliant.base import events


def relu(x, y, b):
    x.relu_()
    return x * y


def product(x, y, b):
    x.mul_(y)  # the gradient of y needs x as it was
    return x.sum()


def returned(x, y, b):
    x += y
    return x


def twice(x, y, b):
    x.sin_()
    x.mul_(0.5)
    return x * y, x


def viewed(x, y, b):
    x.exp_()
    return x.view(-1), y * 2


def part(x, y, b):
    x[0].mul_(2)
    return x.sum() + y.sum()


def buffer(x, y, b):
    b.mul_(y)  # which requires grad from now on
    return x * b


def both(x, y, b):
    x.tanh_()
    y.add_(x)
    return x * y


def copied(x, y, b):
    x.copy_(y)
    return x * 2


def zeroed(x, y, b):
    x.zero_()
    return y * 2


def unused(x, y, b):
    x.add_(1)
    return y.detach()


def without_grad(x, y, b):
    with torch.no_grad():
        x.mul_(2)
    return y * 2


def detached(x, y, b):
    x.detach().mul_(2)
    return y * 2


def computed_before(x, y, b):
    z = (x + 1) * y
    x.sigmoid_()
    return z + x


PROGRAMS = [
    *(relu, product, returned, twice, viewed, part, buffer, both, copied, zeroed, unused),
    *(without_grad, detached, computed_before),
]


def training(function, create_graph: bool, sizes):
    """What can be seen of some steps."""
    torch.manual_seed(0)
    told = []
    for size in sizes:
        a, c = (torch.randn(size, 3, requires_grad=True) for _ in range(2))
        x, y, b = (a * 2).sin(), c.cos(), torch.randn(size, 3)
        versions = [t._version for t in (x, y, b)]
        outputs = function(x, y, b)
        outputs = outputs if isinstance(outputs, tuple) else (outputs,)
        told += [t._version - v for t, v in zip((x, y, b), versions, strict=True)]
        told += [t.requires_grad for t in (x, y, b, *outputs)]
        told += [t.detach().clone() for t in (x, y, b, *outputs)]
        told += [out is x for out in outputs]
        loss = sum((out * torch.linspace(1, 2, out.numel()).view_as(out)).sum() for out in outputs)
        loss = loss + (x**2).sum() + (y * 3).sum() + b.sum()
        gradients = torch.autograd.grad(loss, [a, c], create_graph=create_graph)
        told += gradients
        if create_graph:
            told += torch.autograd.grad(sum([g.pow(2).sum() for g in gradients]), [a, c])
    return told


@pytest.mark.parametrize("create_graph", [False, True])
@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.__name__)
def test_values_and_gradients(program, create_graph: bool) -> None:
    sizes = (4, 4, 5, 7, 1)
    theirs = training(program, create_graph, sizes)
    mine = training(pliant.compile(program, backend="llvm"), create_graph, sizes)
    for a, b in zip(mine, theirs, strict=True):
        if isinstance(b, torch.Tensor):
            torch.testing.assert_close(a, b)
            assert a.stride() == b.stride()
        else:
            assert a == b
    assert events.counters["not_generated"] == events.counters["fallbacks"] == 0


def test_layers_that_work_in_place() -> None:
    """As the parts of a network whose first layer overwrites what it is given."""

    def losses(compiles: bool):
        torch.manual_seed(0)
        first = nn.Conv2d(3, 4, 3)
        second = nn.Sequential(nn.ReLU(inplace=True), nn.Conv2d(4, 2, 3), nn.Dropout(0.3, True))
        run = pliant.compile(second, backend="llvm") if compiles else second
        for _ in range(3):
            run(first(torch.randn(2, 3, 8, 8))).square().mean().backward()
        return [p.grad for p in (*first.parameters(), *second.parameters())]

    for a, b in zip(losses(True), losses(False), strict=True):
        torch.testing.assert_close(a, b)
    assert events.counters["not_generated"] == 0


def test_hooks_and_retained_gradients() -> None:
    """Hooks stay where they were; `retain_grad` is of the new value."""

    def seen(function):
        told = []
        torch.manual_seed(0)
        a = torch.randn(3, requires_grad=True)
        x = a.sin()
        x.retain_grad()
        x.register_hook(lambda grad: told.append(("before", grad.clone())))
        out = function(x, a.sin(), torch.ones(3))
        x.register_hook(lambda grad: told.append(("after", grad.clone())))
        (out.sum() + x.sum()).backward()
        return [*told, ("x", x.grad), ("a", a.grad)]

    mine, theirs = seen(pliant.compile(relu, backend="llvm")), seen(relu)
    assert [name for name, _ in mine] == [name for name, _ in theirs]
    for (_, a), (_, b) in zip(mine, theirs, strict=True):
        torch.testing.assert_close(a, b)


def test_a_leaf_is_refused() -> None:
    compiled = pliant.compile(relu, backend="llvm")
    a = torch.randn(3, requires_grad=True)
    compiled(a.sin(), a.sin(), torch.ones(3))
    for _ in range(2):
        with pytest.raises(RuntimeError, match="a leaf Variable that requires grad"):
            compiled(a, a.sin(), torch.ones(3))


def test_a_view_after_a_tensor_of_its_own() -> None:
    """PyTorch runs it: the history of a view is that of its base."""

    def gradient(function, whole: bool):
        torch.manual_seed(0)
        a = torch.randn(4, 3, requires_grad=True)
        base = a.sin()
        x = base if whole else base[1:3]
        out = function(x, a[: x.size(0)].sin(), torch.ones(x.shape))
        (out.sum() + base.square().sum()).backward()
        return a.grad

    for function in (relu, product):
        compiled = pliant.compile(function, backend="llvm", dynamic=True)
        for whole in (True, False, True):
            torch.testing.assert_close(gradient(compiled, whole), gradient(function, whole))


def test_inputs_that_share_memory() -> None:
    def function(x, y):
        x.mul_(2)
        return x.sum() + (y * y).sum()

    def gradient(run):
        a = torch.arange(1.0, 5, requires_grad=True)
        x = a.sin()
        run(x, x[:2]).backward()
        return a.grad

    compiled = pliant.compile(function, backend="llvm")
    torch.testing.assert_close(gradient(compiled), gradient(function))


def test_a_write_after_it_is_noticed() -> None:
    compiled = pliant.compile(lambda x: x.exp_() * 2, backend="llvm")
    a = torch.randn(3, requires_grad=True)
    x = a.sin()
    out = compiled(x)
    x.detach().zero_()
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        out.sum().backward()


def test_used_up_and_freed() -> None:
    compiled = pliant.compile(lambda x: x.exp_() * 2, backend="llvm")
    a = torch.randn(3, requires_grad=True)
    x = a.sin()
    out = compiled(x)
    out.sum().backward(retain_graph=True)
    out.sum().backward()
    with pytest.raises(RuntimeError, match="a second time"):
        out.sum().backward()
    y = a.sin()
    compiled(y)  # what is saved is y itself: no cycle keeps it
    gone = weakref.ref(y)
    del y
    assert gone() is None
    gc.collect()


def test_behind_a_graph_break() -> None:
    def function(x):
        x = x.sin()
        print(end="")
        F.relu(x, inplace=True)
        return x * 2

    def gradient(run):
        torch.manual_seed(0)
        a = torch.randn(5, requires_grad=True)
        run(a).sum().backward()
        return a.grad

    compiled = pliant.compile(function, backend="llvm")
    torch.testing.assert_close(gradient(compiled), gradient(function))
    assert events.counters["not_generated"] == 0
