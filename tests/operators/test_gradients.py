"""Every operator of PyTorch's database with a gradient has eager's when it is compiled, in float64.

In `make test` one sample of each, with fixed sizes or with symbols, plain or between operations to
be fused with, in turn. `make test-long` takes several samples in all four ways.
"""

import pytest

from tests.operators.gradients import FORMS, broken, operators

FEW = 8  # parts, for the processes that share the work
PARTS = 16


@pytest.mark.parametrize("part", range(FEW))
def test_a_sample_of_each(part: int) -> None:
    differ = []
    for at, op in enumerate(operators()[part::FEW]):
        differ += broken(op, (None, True)[at % 2], 1, list(FORMS)[at // 2 % 2])
    assert differ == []


@pytest.mark.long
@pytest.mark.parametrize("part", range(PARTS))
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("dynamic", [None, True])
def test_every_operator(dynamic: bool | None, form: str, part: int) -> None:
    assert [f for op in operators()[part::PARTS] for f in broken(op, dynamic, 6, form)] == []
