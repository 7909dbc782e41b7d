"""Writes to memory in generated programs: what is read of it before, what eager PyTorch refuses,
and operators that are there only to raise an error."""

import itertools

import pytest
import torch

import pliant
from tests.support.against_eager import run, same, same_outcome


def agree(function, *args, dynamic=None):
    """Results and arguments are close; errors are the same."""
    expected = run(function, tuple(t.clone() for t in args))
    actual = run(pliant.compile(function, backend="llvm", dynamic=dynamic), args)
    for ours, theirs in zip(tensors(actual), tensors(expected), strict=True):
        torch.testing.assert_close(ours, theirs)
    if expected.error is not None:
        same_outcome(actual, expected)
    assert (actual.error is None) is (expected.error is None), (actual.error, expected.error)


def tensors(outcome):
    result = outcome.result if isinstance(outcome.result, tuple) else (outcome.result,)
    return [t for t in (*result, *outcome.args) if isinstance(t, torch.Tensor)]


def swapped_and_turned(a, b):
    kept = a.clone()
    a.copy_(b.t())
    b.copy_(kept.t())


def read_before_overwritten(a, b):
    sines = a.sin()
    a.mul_(2)
    b.copy_(sines.t())


def centred_before_overwritten(a, b):
    sines = a.sin()
    a.mul_(2)
    return sines - sines.mean()


def centred_into_another(a, b):
    sines = a.sin()
    mean = sines.mean()
    a.mul_(2)
    b.copy_(sines - mean)


def flipped_onto_itself(a, b):
    a.add_(a.flip(0))


def turned_onto_itself(a, b):
    a.copy_(a.t().softmax(-1))


def flipped_onto_both(a, b):
    flipped = a.flip(0)
    a.add_(flipped)
    b.sub_(flipped)
    return flipped


def both_from_their_sum(a, b):
    total = a.t() + b
    a.add_(total)
    b.add_(total.t())
    return total.amax(1)


def normalised_in_place(a, b):
    mean, var = a.mean(0, keepdim=True), a.var(0, keepdim=True)
    new = (a - mean) / (var + 1).sqrt()
    a.copy_(new)
    b.copy_(new.flip(1))
    return mean, var


def rows_from_rows(a, b):
    twice = a[1:] * 2
    a[:-1] = twice
    b[0] = a[1]
    b[1:] += a[:-1]
    return twice.sum()


@pytest.mark.parametrize("dynamic", [None, True])
@pytest.mark.parametrize(
    "function",
    [
        swapped_and_turned,
        read_before_overwritten,
        centred_before_overwritten,
        centred_into_another,
        flipped_onto_itself,
        turned_onto_itself,
        flipped_onto_both,
        both_from_their_sum,
        normalised_in_place,
        rows_from_rows,
    ],
)
def test_what_is_overwritten_was_read_before(function, dynamic):
    agree(function, torch.randn(5, 5), torch.randn(5, 5), dynamic=dynamic)


@pytest.mark.parametrize("dynamic", [None, True])
@pytest.mark.parametrize(
    "function",
    [
        lambda x: x[0:1].expand(3, -1).add_(1),
        lambda x: x[0:1].clone().expand(3, -1).relu_(),
        lambda x: x[0:1].expand(3, -1).copy_(x),
        lambda x: torch.add(x, 1, out=x[0:1].expand(3, -1)),
        lambda x: x[1:].add_(x[:-1]),
        lambda x: x[1:].copy_(x[:-1]),
        lambda x: torch.add(x[1:], 1, out=x[:-1]),
    ],
)
def test_writes_that_pytorch_refuses(function, dynamic):
    agree(function, torch.randn(3, 4), dynamic=dynamic)


@pytest.mark.parametrize(
    "function",
    [
        lambda x: x[0:1].expand(3, -1).fill_(1),
        lambda x: x[0:1].expand(3, -1)[0].add_(1),
        lambda x: x.as_strided((2, 2), (1, 1)).add_(1),
    ],
)
def test_writes_to_one_place_several_times(function):
    agree(function, torch.randn(3, 4))


def _between_after_all(x):
    torch.neg(x, out=x)
    view = x.as_strided((2,), (0,), 1)
    x.as_strided((2,), (1,)).add_(1)
    return view + 0, view


