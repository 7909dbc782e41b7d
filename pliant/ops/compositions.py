"""Functions that PyTorch composes of operators in C++ that takes plain sizes only.

The one idea: here they are composed of the same operators, in the same order, with sizes that may
be symbols. The composition serves the fakes of capture and the graph, in both directions.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
import torch.nn.functional as F

from pliant.base.operators import register_functions
from pliant.fake.functions import depending_on
from pliant.fake.tensor import Fake
from pliant.ops.differentiable import is_plain_float

Tensor = torch.Tensor


# --------------------------------------------------------------------------------------------------
# Statistics of rows


def _cov(input: Tensor, *, correction: Any = 1, fweights: Any = None, aweights: Any = None) -> Any:
    weighted = fweights is not None or aweights is not None
    if weighted or type(correction) is not int or not _is_table(input):
        return NotImplemented
    rows, columns = input.shape
    # One row makes a number of its own; too few columns make a warning.
    if rows == 1 or columns - correction <= 0:
        return NotImplemented
    deviation = input - (input.sum(1) / columns).unsqueeze(1)
    return torch.mm(deviation, deviation.t()) / (columns - correction)


def _corrcoef(input: Tensor) -> Any:
    covariance = _cov(input)
    if covariance is NotImplemented:
        return NotImplemented
    deviation = covariance.diagonal().sqrt()
    scaled = covariance / deviation.unsqueeze(1) / deviation.unsqueeze(0)
    return scaled.clamp(-1, 1)


def _is_table(t: Any) -> bool:
    return type(t) is Fake and t.dim() == 2 and t.is_floating_point()


# --------------------------------------------------------------------------------------------------
# Finite differences


def _gradient(input: Tensor, *, spacing: Any = 1, dim: Any = None, edge_order: int = 1) -> Any:
    if type(input) is not Fake or edge_order not in (1, 2) or not input.dim():
        return NotImplemented
    dims = [dim] if isinstance(dim, int) else list(range(input.dim()) if dim is None else dim)
    steps = list(spacing) if isinstance(spacing, list | tuple) else [spacing] * len(dims)
    if len(steps) != len(dims) or not all(type(step) in (int, float) for step in steps):
        return NotImplemented
    if not dims or len({d % input.dim() for d in dims}) < len(dims):  # which PyTorch refuses
        return NotImplemented
    if not all(-input.dim() <= d < input.dim() and input.size(d) > edge_order for d in dims):
        return NotImplemented
    pairs = zip(dims, steps, strict=True)
    return tuple([_differences(input, d, float(step), edge_order) for d, step in pairs])


def _differences(t: Tensor, dim: int, step: float, edge_order: int) -> Tensor:
    """Finite differences along a dimension: central ones inside, one-sided ones at the edges."""
    size = t.size(dim)

    def part(start: Any, length: Any = 1) -> Tensor:
        return t.narrow(dim, start, length)

    inside = (part(2, size - 2) - part(0, size - 2)) / step
    if edge_order == 1:
        first = part(1) - part(0)
        last = part(size - 1) - part(size - 2)
    else:
        first = part(0) * -1.5 + part(1) * 2 - part(2) * 0.5
        last = part(size - 1) * 1.5 - part(size - 2) * 2 + part(size - 3) * 0.5
    return torch.cat([first / step, inside / 2, last / step], dim)


# --------------------------------------------------------------------------------------------------
# Grids of points


def _affine_grid_on_fakes(theta: Tensor, size: Any, align_corners: Any = None) -> Any:
    if not is_plain_float([theta]) or theta.dim() != 3 or len(size) not in (4, 5):
        return NotImplemented
    batch, _, *space = size
    rank = len(space)
    usual = theta.shape == (batch, rank, rank + 1)
    usual = usual and all(isinstance(n, int | torch.SymInt) and n > 0 for n in size)
    if not usual:
        return NotImplemented
    # Of any other size, for PyTorch's warnings. A line of one point is made in another way.
    like = [2 if steps > 1 else 1 for steps in space]
    F.affine_grid(theta.new_empty(1, rank, rank + 1), [1, 1, *like], align_corners)
    return depending_on(theta.new_empty(batch, *space, rank), (theta,))


def _affine_grid(theta: Tensor, size: Sequence[Any], align_corners: Any = None) -> Any:
    if not is_plain_float([theta]) or theta.dim() != 3 or len(size) not in (4, 5):
        return NotImplemented
    batch, _, *space = size
    like: dict[str, Any] = {"dtype": theta.dtype, "device": theta.device}
    # The innermost dimension is the first coordinate.
    lines = [_points(steps, bool(align_corners), like) for steps in space]
    shaped = [
        line.view(-1, *[1] * (len(space) - 1 - d)).expand(space) for d, line in enumerate(lines)
    ]
    points = torch.stack([*reversed(shaped), torch.ones(space, **like)], -1).flatten(0, -2)
    points = points.expand(batch, *points.shape)
    return torch.bmm(points, theta.transpose(1, 2)).view(batch, *space, len(space))


def _points(steps: Any, align_corners: bool, like: dict[str, Any]) -> Tensor:
    """Points from -1 to 1: with the ends, or (not `align_corners`) the centers of as many equal
    parts."""
    if steps <= 1:
        return torch.zeros(steps, **like)
    corners = torch.linspace(-1, 1, steps, **like)
    return corners if align_corners else corners * (steps - 1) / steps


register_functions((torch.cov, Tensor.cov), symbolic=_cov, override=_cov)
register_functions((torch.corrcoef, Tensor.corrcoef), symbolic=_corrcoef, override=_corrcoef)
register_functions((torch.gradient,), symbolic=_gradient, override=_gradient)
register_functions((F.affine_grid,), symbolic=_affine_grid_on_fakes, differentiable=_affine_grid)
