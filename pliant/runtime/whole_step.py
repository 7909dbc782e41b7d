"""A compiled training step: one program, and what it leaves behind outside of memory."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from pliant._native import without_torch_function
from pliant.base.values import dataclass
from pliant.runtime.differentiable import Refused


@dataclass(slots=True, eq=False)
class CompiledStep:
    """A graph that calls `backward` itself, as one program. After it has run, each input in
    `gradients` gets the result with that number as its `.grad` (None: no gradient). The inputs
    `fresh` must not have one before, or PyTorch runs the graph. The gradients of `dropped` are
    freed before the program runs. The `data` of `replaced` is some result afterwards. The outputs
    `spent` have a history that is used up. `anchor` is some input that requires grad."""

    program: Callable[..., Any]
    eager: Callable[..., Any]
    outputs: int
    gradients: Sequence[tuple[int, int | None]]
    fresh: Sequence[int]
    dropped: Sequence[int]
    replaced: Sequence[tuple[int, int]]
    spent: Sequence[int]
    anchor: int
    accepts: Callable[[Sequence[Any]], bool] | None

    def __call__(self, *inputs: Any) -> Any:
        return without_torch_function(self._call, *inputs)  # the program's modes see nothing of it

    def _call(self, *inputs: Any) -> Any:
        if not self._fits(inputs):
            return self.eager(*inputs)
        for at in self.dropped:
            inputs[at].grad = None
        try:
            with torch.no_grad():
                results = self.program(*inputs)
        except Refused:
            return self.eager(*inputs)
        for at, result in self.gradients:
            inputs[at].grad = None if result is None else results[result]
        for at, number in self.replaced:
            inputs[at].data = results[number]
        outputs = list(results[: self.outputs])
        if self.spent:
            with torch.enable_grad():  # as where they were computed
                for at in self.spent:
                    outputs[at] = _Spent.apply(outputs[at], inputs[self.anchor])
        return tuple(outputs)

    def _fits(self, inputs: Sequence[Any]) -> bool:
        if any(inputs[at].grad is not None for at in self.fresh):
            return False
        return self.accepts is None or self.accepts(inputs)


class _Spent(torch.autograd.Function):
    """Gives a result a history that is used up: a backward through it raises PyTorch's error for a
    second backward."""

    @staticmethod
    def forward(ctx: Any, result: Any, anchor: Any) -> Any:
        return result.view_as(result)

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        with torch.enable_grad():
            once = torch.ones((), requires_grad=True).exp()
        once.backward()
        once.backward()  # the very error of PyTorch
