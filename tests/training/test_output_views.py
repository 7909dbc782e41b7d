"""Outputs that are views of inputs or of one another, with autograd."""

import gc
import weakref

import pytest
import torch

import pliant
from pliant.base import events
from tests.training.gradients_of import check, compare


def leaf(*sizes):
    return torch.randn(*sizes, requires_grad=True)


def one_of_each(x, y):
    return x[1], x * y


def several_of_an_input(x, y):
    first, second = x.chunk(2, 1)
    return first, second, first.t(), (x * y).sum()


def detached_input(x, y):
    return x.detach(), x[0].detach(), x * y


def without_grad(x, y):
    with torch.no_grad():
        part = x[0]
    return part, x * y


def nothing_but_views(x, y):
    return x.t(), y.view(-1)


def constant_input(x, y):
    return x * 2, y.detach().view(-1)


def base_and_view(x, y):
    z = x * y
    return z, z[0], z.t()


def views_of_a_base(x, y):
    z = x.exp() + y
    return z[:, 0], z[1], z.detach()


def detached_twice(x, y):
    z = x * y
    return z.detach(), z[0].detach()


def written_base(x, y):
    z = x * y
    z[0] = y[0].sin()
    row = z[1]
    row.mul_(2)
    return z, row, x[1]


def unbound(x, y):
    a, b, c = (x * y).unbind()
    return a, b, c.sin()


def split_of_a_sum(x, y):
    return (x + y).split(2, 1)


def made_in_no_grad(x, y):
    with torch.no_grad():
        z = x * y
        part = z[0]
    return z, part, x + y


def the_same_twice(x, y):
    part = x[0]
    z = x * y
    row = z[0]
    return part, part, z, row, row


FUNCTIONS = [
    one_of_each, several_of_an_input, detached_input, without_grad, nothing_but_views,
    constant_input, base_and_view, views_of_a_base, detached_twice, written_base, unbound,
    split_of_a_sum, made_in_no_grad, the_same_twice,
]  # fmt: skip


def relations(tensors):
    """Which share memory, and which are the same."""
    return [
        (a is b, a.untyped_storage()._cdata == b.untyped_storage()._cdata)
        for a in tensors
        for b in tensors
    ]


def seen(function, sizes):
    torch.manual_seed(0)
    x, y = leaf(*sizes), leaf(*sizes)
    outputs = function(x, y)
    told = relations([x, y, *outputs])
    told += [(o.requires_grad, o.is_leaf, o.stride(), o.storage_offset()) for o in outputs]
    graded = [o for o in outputs if o.requires_grad]
    if graded:
        sum(o.sin().sum() for o in graded).backward()
    return told, [*[o.detach() for o in outputs], x.grad, y.grad]


@pytest.mark.parametrize("dynamic", [False, None])
@pytest.mark.parametrize("function", FUNCTIONS)
def test_as_in_eager(function, dynamic) -> None:
    run = pliant.compile(function, backend="llvm", dynamic=dynamic)
    for sizes in [(3, 4), (3, 4), *([(3, 6), (3, 8)] if dynamic is None else [])]:
        told, tensors = seen(run, sizes)
        expected, theirs = seen(function, sizes)
        assert told == expected
        compare(tensors, theirs)
    assert events.counters["not_generated"] == 0
    assert events.counters["fallbacks"] == 0


@pytest.mark.parametrize("function", [base_and_view, views_of_a_base, written_base])
def test_a_write_to_an_output_is_seen_in_the_other(function) -> None:
    told = []
    for run in (function, pliant.compile(function, backend="llvm")):
        torch.manual_seed(0)
        x, y = leaf(3, 4), leaf(3, 4)
        outputs = run(x, y)
        outputs[1].mul_(3)
        (outputs[0].sin().sum() + outputs[1].sum()).backward()
        told.append([*[o.detach() for o in outputs], x.grad, y.grad])
    compare(*told)
    assert events.counters["not_generated"] == 0


def part_of_a_part(x):
    with torch.no_grad():
        part = x[1:]
    return part, part[1:]


def new_leaf(x):
    with torch.no_grad():
        part = x[1:]
        part.requires_grad_()
    return part, part[1:]


def written_part(x):
    with torch.no_grad():
        part = x[1:]
        part.mul_(2)
    return x * 2, part


def history(function, x):
    outputs = function(x)
    told = []
    for out in outputs:
        try:
            told.append((out.requires_grad, out.is_leaf))
        except RuntimeError as error:
            told.append(str(error))
    if "view was created" not in str(told):
        graded = [out for out in (x, *outputs) if out.requires_grad]
        total = sum((out * weight).sum() for weight, out in enumerate(graded, 1))
        told += [
            None if grad is None else grad.tolist()
            for grad in torch.autograd.grad(total, graded, allow_unused=True)
        ]
    return told


