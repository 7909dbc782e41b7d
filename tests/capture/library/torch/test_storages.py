"""`untyped_storage()`: how much memory a tensor has, without a graph break."""

import pytest
import torch

import pliant
from tests.support.against_eager import check

X = torch.arange(12.0).reshape(3, 4)
PROGRAMS = {
    "size": lambda x: x + x.untyped_storage().size(),
    "bytes": lambda x: x + x.untyped_storage().nbytes() + len(x.untyped_storage()),
    "of a view": lambda x: x + x[1:, 0].untyped_storage().nbytes(),
    "of a result": lambda x: x + (x * 2)[1:].untyped_storage().nbytes(),
    "of another type": lambda x: x + x.to(torch.int8).untyped_storage().size(),
    "of an expanded one": lambda x: x + x.sum().expand(5, 5).untyped_storage().size(),
    "branch": lambda x: x + 1 if x.untyped_storage().nbytes() > 40 else x - 1,
    "is not None": lambda x: x + 1 if x.untyped_storage() is not None else x,
}


@pytest.mark.parametrize("function", PROGRAMS.values(), ids=PROGRAMS)
@pytest.mark.parametrize("x", (X, X[1:, :2], X.T, X[:0], X.to(torch.float64)), ids=str)
def test_same_as_eager(function, x):
    check(function, x, fullgraph=True)
    check(function, x, breaks=None, dynamic=True)


def test_all_sizes_share_a_graph_as_long_as_they_fill_their_memory():
    def f(x):
        return x + x.untyped_storage().nbytes()

    compiled = pliant.compile(f, fullgraph=True)
    for size in (3, 4, 5, 6):
        assert compiled(torch.ones(size)).equal(f(torch.ones(size)))
    assert pliant.counters["compilations"] == 2
    for part in (torch.ones(9)[:4], torch.ones(9)[:4], torch.ones(8)[:4]):
        assert compiled(part).equal(f(part))
    assert pliant.counters["compilations"] == 4


def test_storages_are_not_compared():
    def f(x, y):
        same = x.untyped_storage() is y.untyped_storage()
        return x + 1 if same else x - 1

    check(f, X, X.clone(), breaks=None)
    check(f, X, X, breaks=None)


def test_a_storage_that_is_returned():
    storage = pliant.compile(lambda x: (x * 2).untyped_storage(), fullgraph=True)(X)
    assert storage.nbytes() == 48


def test_an_input_that_is_resized():
    def f(x):
        x.resize_(2)
        return x.untyped_storage().nbytes()

    check(f, torch.arange(6.0), breaks=None)
