"""Reductions, scans and normalisations against eager PyTorch where numbers are at the edge: the
error is not much more than eager's, of a million elements in every direction, and what is infinite
or no number is eager's."""

import math

import pytest
import torch

from tests.ops.harness import run_op

aten = torch.ops.aten
INF, NAN = math.inf, math.nan

SUMS = {
    "sum": lambda x, d: (aten.sum.dim_IntList, x, [d]),
    "mean": lambda x, d: (aten.mean.dim, x, [d]),
    "nansum": lambda x, d: (aten.nansum.default, x, [d]),
    "norm": lambda x, d: (aten.linalg_vector_norm.default, x, 2, [d]),
    "norm of degree 1": lambda x, d: (aten.linalg_vector_norm.default, x, 1, [d]),
    "norm of degree 3": lambda x, d: (aten.linalg_vector_norm.default, x, 3, [d]),
    "logsumexp": lambda x, d: (aten.logsumexp.default, x, [d]),
    "var": lambda x, d: (aten.var.correction, x, [d]),
    "std": lambda x, d: (aten.std.correction, x, [d]),
}
OTHERS = {
    "var_mean": lambda x, d: (aten.var_mean.correction, x, [d]),
    "std_mean": lambda x, d: (aten.std_mean.correction, x, [d]),
    "prod": lambda x, d: (aten.prod.dim_int, x, d),
    "amax": lambda x, d: (aten.amax.default, x, [d]),
    "amin": lambda x, d: (aten.amin.default, x, [d]),
    "max": lambda x, d: (aten.max.dim, x, d),
    "argmin": lambda x, d: (aten.argmin.default, x, d),
    "any": lambda x, d: (aten.any.dim, x, d),
    "softmax": lambda x, d: (aten._softmax.default, x, d, False),
    "log_softmax": lambda x, d: (aten._log_softmax.default, x, d, False),
    "cumsum": lambda x, d: (aten.cumsum.default, x, d),
    "cumprod": lambda x, d: (aten.cumprod.default, x, d),
    "logcumsumexp": lambda x, d: (aten.logcumsumexp.default, x, d),
}
BY_ROWS = {
    "layer_norm": lambda x: (aten.layer_norm.default, x, [x.shape[-1]]),
    "rms_norm": lambda x: (aten.rms_norm.default, x, [x.shape[-1]]),
    "group_norm": lambda x: (aten.group_norm.default, x[:, None], 1),
    "instance_norm": lambda x: (
        *(aten.instance_norm.default, x[:, None], None, None, None, None),
        *(True, 0.1, 1e-5, False),
    ),
    "mse_loss": lambda x: (aten.mse_loss.default, x, x.flip(0)),
    "smooth_l1_loss": lambda x: (aten.smooth_l1_loss.default, x, x.flip(0)),
    "huber_loss": lambda x: (aten.huber_loss.default, x, x.flip(0), 2),
}
CALLS = (
    {f"{name} of rows": lambda x, call=call: call(x, 1) for name, call in (SUMS | OTHERS).items()}
    | {
        f"{name} of columns": lambda x, call=call: call(x.t().contiguous(), 0)
        for name, call in (SUMS | OTHERS).items()
        if name != "logcumsumexp"
    }
    | BY_ROWS
)

NUMBERS = {
    "uniform": lambda *shape: torch.rand(shape),
    "normal": lambda *shape: torch.randn(shape),
    "far from 0": lambda *shape: torch.randn(shape) + 1000,
    "cancelling": lambda *shape: torch.randn(shape).sign() * 1e8 + torch.randn(shape),
    "of all sizes": lambda *shape: torch.randn(shape) * torch.exp(torch.randn(shape) * 12),
}


def several(x):
    return list(x) if isinstance(x, (tuple, list)) else [x]


def error(found, exact, size):
    """The mean error, in units of the `size`, which is that of what was summed up."""
    apart = (found.double() - exact) / (size * torch.finfo(found.dtype).eps)
    return apart.square().mean().sqrt().item()


def held(call, x, factor, symbolic=False, more=0.75):
    """The error is at most so many times eager's, and some part of a unit."""
    func, *args = call(x)
    _, *exactly = call(x.double())
    _, *sizes = call(x.double().abs())
    exact, size = several(func(*exactly))[0], several(func(*sizes))[0].abs()
    found, eager = [several(f)[0] for f in (run_op(func, *args, symbolic=symbolic), func(*args))]
    size = size.clamp(min=size.mean().item() * 1e-3, max=1e300)
    mine, theirs = error(found, exact, size), error(eager, exact, size)
    assert mine <= factor * theirs + more, (str(func), mine, theirs)


