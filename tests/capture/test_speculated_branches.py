"""Branches on data that are told in advance: loops of few rounds, flags in buffers of modules."""

import itertools
import math

import pytest
import torch

import pliant
from pliant.base import events
from tests.support.against_eager import check

BACKENDS = ["eager", "llvm"]


def calls(function, compiled, *inputs):
    """Compare on each input; gives how many breaks and compilations there were after each call."""
    events.counters.reset()
    outcomes = []
    for x in inputs:
        torch.testing.assert_close(compiled(x.clone()), function(x.clone()))
        outcomes.append((events.counters["graph_breaks"], events.counters["compilations"]))
    return outcomes


def doubled(x):
    for i in range(4):
        x = x * 2
        if (x > 10).all():
            break
    else:
        x = x - 1
    return x + i


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_short_loop_that_is_not_left(backend):
    compiled = pliant.compile(doubled, backend=backend)
    assert calls(doubled, compiled, torch.full((3,), 0.1), torch.full((3,), 0.2)) == [(0, 1)] * 2


@pytest.mark.parametrize("backend", BACKENDS)
def test_once_left_it_is_not_speculated_on_any_more(backend):
    compiled = pliant.compile(doubled, backend=backend)
    values = (0.1, 1.0, 3.0, 9.0, 0.1, 1.0, 3.0, 9.0)
    outcomes = calls(doubled, compiled, *[torch.full((3,), value) for value in values])
    assert outcomes[0] == (0, 1)
    assert outcomes[1][0] > 0
    assert outcomes[-1] == outcomes[4]  # all is compiled by then


def test_left_at_the_first_call():
    compiled = pliant.compile(doubled, backend="eager")
    calls(doubled, compiled, torch.full((3,), 9.0), torch.full((3,), 0.1))


def test_what_is_done_after_the_wrong_turn_leaves_nothing_behind():
    def f(x, seen):
        for i in range(3):
            x.add_(1)
            noise = torch.rand(2)
            seen.append(i)
            if (x > 5).all():
                break
        return x * noise

    compiled = pliant.compile(f, backend="eager")
    for start in (0.0, 3.5, 4.5, 0.0):
        results = []
        for function in (f, compiled):
            torch.manual_seed(7)
            x, seen = torch.full((2,), start), []
            results.append((function(x, seen), x, seen, torch.rand(1)))
        assert torch.equal(results[0][0], results[1][0])
        assert torch.equal(results[0][1], results[1][1])
        assert results[0][2] == results[1][2]
        assert torch.equal(results[0][3], results[1][3])


def test_loops_over_lists_and_enumerate():
    def f(x, weights):
        for i, w in enumerate(weights):
            if x.sum() > 100:
                break
            for v in reversed(weights):
                x = x + w * v
                if x.max() > 50:
                    break
        return x + i

    for start in (0.0, 49.0, 200.0):
        check(f, torch.full((3,), start), [1.0, 2.0, 3.0], breaks=None)


def test_a_long_loop_breaks_as_before():
    def f(x):
        for _ in range(1000):
            x = x * 2
            if (x > 10).all():
                break
        return x

    events.counters.reset()
    assert pliant.compile(f, backend="eager")(torch.ones(2)).tolist() == [16.0, 16.0]
    assert events.counters["graph_breaks"] > 0


def test_with_fullgraph_nothing_is_speculated_on():
    with pytest.raises(pliant.errors.GraphBreakError, match="truth value of a tensor"):
        pliant.compile(doubled, fullgraph=True)(torch.ones(2))


