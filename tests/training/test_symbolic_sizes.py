"""Functions whose sizes vary: one compilation, and code of our own in both directions."""

import pytest
import torch
import torch.nn.functional as F

import pliant
from pliant.base import events
from tests.training.gradients_of import compare, outcome


def T(*sizes, dtype=torch.float32):
    return torch.randn(*sizes, dtype=dtype).requires_grad_()


def check(function, *calls, close=(1e-4, 1e-5)):
    """The same as eager for each of the calls, which one compilation serves."""
    events.counters.reset()
    compiled = pliant.compile(function, backend="llvm", dynamic=True)
    for args in calls:
        rtol, atol = close
        compare(outcome(compiled, args), outcome(function, args), rtol=rtol, atol=atol)
    assert events.counters["compilations"] == 1
    assert not events.counters["not_generated"] and not events.counters["fallbacks"]
    assert not events.counters["failed_kernels"]


@pytest.mark.parametrize("scale", [1.7, 0.6])
@pytest.mark.filterwarnings("ignore:.*upsample_bilinear")
def test_sizes_that_are_rounded_from_floats(scale: float) -> None:
    def function(x):
        return F.upsample_bilinear(x, scale_factor=scale)

    check(function, [T(2, 3, 5, 6)], [T(3, 2, 9, 24)])
