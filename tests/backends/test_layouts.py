"""Layouts, aliases and random numbers of generated programs, where they are easily got wrong."""

import pytest
import torch
import torch.nn.functional as F

import pliant
from pliant.backends.llvm import llvm
from pliant.base import events
from tests.support.against_eager import run, same_outcome


def agree(function, *calls, dynamic=None, generated=True):
    """Eager and compiled, for each tuple of arguments; close, and the same in all else."""
    events.counters.reset()
    compiled = pliant.compile(function, backend=llvm, dynamic=dynamic)
    for args in calls:
        expected = run(function, tuple(t.clone() for t in args))
        actual = run(compiled, tuple(t.clone() for t in args))
        mine, other = (leaves(outcome.result) for outcome in (actual, expected))
        pairs = zip((*mine, *actual.args), (*other, *expected.args), strict=True)
        for ours, theirs in pairs:
            torch.testing.assert_close(ours, theirs)
            ours.copy_(theirs)
        same_outcome(actual, expected)
    assert bool(events.counters["not_generated"]) is not generated


def leaves(result):
    return list(result) if isinstance(result, (tuple, list)) else [result]


@pytest.mark.parametrize(
    "function",
    [
        lambda x: x[1],
        lambda x: x * 2,
        lambda x: (x * 2)[1],
        lambda x: (x + 1).transpose(0, 1),
        lambda x: x[:, 1:] * 3,
        lambda x: x.permute(2, 0, 1)[1:],
    ],
)
def test_empty_tensors_have_the_strides_of_eager_pytorch(function):
    sizes = [(2, 5, 4), (2, 0, 4), (3, 4, 0), (3, 0, 0)]
    agree(function, *[(torch.randn(size),) for size in sizes], dynamic=True)


def test_a_sum_of_sizes_of_which_one_is_0():
    calls = [(torch.randn(2, n), torch.randn(2, 3)) for n in (5, 0, 1)]
    agree(lambda x, y: torch.cat([x, y], 1) * 2, *calls, dynamic=True)


@pytest.mark.parametrize("dynamic", [None, True])
def test_views_as_another_dtype(dynamic):
    x = torch.randn(4, 6)
    agree(lambda x: x.view(torch.int32), (x,), dynamic=dynamic)
    agree(lambda x: (x + 1).view(torch.int32)[1:], (x,), dynamic=dynamic)
    agree(lambda x: torch.view_as_complex(x), (torch.randn(5, 2),), dynamic=dynamic)
    agree(lambda x: torch.view_as_real(x), (torch.randn(5, dtype=torch.complex64),))


@pytest.mark.parametrize("dynamic", [None, True])
def test_attributes_that_are_views(dynamic):
    agree(lambda x: x.T * 2, (torch.randn(3, 4),), dynamic=dynamic)
    agree(lambda x: (x.mT, (x + 1).mH), (torch.randn(2, 3, 4),), dynamic=dynamic)


@pytest.mark.parametrize("dynamic", [None, True])
@pytest.mark.parametrize("layout", [lambda t: t.t(), lambda t: t[:, ::2], lambda t: t])
def test_random_numbers_go_where_they_go_in_this_layout(layout, dynamic):
    x = torch.randn(40, 30)
    agree(lambda x: F.dropout(layout(x), 0.5), (x,), dynamic=dynamic)
    agree(lambda x: layout(x.clone()).normal_() + 1, (x,), dynamic=dynamic)
    agree(lambda x: torch.rand_like(layout(x)) + 1, (x,), dynamic=dynamic)


@pytest.mark.parametrize("dynamic", [None, True])
def test_functions_that_cannot_be_taken_apart_are_called(dynamic):
    """They ask about data, or change shapes in place; the rest of the graph is compiled."""
    agree(lambda x: torch.quantile(x + 1, 0.5) * 2, (torch.randn(5, 6),), dynamic=dynamic)
    agree(lambda x: torch.corrcoef(x + 1) * 2, (torch.randn(5, 6),), dynamic=dynamic)
    assert events.counters["programs"] == 1


def test_writes_that_fail_half_way_are_not_taken_back():
    def function(x):
        y = x + 1
        y.add_(1)
        z = torch.quantile(y, 0.5)
        y.mul_(2)
        return y, z, y.t()

    agree(function, (torch.randn(4, 4),))


def test_sizes_are_symbolic_in_resampling_and_losses():
    calls = [(torch.randn(2, 3, n, 5),) for n in (4, 7)]
    agree(lambda x: F.interpolate(x, scale_factor=2.0), *calls, dynamic=True)
    agree(lambda x: F.local_response_norm(x, 2), *calls, dynamic=True)
    pairs = [(torch.randn(n, 5), torch.randn(n, 5)) for n in (4, 7)]
    agree(lambda x, y: F.huber_loss(x, y, delta=0.5), *pairs, dynamic=True)
    agree(lambda x, y: F.cross_entropy(x, y.softmax(-1)), *pairs, dynamic=True)


