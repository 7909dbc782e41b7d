"""Strides of results where operands have to be converted first, against eager PyTorch."""

from __future__ import annotations

import itertools
from collections.abc import Callable

import pytest
import torch
from torch import Tensor

import pliant
from pliant.fake import pointwise

LAYOUTS: dict[str, Callable[[Tensor], Tensor]] = {
    "dense": lambda t: t,
    "transposed": lambda t: t.t(),
    "number": lambda t: t[0, 0].expand(4, 4),
    "row": lambda t: t[0].expand(4, 4),
    "column": lambda t: t[0][:, None].expand(4, 4),
    "one row": lambda t: t.t()[:1],
    "one element": lambda t: t.t()[:1, 1:2],
}
F, H, I = torch.float32, torch.float16, torch.int64


def results(x: Tensor, y: Tensor) -> tuple[Tensor, ...]:
    return (
        *(x + y, y - x, x * y, x / y, x < y, y == x, x**y, torch.maximum(x, y), torch.fmin(y, x)),
        *(torch.atan2(x, y), torch.where(x > y, x, y), torch.where(x > 0, y, x), x // y, x % y),
        *(x.clamp(y), torch.logical_and(x, y), torch.rsub(x, y), torch.copysign(x, y)),
        *(x.sqrt(), x.exp(), x * 1.5, 2 / x, x > 0.5, x.clamp(0.5), torch.lgamma(x), x.isinf()),
        *(
            x.isnan(),
            x.angle(),
            x.isfinite(),
            x.logical_not(),
            torch.diag_embed(x),
            torch.diag_embed(x, 1, 0),
        ),
    )


def layouts(x: Tensor, y: Tensor) -> list[tuple[torch.dtype, tuple[int, ...]]]:
    return [(result.dtype, result.stride()) for result in results(x, y)]


@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("dtypes", [(F, F), (F, I), (I, F), (I, I), (H, F)], ids=str)
def test_results_lie_as_in_eager(dtypes: tuple[torch.dtype, torch.dtype], dynamic: bool) -> None:
    for one, other in itertools.product(LAYOUTS, LAYOUTS):
        compiled = pliant.compile(layouts, backend="eager", dynamic=dynamic)
        operands = [
            LAYOUTS[layout](torch.arange(1, 17).reshape(4, 4).to(dtype))
            for layout, dtype in zip((one, other), dtypes)
        ]
        expected, actual = layouts(*operands), compiled(*operands)
        assert actual == expected, f"{one}, {other}"


def test_kernels_write_where_eager_does() -> None:
    compiled = pliant.compile(results, backend="llvm", dynamic=False)
    x, y = torch.ones((), dtype=torch.int64).expand(4, 4), torch.rand(4, 4).t()
    for expected, actual in zip(results(x, y), compiled(x, y), strict=True):
        assert actual.stride() == expected.stride()
        torch.testing.assert_close(actual, expected)


def test_a_loss_that_is_reduced_says_nothing_of_others() -> None:
    pointwise._aside.clear()
    for reduction in ("sum", "none"):

        def loss(x: Tensor, y: Tensor, reduction: str = reduction) -> Tensor:
            return torch.nn.functional.mse_loss(x, y, reduction=reduction)

        compiled = pliant.compile(loss, backend="llvm", dynamic=False)
        x, y = (torch.ones(1, 1, 3).transpose(1, 2) for _ in range(2))
        assert compiled(x, y).stride() == loss(x, y).stride()