def _between_before_all(x):
    view = x.as_strided((3,), (1,), 0)
    x.mul_(2)
    return view + 0, view


def _between_and_copy(x):
    x.copy_(torch.ones(()))
    return x.as_strided((3,), (1,), 0) * 2


def _between_only(x):
    x.as_strided((2,), (1,), 1).add_(1)
    return x.as_strided((3,), (1,), 0) + x.sum()


def _elements_only(x):
    x.as_strided((1,), (2,), 2).add_(1)
    x.mul_(3)
    return x.as_strided((2,), (2,), 0) + 1


@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize(
    "function",
    [_between_after_all, _between_before_all, _between_and_copy, _between_only, _elements_only],
)
@pytest.mark.parametrize(
    "part",
    [
        lambda t: t[:8:2],
        lambda t: t.view(4, 4)[:, ::2],
        lambda t: t.view(4, 4)[:3, :2],
        lambda t: t.view(4, 4).T[::3],
    ],
)
def test_writes_to_what_lies_between_elements(part, function, dynamic):
    """`as_strided` shows memory of an input that is no element of it, until all is computed."""
    compiled = pliant.compile(function, backend="llvm", dynamic=dynamic)
    for _ in range(2):
        mine, eager = torch.arange(16.0), torch.arange(16.0)
        same(compiled(part(mine)), function(part(eager)))
        same(mine, eager)


def test_an_argument_that_is_resized():
    agree(lambda x, out: torch.add(x, x, out=out), torch.randn(3, 4), torch.empty(0))


@pytest.mark.parametrize("dtype", [torch.complex64, torch.float8_e4m3fn])
@pytest.mark.parametrize("function", [lambda x: x.zero_(), lambda x, y: x.copy_(y)])
def test_writes_of_numbers_that_loops_do_not_know(function, dtype):
    both = [torch.ones(3).to(dtype), torch.zeros(3).to(dtype)]
    expected = function(*[t.clone() for t in both[: function.__code__.co_argcount]])
    given = both[: function.__code__.co_argcount]
    actual = pliant.compile(function, backend="llvm")(*given)
    assert actual is given[0]
    assert torch.equal(actual.to(torch.complex64), expected.to(torch.complex64))


@pytest.mark.parametrize(
    "function, given",
    [
        (torch.linalg.cholesky, -torch.eye(3)),
        (torch.linalg.inv, torch.zeros(3, 3)),
        (torch.argmax, torch.tensor([True, False])),
        (torch.trace, torch.ones(2, 2, dtype=torch.bool)),
        (torch.count_nonzero, torch.ones(2).to(torch.uint16)),
        (lambda x: torch.nn.functional.gelu(x, approximate="other"), torch.ones(2)),
        (lambda x: x.mean([], dtype=torch.int64), torch.ones(2)),
        (lambda x: x.softmax(3), torch.ones(2, 2)),
    ],
)
def test_what_pytorch_refuses(function, given):
    agree(lambda x: function(x), given)


def made_and_written(x):
    y = x * 2
    y.add_(1)
    y[0] = 5
    return y


def views_of_it(x):
    y = x * 2
    y.add_(1)
    return y, y.view(-1), y[0]


def read_inside(x):
    y = x.clone()
    y.mul_(2)
    z = y.view(-1)
    z.add_(1)
    return z + y._version * 10 + z._version


def filled(x):
    out = torch.empty(2, 2)
    torch.add(x, 1, out=out)
    return out, out + 1


@pytest.mark.parametrize(
    ("function", "requires_grad"),
    [
        *itertools.product((made_and_written, views_of_it, read_inside), (False, True)),
        (filled, False),  # `out=` takes nothing that requires grad
    ],
)
def test_versions_of_results(function, requires_grad: bool) -> None:
    x = torch.ones(2, 2, requires_grad=requires_grad)
    mine, theirs = pliant.compile(function, backend="llvm")(x), function(x)
    torch.testing.assert_close(mine, theirs)
    several = isinstance(theirs, tuple)
    pairs = zip(mine, theirs, strict=True) if several else [(mine, theirs)]
    assert all(a._version == b._version for a, b in pairs)
