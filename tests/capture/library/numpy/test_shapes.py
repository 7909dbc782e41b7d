"""Arrays whose sizes are symbols: one compilation for all sizes."""

import numpy as np
import pytest
import torch

import pliant
from tests.support.against_eager import check

MADE = {
    "ones": lambda x, n: torch.from_numpy(np.ones([2, n])) + 1,
    "ones of a type": lambda x, n: torch.from_numpy(np.ones(n, np.float32)) * x,
    "zeros": lambda x, n: torch.from_numpy(np.zeros((n, 3), dtype=np.int32)) + 1,
    "zeros of a shape": lambda x, n: torch.from_numpy(np.zeros(x.shape)) + x,
    "full": lambda x, n: torch.as_tensor(np.full((n, n), 2.5)) + 1,
    "arange": lambda x, n: torch.tensor(np.arange(n), dtype=torch.float64) - x,
    "arange from": lambda x, n: torch.from_numpy(np.arange(1, n + 3)) * 2,
    "eye": lambda x, n: torch.from_numpy(np.eye(n, dtype=np.float32)) @ x,
    "returned": lambda x, n: (x + 1, np.ones(n), np.arange(n)),
    "computed": lambda x, n: torch.from_numpy(np.sin(np.arange(n) / 3 + np.ones(n)) * n),
    "converted": lambda x, n: torch.from_numpy(np.arange(n).astype(np.float32)) + x,
    "of a tensor": lambda x, n: torch.from_numpy(np.exp(x.numpy()) - x.numpy() * 2) + x,
    "stacked": lambda x, n: torch.tensor(np.stack([np.ones([2, n])] * 3, axis=-2)) + x,
    "facts": lambda x, n: x + len(np.ones(n)) + np.ones((n, 2)).size + np.ones((2, n)).shape[1],
    "written to": lambda x, n: torch.from_numpy(np.ones(n)).add_(x),
}
CONSTANT = {
    "sum": lambda x, n: x + float(np.ones(n).sum() if n > 3 else n),
    "item": lambda x, n: torch.from_numpy(np.arange(n)[1:]) + 1,
    "reshape": lambda x, n: torch.from_numpy(x.numpy().reshape(-1, 1)) + 1,
    "broadcast": lambda x, n: torch.from_numpy(np.ones((2, n)) + x.numpy()),
    "steps": lambda x, n: torch.from_numpy(np.arange(0, n, 2)) + 1,
}


def run(function, sizes):
    compiled = pliant.compile(function)
    for n in sizes:
        x = torch.arange(float(n))
        torch.testing.assert_close(compiled(x, n), function(x, n))
    return compiled


@pytest.mark.parametrize("function", MADE.values(), ids=MADE)
def test_two_compilations_for_all_sizes(function):
    run(function, (3, 4, 5, 7))
    assert pliant.counters["compilations"] == 2
    assert pliant.counters["graph_breaks"] == 0
    run(function, (3, 4, 1, 0, 2))


@pytest.mark.parametrize("function", CONSTANT.values(), ids=CONSTANT)
def test_what_needs_the_sizes_makes_them_constants(function):
    run(function, (3, 4, 5, 7))


def test_a_negative_size():
    compiled = run(lambda x, n: np.arange(n) + 1, (3, 4, 5))
    assert compiled(torch.ones(1), -2).shape == (0,)
    compiled = run(lambda x, n: np.ones(n) + 1, (3, 4, 5))
    with pytest.raises(ValueError, match="negative dimensions"):
        compiled(torch.ones(1), -2)


def test_the_tensor_shares_memory_with_the_array():
    def f(x, n):
        array = np.ones(n)
        tensor = torch.from_numpy(array)
        tensor.add_(x)
        return array * 2, tensor

    run(f, (3, 4, 5))


def test_an_in_place_operator_called_by_its_name():
    def f(x):
        x.numpy().__iadd__(1)
        return x * 2

    check(f, torch.ones(3), breaks=None)
