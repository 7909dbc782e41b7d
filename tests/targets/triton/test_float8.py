"""Casts from and to floats of 8 bits in Triton kernels give what eager PyTorch's give."""

from dataclasses import replace

import pytest
import torch

import pliant
from pliant.base import events
from pliant.loop.float8 import float8
from pliant.targets.triton import expressions
from tests.support.float8 import FORMATS, NUMBERS, every, same

WIDER = (torch.float16, torch.bfloat16, torch.float32, torch.float64, torch.bool)


@pytest.fixture
def check(kernels, seen):
    """Compare with eager PyTorch; all of it is one kernel, which compiles for GPUs."""

    def run(function, x, machines=(80, 90, "gfx942"), **options):
        compiled = pliant.compile(function, backend="triton_interpreter", fullgraph=True, **options)
        same(compiled(x), function(x))
        assert len(kernels.ran) == 1
        assert not [op for event in seen(events.CodeGenerated) for op in event.called]
        kernels.compile_for(*machines)

    return run


@pytest.mark.parametrize("source", NUMBERS)
@pytest.mark.parametrize("t", FORMATS)
def test_every_exponent_and_every_rounding(t, source, check):
    check(lambda x: x.to(t.dtype), NUMBERS[source])


@pytest.mark.parametrize("target", [*WIDER, *[t.dtype for t in FORMATS]])
@pytest.mark.parametrize("t", FORMATS)
def test_every_number_of_a_format(t, target, check):
    check(lambda x: x.t().to(target).contiguous(), every(t.dtype).view(2, 128), (80,))


@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("t", FORMATS)
def test_rows_are_quantized_in_one_kernel(t, dynamic, check):
    largest = torch.finfo(t.dtype).max

    def quantized(x):
        scale = x.abs().amax(1, keepdim=True) / largest
        return (x / scale).to(t.dtype)

    check(quantized, torch.randn(5, 70), dynamic=dynamic)


PROGRAMS = {
    "a round trip": lambda x: (x * 2).to(torch.float8_e4m3fn).float() + x,
    "of halves": lambda x: x.half().to(torch.float8_e5m2).to(torch.bfloat16),
    "joined": lambda x: torch.cat([x, x * 0 - 1]).to(torch.float8_e5m2),
    "joined later": lambda x: torch.stack([t.to(torch.float8_e5m2) for t in (x, x * 2)]),
    "filled": lambda x: torch.full_like(x, 0.3, dtype=torch.float8_e4m3fnuz).float() + x,
    "of a row": lambda x: x.to(torch.float8_e4m3fn)[1].float().exp(),
    "sums": lambda x: x.to(torch.float8_e4m3fn).float().sum(1).to(torch.float8_e5m2),
}  # fmt: skip


@pytest.mark.parametrize("name", PROGRAMS)
def test_programs(name, check):
    check(PROGRAMS[name], torch.arange(-60.0, 60.0).view(6, 20) / 4)


def test_versions_of_pytorch_that_do_not_saturate(monkeypatch, kernels):
    """Those before 2.13 make nan of what is too large for e4m3fn."""
    monkeypatch.setattr(expressions, "float8", lambda t: replace(float8(t), overflow=float8(t).nan))
    x, dtype = NUMBERS["float32"], torch.float8_e4m3fn
    found = pliant.compile(lambda x: x.to(dtype), backend="triton_interpreter")(x)
    expected = torch.where(x.abs() > 464, x.sign() * torch.nan, x).to(dtype).view(torch.uint8)
    expected = torch.where(x.abs() > 464, (expected & 0x80) | 0x7F, expected)
    expected = torch.where(x.signbit(), expected | 0x80, expected)
    assert torch.equal(found.view(torch.uint8), expected)
