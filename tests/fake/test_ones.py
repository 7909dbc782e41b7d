"""Dimensions of size 1 whose strides lie among those of others, beside symbolic sizes."""

import pytest
import torch

import pliant
from tests.support.against_eager import check


def strided(sizes, strides):
    return torch.arange(5000.0).as_strided(sizes, strides)


CASES = [
    (
        [((1, 3, 8, 4), (4, 32, 4, 1)), ((1, 3, 8, 4), (8, 96, 12, 1))],
        "both dense in their own way",
    ),
    ([((1, 3, 8, 4), (8, 96, 12, 1)), ((1, 3, 8, 4), (8, 96, 12, 1))], "alike, with gaps"),
    ([((1, 3, 8, 4), (4, 32, 4, 1)), ((1, 3, 8, 4), (4, 32, 4, 1))], "alike and dense"),
    ([((3, 1, 4), (4, 2, 1)), ((3, 1, 4), (8, 1, 2))], "inside"),
    ([((3, 1, 4), (4, 100, 1)), ((3, 1, 4), (8, 1, 2))], "outside"),
    ([((3, 1, 4), (1, 5, 3)), ((1, 4), (3, 1))], "a second operand that is spread"),
]


@pytest.mark.parametrize("operands", [c[0] for c in CASES], ids=[c[1] for c in CASES])
def test_strides_of_a_sum(operands):
    check(lambda a, b: a + b, *(strided(*o) for o in operands), dynamic=True)
    check(lambda a, b: a * b, *(strided(*o) for o in reversed(operands)), dynamic=True)


@pytest.mark.parametrize("first", [1, 2])
def test_joined(first):
    """Whether memory is channels-last is seen from the strides alone."""

    def f(a, b):
        return torch.cat([a, b])

    sizes = (first, 3, 8, 4)
    check(f, strided(sizes, (4, 96, 12, 1)), strided(sizes, (4, 32, 4, 1)), dynamic=True)


def test_a_batch_of_one_needs_no_compilation():
    def f(x):
        return torch.cat([x[:1] * x[:1].sin(), x[1::2] + x[1::2].cos()]).movedim(0, 2)

    compiled = pliant.compile(f, fullgraph=True)
    for batch in (2, 3, 1, 4):
        x = torch.randn(batch, 8, 6, 4).movedim(2, 0)
        torch.testing.assert_close(compiled(x), f(x))
    assert pliant.counters["compilations"] == 2
