"""PyTorch's Python decompositions that call each other without end."""

import sys

import pytest
import torch

from pliant.fake.python_dispatcher import python_first
from tests.support.against_eager import compilations


def test_a_chain_without_end_is_an_error():
    """Not the end of the process, though the limit of recursion is that of a capture."""
    limit = sys.getrecursionlimit()
    sys.setrecursionlimit(20_000)
    try:
        with pytest.raises(RecursionError), python_first():
            torch.ops.aten._to_copy(torch.empty(2, device="meta"), device="cpu")
        assert sys.getrecursionlimit() == 20_000
    finally:
        sys.setrecursionlimit(limit)


def test_near_the_limit():
    def deep(left):
        if left:
            return deep(left - 1)
        with python_first():
            return torch.ones(2).sum()

    assert deep(sys.getrecursionlimit() // 2) == 2


@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors")
def test_nested_tensors_of_symbolic_sizes():
    def program(x):
        return torch.nested.nested_tensor([x, x[:1]]).to_padded_tensor(0.0)

    for dynamic in (None, True):
        compilations(program, [(torch.ones(size, 4),) for size in (3, 2, 1, 0, 3)], dynamic=dynamic)