class Initialised(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("ready", torch.tensor([False]))
        self.register_buffer("mean", torch.zeros(3))

    def forward(self, x):
        if not self.ready:
            self.mean.copy_(x.mean())
            self.ready.fill_(True)
        return x - self.mean


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_flag_in_a_buffer(backend):
    model, same = Initialised(), Initialised()
    compiled = pliant.compile(model, backend=backend)
    inputs = torch.arange(15.0).reshape(5, 3)
    outcomes = calls(same, compiled, *inputs)
    assert outcomes[0] == (0, 1)
    assert outcomes[-1] == outcomes[1]
    for flag in (False, True, False):
        model.ready.fill_(flag)
        same.ready.fill_(flag)
        calls(same, compiled, inputs[2], inputs[3])
    assert torch.equal(model.mean, same.mean)


def test_a_flag_that_stays_never_breaks():
    model, same = Initialised(), Initialised()
    for one in (model, same):
        one.ready.fill_(True)
    compiled = pliant.compile(model, backend="eager")
    assert calls(same, compiled, *torch.rand(3, 3)) == [(0, 1)] * 3


def test_a_flag_that_the_function_has_written_is_not_speculated_on():
    model, same = Initialised(), Initialised()

    def of(module):
        def f(x):
            module.ready.logical_not_()
            return x + 1 if module.ready else x - 1

        return f

    compiled = pliant.compile(of(model), backend="eager")
    calls(of(same), compiled, *torch.rand(3, 3))


def without_nans(x):
    y = x.sqrt()
    if torch.isnan(y).any() or y.isinf().any():
        y = torch.nan_to_num(y, posinf=7.0)
    return y * 2


def left_out(x):
    if not torch.isfinite(x.sum()):
        return x.nan_to_num(5.0)
    return x * 2


def both_at_once(x):
    if ~(x.isnan() | x.isinf()).any():
        return x * 2
    return x.nan_to_num(5.0)


def stops_at_nan(x):
    loss = x.sum().item()
    if not math.isfinite(loss):
        return x.nan_to_num(5.0)
    return x * loss


def stops_at_itself(x):
    total = float(x.sum())
    if total != total or abs(total) == math.inf:
        return x.nan_to_num(5.0)
    return x * 2


FINITE = [without_nans, left_out, both_at_once, stops_at_nan, stops_at_itself]


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("function", FINITE)
def test_numbers_are_finite(function, backend):
    compiled = pliant.compile(function, backend=backend)
    good, bad = torch.ones(3), torch.tensor([1.0, float("inf"), float("nan")])
    outcomes = calls(function, compiled, good, good, bad, good, bad, good)
    assert outcomes[:2] == [(0, 1)] * 2
    assert outcomes[2][0] > 0
    assert outcomes[-1] == outcomes[4]


def test_nothing_is_saved_for_numbers_that_are_finite():
    """A graph that writes to a tensor from outside ends there."""
    cache = torch.zeros(3)

    def function(x):
        cache.add_(x)
        if cache.isnan().any():
            cache.zero_()
        return cache * 2

    sources = []
    with events.listening(
        lambda event: isinstance(event, events.ResidualMade) and sources.append(event.source)
    ):
        compiled = pliant.compile(function, backend="eager")
        results = [compiled(torch.full((3,), value)).tolist() for value in (1.0, float("nan"), 2.0)]
    assert results == [[2.0] * 3, [0.0] * 3, [4.0] * 3]
    assert sources and not any("SavedInputs" in events.render(source) for source in sources)
    assert events.counters["graph_breaks"] > 0


def by_class(x):
    """A question in each round."""
    out, classes = torch.zeros_like(x), x.long()
    for number in range(3):
        rows = (classes == number).nonzero(as_tuple=True)[0]
        if rows.numel() == 0:
            continue
        out[rows] = x[rows] * (number + 1)
    return out


@pytest.mark.parametrize("backend", BACKENDS)
def test_what_is_selected_by_data_is_not_empty(backend):
    compiled = pliant.compile(by_class, backend=backend)
    every, two, others = ([0, 1, 2, 2, 1, 0], [0, 0, 2, 2], [1, 0, 2, 0, 2, 1, 1])
    batches = [torch.tensor(classes) + 0.5 for classes in (every, others, two, every, two, others)]
    outcomes = calls(by_class, compiled, *batches, *batches[-3:])
    assert outcomes[0] == (0, 1)
    assert outcomes[1] == (0, 2)  # for another batch size
    assert outcomes[2][0] > 0  # at the class that was missing
    assert outcomes[-1] == outcomes[5]  # all is compiled by then


def test_loops_that_end_when_nothing_is_left():
    def by_hand(x):
        left, rounds = x, 0
        while left.numel() > 0:
            if left.numel() == 1:
                break
            left, rounds = left[left > left.min()], rounds + 1
        return left, rounds

    def counted(x):
        for rounds in itertools.count():
            x = x[x > x.min()]
            if x.numel() == 0:
                break
        return x, rounds

    for function in (by_hand, counted):
        compiled = pliant.compile(function, backend="eager")
        for size in (3, 1, 5):
            mine, theirs = compiled(torch.rand(size)), function(torch.rand(size))
            assert mine[0].shape == theirs[0].shape
            assert mine[1] == theirs[1]
    assert events.counters["graph_breaks"] > 0


def test_other_questions_about_numbers_break():
    def f(x):
        if x.sum().item() > 3:
            return x * 2
        return x

    compiled = pliant.compile(f, backend="eager")
    assert calls(f, compiled, torch.ones(3), torch.ones(5))[0][0] == 1


def test_nothing_is_saved_for_what_is_not_empty():
    cache = torch.zeros(3)

    def function(x):
        cache.add_(x)
        if cache.nonzero().numel() > 0:
            return cache * 2
        return cache - 1

    compiled = pliant.compile(function, backend="eager")
    results = [compiled(torch.full((3,), value)).tolist() for value in (1.0, -1.0, 2.0)]
    assert results == [[2.0] * 3, [-1.0] * 3, [4.0] * 3]
    assert events.counters["graph_breaks"] > 0


def test_fullgraph_speculates_on_no_number():
    for function in (stops_at_nan, by_class):
        with pytest.raises(pliant.errors.DataDependentError):
            pliant.compile(function, fullgraph=True, backend="eager")(torch.ones(3))
