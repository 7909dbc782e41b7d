"""Softmax and normalisations through their rules and machine code, against eager PyTorch."""

import math
import re

import pytest
import torch
import torch.nn.functional as F

import pliant
from pliant.ops.lowering import NotLowered
from tests.ops.harness import run_op
from tests.ops.test_reductions import dims, inputs, made, same
from tests.support.against_eager import run, same_error

aten = torch.ops.aten
FLOATS = [torch.float32, torch.float64, torch.bfloat16, torch.float16]
SHAPES = [(), (1,), (0, 3), (2, 3, 131)]
IMAGES = [(2, 6), (3, 4, 2, 3), (0, 6, 3)]


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("shape", SHAPES)
def test_softmax(shape, dtype):
    for x in inputs(shape, dtype):
        for dim in dims(x):
            for func in (aten.softmax.int, aten.log_softmax.int, aten._safe_softmax.default):
                same(func, x, dim)
            for func in (aten._softmax.default, aten._log_softmax.default):
                same(func, x, dim, False)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.int64])
def test_softmax_as_another_type(dtype):
    x = made((3, 5), dtype)
    for asked in (torch.float32, torch.float64, torch.bfloat16):
        same(aten.softmax.int, x, 1, asked)
        same(aten.log_softmax.int, x, -2, asked)


@pytest.mark.parametrize("special", [math.nan, math.inf, -math.inf, 3e38])
def test_softmax_of_special_numbers(special):
    rows = torch.randn(4, 37)
    rows[1, 5] = special
    rows[2] = special
    for func in (aten.softmax.int, aten.log_softmax.int, aten._safe_softmax.default):
        same(func, rows, 1)
        same(func, rows, 0)


def test_softmax_of_sizes_that_are_not_known():
    x = torch.randn(5, 77)
    for dim in (0, 1):
        found = run_op(aten.softmax.int, x, dim, symbolic=True)
        torch.testing.assert_close(found, x.softmax(dim))


def optional(shape, dtype):
    weight, bias = made(shape, dtype), made(shape, dtype).flip(0)
    return [(None, None), (weight, None), (None, bias), (weight, bias)]


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("shape", [(7,), (2, 3, 131), (0, 3)])
def test_layer_norm(shape, dtype):
    for x in inputs(shape, dtype):
        for count in range(1, len(shape) + 1):
            normalized = list(shape[-count:])
            if 0 in normalized:
                continue
            for of in {dtype, torch.float32}:
                for weight, bias in optional(tuple(normalized), of):
                    same(aten.native_layer_norm.default, x, normalized, weight, bias, 1e-5)
                    same(aten.layer_norm.default, x, normalized, weight, bias)


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("eps", [None, 1e-6])
def test_rms_norm(eps, dtype):
    for shape in ((7,), (2, 3, 131), (0, 3)):
        for x in inputs(shape, dtype):
            for weight in (None, made(shape[-1:], dtype)):
                same(aten.rms_norm.default, x, list(shape[-1:]), weight, eps)
                same(aten._fused_rms_norm.default, x, list(shape[-1:]), weight, eps)


def layouts(shape, dtype):
    yield made(shape, dtype)
    if len(shape) == 4:
        yield made(shape, dtype).to(memory_format=torch.channels_last)


@pytest.mark.parametrize("dtype", FLOATS)
def test_group_norm(dtype):
    for shape in ((2, 6, 5), (3, 4, 2, 3)):
        for x in layouts(shape, dtype):
            for groups in (1, 2, shape[1]):
                for weight, bias in optional(shape[1:2], dtype):
                    same(aten.group_norm.default, x, groups, weight, bias)
                    more = (shape[0], shape[1], math.prod(shape[2:]), groups, 1e-5)
                    same(aten.native_group_norm.default, x, weight, bias, *more)


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("shape", IMAGES)
def test_batch_norm_with_given_statistics(shape, dtype):
    for x in layouts(shape, dtype):
        for of in {dtype, torch.float32}:
            mean, var = made(shape[1:2], of), made(shape[1:2], of).abs() + 0.1
            for weight, bias in optional(shape[1:2], of):
                args = (x, weight, bias, mean, var)
                same(aten.batch_norm.default, *args, False, 0.1, 1e-5, False)
                same(aten.native_batch_norm.default, *args, False, 0.1, 1e-5)
                same(aten._native_batch_norm_legit_no_training.default, *args, 0.1, 1e-5)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_by_own_statistics(dtype):
    for shape in ((2, 6, 5), (3, 4, 2, 3)):
        for x in layouts(shape, dtype):
            for weight, bias in optional(shape[1:2], dtype):
                more = (None, None, True, 0.1, 1e-5, False)
                same(aten.batch_norm.default, x, weight, bias, *more)
                same(aten.instance_norm.default, x, weight, bias, *more)


@pytest.mark.parametrize("momentum", [0.1, 0.0, 1.0])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_batch_norm_with_new_statistics(dtype, momentum):
    for shape in ((5, 3), (2, 6, 5), (3, 4, 2, 3)):
        for x in layouts(shape, dtype):
            for weight, bias in optional(shape[1:2], dtype):
                mean, var = made(shape[1:2], dtype), made(shape[1:2], dtype).abs() + 0.1
                own = (True, momentum, 1e-5)
                same(aten._native_batch_norm_legit.no_stats, x, weight, bias, *own)
                name = aten._native_batch_norm_legit_functional.default
                same(name, x, weight, bias, mean, var, *own)


