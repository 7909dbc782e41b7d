"""Tensors with the values at which operators differ, and how results are compared."""

import math

import torch

from pliant.base.operators import record_of
from pliant.loop.define import Definition
from pliant.ops.indexed_tensor import in_memory
from pliant.ops.lowering import Lowering, Meta, NotLowered, type_of
from tests.ops.harness import Fault, exprs, run_op

DTYPES = [
    *(torch.float32, torch.float64, torch.bfloat16, torch.float16),
    *(torch.int64, torch.int32, torch.int8, torch.uint8, torch.bool),
]
EDGES = [0.0, -0.0, 1, -1, 0.5, -0.5, 1.5, 2.5, -2.5, 3, -3, 6, -7.25, 20, -20, 100.5, -100.5]
EDGES += [1e30, -1e30, math.inf, -math.inf, math.nan, 2, 0.25, 0.75, -1e-3, 1e-4, 1e-20]


def values(dtype, size=256, seed=0):
    """Numbers of the usual size, and those at which types end."""
    generator = torch.Generator().manual_seed(seed)
    if dtype is torch.bool:
        return torch.rand(size, generator=generator) > 0.5
    order = torch.randperm(size, generator=generator)
    if dtype.is_floating_point:
        usual = torch.randn(size - len(EDGES), generator=generator, dtype=torch.float64) * 3
        return torch.cat([usual, torch.tensor(EDGES, dtype=torch.float64)]).to(dtype)[order]
    info = torch.iinfo(dtype)
    edges = torch.tensor([info.min, info.max, info.min + 1, info.max - 1, 0, 1, 2, 3], dtype=dtype)
    usual = torch.randint(max(-20, info.min), 20, (size - len(edges),), generator=generator)
    return torch.cat([usual.to(dtype), edges])[order]


def bits(t):
    """To compare bit for bit: 0.0 is not -0.0, and all nans are one."""
    if not t.dtype.is_floating_point:
        return t
    whole = {2: torch.int16, 4: torch.int32, 8: torch.int64}[t.element_size()]
    return t.masked_fill(t.isnan(), math.nan).contiguous().view(whole)


def agrees(func, *args, tolerance=None, **kwargs):
    """Whether the rule gives what eager gives: to the bit, or with a `tolerance` in units in the
    last place. False if PyTorch would run it, or eager raises."""
    try:
        expected = func(*args, **kwargs)
    except (RuntimeError, NotImplementedError):
        assert not lowered(func, *args, **kwargs), f"{func} raises, and is lowered"
        return False
    try:
        found = run_op(func, *args, **kwargs)
    except NotLowered:
        return False
    said = (func, [a.dtype if isinstance(a, torch.Tensor) else a for a in args], kwargs)
    assert found.dtype == expected.dtype and found.shape == expected.shape, said
    assert found.stride() == expected.stride(), said
    if tolerance is not None and expected.dtype.is_floating_point:
        eps = torch.finfo(expected.dtype).eps
        torch.testing.assert_close(
            found, expected, rtol=tolerance * eps, atol=eps / 2, equal_nan=True
        )
        return True
    same = bits(found) == bits(expected)
    at = (~same).nonzero()[:3].tolist()
    there = [(found[tuple(i)].item(), expected[tuple(i)].item()) for i in at]
    assert same.all(), (said, "(found, eager):", there)
    return True


def lowered(func, *args, **kwargs):
    """Whether there are loops for it, also if eager raises only when it computes."""
    try:
        meta = [a.to("meta") if isinstance(a, torch.Tensor) else a for a in args]
        result = func(*meta, **kwargs)
    except Exception:
        return False  # so does whoever finds out the sizes

    def given(value):
        if not isinstance(value, torch.Tensor):
            return value
        shape, strides = exprs(value.shape), exprs(value.stride())
        return in_memory(Definition("x", shape, strides, type_of(value.dtype)))

    try:
        low = Lowering(results=(Meta(exprs(result.shape), exprs(result.stride()), result.dtype),))
        record_of(str(func)).lowering(low, *map(given, args), **kwargs)
    except (NotLowered, Fault):
        return False
    return True
