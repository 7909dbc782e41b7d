"""`config.verify_correctness`: what a backend made of a graph is compared with the graph itself.

Both are run once when the graph is compiled, on copies of the tensors of that call, with the same
random numbers.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch.utils import _pytree as pytree

from pliant.backends.registry import backend_name, call_backend
from pliant.base.errors import BackendError
from pliant.base.options import Options
from pliant.base.random_states import RandomStates


def verifying(
    backend: Any,
    gm: torch.fx.GraphModule,
    example_inputs: Sequence[Any],
    shapes: Any,
    options: Options,
) -> Callable[..., Any]:
    """As `call_backend`, and compare the result with the graph itself. Raises BackendError if the
    two differ in a result, or in what they write to an input."""
    original = copy.deepcopy(gm)  # a backend may change the graph
    compiled = call_backend(backend, gm, example_inputs, shapes, options)
    expected, actual = (_run(function, example_inputs) for function in (original.forward, compiled))
    try:
        torch.testing.assert_close(actual, expected, equal_nan=True, check_stride=False)
    except AssertionError as error:
        name = backend_name(backend)
        raise BackendError(
            f"the backend {name!r} gives other results than the graph that it was given",
            why=str(error),
            remedy='backend="eager" runs the same graph without it',
        ) from None
    return compiled


def _run(function: Callable[..., Any], examples: Sequence[Any]) -> list[torch.Tensor]:
    """Run on copies of the examples: the results, and the inputs as they are afterwards."""
    inputs = [_copied(example) for example in examples]
    # Both runs draw the same numbers, and the program's generators stay as they are.
    with RandomStates():
        results = function(*inputs)
    tensors = [t for t in pytree.tree_leaves([results, inputs]) if isinstance(t, torch.Tensor)]
    return [t.detach() for t in tensors]


def _copied(example: Any) -> Any:
    if not isinstance(example, torch.Tensor):
        return copy.copy(example)
    duplicate = example.detach().clone()
    return duplicate.requires_grad_() if example.requires_grad else duplicate
