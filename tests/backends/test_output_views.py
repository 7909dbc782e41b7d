"""Views among the outputs of graphs without gradients, and what autograd lets the caller do."""

import pytest
import torch

import pliant
from pliant.base import events


def detached(x):
    return x.detach(), x.detach()[1:]


def detached_once(x):
    d = x.detach()
    return d, d[1:], d.t(), d


def chain(x):
    first = x.detach()
    part = first[1:]
    second = part.detach()
    return first, part, second, second[x.shape[0] - 3 :]


def detached_layouts(x):
    d = x.detach()
    return d.unfold(0, 2, 1), d.as_strided((2, 2), (1, 1), 1), d[:1].expand(2, 3), d.view(-1)


def without_grad(x):
    with torch.no_grad():
        part = x[1:]
    return part, part[1:], x[1:]


def nested_modes(x):
    with torch.no_grad():
        a = x[1:]
        with torch.enable_grad():
            b = a[1:]
        c = b[:1]
    return a, b, c


def lasting_mode(x):
    torch.set_grad_enabled(False)
    part = x[1:]
    torch.set_grad_enabled(True)
    return (part,)


def made_at_once(x):
    return x.unbind()


def made_at_once_without_grad(x):
    with torch.no_grad():
        return x.split(2)


def views_of_a_result(x):
    y = x + 1
    return y[1:], y.view(-1)


def pieces_of_a_result(x):
    return (x + 1).chunk(2)


def result_and_detached(x):
    y = x + 1
    return y, y.detach(), y[1:]


def result_without_grad(x):
    y = x + 1
    with torch.no_grad():
        part = y[1:]
    return y, part


def written_through_detached(x):
    d = x.detach()
    d.mul_(2)
    return d, d[1:]


def written_without_grad(x):
    with torch.no_grad():
        part = x[1:]
        part.mul_(2)
    return (part,)


FUNCTIONS = [
    detached, detached_once, chain, detached_layouts, without_grad, nested_modes, lasting_mode,
    made_at_once, made_at_once_without_grad, views_of_a_result, pieces_of_a_result,
    result_and_detached, result_without_grad, written_through_detached, written_without_grad,
]  # fmt: skip


def plain(rows):
    return torch.arange(rows * 3.0).view(rows, 3).clone()


def leaf(rows):
    return plain(rows).requires_grad_()


def result(rows):
    return leaf(rows) * 1


def in_grad_mode(out):
    out.mul_(2)


def with_gradient(out):
    out.add_(torch.ones(out.shape, requires_grad=True))


def in_no_grad(out):
    with torch.no_grad():
        out.mul_(2)


def as_leaf(out):
    out.requires_grad_()


def state(tensors):
    """What autograd knows of them, and which are one object."""
    told = [[a is b for b in tensors] for a in tensors]
    for t in tensors:
        try:
            history = (t.is_leaf, t.grad_fn is None)
        except RuntimeError as error:
            history = (str(error),)
        told.append((t.requires_grad, t._version, t.stride(), t.storage_offset(), *history))
    return told


def after_write(function, x, mode, write, at):
    """What the caller sees of a call and of a write to one of the outputs."""
    with mode():
        tensors = [x, *function(x)]
    told = [state(tensors)]
    try:
        write(tensors[1 + at % (len(tensors) - 1)])
    except RuntimeError as error:
        told.append(str(error))
    told.append(state(tensors))
    with torch.no_grad():  # on a GPU it is a copy first, of which autograd would want the history
        told.append([t.tolist() for t in tensors])
    graded = [t for t in tensors if t.requires_grad]
    try:
        total = sum([(t * weight).sum() for weight, t in enumerate(graded, 1)])
        grads = torch.autograd.grad(total, graded, allow_unused=True) if graded else ()
        told.append([None if grad is None else grad.tolist() for grad in grads])
    except RuntimeError as error:
        told.append(str(error))
    return told


@pytest.mark.parametrize("make", [plain, leaf, result])
@pytest.mark.parametrize("mode", [torch.enable_grad, torch.no_grad])
@pytest.mark.parametrize("function", FUNCTIONS)
def test_writes_to_outputs_are_as_in_eager(function, mode, make) -> None:
    run = pliant.compile(function, backend="llvm")
    for write in (in_grad_mode, with_gradient, in_no_grad, as_leaf):
        for at in range(4):
            told = after_write(run, make(4), mode, write, at)
            assert told == after_write(function, make(4), mode, write, at)
    assert events.counters["fallbacks"] == 0


@pytest.mark.parametrize("function", FUNCTIONS)
def test_code_is_generated(function) -> None:
    run = pliant.compile(function, backend="llvm")
    for rows in (4, 6, 8):
        told = after_write(run, plain(rows), torch.enable_grad, with_gradient, 1)
        assert told == after_write(function, plain(rows), torch.enable_grad, with_gradient, 1)
    assert events.counters["not_generated"] == 0


def test_a_saved_view_notices_a_write_to_another_one() -> None:
    def saved(function):
        with torch.no_grad():
            part, whole = function(plain(4))
        product = torch.ones(3, 3, requires_grad=True) * part
        whole.zero_()
        product.sum().backward()

    for function in (views_of_a_result, pliant.compile(views_of_a_result, backend="llvm")):
        with pytest.raises(RuntimeError, match="modified by an inplace operation"):
            saved(function)


def test_sizes_of_0_and_1_are_laid_out_as_in_eager() -> None:
    run = pliant.compile(result_without_grad, backend="llvm")
    for rows, columns in [(4, 3), (6, 5), (0, 3), (0, 3), (1, 3), (1, 3), (3, 1), (3, 1)]:
        x = torch.ones(columns, rows).t()
        assert state(run(x)) == state(result_without_grad(x))
    assert events.counters["not_generated"] == 0


POINTWISE = {
    "sum": lambda x: x + 1,
    "copy": torch.clone,
    "written": lambda x: (x * 2).add_(1),
    "transposed": lambda x: (x * 2).t(),
}


@pytest.mark.parametrize("name", POINTWISE)
def test_views_of_what_has_a_size_that_is_found_to_be_1(name) -> None:
    """The size is in the data until something needs it to be 1; views share memory all the same."""

    def function(a):
        chosen = a[a != 0]
        a.view(chosen.shape)
        whole = POINTWISE[name](chosen)
        return whole, whole.view(-1), whole[:1]

    with torch.no_grad():
        whole, *views = pliant.compile(function, backend="llvm")(torch.ones(1))
    assert all(view.data_ptr() == whole.data_ptr() for view in views)
    views[0].add_(1)
    assert torch.equal(views[1], views[0]) and torch.equal(whole, views[0])
