import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import pliant
from pliant.base import events
from pliant.dynamic.history import InputHistory, follows


def seen(history, t, source="L['x']"):
    return history.observe_tensor(source, t.shape, t.stride(), t.storage_offset())


def test_a_size_that_changes():
    history = InputHistory()
    assert seen(history, torch.ones(5, 20)).sizes == set()
    assert seen(history, torch.ones(5, 20)).sizes == set()
    changed = seen(history, torch.ones(8, 20))
    assert changed.sizes == {0} and changed.before == {0: 5}
    assert not changed.strides and not changed.offset


def test_once_varying_always_varying():
    history = InputHistory()
    for size in (5, 8, 8, 8):
        changed = seen(history, torch.ones(size, 20))
    assert changed.sizes == {0} and changed.before == {0: 5}
    assert seen(history, torch.ones(8, 30)).sizes == {0, 1}
    assert seen(history, torch.ones(8, 30)).before == {0: 5, 1: 20}


def test_inputs_and_ranks_are_told_apart():
    history = InputHistory()
    seen(history, torch.ones(5))
    assert not seen(history, torch.ones(8), "L['y']").sizes
    assert not seen(history, torch.ones(8, 2)).sizes
    assert seen(history, torch.ones(6)).sizes == {0}
    assert seen(history, torch.ones(8, 3)).sizes == {1}
    assert seen(history, torch.ones(8)).sizes == {0}
    assert not InputHistory().observe_tensor("L['x']", (9,), (1,), 0).sizes


def test_strides_that_follow_from_sizes_do_not_vary():
    history = InputHistory()
    for shape in ((4, 5, 6), (4, 7, 8), (4, 0, 9), (4, 1, 1)):
        changed = seen(history, torch.ones(shape))
    assert changed.sizes == {1, 2} and not changed.strides
    assert changed.follows == (1, 2, None)


def test_strides_of_their_own():
    history = InputHistory()
    for width in (50, 60, 70):
        changed = seen(history, torch.ones(4, width)[:, :5])
    assert not changed.sizes and changed.strides == {0}
    assert changed.follows == (None, None)


def test_a_stride_that_followed_by_chance():
    history = InputHistory()
    wide = torch.ones(10, 100)
    assert seen(history, wide).follows == (1, None)
    changed = seen(history, wide[:, :50])
    assert changed.sizes == {1} and changed.follows == (None, None)
    assert not changed.strides  # it was 100 both times
    assert seen(history, torch.ones(10, 50)).strides == {0}


def test_a_transposed_tensor():
    history = InputHistory()
    for rows in (4, 6):
        changed = seen(history, torch.ones(rows, 5).t())
    assert changed.sizes == {1} and not changed.strides and changed.follows == (None, 0)
    for rows in (4, 6):
        changed = seen(history, torch.ones(5, rows).t(), "L['y']")
    assert changed.sizes == {0} and not changed.strides and changed.follows == (None, 0)


def test_storage_offset():
    history = InputHistory()
    data = torch.ones(100)
    seen(history, data[10:20])
    changed = seen(history, data[30:40])
    assert changed.offset and changed.offset_before == 10 and not changed.sizes
    assert seen(history, data[30:40]).offset


@pytest.mark.parametrize("first, second", [(3, 4), (0.5, 0.7), (0.0, -0.0), (1.0, math.nan)])
def test_numbers(first, second):
    history = InputHistory()
    assert not history.observe_number("L['n']", first)
    assert not history.observe_number("L['n']", first)
    assert not history.observe_number("L['m']", second)
    assert history.observe_number("L['n']", second)
    assert history.number_before("L['n']", second) == first
    assert history.observe_number("L['n']", second)


def test_numbers_that_do_not_change():
    history = InputHistory()
    for _ in range(2):
        assert not history.observe_number("L['n']", math.nan)
        assert not history.observe_number("L['m']", 1)
        assert not history.observe_number("L['m']", 2.0)  # another type: another input
        assert not history.observe_number("L['m']", True)
    assert history.number_before("L['m']", 1) is None


@pytest.mark.parametrize(
    "t, expected",
    [
        (torch.ones(4, 5, 6), (1, 2, None)),
        (torch.ones(()), ()),
        (torch.ones(3), (None,)),
        (torch.ones(2, 3, 4, 5).to(memory_format=torch.channels_last), (2, None, 3, 1)),
        (torch.ones(2, 3, 1, 1).to(memory_format=torch.channels_last), (2, None, 3, 1)),
        (torch.ones(4, 1, 6), (1, 2, None)),
        (torch.ones(1, 1, 1), (1, 2, None)),
        (torch.ones(3, 0, 5), (1, 2, None)),
        (torch.ones(3, 1).expand(3, 4), (None, None)),
        (torch.ones(4).expand(3, 2, 4), (None, None, None)),
        (torch.ones(4, 9)[:, :5], (None, None)),
        (torch.ones(4, 9)[:, ::2], (None, None)),
        (torch.ones(4, 6, 5).transpose(0, 1), (2, 0, None)),
    ],
    ids=str,
)
def test_which_strides_follow(t, expected):
    assert follows(t.shape, t.stride()) == expected


shapes = st.lists(st.integers(0, 4), min_size=1, max_size=4)


@given(shapes, st.randoms(use_true_random=False))
def test_dense_tensors_follow_all_but_once_and_without_circles(shape, random):
    order = list(range(len(shape)))
    random.shuffle(order)
    t = torch.ones(shape).permute(order)
    found = follows(t.shape, t.stride())
    assert sum(j is None for j in found) == 1
    for i, j in enumerate(found):
        assert j is None or t.stride(i) == t.stride(j) * max(t.size(j), 1)
        steps = 0
        while j is not None:
            j, steps = found[j], steps + 1
        assert steps < len(shape)


@given(st.lists(st.tuples(st.integers(0, 4), st.integers(0, 9)), max_size=5))
def test_any_strides(layout):
    sizes, strides = [size for size, _ in layout], [stride for _, stride in layout]
    for i, j in enumerate(follows(sizes, strides)):
        if j is not None:
            assert i != j and strides[i] == strides[j] * max(sizes[j], 1)


@given(st.lists(st.tuples(st.integers(0, 4), st.integers(0, 4)), min_size=1, max_size=5))
def test_what_varies_is_what_was_seen_to(sizes):
    history = InputHistory()
    for shape in sizes:
        changed = seen(history, torch.ones(shape))
    for dim, inner in enumerate(changed.follows):
        if inner is not None:
            assert changed.order.index(inner) < changed.order.index(dim)
    for dim in (0, 1):
        assert (dim in changed.sizes) == (len({shape[dim] for shape in sizes}) > 1)
    assert not changed.strides


def test_a_number_in_the_place_of_a_tensor_varies_at_once():
    history = InputHistory()
    assert not history.observe_number("L['n']", 3)
    history.observe_tensor("L['x']", (2,), (1,), 0)
    assert history.observe_number("L['x']", 3) and history.observe_number("L['x']", 3)
    assert not history.observe_number("L['n']", 3)


def test_tensors_and_numbers_by_turns_take_one_compilation_each():
    compiled = pliant.compile(lambda x, y: x * y)
    events.counters.reset()
    for size, y in ((2, None), (3, 3), (4, None), (5, 4), (6, None), (7, 9)):
        x = torch.randn(size)
        other = torch.randn(size) if y is None else y
        assert torch.equal(compiled(x, other), x * other)
    assert events.counters["compilations"] == 3
