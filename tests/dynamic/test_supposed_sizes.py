"""Sizes in the data that are supposed to be the usual ones: where they are not, the call is
compiled for that case."""

import pytest
import torch

import pliant
from pliant.base import events
from tests.support.against_eager import compilations


def listed(bins):
    none, one, two = torch.bincount(bins, minlength=3).tolist()[:3]
    return bins * none + one * two


def divided(bins):
    """As a mean over the nodes of each graph in a batch."""
    count = int(bins.max()) + 1
    sums = torch.zeros(count).index_add_(0, bins, bins.float())
    return sums / torch.bincount(bins, minlength=count).clamp(min=1)


def sent_to_experts(bins):
    rows = bins.argsort(stable=True)
    parts = rows.split(torch.bincount(bins, minlength=3).tolist())
    return torch.cat([part * at for at, part in enumerate(parts, 1)])


def behind_a_write(bins):
    bins.mul_(1)
    counts = torch.bincount(bins, minlength=3) * 2
    bins.add_(0)
    return counts + torch.arange(counts.size(0))


@pytest.mark.parametrize("program", [listed, divided, sent_to_experts, behind_a_write])
def test_as_many_bins_as_are_asked_for(program) -> None:
    calls = [(torch.tensor(bins),) for bins in ([0, 2, 1, 2], [2, 2, 0, 0], [1, 1, 1, 1])]
    assert compilations(program, calls, fullgraph=True, backend="llvm") == 1
    assert events.counters["not_generated"] == events.counters["fallbacks"] == 0


def test_more_bins_than_are_asked_for() -> None:
    program = pliant.compile(behind_a_write, fullgraph=True, backend="llvm")
    for bins in ([0, 2, 1, 2], [0, 4, 1, 2], [2, 2, 2, 2], [5, 0, 0, 0]):
        expected, actual = torch.tensor(bins), torch.tensor(bins)
        assert torch.equal(program(actual), behind_a_write(expected))
        assert torch.equal(actual, expected)
    assert events.counters["compilations"] == 2 and events.counters["fallbacks"] == 0


def test_a_list_of_more_bins() -> None:
    calls = [(torch.tensor(bins),) for bins in ([0, 2, 1, 2], [0, 4, 1, 2], [2, 2, 0, 0])]
    compilations(listed, calls, backend="llvm")
    assert events.counters["fallbacks"] == 0


@pytest.mark.parametrize("oblivious", ["error", "torch"])
def test_nothing_is_supposed_where_nothing_would_be_compiled_again(oblivious) -> None:
    calls = [(torch.tensor(bins),) for bins in ([0, 2, 1, 2], [0, 4, 1, 2])]
    counts = lambda bins: torch.bincount(bins, minlength=3) * 2  # noqa: E731
    assert compilations(counts, calls, fullgraph=True, options={"oblivious": oblivious}) == 1
