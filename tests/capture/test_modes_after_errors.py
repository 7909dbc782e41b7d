"""PyTorch's modes after a graph has failed that can't be run again, since it has written to its
inputs: they are as the program left them, and as its `with` blocks put them back."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch import Tensor

import pliant
from pliant.base import events

AWAY = torch.tensor([5])


def fails(x: Tensor) -> Tensor:
    x.floor_()
    return x[AWAY]


def behind_a_block(x: Tensor) -> Tensor:
    with torch.no_grad():
        pliant.graph_break()
    return fails(x)


def behind_a_block_of_autocast(x: Tensor) -> Tensor:
    with torch.autocast("cpu", dtype=torch.bfloat16):
        pliant.graph_break()
    return fails(x)


def in_a_block_around_a_break(x: Tensor) -> Tensor:
    with torch.no_grad():
        pliant.graph_break()
        return fails(x)


def in_a_block_in_another_one(x: Tensor) -> Tensor:
    with torch.no_grad():
        pliant.graph_break()
        with torch.enable_grad():
            return fails(x)


def in_a_block_behind_a_call(x: Tensor) -> Tensor:
    torch.set_grad_enabled(False)
    with torch.enable_grad():
        return fails(x)


def behind_a_call(x: Tensor) -> Tensor:
    torch.set_grad_enabled(False)
    return fails(x)


def behind_a_call_and_a_break(x: Tensor) -> Tensor:
    torch.set_grad_enabled(False)
    pliant.graph_break()
    x.floor_()
    torch.set_grad_enabled(True)
    return x[AWAY]


def behind_a_call_in_a_block(x: Tensor) -> Tensor:
    with torch.no_grad():
        x.floor_()
        torch.set_grad_enabled(True)
        return x[AWAY]


def between_other_modes(x: Tensor) -> Tensor:
    x.floor_()
    torch.set_default_dtype(torch.float64)
    torch.use_deterministic_algorithms(True)
    return x[AWAY]


@torch.no_grad()
def decorated(x: Tensor) -> Tensor:
    pliant.graph_break()
    return fails(x)


def in_a_decorated_function(x: Tensor) -> Tensor:
    return decorated(x)


PROGRAMS = [
    *(behind_a_block, behind_a_block_of_autocast, in_a_block_around_a_break),
    *(in_a_block_in_another_one, in_a_block_behind_a_call, behind_a_call),
    *(behind_a_call_and_a_break, behind_a_call_in_a_block, between_other_modes),
    in_a_decorated_function,
]


def modes() -> tuple[Any, ...]:
    return (
        torch.is_grad_enabled(),
        torch.is_autocast_enabled("cpu"),
        torch.get_autocast_dtype("cpu"),
        (torch.autocast_increment_nesting(), torch.autocast_decrement_nesting()),
        torch.get_default_dtype(),
        torch.are_deterministic_algorithms_enabled(),
    )


def reset() -> None:
    torch.set_grad_enabled(True)
    torch.set_default_dtype(torch.float32)
    torch.use_deterministic_algorithms(False)


@pytest.fixture(autouse=True)
def usual_modes() -> Iterator[None]:
    yield
    reset()


def left_by(function: Callable[[Tensor], Any]) -> tuple[Any, ...]:
    x = torch.full((3,), 1.5)
    with pytest.raises(IndexError):
        function(x)
    left = modes()
    reset()
    return (*left, x.tolist())


@pytest.mark.parametrize("backend", ["eager", "llvm"])
@pytest.mark.parametrize("program", PROGRAMS)
def test_modes_are_as_the_program_left_them(program: Any, backend: str) -> None:
    compiled = pliant.compile(program, backend=backend)
    expected = left_by(program)
    for _ in range(2):
        assert left_by(compiled) == expected
    assert events.counters["fallbacks"] == 0
