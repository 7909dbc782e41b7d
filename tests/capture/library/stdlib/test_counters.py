"""Counters and iterators of ranges and tuples made outside, advanced by compiled code."""

import itertools

import pytest
import torch

import pliant
from tests.support.against_eager import same

X = torch.arange(3.0)


@pytest.mark.parametrize("backend", ["eager", "llvm"])
@pytest.mark.parametrize(
    "make",
    [lambda: itertools.count(3, 2), lambda: iter(range(9, 0, -1)), lambda: iter(tuple(range(9)))],
)
def test_one_compilation_for_all_numbers(make, backend):
    def function(x, numbers):
        first = next(numbers)
        return x * (first + 1), first - next(numbers), numbers

    compiled = pliant.compile(function, fullgraph=True, backend=backend)
    actual, expected = make(), make()
    for _ in range(3):
        result, difference, same = compiled(X, actual)
        other, other_difference, _ = function(X, expected)
        assert torch.equal(result, other)
        assert difference == other_difference and same is actual
    assert next(actual) == next(expected)
    assert pliant.counters["compilations"] == 1


class Counting(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.steps = itertools.count()

    def forward(self, x):
        step = next(self.steps)
        return x + step if step > 2 else x - step


def test_branch_on_a_number():
    eager = Counting()
    compiled = pliant.compile(Counting())
    for _ in range(5):
        assert torch.equal(compiled(X), eager(X))


def test_end_of_a_range():
    def function(x, numbers):
        return x + next(numbers), next(numbers, None), next(numbers, "end")

    compiled = pliant.compile(function, fullgraph=True)
    for size in (1, 2, 3, 9, 2):
        assert str(compiled(X, iter(range(size)))) == str(function(X, iter(range(size))))
    with pytest.raises(StopIteration):
        compiled(X, iter(range(0)))


def test_loops_over_counters_are_compiled_once():
    def function(x, numbers):
        for number in numbers:
            x = x + number
            if number > 4:
                break
        return x

    compiled = pliant.compile(function)
    for start in (0, 1, 2):
        numbers, expected = itertools.count(start), itertools.count(start)
        assert torch.equal(compiled(X, numbers), function(X, expected))
        assert next(numbers) == next(expected)


def test_numbers_that_python_has_to_know():
    def function(x, numbers):
        return x + [10, 20, 30, 40][next(numbers)], list(range(next(numbers)))

    compiled = pliant.compile(function)
    actual, expected = itertools.count(), itertools.count()  # 3.14 copies none
    for _ in range(2):
        same(compiled(X, actual), function(X, expected))
    assert next(actual) == next(expected)


def test_counter_of_other_numbers():
    def function(x, numbers):
        return x + next(numbers)

    compiled = pliant.compile(function)
    for start in (0.5, 7, 1j):
        actual, expected = itertools.count(start), itertools.count(start)
        for _ in range(2):
            assert torch.equal(compiled(X, actual), function(X, expected))


# ---- tuples


def test_an_iterator_carried_over_a_break():
    def function(x):
        numbers = iter((1, 2, 3, 4, 5))
        x = x + next(numbers)
        pliant.graph_break()
        return x * next(numbers) + next(numbers), numbers

    compiled = pliant.compile(function)
    for _ in range(2):
        result, rest = compiled(X)
        assert torch.equal(result, function(X)[0]) and list(rest) == [4, 5]
    assert pliant.counters["graphs"] == pliant.counters["compilations"] == 2


@pytest.mark.parametrize(
    "items", [(), (1,), (True, 2), (2, "text"), (10**30, 1), (1.5, 2), (None,), (1, 2, 3)]
)
def test_items_of_any_kind(items):
    def function(x, numbers):
        first = next(numbers, 7)
        added = first if isinstance(first, (int, float)) and first < 99 else 0
        return x + added, first, next(numbers, "end")

    compiled = pliant.compile(function)
    same(compiled(X, iter((3, 4))), function(X, iter((3, 4))))
    same(compiled(X, iter(items)), function(X, iter(items)))
    numbers, expected = iter(items), iter(items)
    next(numbers, None), next(expected, None)
    same(compiled(X, numbers), function(X, expected))
    assert list(numbers) == list(expected)
