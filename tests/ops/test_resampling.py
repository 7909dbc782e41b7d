"""Interpolation against eager. Nearest moves elements: bit for bit."""

import pytest
import torch
import torch.nn.functional as F

from pliant.ops.lowering import NotLowered
from tests.ops.harness import run_op
from tests.ops.moving import same, some

aten = torch.ops.aten
FLOATS = [torch.float32, torch.float64, torch.bfloat16, torch.float16]
SIZES = {1: (2, 3, 11), 2: (2, 5, 11, 6), 3: (1, 2, 5, 3, 4)}


def nearest(n, exact=False):
    return getattr(aten, f"{'_' if exact else ''}upsample_nearest{'_exact' if exact else ''}{n}d")


@pytest.mark.parametrize("n", [1, 2, 3])
@pytest.mark.parametrize("dtype", [*FLOATS, torch.uint8])
@pytest.mark.parametrize("exact", [False, True])
def test_nearest_by_powers_of_two(n, dtype, exact):
    x = some(*SIZES[n], dtype=dtype)
    for factor in (2, 4, 1):
        size = [s * factor for s in x.shape[2:]]
        same(nearest(n, exact).default, x, size, symbolic=False)
        same(nearest(n, exact).default, x, size, *[float(factor)] * n, symbolic=False)
        same(nearest(n, exact).vec, x, None, [float(factor)] * n, symbolic=False)
    even = some(*[s * 4 for s in SIZES[n]], dtype=dtype)
    for factor in (2, 4):
        size = [s // factor for s in even.shape[2:]]
        same(nearest(n, exact).default, even, size, symbolic=False)


@pytest.mark.parametrize("n", [1, 2, 3])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.uint8])
@pytest.mark.parametrize("grow", [-4, -1, 1, 7, 23])
def test_nearest_to_any_size(n, dtype, grow):
    x = some(*SIZES[n], dtype=dtype)
    size = [max(s + grow, 1) for s in x.shape[2:]]
    same(nearest(n).default, x, size, symbolic=False)
    same(nearest(n).vec, x, size, None, symbolic=False)
    large = some(1, 1, *[s * 40 for s in x.shape[2:4]], dtype=dtype)
    if n == 2:  # eager has another kernel for these
        same(nearest(n).default, large, [s * 3 - grow for s in large.shape[2:]], symbolic=False)
        last = some(1, 8, 90, 40, dtype=dtype).to(memory_format=torch.channels_last)
        same(nearest(n).default, last, [133 + grow, 77], symbolic=False)


@pytest.mark.parametrize("factor", [3.0, 5.0, 7.0, 0.3, 0.7, 1.7, 3.3])
def test_nearest_by_any_factor(factor):
    for n in (1, 2):
        x = some(*SIZES[n])
        size = [int(s * factor) for s in x.shape[2:]]
        same(nearest(n).default, x, size, *[factor] * n, symbolic=False)


def test_what_eager_computes_in_two_ways_is_left_to_pytorch():
    for args in [(some(1, 1, 3), [7], None), (some(1, 1, 10, 10), [10, 10], 1.05, 1.05)]:
        exact = len(args) == 3
        with pytest.raises(NotLowered):
            run_op(nearest(1 if exact else 2, exact).default, *args)


@pytest.mark.parametrize("dtype", FLOATS[:2])
@pytest.mark.parametrize("corners", [False, True])
@pytest.mark.parametrize("name", ["linear1d", "bilinear2d", "trilinear3d", "bicubic2d"])
def test_weighted(name, corners, dtype):
    rule = getattr(aten, f"upsample_{name}")
    x = some(*SIZES[int(name[-2])], dtype=dtype)
    n = x.dim() - 2
    for size in ([7] * n, [22, 12, 9][:n], [1] * n, list(x.shape[2:]), [5, 31, 2][:n]):
        same(rule.default, x, size, corners, exact=False, symbolic=False)
        same(rule.vec, x, size, corners, None, exact=False, symbolic=False)
    for factor in (2.0, 0.4, 1.3):
        same(rule.vec, x, None, corners, [factor] * n, exact=False, symbolic=False)
        size = [int(s * factor) for s in x.shape[2:]]
        same(rule.default, x, size, corners, *[factor] * n, exact=False, symbolic=False)


def test_weighted_in_other_layouts():
    x = some(2, 8, 13, 40).to(memory_format=torch.channels_last)
    same(aten.upsample_bilinear2d.default, x, [90, 70], False, exact=False, symbolic=False)
    same(
        aten.upsample_bilinear2d.default,
        some(1, 2, 80, 90),
        [200, 30],
        True,
        exact=False,
        symbolic=False,
    )


def test_interpolate_keeps_infinities_where_eager_has_them():
    x = torch.zeros(1, 1, 4, 4)
    x[0, 0, 1, 2] = float("inf")
    same(aten.upsample_bilinear2d.default, x, [4, 8], False, symbolic=False)
    assert F.interpolate(x, [4, 8], mode="bilinear").isnan().any()
