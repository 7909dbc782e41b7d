"""Small programs through the default backend, called with inputs that differ in sizes and layout:
what was decided for one of them must not be used for another."""

import math

import pytest
import torch
import torch.nn.functional as F

import pliant
from pliant.base import events
from tests.backends.eager_twin import call, difference

pytestmark = pytest.mark.own_default


def agree(function, *makers, dynamic=True):
    """Each maker gives arguments, twice the same. Returns the counters."""
    compiled = pliant.compile(function, dynamic=dynamic)
    events.counters.reset()
    for seed, make in enumerate(makers):
        sides = []
        for side in (compiled, function):
            torch.manual_seed(seed)
            sides.append(call(side, make()))
        assert difference(*sides) is None, f"call {seed}: {difference(*sides)}"
    return dict(events.counters)


def test_a_reshape_that_is_a_view_only_where_sizes_are_equal():
    def swapped(x):
        y = x.reshape(x.shape[1], x.shape[0])
        y.add_(1)
        return y

    sizes = ((5, 7), (16, 16), (3, 4), (1, 4), (6, 6))
    agree(swapped, *[lambda s=s: (torch.randn(s).t(),) for s in sizes])


def test_strides_of_0_are_not_those_of_columns():
    def function(x, y):
        return x + y

    agree(
        function,
        lambda: (torch.randn(4, 5), torch.randn(4, 5)),
        lambda: (torch.randn(5, 4).t(), torch.randn(4, 10)[:, ::2]),
        lambda: (torch.randn(1, 5).expand(4, 5), torch.randn(4, 5)),
        dynamic=None,
    )


@pytest.mark.parametrize(
    "equation", ["ij,kj->ki", "ij,kj->ik", "ij,kl->lij", "ij,kj->k", "ij,kj->kij", "ij,ij->ji"]
)
def test_einsum_leaves_its_dimensions_as_eager_does(equation):
    def function(x, y):
        result = torch.einsum(equation, x, y)
        return result, result.is_contiguous()

    sizes = ((3, 4), (5, 2), (2, 1), (4, 4))
    agree(function, *[lambda s=s: (torch.randn(s), torch.randn(s)) for s in sizes])


def thirds(x):
    return x[: int(x.shape[0] * 0.3)] * 2


def rounded(x):
    return torch.ones(round(x.shape[0] * 0.6), 2) + x.sum()


def roots(x):
    return torch.ones(int(math.sqrt(x.shape[0]))) * 2, x / math.sqrt(x.shape[0])


def resized(x):
    return F.interpolate(x[None, None], size=(int(x.shape[0] * 1.7), 4))


def rescaled(x):
    options = {"recompute_scale_factor": True, "mode": "bilinear"}
    return F.interpolate(x[None, None], scale_factor=1.3, **options)


@pytest.mark.parametrize("function", [thirds, rounded, roots, resized])
def test_sizes_that_take_floats_are_compiled_once(function):
    counted = agree(function, *[lambda n=n: (torch.randn(n, 6),) for n in (8, 7, 9, 20)])
    assert counted["compilations"] == counted["programs"] == 1
    assert not counted.get("not_generated")


def test_sizes_that_take_floats_in_kernels():
    agree(rescaled, *[lambda n=n: (torch.randn(n, 6),) for n in (8, 7, 9, 20)])


def test_one_element_is_scattered():
    def function(x):
        return x.masked_scatter(x > 0, torch.arange(1.0, 1.0 + x.numel()).view_as(x))

    agree(function, lambda: (torch.ones(1, 1),), lambda: (torch.ones(2, 3),), dynamic=False)


def test_exponents_beyond_those_of_floats():
    def function(x, n):
        return torch.ldexp(x, n), torch.ldexp(x, n.float())

    numbers = torch.tensor([0.0, 1.0, 1e-30, 3.0])
    for dtype in (torch.float32, torch.float64):
        agree(function, lambda dtype=dtype: (numbers.to(dtype), torch.tensor([128, 200, -3, 2])))


def test_one_image_in_channels_last():
    def function(x):
        return F.group_norm(x, 3)

    image = torch.randn(1, 3, 6, 4).to(memory_format=torch.channels_last)
    assert pliant.compile(function, dynamic=False)(image).stride() == function(image).stride()
