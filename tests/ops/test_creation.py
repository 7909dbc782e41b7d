"""Fills, ranges and the identity against eager."""

import pytest
import torch

import pliant
from pliant.base import events
from pliant.ops.lowering import NotLowered
from tests.ops.harness import Fault, run_op
from tests.ops.moving import DTYPES, same, some
from tests.support.against_eager import check, compilations

aten = torch.ops.aten
cpu = torch.device("cpu")


@pytest.mark.parametrize("dtype", DTYPES)
def test_fills(dtype):
    same(aten.full.default, [3, 5], 1, dtype=dtype, device=cpu, pin_memory=False)
    same(aten.zeros.default, [3, 0], dtype=dtype)
    same(aten.ones.default, [], dtype=dtype)
    same(aten.new_full.default, some(2, dtype=dtype), [17], 7)
    same(aten.new_ones.default, some(2), [3, 4], dtype=dtype)
    same(aten.scalar_tensor.default, 1, dtype=dtype)


def test_fills_convert_as_eager_does():
    same(aten.full.default, [3], 2.9, dtype=torch.int64)
    same(aten.full.default, [3], -2.9, dtype=torch.int64)
    same(aten.full.default, [3], 0.3, dtype=torch.bool)
    same(aten.full.default, [3], 0.1, dtype=torch.bfloat16)
    same(aten.full.default, [3], float("nan"))
    same(aten.full.default, [3], True)
    same(aten.full.default, [3], 2**53 + 1)


def test_empty_has_the_sizes():
    assert run_op(aten.empty.memory_format, [3, 5]).shape == (3, 5)
    assert run_op(aten.new_empty.default, some(2), [0, 3]).shape == (0, 3)
    assert run_op(aten.empty_strided.default, [3, 5], [1, 3]).stride() == (1, 3)


@pytest.mark.parametrize("dtype", [torch.int64, torch.int32, torch.uint8, torch.float32])
@pytest.mark.parametrize("bounds", [(0, 17, 1), (3, 40, 5), (100, 3, -7), (5, 5, 1), (0, 1, 1)])
def test_arange(dtype, bounds):
    same(aten.arange.start_step, *bounds, dtype=dtype)
    same(aten.arange.start, 0, bounds[1], dtype=dtype)
    same(aten.arange.default, bounds[1], dtype=dtype)


@pytest.mark.parametrize("start", [-(2**63), -(2**62), 2**62, 1e18, 1e30, -1e30])
def test_ranges_of_numbers_that_hardly_fit(start):
    def function(x):
        return x + torch.arange(start, start + 3)

    check(function, torch.ones(()), backend="llvm")


LARGE_RANGES = [
    (2**62, 2**62 + 3, 1),
    (2**53, 2**53 + 3, 1),
    (2**53, 2**53 + 3, 1.0),
    (2**53 + 40, 2**53 - 10, -1),
    (-(2**62) - 1000, -(2**62) + 1000, 7),
    (-(2**62), 2**62 + 1, 2**61),
    (-(2**63), 2**63 - 1, 2**61),
]


@pytest.mark.parametrize("numbers", LARGE_RANGES)
@pytest.mark.parametrize("dtype", [None, torch.int64, torch.int32, torch.float32, torch.float64])
def test_the_size_of_a_range_is_rounded_as_eager_does(numbers, dtype):
    """It is computed in doubles, unless the range is one of 64-bit integers."""
    start, end, step = numbers

    def plain(x):
        return torch.arange(start, end, step, dtype=dtype).shape, x + 1

    def symbolic(start, end):
        return torch.arange(start, end, step, dtype=dtype).shape

    def into(start, end):
        return torch.arange(start, end, step, out=torch.empty(0, dtype=dtype)).shape

    def from_data(start, end):
        return torch.arange(start.item(), end.item(), step, dtype=dtype).shape

    small = (5, 5 + 3 * int(step))
    check(plain, torch.ones(3), backend="llvm", breaks=None)
    for function in (symbolic, into):
        compilations(function, [small, (start, end)], backend="llvm", dynamic=True)
    compilations(from_data, [tuple(map(torch.tensor, ends)) for ends in (small, (start, end))])


def test_arange_of_floats():
    same(aten.arange.default, 40.0)
    same(aten.arange.start_step, -3.0, 40.0, 2.0, dtype=torch.float64)
    same(aten.arange.default, 200, dtype=torch.bfloat16, symbolic=False)
    same(aten.arange.default, 2000, dtype=torch.float16, symbolic=False)
    for start, step, dtype in [(0, 0.1, None), (0.5, 1, None), (0, 2, torch.bfloat16)]:
        with pytest.raises(NotLowered):
            run_op(aten.arange.start_step, start, 500, step, dtype=dtype)


