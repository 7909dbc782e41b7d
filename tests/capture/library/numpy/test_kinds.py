"""NumPy's dtypes and their limits, which are constants, and methods of universal functions."""

import numpy as np
import pytest
import torch

import pliant
from tests.support.against_eager import check, compilations

X = torch.arange(6.0).reshape(2, 3)
KIND, LIMITS, PRECISION = np.dtype("float32"), np.iinfo(np.int16), np.finfo(np.float64)

PROGRAMS = {
    "limits of integers": lambda x: (
        x + np.iinfo(np.int32).max, np.iinfo("int8").min, np.iinfo(np.dtype("uint8")).bits
    ),
    "limits of floats": lambda x: (
        x + np.finfo(np.float32).eps, np.finfo(x.numpy().dtype).tiny, np.finfo(float).max,
        float(np.finfo(np.float16).min), repr(np.finfo(np.float32)), str(np.iinfo(np.int8)),
    ),
    "kinds": lambda x: (
        x + 1, KIND.kind, KIND.itemsize, KIND.name, KIND == np.float32, np.dtype("i4").char,
        x.numpy().dtype is KIND, np.issubdtype(KIND, np.floating), np.dtype(KIND),
    ),
    "from outside": lambda x: (x * LIMITS.max, PRECISION.eps, np.zeros(2, KIND).dtype.itemsize),
    "clipped": lambda x: np.clip(x.numpy(), 0, np.iinfo(np.int8).max).astype(np.int8),
    "one object": lambda x: (x + 1, np.finfo(np.float32) is np.finfo(np.float32)),
    "refused": lambda x: (x + 1, refused(np.float32)),
    "reduced": lambda x: (
        np.add.reduce(x.numpy()), np.multiply.reduce(x.numpy(), axis=None),
        np.maximum.reduce(x.numpy(), 1, keepdims=True), np.logical_or.reduce(x.numpy() > 0),
        np.add.reduce([x.numpy(), x.numpy()]), np.add.reduce(x.numpy(), dtype=np.float64),
    ),
    "accumulated": lambda x: np.add.accumulate(x.numpy(), axis=1),
    "outer": lambda x: (
        np.multiply.outer(x.numpy()[0], x.numpy()[1]), np.subtract.outer(x.numpy(), 2.0)
    ),
    "of numbers": lambda x: (x + 1, np.add.reduce([1, 2, 3])),
}  # fmt: skip


def refused(kind):
    try:
        return np.iinfo(kind)
    except ValueError as error:
        return str(error)


@pytest.mark.parametrize("name", PROGRAMS)
def test_same_as_eager(name):
    check(PROGRAMS[name], X)


def test_a_kind_among_the_arguments():
    def program(x, kind):
        return x.numpy().astype(kind), kind.kind, np.dtype(kind).itemsize

    kinds = [np.dtype(name) for name in ("int32", "int32", "float64", "int32")]
    assert compilations(program, [(X, kind) for kind in kinds]) == 2


@pytest.mark.parametrize("limits", [np.iinfo, np.finfo])
def test_limits_among_the_arguments(limits):
    """Others for the same kind make no difference."""
    names = ("int32", "int32", "int8") if limits is np.iinfo else ("float32", "float32", "float64")
    calls = [(X, limits(name)) for name in names]
    assert compilations(lambda x, info: (x + info.max, info.bits), calls) == 2


def test_limits_that_are_returned():
    compiled = pliant.compile(lambda x, info: (x + info.max, info, info is LIMITS))
    for info in (LIMITS, np.iinfo(np.int16), LIMITS):
        _, returned, is_that = compiled(X, info)
        assert returned is info and is_that == (info is LIMITS)