@pytest.mark.parametrize("numbers", NUMBERS)
@pytest.mark.parametrize("name", SUMS)
def test_sums_are_as_exact_as_eagers(name, numbers):
    torch.manual_seed(0)
    for count in (30, 1000, 20_000):
        x = NUMBERS[numbers](24, count)
        held(lambda x: SUMS[name](x, 1), x, 1.5)
        held(lambda x: SUMS[name](x.t().contiguous(), 0), x, 1.5)
        held(lambda x: SUMS[name](x.reshape(4, 6, -1).mT.contiguous(), 1), x, 1.5)


@pytest.mark.parametrize("symbolic", [False, True])
@pytest.mark.parametrize("direction", ["rows", "columns", "all"])
def test_sums_of_a_million(direction, symbolic):
    torch.manual_seed(0)
    x = torch.rand(16, 1_000_000)
    calls = {
        "rows": lambda x: SUMS["sum"](x, 1),
        "columns": lambda x: SUMS["sum"](x.t().contiguous(), 0),
        "all": lambda x: (aten.sum.default, x),
    }
    held(calls[direction], x, 1.3, symbolic, more=0.4)


@pytest.mark.parametrize("count", [3, 17, 100, 1000, 70_000])
def test_sums_of_columns_are_eagers_to_the_bit(count):
    torch.manual_seed(0)
    x = torch.randn(count, 64)
    assert torch.equal(run_op(aten.sum.dim_IntList, x, [0]), x.sum(0))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("count", [1, 7, 31, 32, 33, 100, 1000])
def test_products_are_eagers_to_the_bit(count, dtype):
    """The product of some may be out of range, so that the order shows."""
    torch.manual_seed(0)
    for spread in (0.1, 40.0, 300.0):
        x = torch.exp(torch.randn(5, count, dtype=torch.float64) * spread).to(dtype)
        wide = torch.stack([x, x], -1)[..., 0]
        for func, *args in (
            *((aten.prod.default, x), (aten.prod.dim_int, x, 1), (aten.prod.dim_int, wide, 1)),
            *((aten.prod.dim_int, x.t(), 0), (aten.prod.dim_int, x.t().contiguous(), 0)),
        ):
            for symbolic in (False, True):
                found, eager = run_op(func, *args, symbolic=symbolic), func(*args)
                assert torch.equal(found.nan_to_num(7), eager.nan_to_num(7)), (str(func), spread)


SPECIAL = [[INF], [-INF], [NAN], [INF, -INF], [INF, INF], [3e38], [3e38, -3e38], [1e-42]]


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64])
@pytest.mark.parametrize("name", CALLS)
def test_what_is_infinite_or_nan_is_eagers(name, dtype):
    for special in SPECIAL:
        for count in (3, 40):
            if dtype is torch.bfloat16 and ("prod" in name or "instance" in name or "loss" in name):
                continue  # not lowered
            x = torch.linspace(-3, 3, count).repeat(count, 1)
            for row in range(count):
                for i, number in enumerate(special):
                    x[row, (row + 2 * i) % count] = number
            func, *args = CALLS[name](x.to(dtype))
            if any("norm" in part for part in name.split()) and 3e38 in special:
                continue  # out of range on the way: see docs/differences.md
            found, eager = several(run_op(func, *args)), several(func(*args))
            for mine, theirs in zip(found, eager, strict=True):
                alike = (mine == theirs) | (mine.isfinite() & theirs.isfinite())
                alike |= mine.isnan() & theirs.isnan()
                assert alike.all(), (special, count, mine[~alike][:3], theirs[~alike][:3])


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("name", ["var", "std"])
def test_variances_do_not_overflow_on_the_way(name, dtype):
    for large in (1e30, 3e38) if dtype is not torch.float16 else (3e4,):
        x = torch.tensor([[large, 1.0, 2.0], [-large, large, 0.5]]).to(dtype)
        for dim in (0, 1):
            func, *args = SUMS[name](x, dim)
            torch.testing.assert_close(run_op(func, *args), func(*args))
