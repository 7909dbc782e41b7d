"""The referee of the model tests: eager. Outputs are compared as flat lists of tensors."""

from collections.abc import Callable, Mapping
from typing import Any

import pytest
import torch

import pliant
from benchmarks.model_zoo import tensors
from pliant.base.options import config


@pytest.fixture(autouse=True)
def many_entries():
    with config.patch(recompile_limit=64):
        yield


def assert_same_output(got: Any, expected: Any) -> None:
    assert type(got) is type(expected)
    if isinstance(expected, Mapping):
        assert list(got) == list(expected)
    mine, theirs = tensors(got), tensors(expected)
    assert len(mine) == len(theirs)
    for tensor, wanted in zip(mine, theirs, strict=True):
        assert tensor.requires_grad == wanted.requires_grad
        torch.testing.assert_close(tensor, wanted)


class Compared:
    """A model and its compiled form, called with the same inputs and the same random numbers."""

    def __init__(self, model: torch.nn.Module) -> None:
        self.model = model
        self.compiled = pliant.compile(model)

    def __call__(self, *args: Any, **inputs: Any) -> tuple[Any, Any]:
        torch.manual_seed(1)
        got = self.compiled(*args, **inputs)
        torch.manual_seed(1)
        expected = self.model(*args, **inputs)
        assert_same_output(got, expected)
        return got, expected

    @property
    def counts(self) -> tuple[int, int, int]:
        """Compilations, graphs, breaks so far."""
        counters = pliant.counters
        return counters["compilations"], counters["graphs"], counters["graph_breaks"]


@pytest.fixture
def compared() -> Callable[[torch.nn.Module], Compared]:
    pliant.reset()
    return Compared
