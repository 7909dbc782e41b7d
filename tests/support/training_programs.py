"""Training programs, run as scripts run them: some steps eagerly and compiled, on the same batches.

The one idea: a program is a function `make(compile)` that returns a step and what the step changes
(modules, optimizers, lists). After each step everything in there has to be the same: parameters,
gradients, buffers, states of optimizers, and the states of the random generators.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

import numpy as np
import torch

import pliant
from pliant.base import events

Step = Callable[..., Any]
Make = Callable[[Callable[[Step], Step]], tuple[Step, Any]]
SIZES = (4, 4, 4, 7, 3, 1, 4)


def rows(*sizes: int, inputs: int = 8, results: int = 2) -> list[Callable[[], tuple[Any, ...]]]:
    """Batches of these sizes: numbers and what is to be learnt of them."""
    return [lambda n=n: (torch.randn(n, inputs), torch.randn(n, results)) for n in sizes or SIZES]


def trains_alike(
    make: Make,
    batches: Sequence[Callable[[], tuple[Any, ...]]] = (),
    *,
    compilations: int | None = None,
    breaks: int | None = 0,
    not_generated: int = 0,
    close: tuple[float, float] = (1e-4, 1e-6),
    **options: Any,
) -> None:
    """Compare after each step. `compilations`: at most so many. `breaks`: so many; any if None."""
    batches = batches or rows()
    theirs = _train(make, batches, lambda step: step)
    events.counters.reset()
    mine = _train(make, batches, partial(pliant.compile, backend="llvm", **options))
    for number, (actual, expected) in enumerate(zip(mine, theirs, strict=True)):
        _same(actual, expected, close, f"step {number}")
    counters = dict(events.counters)
    assert events.counters["fallbacks"] == 0, counters
    assert events.counters["not_generated"] == not_generated, counters
    if breaks is not None:
        assert events.counters["graph_breaks"] == breaks, (counters, events.counters.breaks)
    if compilations is not None:
        assert events.counters["compilations"] <= compilations, counters


def _train(make: Make, batches: Sequence[Any], compile: Callable[[Step], Step]) -> list[Any]:
    _seed(0)
    step, state = make(compile)
    seen: list[Any] = []
    for number, batch in enumerate(batches):
        _seed(number + 1)
        args = batch()
        try:
            result = step(*args)
        except pliant.errors.PliantError:
            raise
        except Exception as error:
            result = (type(error), str(error))
        generators = torch.get_rng_state(), random.getstate(), np.random.get_state()[1].tolist()
        seen.append(dict(_leaves((result, state, args, generators), "")))
    return seen


def _seed(seed: int) -> None:
    torch.manual_seed(seed)
    random.seed(seed)
    np.random.seed(seed)


def _leaves(value: Any, path: str) -> Iterator[tuple[str, Any]]:
    """What can be compared of a value, by the path that leads there, as copies."""
    if isinstance(value, torch.Tensor):
        yield from _of_tensor(value, path)
    elif isinstance(value, torch.nn.Module):
        yield from _leaves(dict(value.named_parameters()), path)
        yield from _leaves(dict(value.named_buffers()), path)
    elif hasattr(value, "state_dict"):
        yield from _leaves(value.state_dict(), path)
    elif isinstance(value, dict):
        yield f"{path}.keys", list(value)
        for key in value:
            yield from _leaves(value[key], f"{path}.{key}")
    elif isinstance(value, list | tuple):
        yield f"{path}.length", len(value)
        for at, item in enumerate(value):
            yield from _leaves(item, f"{path}.{at}")
    elif isinstance(value, float):
        yield path, torch.tensor(value, dtype=torch.float64)
    else:
        yield path, np.array(value) if isinstance(value, np.ndarray) else value


def _of_tensor(tensor: torch.Tensor, path: str) -> Iterator[tuple[str, Any]]:
    yield f"{path}.requires_grad", tensor.requires_grad
    yield path, tensor.detach().clone()
    if tensor.is_leaf:
        yield from _leaves(tensor.grad, f"{path}.grad")


def _same(actual: dict, expected: dict, close: tuple[float, float], where: str) -> None:
    assert actual.keys() == expected.keys(), where
    for path, value in expected.items():
        mine, place = actual[path], f"{where}: {path}"
        assert type(mine) is type(value), place
        if isinstance(value, torch.Tensor):
            if value.layout is torch.strided:
                assert mine.stride() == value.stride(), place
            torch.testing.assert_close(
                *(mine, value), rtol=close[0], atol=close[1], equal_nan=True,
                msg=lambda text, place=place: f"{place}: {text}",
            )  # fmt: skip
        elif isinstance(value, np.ndarray):
            np.testing.assert_allclose(mine, value, *close, err_msg=place)
        else:
            assert mine == value, place
