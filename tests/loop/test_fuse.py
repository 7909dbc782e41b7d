"""Definitions that share a kernel: the order in which they are stored."""

import pytest
import torch

import pliant
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
