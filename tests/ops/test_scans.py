"""Running sums, products and extremes are eager's, bit for bit."""

import pytest
import torch

import pliant
from pliant.backends.llvm import llvm
from pliant.ops.lowering import NotLowered
from tests.ops.harness import run_op
from tests.support.compiled_code import compiled_code

aten = torch.ops.aten
SCANS = (aten.cumsum.default, aten.cumprod.default, aten.cummax.default, aten.cummin.default)
DTYPES = (torch.float32, torch.float64, torch.bfloat16, torch.float16) + (
    torch.int64,
    torch.int32,
    torch.uint8,
    torch.bool,
)
SHAPES = [(7,), (3, 5), (0, 3), (3, 0), (1, 4), (4, 1), (37, 131), (3, 17, 5)]


def numbers(shape, dtype, seed=0):
    """With a nan, both zeros and an infinity where there is room for them."""
    x = (torch.randn(shape, generator=torch.Generator().manual_seed(seed)) * 3).to(dtype)
    if dtype.is_floating_point and x.numel() > 12:
        special = [float("nan"), -0.0, 0.0, -0.0, float("inf")]
        x.view(-1)[x.numel() // 3 : x.numel() // 3 + 5] = torch.tensor(special, dtype=dtype)
    return x


def same(found, eager):
    for one, other in zip(
        *[t if isinstance(t, tuple) else (t,) for t in (found, eager)], strict=True
    ):
        torch.testing.assert_close(one, other, rtol=0, atol=0, equal_nan=True)
        if one.dtype.is_floating_point:
            known = ~other.isnan()
            assert torch.equal(one.signbit() & known, other.signbit() & known)


def layouts(x):
    yield x
    yield x.transpose(0, -1)
    yield x.flip(0)[..., ::2]
    if x.shape[0]:
        yield x[:1].expand(5, *x.shape[1:])


@pytest.mark.sampled(4)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_scans(dtype, shape):
    for x in layouts(numbers(shape, dtype)):
        for dim in range(x.dim()):
            for scan in SCANS:
                for symbolic in (False, True):
                    try:
                        found = run_op(scan, x, dim, symbolic=symbolic)
                    except NotLowered:
                        assert scan in SCANS[2:] and dtype.is_floating_point
                        continue
                    same(found, scan(x, dim))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16], ids=str)
def test_logarithms_of_running_sums(dtype):
    infinite = torch.tensor([[float("inf")] * 3, [float("-inf")] * 3, [1.0, float("inf"), 2.0]])
    for x in (*layouts(numbers((19, 23), dtype)), infinite.to(dtype), -infinite.to(dtype)):
        for dim in (0, 1):
            found = run_op(aten.logcumsumexp.default, x, dim)
            torch.testing.assert_close(found, aten.logcumsumexp.default(x, dim), equal_nan=True)


def test_a_sum_of_another_dtype():
    x = numbers((5, 9), torch.int32)
    for dtype in (torch.float32, torch.int8, torch.bfloat16, torch.float64):
        same(run_op(aten.cumsum.default, x, 1, dtype=dtype), x.cumsum(1, dtype=dtype))
    with pytest.raises(NotLowered):
        run_op(aten.cumsum.default, x, 1, dtype=torch.bool, expected=x.bool())


def test_tensors_without_dimensions():
    for scan in SCANS:
        for number in (torch.tensor(-0.0), torch.tensor(3)):
            try:
                found = run_op(scan, number, 0)
            except NotLowered:
                continue
            same(found, scan(number, 0))


def kernels_of(function, *args):
    """How many kernels the function becomes, and what is left to PyTorch."""
    built = []

    def backend(graph, examples):
        built.append(compiled_code(graph, examples))
        return llvm(graph, examples)

    with torch.no_grad():
        found = pliant.compile(function, backend=backend, fullgraph=True)(*args)
    same(found, function(*args))
    (program,) = built
    return len(program.kernels), sum(program.lowered.called.values())


def test_elementwise_neighbours_share_the_loop():
    x = numbers((12, 40), torch.int64)
    assert kernels_of(lambda x: (x * 2).cumsum(-1) + 1, x) == (1, 0)
    assert kernels_of(lambda x: (x * 2).cumsum(0), x) == (1, 0)


def test_a_reduction_before_and_behind_a_scan():
    x = numbers((12, 40), torch.int64)
    made, called = kernels_of(lambda x: (x - x.amin(-1, keepdim=True)).cumsum(-1), x)
    assert (made, called) == (1, 0)
    made, called = kernels_of(lambda x: x.cumsum(-1).sum(-1), x)
    assert called == 0
    kernels_of(lambda x: (x.cumsum(-1), x.cumsum(0), x.sum(0), x.cumsum(-1).amax(-1)), x)


def test_dear_elements_are_not_computed_one_by_one():
    x = torch.rand(9, 50)

    def function(x):
        y = x.exp().sin()
        return torch.cumsum(y, -1), y

    with torch.no_grad():
        found = pliant.compile(function, backend=llvm)(x)
    torch.testing.assert_close(found, function(x))


def test_sizes_that_change():
    compiled = pliant.compile(lambda x: x.cumsum(0) * x.cumsum(1), backend=llvm, dynamic=True)
    for shape in [(3, 4), (1, 9), (0, 5), (130, 17), (5, 1)]:
        x = numbers(shape, torch.float32, seed=1).nan_to_num(0.0, 1.0, -1.0)
        with torch.no_grad():
            torch.testing.assert_close(compiled(x), x.cumsum(0) * x.cumsum(1))


@pytest.mark.parametrize("dtype", [torch.float32, torch.int64])
def test_a_size_in_the_data_that_has_to_be_1(dtype):
    """What is known of it only when the result is made."""

    def program(x):
        few = torch.unique(x)
        few.expand(x.shape)
        logs = few.logcumsumexp(0) if few.is_floating_point() else few
        return few.cumsum(0), few.cumprod(0), few.cummax(0)[0], few.cummin(0)[1], logs

    x = torch.full((3,), 2, dtype=dtype)
    compiled = pliant.compile(program, backend="llvm")
    for actual, expected in zip(compiled(x), program(x), strict=True):
        torch.testing.assert_close(actual, expected)
