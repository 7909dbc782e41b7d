"""Writes to places that the data say: eager's results, whatever the layout, and eager's errors."""

import pytest
import torch

import pliant
from pliant.backends.llvm import llvm
from tests.ops.harness import Fault, run_op
from tests.ops.test_scans import DTYPES, kernels_of, numbers, same

aten = torch.ops.aten
SHAPES = [((7,), (12,)), ((5, 6), (9, 6)), ((4, 3, 5), (2, 3, 5)), ((40, 33), (44, 30))] + [
    ((), ()),
    ((3, 4), (0, 4)),
    ((1, 5), (1, 3)),
]
pytestmark = pytest.mark.filterwarnings("ignore:The reduce argument")


def check(op, *args, **kwargs):
    expected = op(*args, **kwargs)
    for symbolic in (False, True):
        same(run_op(op, *args, symbolic=symbolic, **kwargs), expected)


def indices(*shape, below, above=0):
    return torch.randint(above, below, shape, generator=torch.Generator().manual_seed(len(shape)))


@pytest.mark.sampled(4)
@pytest.mark.parametrize("shape, updates", SHAPES, ids=str)
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_scatter(dtype, shape, updates):
    x = numbers(shape, dtype)
    for dim in range(max(1, len(shape))):
        sizes = [n if d == dim else min(n, shape[d]) for d, n in enumerate(updates)]
        index = indices(*sizes, below=shape[dim] if shape else 1)
        src = numbers(sizes, dtype, seed=1)
        for given in (x, x.transpose(0, -1).contiguous().transpose(0, -1) if shape else x):
            check(aten.scatter.src, given, dim, index, src)
            check(aten.scatter.value, given, dim, index, 1)
            check(aten.scatter_add.default, given, dim, index, src)
        check(aten.scatter.reduce, x, dim, index, src, reduce="multiply")
        check(aten.scatter.value_reduce, x, dim, index, True, reduce="add")


@pytest.mark.parametrize("reduce", ["sum", "prod", "mean", "amax", "amin"])
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_scatter_reduce(dtype, reduce):
    if reduce == "mean" and dtype is torch.bool:
        return
    x, index, src = numbers((9, 6), dtype), indices(20, 6, below=9), numbers((20, 6), dtype, seed=1)
    for include_self in (True, False):
        check(aten.scatter_reduce.two, x, 0, index, src, reduce, include_self=include_self)
        turned = (x.mT, 1, index.mT, src.mT, reduce)
        check(aten.scatter_reduce.two, *turned, include_self=include_self)


@pytest.mark.sampled(4)
@pytest.mark.parametrize("shape", [(7,), (5, 6), (4, 3, 5), (), (1, 5)], ids=str)
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_slices(dtype, shape):
    x = numbers(shape, dtype)
    for dim in range(max(1, len(shape))):
        for many in (13, 1, 0) if shape else (1,):
            index = indices(many, below=shape[dim] if shape else 1)
            source = numbers([many if d == dim else n for d, n in enumerate(shape)], dtype, seed=1)
            index = index if shape else index[0]
            check(aten.index_add.default, x, dim, index, source)
            check(aten.index_add.default, x, dim, index.int(), source)
            if dtype not in (torch.bool, torch.float16, torch.bfloat16):
                alpha = 0.3 if dtype.is_floating_point else 2
                check(aten.index_add.default, x, dim, index, source, alpha=alpha)
            check(aten.index_copy.default, x, dim, index, source)
            check(aten.index_fill.int_Scalar, x, dim, -1 - index, 1)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_index_put(dtype):
    x = numbers((5, 6, 7), dtype)
    a, b, c = (indices(4, below=n, above=-n) for n in (5, 6, 7))
    choices = [[a], [None, b], [a, b], [a, None, c], [a.view(4, 1), b], [a, b, c], [None, b, c]]
    for chosen in choices:
        like = x[tuple(slice(None) if one is None else one for one in chosen)]
        for shape in (like.shape, (), like.shape[-1:], (1,) * like.dim()):
            for accumulate in (False, True):
                values = numbers(shape, dtype, seed=1)
                check(aten.index_put.default, x, chosen, values, accumulate)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_masks(dtype):
    x, mask = numbers((5, 6, 7), dtype), torch.arange(30).view(5, 6) % 3 == 0
    for values in (numbers((), dtype), numbers((1,), dtype), numbers((7,), dtype)):
        for accumulate in (False, True):
            check(aten.index_put.default, x, [mask], values, accumulate)
    check(aten.index_put.default, x, [None, mask[0]], numbers((5, 1, 7), dtype, seed=1))
    flat = x.view(30, 7)[:, :1]
    for given in (mask.view(30, 1), mask.view(30, 1).expand(30, 7)):
        check(aten.masked_scatter.default, flat, given, numbers((11, 20), dtype, seed=1))


def test_places_that_are_not_there():
    x = torch.zeros(3)
    for op, *args in (
        (aten.scatter.src, 0, torch.tensor([0, 3]), torch.ones(2)),
        (aten.scatter_add.default, 0, torch.tensor([0, -1]), torch.ones(2)),
        (aten.index_add.default, 0, torch.tensor([0, -1]), torch.ones(2)),
        (aten.index_fill.int_Scalar, 0, torch.tensor([0, -4]), 1),
        (aten.index_put.default, [torch.tensor([0, -4])], torch.ones(2)),
        (aten.masked_scatter.default, torch.ones(3, dtype=torch.bool), torch.ones(2)),
    ):
        for symbolic in (False, True):
            with pytest.raises(Fault):
                run_op(op, x, *args, expected=x, symbolic=symbolic)


def test_an_error_is_eagers():
    def function(x, index):
        x.add_(1)
        x.index_add_(0, index, torch.ones(2, 4))
        return x

    compiled = pliant.compile(function, backend=llvm)
    x, eager = torch.zeros(3, 4), torch.zeros(3, 4)
    with torch.no_grad():
        for step in (compiled, function):
            given = x if step is compiled else eager
            step(given, torch.tensor([0, 2]))
            with pytest.raises(RuntimeError, match="index 3 is out of bounds"):
                step(given, torch.tensor([0, 3]))
    assert torch.equal(x, eager)


def test_neighbours_are_computed_on_the_way():
    x, index, source = torch.rand(20, 30), indices(9, below=20), torch.rand(9, 30)
    made = kernels_of(lambda x, i, s: x.relu().index_add(0, i, s * 2 + 1), x, index, source)
    assert made == (2, 0)


def test_results_that_are_used_again():
    def function(x, index, source):
        y = x.scatter_add(1, index, source)
        z = y.scatter(0, index, 2.0)
        return y, z, y + z, (x * 2).index_copy(1, index[0], source[:, :5])

    x, index, source = torch.rand(6, 6), indices(6, 5, below=6), torch.rand(6, 6)
    kernels_of(function, x, index, source)


def test_sizes_that_change():
    def function(x, index, source):
        return x.index_add(0, index, source), x.scatter(1, index[None, :] % 2, source[:1])

    compiled = pliant.compile(function, backend=llvm, dynamic=True)
    for rows, columns, many in [(5, 7, 9), (3, 2, 1), (130, 600, 64), (2, 3000, 4), (4, 5, 0)]:
        x, source = torch.rand(rows, columns), torch.rand(max(many, 1), columns)
        index = indices(many, below=rows)
        width = min(many, columns)
        args = (x, index[:width], source[:width])
        with torch.no_grad():
            same(compiled(*args), function(*args))
