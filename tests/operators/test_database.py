"""Every operator of PyTorch's database gives compiled what it gives eagerly.

In `make test` each operator in one dtype with fixed sizes and in another one with symbols, plain or
between operations to be fused with, in turn. `make test-long` takes all dtypes, each in all four
ways, and in-place methods and other layouts.
"""

import pytest
import torch

import pliant
from tests.operators import database

PARTS = 32  # of the operators, for the processes that share the work
FEW = 16
MAIN = {torch.float32: 8, torch.float64: 3, torch.bfloat16: 3, torch.int64: 3, torch.bool: 2}
MAIN[torch.float16] = 3
REST = [dtype for dtype in (*database.DTYPES, *database.OTHER_DTYPES) if dtype not in MAIN]
DYNAMIC = [None, True]
FORMS = {"plain": lambda sample: sample, "fused": database.fused}


def broken(
    op, dtype, dynamic, count, form="plain", layout="plain", in_place=False
) -> list[tuple[str, str, str]]:
    """What differs in some samples of an operator."""
    compiled = database.Compiled()
    found = []
    for sample in database.spread_samples(op, dtype, count, in_place):
        sample = FORMS[form](database.relaid(sample, layout))
        outcome = database.attempt(op, dtype, sample, dynamic, compiled)
        if outcome.how == "broken":
            how = f"{dtype}, dynamic={dynamic}, {layout}"
            found.append((f"{database.name_of(op)} ({how})", sample.source, outcome.why))
    return found


@pytest.mark.parametrize("part", range(FEW))
def test_two_samples_of_each(part: int) -> None:
    found = []
    for index, op in enumerate(database.operators()):
        if index % FEW != part:
            continue
        dtypes = [dtype for dtype in (*MAIN, *REST) if dtype in op.dtypes]
        forms = list(FORMS) if index // FEW % 2 else list(FORMS)[::-1]
        found += broken(op, dtypes[0], None, 2, forms[0])
        found += broken(op, dtypes[index // FEW % len(dtypes)], True, 2, forms[1])
    assert found == []


@pytest.mark.long
@pytest.mark.parametrize("part", range(PARTS))
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("dynamic", DYNAMIC)
@pytest.mark.parametrize("dtype", MAIN)
def test_every_operator(dtype: torch.dtype, dynamic: bool | None, form: str, part: int) -> None:
    operators = database.operators()[part::PARTS]
    assert [f for op in operators for f in broken(op, dtype, dynamic, MAIN[dtype], form)] == []


@pytest.mark.long
@pytest.mark.parametrize("part", range(PARTS))
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("dynamic", DYNAMIC)
def test_other_dtypes(dynamic: bool | None, form: str, part: int) -> None:
    pairs = [(op, dtype) for op in database.operators()[part::PARTS] for dtype in REST]
    assert [f for op, dtype in pairs for f in broken(op, dtype, dynamic, 1, form)] == []


@pytest.mark.long
@pytest.mark.parametrize("part", range(PARTS))
@pytest.mark.parametrize("dynamic", DYNAMIC)
@pytest.mark.parametrize("layout", ["flipped", "spread"])
def test_other_layouts(layout: str, dynamic: bool | None, part: int) -> None:
    operators = database.operators()[part::PARTS]
    found = [broken(op, torch.float32, dynamic, 3, layout=layout) for op in operators]
    assert sum(found, []) == []


@pytest.mark.long
@pytest.mark.parametrize("part", range(PARTS))
@pytest.mark.parametrize("dynamic", DYNAMIC)
def test_in_place(dynamic: bool | None, part: int) -> None:
    pairs = [(op, dtype) for op in database.operators()[part::PARTS] for dtype in MAIN]
    found = [broken(op, dtype, dynamic, 2, in_place=True) for op, dtype in pairs]
    assert sum(found, []) == []


# --------------------------------------------------------------------------------------------------
# Calls that eager PyTorch refuses


def other_errors(op, dynamic: bool | None) -> list:
    found = []
    for bad in op.error_inputs("cpu"):
        eager = outcome(op.op, bad.sample_input)
        ours = outcome(pliant.compile(op.op, dynamic=dynamic), bad.sample_input)
        if ours != eager:
            found.append((database.name_of(op), eager, ours))
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
    refused = [op for op in database.operators() if op.error_inputs_func is not None]
    with pliant.config.patch(raise_on_fallback=False):  # PyTorch says what is wrong
        differ = [message for op in refused[part::4] for message in other_errors(op, dynamic)]
    assert differ == []
