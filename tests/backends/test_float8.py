"""Floats of 8 bits on the CPU: kernels move and cast them, and PyTorch does the rest."""

import pytest
import torch

import pliant
from pliant.base import events
from tests.support.against_eager import check
from tests.support.float8 import FORMATS, NUMBERS, every, same


@pytest.mark.parametrize("source", NUMBERS)
@pytest.mark.parametrize("t", FORMATS)
def test_every_exponent_and_every_rounding(t, source, seen):
    for length in (None, 5):  # in vectors, and one by one
        x = NUMBERS[source][:length]
        found = pliant.compile(lambda x: x.to(t.dtype), backend="llvm", fullgraph=True)(x)
        same(found, x.to(t.dtype))
    assert not [op for event in seen(events.CodeGenerated) for op in event.called]


@pytest.mark.parametrize("t", FORMATS)
def test_every_number_of_a_format(t, seen):
    x = every(t.dtype)
    for target in (torch.float16, torch.bfloat16, torch.float32, torch.float64, torch.bool):
        same(pliant.compile(lambda x: x.to(target), backend="llvm")(x), x.to(target))
    for other in FORMATS:
        same(pliant.compile(lambda x: x.to(other.dtype), backend="llvm")(x), x.to(other.dtype))
    assert not [op for event in seen(events.CodeGenerated) for op in event.called]


def put(x):
    x[1] = 2.5
    x[2:].copy_(x[:2].clone())
    return x.t()


REFUSED = {
    "sum": lambda x: x + x,
    "product with a number": lambda x: x * 2,
    "exp": lambda x: x.exp(),
    "relu": lambda x: x.relu(),
    "reduction": lambda x: x.sum(),
    "softmax": lambda x: x.softmax(0),
}
ALLOWED = {  # or not, by the format
    "matrix product": lambda x: x @ x,
    "a write to a part": put,
    "abs": lambda x: x.abs(),
    "comparison": lambda x: (x == x.t(), x != x),
    "isnan": lambda x: x.isnan(),
    "index": lambda x: x[torch.tensor([2, 0, 2])],
    "masked": lambda x: torch.where(x.float() > 1, x, x.t()),
    "a view as bytes": lambda x: x.view(torch.uint8) + 1,
    "zeros": lambda x: (x.zero_(), torch.ones_like(x)),
    "flipped": lambda x: torch.stack([x, x.flip(0)]).float(),
}


@pytest.mark.parametrize("name", [*REFUSED, *ALLOWED])
@pytest.mark.parametrize("t", FORMATS)
def test_what_eager_pytorch_does_and_refuses(t, name):
    x = torch.arange(16.0).view(4, 4).to(t.dtype)
    function = (REFUSED | ALLOWED)[name]
    compiled = check(function, x, backend="llvm", breaks=None, compilations=None)
    if name in REFUSED:
        with pytest.raises((NotImplementedError, RuntimeError)):
            compiled(x)
