"""BRK-4: functions that C code calls at a graph break are compiled as well."""

import torch

import pliant
from tests.support.against_eager import check


def size_of(t):
    return (t * 2).sum().item()


def test_the_key_of_sorted_is_compiled():
    def function(x):
        first, *_ = sorted([x + 1, x, x - 1], key=size_of)
        return first * 2

    # before sorted, the key function, and after sorted
    check(function, torch.arange(3.0), breaks=1, graphs=3)


def test_lambdas_made_anew_share_one_compilation():
    def function(x):
        return list(map(lambda t: (t * 2).sum().item(), [x, x + 1]))

    compiled = check(function, torch.arange(3.0), breaks=None)
    count = pliant.counters["compilations"]
    compiled(torch.arange(3.0))
    assert pliant.counters["compilations"] == count


def test_a_callback_with_a_closure_keeps_its_own():
    def function(x, n):
        return max([x, x + 1], key=lambda t: t.sum().item() * n)

    compiled = pliant.compile(function)
    x = torch.arange(3.0)
    for n in (1, -1, 1):
        assert torch.equal(compiled(x, n), function(x, n))