def test_iota():
    same(
        torch.ops.prims.iota.default,
        *(7,),
        **{"start": 3, "step": 2, "dtype": torch.int64, "device": cpu, "requires_grad": False},
    )


@pytest.mark.parametrize("dtype", DTYPES)
def test_eye(dtype):
    same(aten.eye.default, 5, dtype=dtype)
    same(aten.eye.m, 3, 17, dtype=dtype)
    same(aten.eye.m, 3, 0, dtype=dtype)


def test_one_hot():
    same(aten.one_hot.default, torch.randint(0, 5, (3, 7)), 5)
    same(aten.one_hot.default, torch.randint(0, 5, (0,)), 5)
    same(aten.one_hot.default, torch.tensor(2), 3)
    with pytest.raises(NotLowered):
        run_op(aten.one_hot.default, torch.tensor([1, 2]))


def test_one_hot_out_of_range_is_a_fault():
    x = torch.tensor([1, 4, 2])
    with pytest.raises(RuntimeError):
        aten.one_hot.default(x, 4)
    with pytest.raises(Fault):
        run_op(aten.one_hot.default, x, 4, expected=torch.zeros(3, 4, dtype=torch.int64))


@pytest.mark.filterwarnings("ignore:An output with one or more elements was resized")
@pytest.mark.parametrize("backend", ["eager", "llvm"])
@pytest.mark.parametrize("dynamic", [False, True])
def test_a_range_into_a_tensor_of_as_many_elements(dynamic, backend):
    """It keeps its shape; one of another number of elements becomes a vector."""

    def write(out, x):
        result = torch.arange(x.shape[0], out=out)
        torch.arange(1, x.shape[0] + 1, out=out)
        return result.dim(), result.shape, out + 1

    compiled = pliant.compile(write, backend=backend, dynamic=dynamic)
    for shape in [(2, 2), (4,), (4, 1), (3,), (0, 1), (0,), (2, 2)]:
        count = 4 if 0 not in shape else 0
        (ours, out), (eager, expected) = (
            (function(out := torch.zeros(shape), torch.ones(count)), out)
            for function in (compiled, write)
        )
        assert ours[:2] == eager[:2] and torch.equal(ours[2], eager[2])
        assert torch.equal(out, expected) and out.stride() == expected.stride()


RANGES = {
    "end": lambda n: torch.arange(end=n),
    "start and end": lambda n: torch.arange(start=1, end=n + 3),
    "everything": lambda n: torch.arange(start=(1 - n) / 2, end=(1 + n) / 2, step=1),
    "some by position": lambda n: torch.arange(0, end=n, step=2),
    "a step first": lambda n: torch.arange(1, step=2, end=n, dtype=torch.float32),
}
REFUSED_RANGES = {
    "no start": lambda n: torch.arange(n, step=2),
    "no end": lambda n: torch.arange(start=n),
    "two starts": lambda n: torch.arange(0, n, 1, start=2),
    "a start alone": lambda n: torch.arange(n, start=1),
}


@pytest.mark.parametrize("name", [*RANGES, *REFUSED_RANGES])
def test_bounds_of_ranges_by_name(name):
    def program(x, n):
        return x + 1, (RANGES | REFUSED_RANGES)[name](n)

    calls = [(torch.ones(2), n) for n in (3, 5, 6, 4)]
    made = compilations(program, calls, dynamic=True)
    if name in RANGES:
        assert made == 1
        assert events.counters["graph_breaks"] == 0


@pytest.mark.parametrize("name", ["arange", "zeros", "ones", "randperm", "rand", "eye"])
def test_made_where_a_leaf_was(name):
    """Without gradients, PyTorch says of such a tensor that it doesn't require grad any more."""
    make = getattr(torch, name)
    compiled = pliant.compile(lambda out, size: (make(size, out=out), None)[1], backend="llvm")
    for size in (3, 0, 5):
        shape = (size, size) if name == "eye" else (size,)
        told = []
        for run in (lambda out: make(size, out=out), lambda out: compiled(out, size)):
            torch.manual_seed(0)
            leaf = torch.ones(shape, requires_grad=True)
            with torch.no_grad():
                run(leaf)
            told.append((leaf.requires_grad, leaf.tolist()))
        assert told[1] == told[0]
