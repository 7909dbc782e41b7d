"""Whether compiled code did what eager PyTorch does, up to rounding.

The one idea: PyTorch's own tolerances are for single operators. Where they are exceeded, eager
PyTorch is run again with each result moved by a unit in the last place: what moves as far as the
difference is rounding.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch._ops import HigherOrderOperator
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves, tree_map

RUNS = 4
MARGIN = 8  # how many times what the runs show may be rounding
COMPARED = (torch.Tensor, int, float, complex)


def leaves(value: Any) -> list[Any]:
    """What is compared: tensors and numbers, in order."""
    return [leaf for leaf in tree_leaves(value) if isinstance(leaf, COMPARED)]


def difference(actual: Any, expected: Any, rerun: Callable[[], Any]) -> str | None:
    """How the results differ beyond rounding, in words, or None. `rerun` computes the expected ones
    again."""
    pair = leaves(actual), leaves(expected)
    if len(pair[0]) != len(pair[1]):
        return f"{len(pair[0])} tensors and numbers, where eager PyTorch has {len(pair[1])}"
    problems = [_difference(result, other) for result, other in zip(*pair, strict=True)]
    if not any(problems):
        return None
    spread = _spread(pair[1], rerun)
    for index, problem in enumerate(problems):
        if problem and not _is_rounding(pair[0][index], pair[1][index], spread[index]):
            return problem
    return None


def _difference(actual: Any, expected: Any) -> str | None:
    try:
        torch.testing.assert_close(actual, expected, equal_nan=True, check_stride=True)
    except (AssertionError, TypeError, ValueError) as error:
        return str(error)
    return None


def _is_rounding(actual: Any, expected: Any, spread: torch.Tensor | None) -> bool:
    if spread is None or actual.stride() != expected.stride():
        return False
    wide, reference = actual.detach().double(), expected.detach().double()
    finite = torch.isfinite(wide) & torch.isfinite(reference)
    close = (wide - reference).abs() <= MARGIN * spread + 1e-6 * reference.abs()
    same = (wide == reference) | (wide.isnan() & reference.isnan())
    return bool(torch.where(finite, close, same).all())


def _spread(expected: Sequence[Any], rerun: Callable[[], Any]) -> list[torch.Tensor | None]:
    """How far rounding moves each element of the floating-point results: the largest distance in a
    few runs. None for other results."""
    spread: list[torch.Tensor | None] = [
        torch.zeros_like(leaf, dtype=torch.float64)
        if isinstance(leaf, torch.Tensor) and leaf.is_floating_point()
        else None
        for leaf in expected
    ]
    for seed in range(RUNS):
        try:
            with Rounding(seed):
                moved = leaves(rerun())
        except Exception:  # an operator that can't be run under a mode: no allowance
            break
        for index, (leaf, other) in enumerate(zip(expected, moved, strict=False)):
            widest = spread[index]
            if widest is not None and getattr(other, "shape", None) == leaf.shape:
                distance = (other.detach().double() - leaf.detach().double()).abs()
                spread[index] = torch.maximum(widest, distance.nan_to_num(0.0))
    return spread


class Rounding(TorchDispatchMode):
    """A mode that moves each floating-point result by up to a unit in the last place, at random."""

    supports_higher_order_operators = True  # as `torch.cond`

    def __init__(self, seed: int) -> None:
        super().__init__()
        self.generator = torch.Generator().manual_seed(seed)

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if isinstance(func, HigherOrderOperator):
            args, kwargs = tree_map(self._inside, (args, kwargs or {}))
            return func(*args, **kwargs)
        result = func(*args, **(kwargs or {}))
        if any(value.alias_info is not None for value in func._schema.returns):
            return result  # a view, or written to
        return tree_map(self._moved, result)

    def _inside(self, value: Any) -> Any:
        """The functions given to a higher-order operator, so that they too run under the mode."""
        if not callable(value) or isinstance(value, torch.Tensor):
            return value

        def inside(*args: Any) -> Any:
            with self:
                return value(*args)

        return inside

    def _moved(self, value: Any) -> Any:
        if not isinstance(value, torch.Tensor) or not value.is_floating_point():
            return value
        if value.dtype.itemsize < 2:
            return value
        step = torch.randint(-1, 2, value.shape, generator=self.generator).to(value.device)
        return value * (1 + step.to(value.dtype) * torch.finfo(value.dtype).eps)
