"""Numbers at which casts to floats of 8 bits can go wrong, and how results are compared."""

import torch

from pliant.loop.types import FLOAT8

FORMATS = sorted(FLOAT8, key=str)


def _singles() -> torch.Tensor:
    """Every sign, exponent and upper half of a mantissa, with lower halves around which it rounds.
    All infinities are among them, and nans."""
    upper = torch.arange(1 << 16, dtype=torch.int64) << 16
    lower = torch.tensor([0, 1, 0x7FFF, 0x8000, 0xFFFF])
    return (upper[:, None] + lower).to(torch.int32).view(torch.float32).flatten()


HALVES = torch.arange(1 << 16, dtype=torch.int32).to(torch.uint16)
NUMBERS = {
    "float16": HALVES.view(torch.float16),
    "bfloat16": HALVES.view(torch.bfloat16),
    "float32": _singles(),
    # Rounded twice, as they are by eager PyTorch: to 32 bits first.
    "float64": torch.cat([_singles().double(), torch.tensor([1.0625 + 2.0**-40, 448 + 2.0**-30])]),
    "int64": torch.arange(-700, 700),
    "bool": torch.tensor([False, True]),
}


def every(dtype: torch.dtype) -> torch.Tensor:
    """All numbers of a format."""
    return torch.arange(256, dtype=torch.uint8).view(dtype)


def same(found: torch.Tensor, expected: torch.Tensor) -> None:
    """Floats of 8 bits bit for bit; of longer ones any nan will do."""
    assert found.dtype is expected.dtype
    if found.dtype.itemsize == 1:
        found, expected = found.view(torch.uint8), expected.view(torch.uint8)
    torch.testing.assert_close(found, expected, rtol=0, atol=0, equal_nan=True)
    if found.dtype.is_floating_point:
        assert torch.equal(found.signbit() & ~found.isnan(), expected.signbit() & ~found.isnan())
