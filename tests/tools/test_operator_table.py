"""docs/operators.md says what the compiler does: it is made by tools/make_operator_table.py."""

import re
from collections import Counter

import pytest

from tests.operators import database
from tools import make_operator_table as table

PAGE = table.PAGE.read_text()
LINES = dict(re.findall(r"^(?=\| `([^`]+)`)(.*)$", PAGE, re.MULTILINE))
SAMPLES = int(re.search(r"first\s+(\d+) samples", PAGE)[1])
RELEASE = re.search(r"PyTorch\s+(\d+\.\d+) has", PAGE)[1]
FEW, SOME = database.operators()[8::230], database.operators()[7::60]


def cells(line):
    return [cell.strip() for cell in line.split("|")[1:7]]


def test_the_summary_is_that_of_the_lines():
    counts = Counter(cells(line)[1] for line in LINES.values())
    summary = re.findall(r"^\| ([\w ]+) \| (\d+) \|", PAGE, re.MULTILINE)
    assert {name: int(number) for name, number in summary} == {
        name: counts[name] for name in table.MEANINGS
    }
    of_all = [sum(int(cells(line)[column]) for line in LINES.values()) for column in (2, 3, 4, 5)]
    total, lowered, called, *others, broken = map(int, re.findall(r"\d+", _totals()))
    assert (lowered, called, sum(others), broken) == tuple(of_all) and total == sum(of_all)


def _totals():
    return re.search(r"^Of \d+ samples: .*$", PAGE, re.MULTILINE)[0]


def test_all_operators_that_have_samples_are_listed():
    """The database of another release of PyTorch lacks some of them."""
    names = {database.name_of(op) for op in database.operators()}
    if table.release() == RELEASE:
        assert set(LINES) <= names
    assert len(set(LINES) & names) > 0.9 * len(LINES)
    for op in database.operators():
        if database.name_of(op) not in LINES:
            assert all(row["how"] == "skipped" for row in table.attempts(op, SAMPLES))


@pytest.mark.parametrize("op", FEW, ids=map(database.name_of, FEW))
def test_lines_are_up_to_date(op):
    """A few of them: all take a quarter of an hour."""
    _compare(op)


@pytest.mark.long
@pytest.mark.parametrize("op", SOME, ids=map(database.name_of, SOME))
def test_more_lines_are_up_to_date(op):
    _compare(op)


def _compare(op):
    rows = [row for row in table.attempts(op, SAMPLES) if row["how"] != "skipped"]
    name = database.name_of(op)
    assert cells(LINES[name]) == cells(table.line(name, rows))
