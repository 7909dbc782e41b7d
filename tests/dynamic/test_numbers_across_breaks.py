"""A number that is only passed on, to a call that breaks the graph or as an index to NumPy, is no
reason to compile again."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

import pliant
from pliant.base import events

Tensor = torch.Tensor


@pliant.disable
def sink(*args: Any, **kwargs: Any) -> int:
    return len(args) + len(kwargs)


def given(x: Tensor, n: Any) -> Tensor:
    y = x + 1
    sink(n)
    return y * 2


def by_name(x: Tensor, n: Any) -> Tensor:
    sink(x, n=n)
    return x * 2


def in_containers(x: Tensor, n: Any) -> Tensor:
    sink([n, (n, 2)], {"n": n})
    return x * 2


def from_a_container(x: Tensor, n: Any) -> Tensor:
    numbers = [n, 1]
    sink(numbers[0])
    return x * 2


def in_a_function(x: Tensor, n: Any) -> Tensor:
    sink(lambda: n)
    return x * 2


def returned(x: Tensor, n: Any) -> tuple[Tensor, Any]:
    sink(0)
    return x * 2, n


NUMBERS: dict[str, list[Any]] = {
    "int": list(range(12)),
    "float": [n + 0.5 for n in range(12)],
    "bool": [bool(n % 2) for n in range(12)],
    "large": [10**n for n in range(12)],
}


@pytest.mark.parametrize("kind", NUMBERS)
@pytest.mark.parametrize(
    "function",
    [given, by_name, in_containers, from_a_container, in_a_function, returned],
    ids=lambda f: f.__name__,
)
def test_passed_to_a_call_that_breaks(function: Callable[..., Any], kind: str) -> None:
    compiled = pliant.compile(function)
    x = torch.ones(3)
    for n in NUMBERS[kind]:
        assert repr(compiled(x, n)) == repr(function(x, n))
    assert events.counters["compilations"] <= 3
    assert events.counters["compilations"] == events.counters["graph_breaks"] * 2


class Counter:
    def __init__(self) -> None:
        self.pos = 0
        self.seen: list[int] = []

    def step(self, x: Tensor) -> Tensor:
        y = x + 1
        self.seen.append(self.pos)
        sink(self.pos)
        self.pos += 1
        return y * 2


def test_an_attribute_that_counts() -> None:
    ours, theirs = Counter(), Counter()
    compiled = pliant.compile(Counter.step)
    for _ in range(12):
        assert torch.equal(compiled(ours, torch.ones(2)), theirs.step(torch.ones(2)))
    assert (ours.pos, ours.seen) == (theirs.pos, theirs.seen)
    assert events.counters["compilations"] <= 3


@pytest.mark.parametrize("kind", ["for", "while", "enumerate"])
def test_a_loop_that_breaks_in_each_round(kind: str) -> None:
    def with_for(x: Tensor, n: int) -> Tensor:
        for i in range(n):
            sink(i)
            x = x + 1
        return x

    def with_while(x: Tensor, n: int) -> Tensor:
        i = 0
        while i < n:
            sink(i)
            x, i = x + 1, i + 1
        return x

    def with_enumerate(x: Tensor, n: int) -> Tensor:
        for i, _ in enumerate([None] * n):
            sink(i)
            x = x + 1
        return x

    function = {"for": with_for, "while": with_while, "enumerate": with_enumerate}[kind]
    compiled = pliant.compile(function)
    assert torch.equal(compiled(torch.ones(2), 20), torch.full((2,), 21.0))
    assert events.counters["compilations"] <= 5


class ReplayBuffer:
    """As the one of Stable-Baselines3."""

    def __init__(self, size: int = 9, optimize: bool = False) -> None:
        self.size, self.pos, self.full, self.optimize = size, 0, False, optimize
        self.observations = np.zeros((size, 1, 3), np.float32)
        self.next_observations = np.zeros((size, 1, 3), np.float32)
        self.actions = np.zeros((size, 1, 2), np.float32)
        self.rewards = np.zeros((size, 1), np.float32)
        self.dones = np.zeros((size, 1), np.int64)

    def add(self, obs: Any, next_obs: Any, action: Any, reward: Any, done: Any) -> None:
        self.observations[self.pos] = np.array(obs)
        if self.optimize:
            self.observations[(self.pos + 1) % self.size] = np.array(next_obs)
        else:
            self.next_observations[self.pos] = np.array(next_obs)
        self.actions[self.pos] = np.array(action.reshape(1, 2))
        self.rewards[self.pos] = reward
        self.dones[self.pos, 0] = self.pos
        self.pos += 1
        if self.pos == self.size:
            self.full = True
            self.pos = 0

    def last(self) -> Any:
        return self.observations[self.pos - 1] * 2, self.rewards[self.pos - 1, 0] + 1


@pytest.mark.parametrize("optimize", [False, True])
def test_the_position_in_a_replay_buffer(optimize: bool) -> None:
    ours, theirs = ReplayBuffer(optimize=optimize), ReplayBuffer(optimize=optimize)
    add, last = pliant.compile(ReplayBuffer.add), pliant.compile(ReplayBuffer.last)
    for step in range(25):
        obs = torch.arange(3.0).reshape(1, 3).numpy() + step
        row = (obs, obs + 1, np.float32([step, 1]), np.float32([step]), np.array([0]))
        add(ours, *row)
        theirs.add(*row)
        for actual, expected in zip(last(ours), theirs.last(), strict=True):
            assert np.array_equal(actual, expected) and actual.dtype == expected.dtype
        for name, value in vars(theirs).items():
            assert np.array_equal(getattr(ours, name), value), name
    assert events.counters["compilations"] <= 6  # of two functions, one with two ways to go


@pytest.mark.parametrize("index", [-1, 2, 3, -4, 10**6])
def test_an_index_of_an_array_out_of_range(index: int) -> None:
    def function(array: Any, n: int) -> Any:
        array[n] = n
        return array[n] + 1

    compiled = pliant.compile(function, dynamic=True)
    ours, theirs = np.zeros((3, 2)), np.zeros((3, 2))
    assert np.array_equal(compiled(ours, 1), function(theirs, 1))
    if -3 <= index < 3:
        assert np.array_equal(compiled(ours, index), function(theirs, index))
    else:
        with pytest.raises(IndexError) as actual:
            compiled(ours, index)
        with pytest.raises(IndexError) as expected:
            function(theirs, index)
        assert str(actual.value) == str(expected.value)
    assert np.array_equal(ours, theirs)
