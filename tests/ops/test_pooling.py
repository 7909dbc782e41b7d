"""Average and largest of windows against eager: bit for bit, the order of additions is eager's."""

import pytest
import torch

from pliant.ops.lowering import NotLowered
from tests.ops.harness import run_op
from tests.ops.moving import same, some

aten = torch.ops.aten
FLOATS = [torch.float32, torch.float64, torch.bfloat16, torch.float16]
SIZES = {1: (2, 3, 11), 2: (2, 3, 11, 9), 3: (2, 2, 5, 7, 6)}


def op(name, n):
    return getattr(aten, f"{name}{n}d").default


@pytest.mark.parametrize("n", [1, 2, 3])
@pytest.mark.parametrize("dtype", FLOATS[::2])
def test_average(n, dtype):
    x = some(*SIZES[n], dtype=dtype)
    if n == 3 and x.element_size() == 2:
        pytest.skip("not in eager")
    for length, step, pad, ceil, padding_counts in [
        *((2, [], 0, False, True), (3, 1, 1, False, True), (3, 2, 1, True, True)),
        *((3, 2, 1, True, False), (3, 2, 1, False, False), (3, 2, 0, True, True)),
        (1, 1, 0, False, True),
    ]:
        args = ([length] * n, [step] * n if step else [], [pad] * n, ceil, padding_counts)
        same(op("avg_pool", n), x, *args)


def test_average_divided_by_another_number_and_of_planes():
    same(aten.avg_pool2d.default, some(3, 7, 5), [3, 2], [2, 1], [1, 0], True, False, 5)
    same(aten.avg_pool2d.default, some(0, 3, 7, 5), [3, 2])
    channels_last = some(2, 5, 9, 7).to(memory_format=torch.channels_last)
    same(aten.avg_pool2d.default, channels_last, [3, 3], [2, 2], [1, 1])


def test_average_of_large_windows():
    same(aten.avg_pool2d.default, some(2, 3, 14, 14), [7, 7], exact=False)
    same(aten.avg_pool1d.default, some(2, 3, 200), [50], [3], exact=False)


def test_averages_of_integers_are_left_to_pytorch():
    with pytest.raises(NotLowered):
        run_op(aten.avg_pool2d.default, some(1, 4, 4, dtype=torch.int64), [2, 2])


@pytest.mark.parametrize("dtype", FLOATS)
def test_adaptive_average(dtype):
    x = some(2, 3, 12, 6, dtype=dtype)
    for wanted in ([4, 3], [1, 6], [12, 6], [5, 4], [13, 7]):
        same(aten._adaptive_avg_pool2d.default, x, wanted, symbolic=False)
    same(aten.adaptive_avg_pool1d.default, x[0], [3], symbolic=False)
    with pytest.raises(NotLowered):
        run_op(aten._adaptive_avg_pool2d.default, x, [5, 3], symbolic=True)


@pytest.mark.parametrize("n", [1, 2, 3])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.int64])
def test_largest(n, dtype):
    x = some(*SIZES[n], dtype=dtype)
    if n == 1 and dtype is torch.int64 or n == 3 and dtype is torch.bfloat16:
        pytest.skip("left to PyTorch")
    for length, step, pad, apart, ceil in [
        *((2, [], 0, 1, False), (3, 1, 1, 1, False), (3, 2, 1, 1, True), (2, 2, 1, 2, False)),
        *((2, 1, 1, 2, True), (1, 1, 0, 1, False)),
    ]:
        args = ([length] * n, [step] * n if step else [], [pad] * n, [apart] * n, ceil)
        same(op("max_pool", n), x, *args)
        if n > 1:
            same(getattr(aten, f"max_pool{n}d_with_indices").default, x, *args)


def test_largest_with_nan_and_infinities():
    x = torch.randint(-2, 2, (2, 3, 9, 8)).float()
    x[x == 1] = float("nan")
    x[:, 0] = float("-inf")
    x[:, 1] = -0.0
    same(aten.max_pool2d_with_indices.default, x, [3, 3], [2, 2], [1, 1])
    same(aten.max_pool2d_with_indices.default, x, [2, 2], [1, 1], [1, 1], [2, 2])
    same(aten.max_pool2d.default, x.to(memory_format=torch.channels_last), [3, 3], [2, 2])