@pytest.mark.parametrize(
    "make",
    [
        lambda: torch.ones(4, 3).requires_grad_(),
        lambda: torch.ones(12).view(4, 3).requires_grad_(),
        lambda: torch.ones(4, 3).requires_grad_() * 1,
    ],
    ids=["a leaf", "a leaf that is a view", "a result"],
)
@pytest.mark.parametrize("function", [part_of_a_part, new_leaf])
def test_a_view_made_without_grad_ends_the_history(function, make) -> None:
    told = history(pliant.compile(function, backend="llvm"), make())
    assert told == history(function, make())


def test_a_view_made_without_grad_before_a_write_has_no_history() -> None:
    told = history(pliant.compile(written_part, backend="llvm"), leaf(4, 3))
    assert told == history(written_part, leaf(4, 3))


class FlatInFunction(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x.view(-1)

    @staticmethod
    def backward(ctx, gradient):
        return gradient.view(3, 4)


REFUSED = {
    "unbind": lambda y: y.unbind()[0],
    "split": lambda y: y.split(1)[1],
    "chunk, viewed": lambda y: y.chunk(2)[0].view(-1),
    "in a function": FlatInFunction.apply,
}


@pytest.mark.parametrize("where", ["in the program", "behind it"])
@pytest.mark.parametrize("view", REFUSED.values(), ids=REFUSED)
def test_views_that_refuse_to_be_written_to(view, where) -> None:
    """Also if nothing else of the base is returned."""

    def function(x):
        part = view(x * 2)
        if where == "in the program":
            part.mul_(3)
        return part

    for run in (function, pliant.compile(function, backend="llvm")):
        with pytest.raises(RuntimeError, match="is a view and is being modified inplace"):
            run(leaf(3, 4)).mul_(3)


def test_a_view_that_refuses_to_be_written_to_has_gradients() -> None:
    def function(x):
        return (x * 2).unbind(1)[1]

    told = []
    for run in (function, pliant.compile(function, backend="llvm")):
        x = torch.arange(12.0).view(3, 4).requires_grad_()
        result = run(x)
        result.sin().sum().backward()
        told.append([result.detach(), x.grad])
    compare(*told)


@pytest.mark.parametrize("of", ["a leaf", "a result"])
def test_a_window_on_a_detached_input_is_detached(of) -> None:
    def function(x):
        return x.detach().as_strided((2, 2), (1, 2)), x[1:].detach().as_strided((2,), (1,)), x * 2

    for run in (function, pliant.compile(function, backend="llvm")):
        x = leaf(3, 4) if of == "a leaf" else leaf(3, 4) * 1
        outputs = run(x)
        assert [out.requires_grad for out in outputs] == [False, False, True]
        assert outputs[0].untyped_storage()._cdata == x.untyped_storage()._cdata


def test_views_of_a_detached_input_are_views_of_one_tensor() -> None:
    def function(x):
        detached = x.detach()
        return detached, detached[1:], detached.t(), x * 2

    for run in (function, pliant.compile(function, backend="llvm")):
        whole, part, turned, _ = run(leaf(3, 4))
        assert part._base is whole
        assert turned._base is whole
        part.mul_(torch.ones((), requires_grad=True))
        assert whole.requires_grad


def test_a_write_to_a_view_of_a_constant_input() -> None:
    def function(x, buffer):
        return x * 2, buffer[0]

    told = []
    for run in (function, pliant.compile(function, backend="llvm")):
        x, buffer = torch.ones(4, requires_grad=True), torch.ones(3, 4)
        result, row = run(x, buffer)
        row.add_(result)
        buffer.sum().backward()
        told.append([buffer.detach(), x.grad])
    compare(*told)


@pytest.mark.parametrize("function", [base_and_view, views_of_a_base, one_of_each])
def test_gradients_of_gradients(function) -> None:
    x, y = leaf(3, 4).double(), leaf(3, 4).double()
    x, y = x.detach().requires_grad_(), y.detach().requires_grad_()
    run = pliant.compile(function, backend="llvm")
    assert torch.autograd.gradgradcheck(lambda a, b: run(a, b)[:2], (x, y))


def test_sizes_for_which_pytorch_runs_the_graph() -> None:
    run = pliant.compile(base_and_view, backend="llvm", dynamic=True)
    for sizes in ((3, 4), (1, 4), (3, 1), (2, 0)):
        told, tensors = seen(run, sizes)
        expected, theirs = seen(base_and_view, sizes)
        assert told == expected
        compare(tensors, theirs)


VIEWS_OF_INPUTS = {
    "flatten": lambda x: x.flatten(),
    "view": lambda x: x.view(-1),
    "reshape": lambda x: x.reshape(x.shape[1], x.shape[0]),
    "expand": lambda x: x.expand(2, *x.shape),
}


@pytest.mark.parametrize("name", VIEWS_OF_INPUTS)
def test_views_where_the_sizes_suppose_too_much(name) -> None:
    """Code for sizes of 1 is not for others, and neither are its views."""
    view = VIEWS_OF_INPUTS[name]

    def function(x):
        part = view(x)
        return torch.deg2rad(x), part, torch.randn(len(part)).shape

    compiled = pliant.compile(function, backend="llvm")
    for shape in [(0, 0), (1, 1), (0, 1), (3, 4), (1, 0), (2, 1), (1, 1)]:
        inputs = [torch.ones(shape, requires_grad=True) for _ in range(2)]
        ours, eager = compiled(inputs[0]), function(inputs[1])
        for mine, theirs in zip(ours[:2], eager[:2], strict=True):
            assert mine.shape == theirs.shape and mine._is_view() == theirs._is_view()
            assert torch.equal(mine, theirs)
            mine.sum().backward(), theirs.sum().backward()
        assert torch.equal(inputs[0].grad, inputs[1].grad)


def test_nothing_that_requires_grad() -> None:
    def function(x, y):
        with torch.no_grad():
            return (x * y).sin() + 1

    x, y = leaf(3, 4), leaf(3, 4)
    result = pliant.compile(function, backend="llvm")(x, y)
    assert not result.requires_grad
    assert torch.allclose(result, function(x, y))
    assert events.counters["programs"] == 1
    assert events.counters["not_generated"] == 0


@pytest.mark.parametrize("with_another", [True, False])
@pytest.mark.parametrize("returned", [True, False])
def test_a_view_of_a_leaf_made_without_grad_is_a_leaf(returned, with_another) -> None:
    """As in eager: what is computed from it requires grad, and the gradient goes nowhere."""

    def function(x, y):
        with torch.no_grad():
            part = x[0]
        return (part, part * y) if returned else (part * y,)

    told = []
    for run in (function, pliant.compile(function, backend="llvm")):
        torch.manual_seed(0)
        x, y = leaf(3, 4), torch.randn(4, requires_grad=with_another)
        outputs = run(x, y)
        outputs[-1].sum().backward()
        told.append([(o.requires_grad, o.is_leaf) for o in outputs])
        told[-1] += [x.grad is None, y.grad is None, outputs[0].is_leaf and outputs[0].grad is None]
    assert told[0] == told[1]


def test_a_leaf_made_in_the_graph() -> None:
    def function(x):
        new = torch.ones(3, 4, requires_grad=True)
        return x * new, new

    told = []
    for run in (function, pliant.compile(function, backend="llvm")):
        result, new = run(torch.ones(3, 4, requires_grad=True))
        result.sum().backward()
        told.append([new.is_leaf, new.grad.tolist()])
    assert told[0] == told[1]


def test_a_backward_without_the_tangent_that_tells_a_size() -> None:
    def function(x, y):
        return x.mean(0), x + y

    run = pliant.compile(function, backend="llvm", dynamic=True)
    for used in (0, 1):
        told = []
        for f in (function, run):
            torch.manual_seed(0)
            x, y = leaf(3, 4), leaf(3, 4)
            f(x, y)[used].sum().backward()
            told.append([x.grad, y.grad])
        compare(*told)
    assert events.counters["not_generated"] == 0


def test_what_is_dropped_is_freed() -> None:
    run = pliant.compile(written_base, backend="llvm")
    x, y = leaf(3, 4), leaf(3, 4)
    outputs = run(x, y)
    dead = [weakref.ref(t) for t in (*outputs, x, y)]
    del outputs, x, y
    gc.collect()
    assert not any(ref() is not None for ref in dead)


def test_views_and_dropout() -> None:
    def function(x):
        y = torch.nn.functional.dropout(x, 0.5)
        return y, y[0], y[1:]

    check(function, leaf(4, 5))


@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize(
    "overlapping",
    [lambda t: t.unfold(0, 3, 1), lambda t: t.unfold(0, 3, 2)[1:], lambda t: t.expand(3, -1)],
)
def test_outputs_whose_elements_share_memory(overlapping, dynamic) -> None:
    check(lambda x: overlapping(-x), leaf(16), dynamic=dynamic)


def test_an_output_all_of_whose_elements_share_memory() -> None:
    check(lambda x: torch.as_strided(-x, (2, 2, 2, 2), (1, 1, 1, 1)), leaf(16))
