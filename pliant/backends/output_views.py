"""Views of inputs and of one another among the outputs of a step of autograd, made after it.

The one idea: for autograd, the results of a step are tensors of their own. So what eager returns as
a view is made after the step, from an input or from a base that the step returns, by PyTorch's own
view operators, in the grad mode that they were called in. `graph.output_views` says which.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

from pliant.base.values import dataclass
from pliant.graph.output_views import DEFAULT, OutputViews, ViewOutput, ViewStep
from pliant.sym.expr import BaseExpr, evaluate


@dataclass(frozen=True, slots=True, eq=False)
class WithViews:
    """Calls `step`, which returns a number in place of each output that is a view, and behind the
    outputs the bases of views; puts the views into the outputs. `symbols` reads the values of
    symbols from the inputs."""

    step: Callable[..., Any]
    outputs: int
    views: OutputViews
    symbols: Callable[[Sequence[Any]], Mapping[Any, Any]] | None

    def __call__(self, *inputs: Any) -> Any:
        results = self.step(*inputs)
        outputs = list(results[: self.outputs])
        # Arguments of views may be symbolic, as the bound of a slice.
        values = self.symbols(inputs) if self.symbols is not None else {}
        tensors: dict[int, torch.Tensor] = {}
        detached: dict[int, torch.Tensor] = {}
        with torch._C.DisableTorchFunction():
            for view in self.views.views:
                if isinstance(outputs[view.output], torch.Tensor):
                    continue  # PyTorch ran the graph, and made the views too
                # One tensor returned twice must be one object for the caller too.
                if view.same_as not in tensors:
                    source = inputs[view.source] if view.of_input else results[view.source]
                    tensors[view.same_as] = _replay_view(source, view, values, detached)
                outputs[view.output] = tensors[view.same_as]
            replace_data(inputs, results, self.views.replaced)
        return tuple(outputs)


def replace_data(
    inputs: Sequence[Any], results: Sequence[Any], replaced: Sequence[tuple[int, int]]
) -> None:
    """Give inputs the memory that the program set as their `data`."""
    for at, number in replaced:
        if number < len(results):  # otherwise PyTorch ran the graph, and did so
            inputs[at].data = results[number]


def _replay_view(
    source: torch.Tensor,
    view: ViewOutput,
    values: Mapping[Any, Any],
    detached: dict[int, torch.Tensor],
) -> torch.Tensor:
    steps = view.steps
    # The views up to the detached tensor are made once, and shared by all its views.
    if view.detached is not None:
        name, count = view.detached
        if name not in detached:
            detached[name] = _viewed(source, steps[:count], values)
        source, steps = detached[name], steps[count:]
    source = _viewed(source, steps, values)
    if steps and view.creation != DEFAULT:
        torch._C._autograd._set_creation_meta(source, view.creation)
    return source


def _viewed(
    source: torch.Tensor, steps: Sequence[ViewStep], values: Mapping[Any, Any]
) -> torch.Tensor:
    before = torch.is_grad_enabled()
    try:
        for step in steps:
            args, kwargs = _numbers(step.args, values), _numbers(step.kwargs, values)
            # As when the program made the view: under `no_grad` its views don't have a history.
            torch._C._set_grad_enabled(step.grad)
            result = step.func(source, *args, **kwargs)
            source = result if isinstance(result, torch.Tensor) else result[step.position]
    finally:
        torch._C._set_grad_enabled(before)
    return source


def _numbers(value: Any, values: Mapping[Any, Any]) -> Any:
    if isinstance(value, BaseExpr):
        return evaluate(value, values)
    if isinstance(value, (list, tuple)):
        return [_numbers(item, values) for item in value]
    if isinstance(value, dict):
        return {name: _numbers(item, values) for name, item in value.items()}
    return value


@dataclass(frozen=True, slots=True, eq=False)
class WithBases:
    """The captured graph, run by PyTorch, with the results of the compiled one: behind the outputs
    the bases of views among them (found by an output that is a view of each), and the inputs that
    have another history now."""

    graph: Callable[..., Any]
    bases: Sequence[int | None]
    rebased: Sequence[int]

    def __call__(self, *inputs: Any) -> Any:
        outputs = self.graph(*inputs)
        views = [None if at is None else outputs[at] for at in self.bases]
        with torch._C.DisableTorchFunction():
            bases = [t if t is None or not t._is_view() else t._base for t in views]
        return (*outputs, *bases, *[inputs[at] for at in self.rebased])
