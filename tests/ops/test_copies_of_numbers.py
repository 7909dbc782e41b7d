"""`x.copy_(number)`."""

import pytest
import torch

import pliant
from pliant.base import events


def whole(x):
    return x.copy_(1) * 2


def part(x):
    x[0].copy_(2.5)
    return x + 1


@pytest.mark.parametrize("backend", ["eager", "llvm"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.int64])
@pytest.mark.parametrize("program", [whole, part])
def test_numbers_are_copied_inside_of_a_graph(program, dtype, backend) -> None:
    events.counters.reset()
    compiled = pliant.compile(program, backend=backend, fullgraph=True)
    for size in (3, 4, 0):
        written, expected = torch.zeros(2, size, dtype=dtype), torch.zeros(2, size, dtype=dtype)
        result = program(expected)
        assert torch.equal(compiled(written), result) and torch.equal(written, expected)
    assert events.counters["graph_breaks"] == 0
