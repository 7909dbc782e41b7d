"""Every operator of PyTorch's database gives compiled what it gives eagerly.

In `make test` the first samples of each operator, with sizes that are numbers and with sizes that
are symbols; in `make test-long` all of them, for each dtype and in other layouts.
"""

import pytest
import torch

from tests.backends import op_db

PARTS = 16  # of the operators, for the processes that share the work
FIRST = 1  # samples in `make test`
MOST = 200  # samples: a few operators have thousands that differ little
FEWER = 40  # samples in other layouts


def broken(part: int, dtype: torch.dtype, dynamic: bool | None, most: int | None, **more) -> list:
    found = []
    for op in op_db.operators()[part::PARTS]:
        found += broken_samples(op, dtype, dynamic, most, **more)
    return found


def broken_samples(op, dtype, dynamic, most, layout="plain", in_place=False) -> list:
    known = op_db.Compiled()
    found = []
    for sample in op_db.samples(op, dtype, most, in_place):
        outcome = op_db.attempt(op, dtype, op_db.relaid(sample, layout), dynamic, known)
        if outcome.how == "broken":
            found.append((op_db.name_of(op), sample.source, outcome.why))
    return found


@pytest.mark.parametrize("part", range(PARTS))
def test_first_samples(part: int) -> None:
    assert broken(part, torch.float32, None, FIRST) == []
    assert broken(part, torch.float32, True, FIRST) == []


@pytest.mark.long
@pytest.mark.parametrize("part", range(PARTS))
@pytest.mark.parametrize("dynamic", [None, True])
@pytest.mark.parametrize("dtype", op_db.DTYPES)
def test_all_samples(dtype: torch.dtype, dynamic: bool | None, part: int) -> None:
    assert broken(part, dtype, dynamic, MOST) == []


@pytest.mark.long
@pytest.mark.parametrize("part", range(PARTS))
@pytest.mark.parametrize("dynamic", [None, True])
@pytest.mark.parametrize("layout", ["flipped", "spread"])
def test_other_layouts(layout: str, dynamic: bool | None, part: int) -> None:
    assert broken(part, torch.float32, dynamic, FEWER, layout=layout) == []


@pytest.mark.long
@pytest.mark.parametrize("part", range(PARTS))
@pytest.mark.parametrize("dynamic", [None, True])
@pytest.mark.parametrize("dtype", op_db.DTYPES)
def test_in_place(dtype: torch.dtype, dynamic: bool | None, part: int) -> None:
    assert broken(part, dtype, dynamic, FEWER, in_place=True) == []
