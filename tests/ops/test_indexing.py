"""Lookups and writes to parts against eager, bit for bit; out of range is a fault."""

import pytest
import torch

from pliant.ops.lowering import NotLowered
from tests.ops.harness import Fault, run_op
from tests.ops.moving import DTYPES, WIDTHS, same, some
from tests.support.against_eager import compilations

aten = torch.ops.aten
INDEX_DTYPES = [torch.int64, torch.int32]


def indices(*shape, below, dtype=torch.int64, negative=False):
    found = torch.randint(-below if negative else 0, below, shape)
    return found.to(dtype)


@pytest.mark.parametrize("dtype", DTYPES)
def test_gather(dtype):
    x = some(5, 7, 3, dtype=dtype)
    for dim in range(-1, 3):
        same(aten.gather.default, x, dim, indices(4, 7, 2, below=3))
    same(aten.gather.default, x.permute(2, 0, 1), 1, indices(2, 17, 7, below=5))
    same(aten.gather.default, x, 1, indices(5, 0, 3, below=5))


def test_gather_without_dimensions():
    same(aten.gather.default, some(), 0, torch.tensor(0))
    same(aten.gather.default, some(5), 0, torch.tensor(3))
    same(aten.gather.default, some(), 0, torch.tensor([0, 0]))


def test_take_along_dim():
    same(aten.take_along_dim.default, some(3, 5), indices(3, 2, below=5), 1)
    same(aten.take_along_dim.default, some(3, 5), indices(1, 2, below=5), 1)
    same(aten.take_along_dim.default, some(1, 5), indices(4, 2, below=5), 1)


@pytest.mark.parametrize("dtype", WIDTHS)
@pytest.mark.parametrize("kind", INDEX_DTYPES)
def test_index_select(dtype, kind):
    x = some(5, 7, 3, dtype=dtype)
    for dim in range(-1, 3):
        same(aten.index_select.default, x, dim, indices(17, below=3, dtype=kind))
    same(aten.index_select.default, x.permute(2, 0, 1), 0, indices(4, below=3, dtype=kind))
    same(aten.index_select.default, x, 0, indices(0, below=3, dtype=kind))
    same(aten.index_select.default, some(dtype=dtype), 0, torch.tensor([0]))


@pytest.mark.parametrize("dtype", WIDTHS[:2])
@pytest.mark.parametrize("kind", INDEX_DTYPES)
def test_embedding(dtype, kind):
    weight = some(11, 17, dtype=dtype)
    same(aten.embedding.default, weight, indices(3, 5, below=11, dtype=kind))
    same(aten.embedding.default, weight, indices(below=11, dtype=kind))
    same(aten.embedding.default, weight.t(), indices(7, below=11, dtype=kind), 2)
    same(aten.embedding.default, weight, indices(0, 2, below=11, dtype=kind))


def test_take():
    same(aten.take.default, some(3, 5, 2), indices(4, 7, below=30, negative=True))
    same(aten.take.default, some(3, 5).t(), indices(7, below=15))
    same(aten.take.default, some(), torch.tensor([0, -1]))


@pytest.mark.parametrize("kind", INDEX_DTYPES)
def test_index(kind):
    x = some(5, 7, 3, 4)

    def at(*shape):
        return indices(*shape, below=3, dtype=kind, negative=True)

    for given in [
        [at(6)],
        [at(6), at(6)],
        [None, at(2, 6)],
        [None, at(6), at(2, 1)],
        [at(6), None, at(6)],
        [None, at(6), None, at(2, 6)],
        [at(1), at(6), at(2, 1), at(2, 6)],
        [None, None, at(17)],
        [at(0)],
        [None, at()],
    ]:
        same(aten.index.Tensor, x, given)
        same(aten.index.Tensor, x.transpose(0, 3).contiguous().transpose(0, 3), given)


def test_masks_as_indices_are_left_to_pytorch():
    with pytest.raises(NotLowered):
        run_op(aten.index.Tensor, some(3), [torch.tensor([True, False, True])])


@pytest.mark.parametrize("symbolic", [False, True])
@pytest.mark.parametrize("bad", [-8, -1, 5, 2**40])
def test_out_of_range_is_a_fault(symbolic, bad):
    x, index = some(5, 3), torch.tensor([1, bad, 2])
    result = torch.zeros(3, 3)
    calls = [
        (aten.index_select.default, x, 0, index),
        (aten.embedding.default, x, index),
        (aten.gather.default, x, 0, index[:, None].expand(3, 3)),
        (aten.index.Tensor, x, [index]),
    ]
    for func, *args in calls:
        if func is aten.index.Tensor and bad == -1:
            continue
        with pytest.raises((IndexError, RuntimeError)):
            func(*args)
        with pytest.raises(Fault):
            run_op(func, *args, symbolic=symbolic, expected=result)


def test_lookups_in_nothing_are_faults():
    for symbolic in (False, True):
        with pytest.raises(Fault):
            run_op(
                *(aten.embedding.default, some(0, 3), torch.tensor([0])),
                symbolic=symbolic,
                expected=torch.zeros(1, 3),
            )


@pytest.mark.parametrize("dtype", WIDTHS)
def test_select_scatter(dtype):
    x = some(5, 7, 3, dtype=dtype)
    same(aten.select_scatter.default, x, some(7, 3, dtype=dtype), 0, 2)
    same(aten.select_scatter.default, x, some(5, 3, dtype=dtype), 1, -1)
    same(aten.select_scatter.default, x, some(5, 7, dtype=dtype), -1, 0)


@pytest.mark.parametrize("dtype", WIDTHS)
def test_slice_scatter(dtype):
    x = some(5, 17, dtype=dtype)
    for start, end, step in [
        *((None, None, 1), (3, None, 1), (3, 9, 1), (-5, -1, 1), (2, 2**63 - 1, 3)),
        *((1, 16, 4), (-100, 100, 5), (9, 3, 1), (20, 30, 1), (0, 17, 1)),
    ]:
        length = len(range(17)[start:end:step])
        src = some(5, length, dtype=dtype)
        same(aten.slice_scatter.default, x, src, 1, start, end, step)
    same(aten.slice_scatter.default, x, some(2, 17), 0, 1, 3)


@pytest.mark.parametrize("offset", [0, 2, -1])
def test_diagonal_scatter(offset):
    x = some(5, 7, 3)
    for dims in [(0, 1), (2, 0), (-1, 1)]:
        src = torch.randn(x.diagonal(offset, *dims).shape)
        same(aten.diagonal_scatter.default, x, src, offset, *dims)


UNUSED = {
    "a list": lambda x, at: x[[0, 0]],
    "rows": lambda x, at: x[at],
    "columns": lambda x, at: x[:, at],
    "both": lambda x, at: x[at, at],
    "a write": lambda x, at: x.index_put((at,), x.sum()),
}


@pytest.mark.parametrize("name", UNUSED)
def test_something_is_taken_from_an_empty_dimension(name):
    """Which raises, also where the result would have no elements and isn't used."""
    take = UNUSED[name]
    calls = [
        (torch.ones(shape), torch.zeros(count, dtype=torch.int64))
        for shape in ((4, 3), (1, 1), (0, 0), (0, 3), (3, 0))
        for count in (2, 0)
    ]
    compilations(lambda x, at: (take(x, at), None)[1], calls, dynamic=True, backend="llvm")
