"""Masks of attention are numbers once, for all layers that share them."""

import pytest
import torch
import torch.nn.functional as F

import pliant
from pliant.backends.llvm import llvm
from tests.backends.eager_twin import call, difference

attend = F.scaled_dot_product_attention


def given(dtype=torch.float32):
    return [torch.randn(2, 4, 6, 8).to(dtype) for _ in range(3)]


def layers(q, k, v, mask):
    for _ in range(3):
        q = attend(q, k, v, attn_mask=mask)
    return q


def inverted(q, k, v, mask):
    return attend(q, k, v, ~mask), mask.logical_not()


def both(q, k, v, mask):
    return attend(q, k, v, mask), attend(q, k, v, mask.to(q.dtype)), attend(q, k, v)


MASKS = {
    "each": lambda: torch.rand(2, 4, 6, 6) > 0.4,
    "for all heads": lambda: torch.rand(2, 1, 6, 6) > 0.4,
    "for all": lambda: torch.rand(6, 6) > 0.4,
    "of keys": lambda: (torch.rand(2, 1, 1, 6) > 0.4).expand(2, 1, 6, 6),
    "transposed": lambda: (torch.rand(6, 6) > 0.4).t(),
    "of everything": lambda: torch.zeros(2, 4, 6, 6, dtype=torch.bool),
}


@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
@pytest.mark.parametrize("mask", MASKS)
def test_masks(mask, dtype, dynamic):
    for function in (layers, inverted, both):
        compiled = pliant.compile(function, backend=llvm, dynamic=dynamic)
        torch.manual_seed(0)
        args = [*given(dtype), MASKS[mask]()]
        found = difference(call(compiled, args, "no_grad"), call(function, args, "no_grad"))
        assert found is None, (function.__name__, found)


def test_a_mask_is_made_once():
    args = [*given(), MASKS["each"]()]
    compiled = pliant.compile(layers, backend=llvm)
    with torch.no_grad():
        compiled(*args)
        with torch.profiler.profile() as profiled:
            compiled(*args)
    called = {event.key for event in profiled.key_averages()}
    assert not {"aten::masked_fill_", "aten::logical_not"} & called
