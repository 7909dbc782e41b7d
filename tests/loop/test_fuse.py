"""Definitions that share a kernel: which do, and the order in which they are stored."""

import pytest
import torch

import pliant
from pliant.base import events
from tests.backends.eager_twin import call, difference

pytestmark = pytest.mark.own_default

REDUCTIONS = {
    "prod": lambda x: x.prod(0),
    "sum": lambda x: x.sum(0),
    "all of it": lambda x: x.sum(),
    "amax": lambda x: x.amax(0),
    "argmax": lambda x: x.argmax(0),
    "any": lambda x: x.any(0),
    "var": lambda x: x.var(0, correction=0),
    "cumsum": lambda x: x.cumsum(0)[0],
    "two": lambda x: (x - x.amax(0)).exp().sum(0),
}


def overwrite(reduced, x):
    reduced.view(1, -1)[0] = 0
    return reduced


def overwrite_with_another(reduced, x):
    reduced.unsqueeze(0).copy_(x[0] * 2)
    return reduced


def overwrite_twice(reduced, x):
    view = reduced.reshape(-1)
    view[0] = 5
    view.zero_()
    return reduced


def overwrite_and_use(reduced, x):
    before = reduced + 1
    reduced.view(-1)[0] = 7
    return before, reduced, reduced * 2


WRITES = [overwrite, overwrite_with_another, overwrite_twice, overwrite_and_use]


@pytest.mark.parametrize("shape", [(1,), (1, 1), (3, 1), (1, 3), (3,)])
@pytest.mark.parametrize("write", WRITES)
@pytest.mark.parametrize("name", REDUCTIONS)
def test_what_overwrites_a_reduction_is_stored_behind_it(name, write, shape):
    def function(x):
        return write(REDUCTIONS[name](x), x)

    x = torch.arange(1.0, 1.0 + torch.Size(shape).numel()).reshape(shape)
    outcomes = [call(f, [x.clone()]) for f in (pliant.compile(function), function)]
    assert difference(*outcomes) is None


# --------------------------------------------------------------------------------------------------
# Groups that become one


def small_one_in_between(x, y, s):
    """A group of other sizes comes between the parts of a large one."""
    a = (x * y + x).sigmoid()
    b = ((s * 2 + 1).exp() + s).tanh()
    return a * b[:, None] + a.log() * (b * 3)[:, None]


def two_makers(x, y, s):
    """What reads two groups becomes one with both."""
    a, b = (x * x + x).exp(), (y * y + y).exp()
    c = (s + 1).exp()
    return a * b + a / b + c[:, None] * a + (c * 2)[:, None] * b


def reduced_afterwards(x, y, s):
    a = (x * y + x).sigmoid()
    b = ((s * 2 + 1).exp() + s).tanh()
    return (a * b[:, None] + a.log() * (b + 1)[:, None]).sum(1)


@pytest.mark.parametrize("function", [small_one_in_between, two_makers, reduced_afterwards])
def test_a_group_waits_for_those_that_read_it(function, seen):
    args = [torch.rand(6, 40), torch.rand(6, 40), torch.rand(6)]
    outcomes = [call(f, args) for f in (pliant.compile(function), function)]
    assert difference(*outcomes) is None
    (event,) = seen(events.CodeGenerated)
    assert len(event.kernels()) == 2  # the rows, and all else


def read_in_between(x, y, s):
    a = (x * y + x).sigmoid()
    product = a @ y.mT
    return a.log() * product.sum(1)[:, None] + a


def overwritten_in_between(x, y, s):
    a = (x * y + x).sigmoid()
    x.zero_()
    b = (s * 2 + 1).exp() + s
    return a * b[:, None] + a.log()


def overwritten_later(x, y, s):
    a = (x * y + x).sigmoid()
    b = (s * 2 + 1).exp() + s
    c = a * b[:, None] + a.log()
    x.copy_(c)
    return c + x


@pytest.mark.parametrize("function", [read_in_between, overwritten_in_between, overwritten_later])
def test_a_group_does_not_wait_if_somebody_needs_it(function):
    args = [torch.rand(6, 40), torch.rand(6, 40), torch.rand(6)]
    outcomes = [
        call(f, [arg.clone() for arg in args]) for f in (pliant.compile(function), function)
    ]
    assert difference(*outcomes) is None


def test_a_group_that_was_taken_into_another_takes_no_more():
    """The mask's group goes into that of the scan. The sum, which can't join that one, would find
    the mask's where it was."""

    def function(x):
        mask = torch.isin(x, torch.tensor([1.0, 2.0]))
        return x.masked_scatter(~mask, x), mask.sum()

    compiled = pliant.compile(function, backend="llvm", dynamic=True)
    for size in (4, 7, 1):
        x = torch.arange(float(size))
        torch.testing.assert_close(compiled(x), function(x))
    assert events.counters["fallbacks"] == 0