@pytest.mark.parametrize("dim", [0, 1, -1])
def test_squeezed_in_place_with_symbolic_sizes(dim):
    def function(x):
        return x.squeeze_(dim) + 1

    agree(function, (torch.randn(5, 1, 5, 1),), dynamic=True, generated=False)


def test_powers_in_place():
    x = torch.rand(4) + 1
    agree(lambda x: x.clone().pow_(3), (x,))
    agree(lambda x: x.clone().pow_(x), (x,))
    agree(lambda x: x.clone().floor_divide_(x * 0.3), (x,))


@pytest.mark.parametrize("norm", [F.batch_norm, F.instance_norm])
@pytest.mark.parametrize("dynamic", [None, True])
def test_running_statistics_are_read_before_and_after_they_are_written(norm, dynamic):
    def function(x, mean, variance):
        before = mean + 1
        result = norm(x, mean, variance, **{training: True})
        return before, result, mean * 2

    training = "training" if norm is F.batch_norm else "use_input_stats"
    args = (torch.randn(3, 4, 5), torch.zeros(4), torch.ones(4))
    agree(function, args, dynamic=dynamic)


QUERIES = {
    "dense": lambda: torch.randn(2, 3, 5, 4),
    "heads inside": lambda: torch.randn(2, 5, 3, 4).transpose(1, 2),
    "one batch": lambda: torch.randn(1, 3, 5, 4).expand(2, 3, 5, 4),
    "one head": lambda: torch.randn(2, 1, 5, 4).expand(2, 3, 5, 4),
    "one place": lambda: torch.randn(2, 3, 1, 4).expand(2, 3, 5, 4),
    "one batch, heads inside": lambda: torch.randn(1, 5, 3, 4).transpose(1, 2).expand(2, 3, 5, 4),
    "gaps": lambda: torch.randn(2, 3, 10, 4)[:, :, ::2],
}


@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("name", QUERIES)
def test_attention_is_laid_out_like_the_query(name, dynamic):
    query = QUERIES[name]()
    compiled = pliant.compile(F.scaled_dot_product_attention, backend=llvm, dynamic=dynamic)
    for other in QUERIES.values():
        key = other()
        found, expected = (f(query, key, key) for f in (compiled, F.scaled_dot_product_attention))
        torch.testing.assert_close(found, expected)
        assert found.stride() == expected.stride()


SCATTERS = {
    "slice": lambda x: torch.slice_scatter(x, x[:1] + 1, 0, 0, 1),
    "select": lambda x: torch.select_scatter(x, x[0] + 5, 0, 1),
    "diagonal": lambda x: torch.diagonal_scatter(x, x.diagonal() * 0),
}
OVERLAPPING = {
    "a row": lambda: torch.arange(3.0).expand(4, 3),
    "a column": lambda: torch.arange(4.0).reshape(4, 1).expand(4, 3),
    "one element": lambda: torch.ones(()).expand(3, 3),
    "a row, turned": lambda: torch.arange(4.0).expand(3, 4).t(),
    "windows": lambda: torch.arange(6.0).unfold(0, 3, 1),
    "windows, turned": lambda: torch.arange(6.0).unfold(0, 3, 1).t(),
}


@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("of", OVERLAPPING)
@pytest.mark.parametrize("name", SCATTERS)
def test_parts_put_into_tensors_that_overlap_themselves(name, of, dynamic):
    x = OVERLAPPING[of]()
    compiled = pliant.compile(SCATTERS[name], backend=llvm, dynamic=dynamic)
    found, expected = compiled(x), SCATTERS[name](x)
    assert torch.equal(found, expected) and found.stride() == expected.stride()


@pytest.mark.parametrize("dim", [0, 1, 2])
def test_squeezed_in_place_after_a_size_became_a_constant(dim):
    """The layout that an input came with still has the symbol of the size."""

    def function(x, mask):
        y = x.masked_scatter(mask, x)  # asks whether a size is 1
        x.squeeze_(dim)
        return y

    sizes = [(2, 1, 2), (3, 1, 4)]
    calls = [(torch.randn(size), torch.zeros(size[::2], dtype=torch.bool)) for size in sizes]
    agree(function, *calls, dynamic=True, generated=False)


COMPLEX = {
    "of nothing": lambda: torch.zeros(0, dtype=torch.complex64),
    "a number": lambda: torch.tensor(1 + 2j),
    "every second": lambda: torch.arange(6).to(torch.complex64)[::2],
    "transposed": lambda: torch.arange(12).to(torch.complex128).reshape(3, 4).T,
}


@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("make", COMPLEX.values(), ids=COMPLEX)
def test_complex_numbers_seen_as_pairs(make, dynamic):
    x = make()
    pairs = pliant.compile(torch.view_as_real, backend="llvm", dynamic=dynamic)(x)
    expected = torch.view_as_real(x)
    assert torch.equal(pairs, expected) and pairs.stride() == expected.stride()
    assert pairs._base is expected._base and pairs.data_ptr() == expected.data_ptr()
