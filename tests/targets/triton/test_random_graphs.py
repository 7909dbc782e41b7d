"""A part of the random functions and of PyTorch's operators, through Triton kernels."""

import pytest

from pliant.backends import llvm
from tests.backends import test_random_graphs as random_graphs
from tests.operators import database, test_database


@pytest.fixture(autouse=True)
def interpreter(monkeypatch):
    monkeypatch.setattr(random_graphs, "llvm", llvm.triton_interpreter)
    monkeypatch.setattr(database, "llvm", llvm.triton_interpreter)


@pytest.mark.parametrize("start", [100, 110, 120])
def test_random_graphs(start, kernels) -> None:
    for seed in range(start, start + 10):
        random_graphs.compare(seed)
    assert len(kernels.ran) > 10


@pytest.mark.parametrize("part", range(4))
def test_operators(part: int, kernels) -> None:
    found = []
    for op in database.operators()[part::40]:
        dtype = next(dtype for dtype in test_database.MAIN if dtype in op.dtypes)
        found += test_database.broken(op, dtype, True, 1, "fused")
    assert found == []
    assert len(kernels.ran) > 5
