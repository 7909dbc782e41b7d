"""Every operator of PyTorch's database gives compiled what it gives eagerly.

In `make test` the first samples of each operator, with sizes that are numbers and with sizes that
are symbols; in `make test-long` all of them, for each dtype and in other layouts.
"""

import pytest
import torch

import pliant
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


def other_errors(op, dynamic: bool | None) -> list:
    found = []
    for bad in op.error_inputs("cpu"):
        eager = outcome(op.op, bad.sample_input)
        ours = outcome(pliant.compile(op.op, dynamic=dynamic), bad.sample_input)
        if ours != eager:
            found.append((op_db.name_of(op), eager, ours))
    pliant.reset()
    return found


def outcome(function, sample) -> str:
    try:
        function(sample.input, *sample.args, **sample.kwargs)
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return "no error"


@pytest.mark.parametrize("part", range(4))
@pytest.mark.parametrize("dynamic", [pytest.param(None, marks=pytest.mark.long), True])
def test_bad_arguments(dynamic: bool | None, part: int) -> None:
    refused = [op for op in op_db.operators() if op.error_inputs_func is not None]
    with pliant.config.patch(raise_on_fallback=False):  # PyTorch says what is wrong
        differ = [message for op in refused[part::4] for message in other_errors(op, dynamic)]
    assert differ == []


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
