"""Reads and writes through `Tensor.data`, which autograd and version counters don't see."""

import copy

import pytest
import torch
from torch import nn

import pliant
from pliant.base import events


def clipped(model, teacher, optimizer):
    for p in model.parameters():
        p.grad.data.clamp_(-0.1, 0.1)
    optimizer.step()


def decayed(model, teacher, optimizer):
    optimizer.step()
    for p in model.parameters():
        p.data.mul_(0.9)


def stepped_by_hand(model, teacher, optimizer):
    for p in model.parameters():
        p.data.add_(p.grad, alpha=-0.1)


def subtracted(model, teacher, optimizer):
    for p in model.parameters():
        p.data -= 0.1 * p.grad.data
        p.grad.data.zero_()


def averaged(model, teacher, optimizer):
    optimizer.step()
    for slow, fast in zip(teacher.parameters(), model.parameters(), strict=True):
        slow.data.mul_(0.9).add_(fast.data, alpha=0.1)


def copied(model, teacher, optimizer):
    optimizer.step()
    for slow, fast in zip(teacher.parameters(), model.parameters(), strict=True):
        slow.data.copy_(0.9 * slow.data + 0.1 * fast.data)


def norm_of_all(model, teacher, optimizer):
    total = sum(p.grad.data.norm(2) ** 2 for p in model.parameters())
    for p in model.parameters():
        p.grad.data.mul_((1 / (total.sqrt() + 1e-6)).clamp(max=1.0))
    optimizer.step()


def noisy(model, teacher, optimizer):
    optimizer.step()
    for p in model.parameters():
        p.data.add_(torch.randn_like(p.data), alpha=0.01)


def pruned(model, teacher, optimizer):
    optimizer.step()
    for p in model.parameters():
        p.data[0].fill_(0.0)
        p.data[p.data.abs() < 0.05] = 0


def clamped_before(model, teacher, optimizer):
    optimizer.step()
    for p in model.parameters():
        p.data.clamp_(-0.3, 0.3)
    model(torch.ones(2, 4)).sum().backward()


def replaced(model, teacher, optimizer):
    for p in model.parameters():
        p.data = p.data - 0.1 * p.grad.data
    model(torch.ones(2, 4)).sum().backward()


def replaced_average(model, teacher, optimizer):
    optimizer.step()
    for slow, fast in zip(teacher.parameters(), model.parameters(), strict=True):
        slow.data = slow.data * 0.9 + fast.data * (1 - 0.9)


def replaced_and_written(model, teacher, optimizer):
    for p in model.parameters():
        with torch.no_grad():
            p.mul_(0.9)
        p.data = p.data.clamp(-0.5, 0.5)
        with torch.no_grad():
            p.sub_(0.1 * p.grad)
        p.data = p.data * 1.01
    optimizer.step()


UPDATES = [
    *(clipped, decayed, stepped_by_hand, subtracted, averaged, copied, norm_of_all, noisy),
    *(pruned, clamped_before, replaced, replaced_average, replaced_and_written),
]


