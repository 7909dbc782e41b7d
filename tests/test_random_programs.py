"""Random programs on a random state that changes between calls do what they do in eager."""

import copy
import random

import pytest
import torch

import pliant
from pliant.base import events
from tests.support.against_eager import same
from tests.support.random_programs import change, load, make_program, make_state
from tests.support.side_by_side import outcome

LIMITS = {"recompile_limit": 100, "accumulated_recompile_limit": 5000}


def compare(seed: int) -> None:
    rng = random.Random(seed)
    state = make_state(rng)
    source = make_program(rng, state)
    sides = []
    for wrap in (lambda f: f, lambda f: pliant.compile(f, options=LIMITS)):
        scope = load(source)
        sides.append((wrap(scope["f"]), scope, copy.deepcopy(state)))
    for step in range(5):
        expected, actual = (
            (outcome(f, state, torch.ones(2)), state, scope["COUNT"], scope["TABLE"])
            for f, scope, state in sides
        )
        try:
            same(actual, expected)
        except AssertionError as error:
            raise AssertionError(f"seed {seed}, call {step}: {error}\n{source}") from error
        for _, _, state in sides:
            change(random.Random(seed + step), state)
    assert events.counters["fallbacks"] == 0


@pytest.mark.parametrize("seed", range(60))
def test_random_program(seed) -> None:
    compare(seed)


@pytest.mark.long
@pytest.mark.parametrize("start", range(1000, 5000, 500))
def test_many_random_programs(start) -> None:
    for seed in range(start, start + 500):
        compare(seed)
