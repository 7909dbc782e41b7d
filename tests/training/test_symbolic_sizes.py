"""Functions whose sizes vary: one compilation, and code of our own in both directions."""

import pytest
import torch
import torch.nn.functional as F

import pliant
from pliant.base import events
from tests.training.gradients_of import compare, outcome


def T(*sizes, dtype=torch.float32):
    return torch.randn(*sizes, dtype=dtype).requires_grad_()


def check(function, *calls, close=(1e-4, 1e-5)):
    """The same as eager for each of the calls, which one compilation serves."""
    events.counters.reset()
    compiled = pliant.compile(function, backend="llvm", dynamic=True)
    for args in calls:
        rtol, atol = close
        compare(outcome(compiled, args), outcome(function, args), rtol=rtol, atol=atol)
    assert events.counters["compilations"] == 1
    assert not events.counters["not_generated"] and not events.counters["fallbacks"]
    assert not events.counters["failed_kernels"]


@pytest.mark.parametrize("scale", [1.7, 0.6])
@pytest.mark.filterwarnings("ignore:.*upsample_bilinear")
def test_sizes_that_are_rounded_from_floats(scale: float) -> None:
    def function(x):
        return F.upsample_bilinear(x, scale_factor=scale)

    check(function, [T(2, 3, 5, 6)], [T(3, 2, 9, 24)])


@pytest.mark.parametrize("mode", ["nearest", "bilinear", "bicubic"])
def test_interpolation_by_a_factor(mode: str) -> None:
    def function(x):
        return F.interpolate(x, scale_factor=(1.3, 0.7), mode=mode)

    check(function, [T(2, 3, 6, 8)], [T(3, 2, 10, 12)], [T(2, 3, 13, 31)])


@pytest.mark.parametrize("function", [torch.cov, torch.corrcoef, torch.Tensor.cov])
def test_covariances(function) -> None:
    check(lambda x: function(x), [T(4, 5)], [T(6, 9)], [T(3, 40)])


def test_covariances_with_another_correction() -> None:
    check(lambda x: torch.cov(x, correction=0), [T(4, 5)], [T(6, 9)])


@pytest.mark.parametrize("edge_order", [1, 2])
def test_finite_differences(edge_order: int) -> None:
    def function(x):
        along = torch.gradient(x, dim=1, edge_order=edge_order)
        return *along, *torch.gradient(x, spacing=[2.0, 0.5], edge_order=edge_order)

    check(function, [T(4, 5)], [T(6, 9)], [T(3, 30)])


def test_finite_differences_come_as_eager_returns_them() -> None:
    compiled = pliant.compile(torch.gradient, backend="llvm", dynamic=True)
    assert type(compiled(T(4, 5))) is type(torch.gradient(T(4, 5)))
    for wrong in ({"dim": (1, -1)}, {"dim": 2}, {"edge_order": 3}):
        with pytest.raises((RuntimeError, IndexError)) as theirs:
            torch.gradient(T(4, 5), **wrong)
        with pytest.raises(theirs.type) as ours:
            compiled(T(4, 5), **wrong)
        assert str(ours.value) == str(theirs.value)


def test_one_row_has_a_variance() -> None:
    compiled = pliant.compile(lambda x: (torch.cov(x), torch.corrcoef(x)), dynamic=True)
    for x in (T(4, 5), T(1, 5)):
        compare(compiled(x), (torch.cov(x), torch.corrcoef(x)), rtol=1e-4, atol=1e-5)


@pytest.mark.filterwarnings("ignore:.*affine_grid")
@pytest.mark.parametrize("corners", [False, True])
@pytest.mark.parametrize("space", [(4, 5), (3, 2, 4), (1, 3)])
def test_affine_grids(corners: bool, space: tuple[int, ...]) -> None:
    rank = len(space)

    def function(theta):
        return F.affine_grid(theta, (theta.shape[0], 3, *space), align_corners=corners)

    check(function, [T(2, rank, rank + 1)], [T(5, rank, rank + 1)])


def test_affine_grids_of_images_of_any_size() -> None:
    def function(theta, image):
        grid = F.affine_grid(theta, image.shape, align_corners=False)
        return F.grid_sample(image, grid, align_corners=False)

    check(function, [T(2, 2, 3), T(2, 3, 6, 7)], [T(3, 2, 3), T(3, 2, 5, 9)])


def test_random_slopes() -> None:
    def function(x):
        return F.rrelu(x * 2, training=True) + F.rrelu(x.t(), 0.2, 0.4, training=True).t()

    check(function, [T(4, 5)], [T(6, 9)])


def test_a_step_with_a_grid_is_one_graph() -> None:
    theta = T(3, 2, 3)

    def step(images):
        grid = F.affine_grid(theta[: len(images)], images.shape, align_corners=False)
        loss = (grid * grid).mean()
        loss.backward()
        return loss

    results = []
    for run in (step, pliant.compile(step, backend="llvm", dynamic=True, fullgraph=True)):
        for count in (2, 3):
            theta.grad = None
            results.append([run(torch.ones(count, 1, 4, 5)).detach(), theta.grad])
    for mine, theirs in zip(results[2:], results[:2], strict=True):
        compare(mine, theirs, rtol=1e-4, atol=1e-5)