def steps_of(update, compiles: bool, alone: bool = False):
    """What can be seen after some steps; `alone`: of the update compiled without the rest."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 2))
    teacher = copy.deepcopy(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    parameters = [*model.parameters(), *teacher.parameters()]
    wrap = pliant.compile if compiles else lambda f, **_: f
    finish = wrap(update, backend="llvm") if alone else update

    def step(x):
        optimizer.zero_grad()
        loss = model(x).square().mean()
        loss.backward()
        finish(model, teacher, optimizer)
        return loss

    run = step if alone else wrap(step, backend="llvm")
    told = []
    for number in range(4):
        torch.manual_seed(number)
        told += [run(torch.randn(5, 4)).detach(), [p._version for p in parameters]]
    return told + parameters + [p.grad for p in parameters]


@pytest.mark.parametrize("alone", [False, True])
@pytest.mark.parametrize("update", UPDATES, ids=lambda update: update.__name__)
def test_steps(update, alone: bool) -> None:
    theirs = steps_of(update, False, alone)
    mine = steps_of(update, True, alone)
    for a, b in zip(mine, theirs, strict=True):
        if isinstance(b, torch.Tensor):
            torch.testing.assert_close(a, b)
        else:
            assert a == b
    assert events.counters["not_generated"] == events.counters["fallbacks"] == 0
    assert events.counters["graph_breaks"] == 0 < events.counters["programs"]


def clamped(x, w):
    w.data.clamp_(-0.5, 0.5)
    return x @ w


def written_after_use(x, w):
    out = (x @ w).exp() * w.sum()  # the gradients see what is written
    w.data.mul_(2)
    return out


def scaled_result(x, w):
    y = (x @ w).exp()  # whose gradient is made of y
    y.data.mul_(2)
    return y


def stale(x, w):
    y = x * 2
    view = y[0]
    y.data.add_(1)
    view.data.mul_(3)
    y.data[-1].sub_(1)
    return y + view, y


def twice_data(x, w):
    d = w.data.data
    d.mul_(0.5)
    d.T.add_(1)
    return x @ w, x @ d


def strided(x, w):
    w.data.as_strided((2, 2), (1, 2)).mul_(2)
    return x @ w


def counted_and_not(x, w):
    y = x @ w
    y.data.mul_(2)
    y.detach().mul_(2)
    return y


def new_alone(x, w):
    d = (x @ w).data
    d.mul_(2)
    return d


def returned(x, w):
    return x @ w, x.data, w.data.T


def returned_beside(x, w):
    y = x @ w
    return y, y.data, y.detach()


def set_to_itself(x, w):
    w.data = w.data.clamp_(-0.5, 0.5)
    return x @ w


FUNCTIONS = [
    *(clamped, written_after_use, scaled_result, stale, twice_data, strided, counted_and_not),
    *(new_alone, returned, returned_beside, set_to_itself),
]


def calls_of(function, graded: bool):
    """Results, gradients, memory and versions of some calls."""
    torch.manual_seed(0)
    told = []
    for rows in (3, 3, 5, 4, 1):
        x = torch.randn(rows, 3, requires_grad=graded)
        w = torch.randn(3, 3, requires_grad=graded)
        outputs = function(x, w)
        outputs = outputs if isinstance(outputs, tuple) else (outputs,)
        tensors = (x, w, *outputs)
        told += [(t._version, t.requires_grad, t._is_view(), t.stride()) for t in tensors]
        told += [
            t.untyped_storage()._cdata == u.untyped_storage()._cdata
            for t in tensors
            for u in tensors
        ]
        if graded and any(out.requires_grad for out in outputs):
            sum(out.square().sum() for out in outputs).backward()
            told += [t.grad for t in (x, w)]
        with torch.no_grad():
            outputs[-1].mul_(2)
        told += [t._version for t in tensors] + [t.detach().clone() for t in tensors]
    return told


@pytest.mark.parametrize("graded", [False, True])
@pytest.mark.parametrize("function", FUNCTIONS, ids=lambda function: function.__name__)
def test_functions(function, graded: bool) -> None:
    theirs = calls_of(function, graded)
    mine = calls_of(pliant.compile(function, backend="llvm"), graded)
    for a, b in zip(mine, theirs, strict=True):
        if isinstance(b, torch.Tensor):
            torch.testing.assert_close(a, b)
        else:
            assert a == b
    assert events.counters["not_generated"] == events.counters["fallbacks"] == 0
    assert events.counters["graph_breaks"] == 0 < events.counters["programs"]


# ---- `x.data = y`


def doubled(x, y):
    x.data = x.data * 2
    return x + y


def also_returned(x, y):
    value = y * 2
    x.data = value
    return value, y


def made_of_parts(x, y):
    both = torch.cat([x.data, y.data]) + 1
    x.data = both[: x.size(0)]
    y.data = both[x.size(0) :]
    return both.sum()


def shared(x, y):
    x.data = y.data
    return y * 2


def with_views(x, y):
    """A view keeps the memory that it was made of."""
    view = x.data[0]
    x.data = y * 3
    view.mul_(2)
    return view + x[0]


def counted(x, y):
    with torch.no_grad():
        x.add_(1)
    x.data = y.data * 2
    with torch.no_grad():
        x.mul_(2)
        x.add_(1)
    return x.sum()


def replaced_twice(x, y):
    x.data = x.data + 1
    y.data = x.data * y.data
    x.data = y.data - x.data
    return x * y


REPLACING = [doubled, also_returned, made_of_parts, shared, with_views, counted, replaced_twice]


def replacing_calls(function, graded: bool):
    """Results, tensors and which of them share memory, where no gradient is asked for."""
    torch.manual_seed(0)
    told = []
    x, y = (torch.randn(3, 2, requires_grad=graded) for _ in range(2))
    for _ in range(4):
        kept = x.data
        with torch.no_grad():
            outputs = function(x, y)
        outputs = outputs if isinstance(outputs, tuple) else (outputs,)
        tensors = (x, y, kept, *outputs)
        told += [t.detach().clone() for t in tensors]
        told += [(t._version, t.requires_grad, t.is_leaf, t.stride()) for t in tensors]
        places = [(t.untyped_storage()._cdata, t.storage_offset()) for t in tensors]
        told.append([[a == b for a in places] for b in places])
        with torch.no_grad():
            x.add_(1)  # seen where the memory is shared
        told += [t.detach().clone() for t in tensors]
    return told


@pytest.mark.parametrize("inside", [False, True])
@pytest.mark.parametrize("graded", [False, True])
@pytest.mark.parametrize("function", REPLACING, ids=lambda function: function.__name__)
def test_replaced_data(function, graded: bool, inside: bool) -> None:
    """`inside`: the graph itself turns gradients off."""
    whole = torch.no_grad()(function) if inside else function
    theirs = replacing_calls(function, graded)
    mine = replacing_calls(pliant.compile(whole, backend="llvm"), graded)
    for a, b in zip(mine, theirs, strict=True):
        if isinstance(b, torch.Tensor):
            torch.testing.assert_close(a, b)
        else:
            assert a == b
    assert events.counters["not_generated"] == events.counters["fallbacks"] == 0
    assert events.counters["graph_breaks"] == 0 < events.counters["programs"]


def halved(x, y):
    x.data = x.data / 2
    return x * 2


def halved_view(x, y):
    x.data = y.data + 1
    view = x[:2]
    x.data = x.data * 2
    return view * 3


def read_before(x, y):
    out = (x * y).exp()
    x.data = x.data * 2
    return out * x


@pytest.mark.parametrize("function", [halved, halved_view, read_before])
def test_replaced_data_beside_gradients(function) -> None:
    """PyTorch runs it: a backward reads what the tensor holds then."""

    def calls(run):
        torch.manual_seed(0)
        x, y = (torch.randn(3, requires_grad=True) for _ in range(2))
        for _ in range(3):
            run(x, y).sum().backward()
        return [x, y, x.grad] + ([] if y.grad is None else [y.grad])

    for a, b in zip(calls(pliant.compile(function, backend="llvm")), calls(function), strict=True):
        torch.testing.assert_close(a, b)
    assert events.counters["fallbacks"] == events.counters["graph_breaks"] == 0
