"""A function's results and gradients, eagerly and compiled."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from typing import Any

import torch

import pliant
from pliant.base import events


def tensors_in(value: Any) -> list[torch.Tensor]:
    if isinstance(value, torch.Tensor):
        return [value]
    if isinstance(value, (list, tuple)):
        return [t for item in value for t in tensors_in(item)]
    return []


def outcome(
    function: Callable[..., Any], args: Sequence[Any], module: torch.nn.Module | None = None
) -> list[torch.Tensor | None]:
    """Results, gradients of arguments and parameters, and buffers afterwards."""
    torch.manual_seed(0)
    given = [
        a.detach().clone().requires_grad_(a.requires_grad) if isinstance(a, torch.Tensor) else a
        for a in args
    ]
    result = function(*given)
    results = tensors_in(result)
    torch.manual_seed(1)
    graded = [out for out in results if out.requires_grad]
    torch.autograd.backward(graded, [torch.randn_like(out) for out in graded])
    after: list[torch.Tensor | None] = [t.detach() for t in results]
    after += [a.grad for a in given if isinstance(a, torch.Tensor)]
    if module is not None:
        after += [p.grad for p in module.parameters()]
        after += [b.clone() for b in module.buffers()]
    return after


def compare(
    mine: Sequence[torch.Tensor | None], theirs: Sequence[torch.Tensor | None], **close: float
) -> None:
    for at, (a, b) in enumerate(zip(mine, theirs, strict=True)):
        assert (a is None) is (b is None), f"{at}: {a} and {b}"
        if a is None or b is None:
            continue
        assert (a.shape, a.dtype, a.stride()) == (b.shape, b.dtype, b.stride()), at
        torch.testing.assert_close(a, b, equal_nan=True, **close, msg=lambda text: f"{at}: {text}")


def check(
    function: Callable[..., Any] | torch.nn.Module,
    *args: Any,
    dynamic: bool | None = False,
    generated: bool = True,
    **close: float,
) -> Any:
    """The same results and gradients, from code of our own in both directions unless said
    otherwise."""
    module = function if isinstance(function, torch.nn.Module) else None
    ours = copy.deepcopy(module) if module is not None else function
    events.counters.reset()
    compiled = pliant.compile(ours, backend="llvm", dynamic=dynamic)
    mine = outcome(compiled, args, ours if module is not None else None)
    assert events.counters["fallbacks"] == 0
    if generated:
        assert events.counters["not_generated"] == 0
        assert events.counters["programs"] >= 2, "a forward and a backward"
    compare(mine, outcome(function, args, module), **(close or {"rtol": 1e-4, "atol": 1e-5}))
    return compiled
