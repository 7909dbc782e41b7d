"""Comparing a rule with eager bit for bit, in several layouts and with sizes known or not."""

import torch

from tests.ops.harness import run_op

DTYPES = [
    *(torch.float32, torch.float64, torch.bfloat16, torch.float16),
    *(torch.int64, torch.int32, torch.uint8, torch.bool),
]

WIDTHS = [torch.float32, torch.bfloat16, torch.int64, torch.bool]
"""One of each width: enough where elements are only moved."""


def some(*shape, dtype=torch.float32):
    """Numbers of the type, all kinds of them."""
    if dtype.is_floating_point:
        return torch.randn(shape).to(dtype)
    if dtype is torch.bool:
        return torch.randint(0, 2, shape).bool()
    return torch.randint(0, 100, shape).to(dtype)


def spaced(*shape, dtype=torch.float32):
    """The same, not next to each other in memory: some rules leave the others to PyTorch."""
    return some(*shape, 2, dtype=dtype)[..., 0]


def same(func, *args, symbolic=True, exact=True, **kwargs):
    """The rule gives what eager gives; `symbolic`: also where sizes are symbols."""
    expected = func(*args, **kwargs)
    for sizes in (False, True) if symbolic else (False,):
        found = run_op(func, *args, symbolic=sizes, **kwargs)
        several = isinstance(expected, (tuple, list))
        for a, b in zip(found, expected) if several else [(found, expected)]:
            assert a.dtype == b.dtype
            assert a.stride() == b.stride() or not b.numel()
            rtol, atol = (0, 0) if exact else (None, None)
            torch.testing.assert_close(a, b, rtol=rtol, atol=atol, equal_nan=True)