def test_what_updates_statistics_is_left_to_eager():
    x, one = torch.randn(2, 3, 4), torch.ones(3)
    for func in (aten.batch_norm.default, aten.instance_norm.default):
        with pytest.raises(NotLowered):
            run_op(func, x, None, None, one, one.clone(), True, 0.1, 1e-5, False)


@pytest.mark.parametrize("shift", [0.0, 1e3])
def test_layer_norm_is_as_accurate_as_eager(shift):
    x = torch.randn(8, 4099) + shift
    args = ([4099], None, None, 1e-5)
    exact = aten.native_layer_norm.default(x.double(), *args)
    eager, ours = (
        aten.native_layer_norm.default(x, *args),
        run_op(aten.native_layer_norm.default, x, *args),
    )
    for right, e, o in zip(exact, eager, ours):
        assert (o - right).abs().max() <= 2 * (e - right).abs().max() + 1e-7


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_a_zero_without_bias_has_the_sign_of_eager(dtype: torch.dtype) -> None:
    def normed(x: torch.Tensor, weight: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return F.layer_norm(x, (3,), weight), F.layer_norm(x, (3,), weight, weight * 0)

    x = torch.tensor([[-1, 0, 1], [1, 1, 1]], dtype=dtype)
    weight = torch.tensor([-2, -1, -3], dtype=dtype)
    compiled = pliant.compile(normed, backend="llvm")
    for actual, expected in zip(compiled(x, weight), normed(x, weight), strict=True):
        assert actual.signbit().tolist() == expected.signbit().tolist()


@pytest.mark.parametrize("dynamic", [None, True])
@pytest.mark.parametrize("affine", [False, True])
@pytest.mark.parametrize("training", [False, True])
def test_parameters_that_are_not_one_per_channel(dynamic, affine, training):
    def norm(x, mean, variance):
        stats = (None, None) if training else (mean, variance)
        weight = variance if affine or training else None
        return torch.nn.functional.batch_norm(x, *stats, weight, training=training)

    compiled = pliant.compile(norm, dynamic=dynamic)
    for channels, count in ((3, 3), (1, 3), (4, 5), (2, 1), (1, 1)):
        args = torch.randn(3, channels), torch.zeros(count), torch.ones(count)
        with torch.no_grad():
            if channels == count:
                torch.testing.assert_close(compiled(*args), norm(*args))
                continue
            with pytest.raises(RuntimeError) as expected:
                norm(*args)
            with pytest.raises(RuntimeError) as actual:
                compiled(*args)
        assert str(actual.value).split("\n")[0] == str(expected.value).split("\n")[0]


NORMS = {
    "batch": lambda x: F.batch_norm(x, None, None, training=True),
    "batch, updated": lambda x: F.batch_norm(x, torch.zeros(1), torch.ones(1), training=True),
    "batch, kept": lambda x: F.batch_norm(x, torch.zeros(1), torch.ones(1)),
    "instance": lambda x: torch.instance_norm(x, None, None, None, None, True, 0.1, 1e-5, False),
    "group": lambda x: torch.group_norm(x, 1),
    "group, of other sizes": lambda x: torch.native_group_norm(x, None, None, 2, 1, 1, 1, 1e-5)[0],
    "layer": lambda x: F.layer_norm(x, x.shape[-1:]),
    "layer, of nothing": lambda x: F.layer_norm(x, ()),
}


@pytest.mark.own_default
@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("name", NORMS)
def test_few_dimensions(name, dynamic):
    """What eager PyTorch refuses, or takes without channels."""
    for shape in ((), (0,), (1,), (2,), (0, 0), (1, 0), (0, 1), (1, 1), (1, 1, 0)):
        x = torch.ones(shape)
        compiled = pliant.compile(NORMS[name], dynamic=dynamic)
        sides = [run(function, (x.clone(),)) for function in (compiled, NORMS[name])]
        if sides[1].error is not None:
            same_error(sides[0].error, sides[1].error)
        else:
            assert sides[0].error is None
            torch.testing.assert_close(sides[0].result, sides[1].result, equal_nan=True)


@pytest.mark.parametrize("name", NORMS)
def test_few_dimensions_of_a_result_that_is_written_to_and_dropped(name):
    def function(x):
        NORMS[name](x).add_(1)

    for shape in ((0,), (1,), (2,), (1, 1)):
        args = (torch.ones(shape),)
        actual = run(pliant.compile(function, backend="llvm"), args)
        expected = run(function, args)
        if expected.error is None:
            assert actual.error is None
        else:
            same_error(actual.error, expected.error)


BATCHES_WITHOUT_CHANNELS = {
    "training": lambda x: F.batch_norm(x, None, None, training=True),
    "evaluation": lambda x: F.batch_norm(x, x.new_zeros(0), x.new_zeros(0)),
    "scaled": lambda x: F.batch_norm(x, None, None, x.new_ones(2), x.new_ones(1), training=True),
    "operator": lambda x: torch.batch_norm(x, None, None, None, None, True, 0.1, 1e-5, False),
}


@pytest.mark.parametrize("name", BATCHES_WITHOUT_CHANNELS)
def test_a_batch_norm_without_channels(name):
    """PyTorch reads a size that isn't there."""
    f = BATCHES_WITHOUT_CHANNELS[name]
    compiled = pliant.compile(f, dynamic=True)
    for size in (0, 2, 1, 0):
        x = torch.ones(size)
        try:
            expected = f(x)
        except (IndexError, RuntimeError, ValueError) as error:
            with pytest.raises(type(error), match=re.escape(str(error))):
                compiled(x)
        else:
            assert torch.equal(compiled(x), expected)
