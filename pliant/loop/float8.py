"""The floats of 8 bits: how a number becomes one, for whoever writes code for it.

The one idea: eager PyTorch converts by way of `F32`, to the nearest, halves to even. What becomes
of numbers that are too large depends on its version: for `float8_e4m3fn` that was nan once, now it
is the largest number. So a format is a few numbers, one of which PyTorch is asked for.
"""

from __future__ import annotations

import functools
import math
from typing import Final

import torch

from pliant.base.values import dataclass
from pliant.loop.types import Type


@dataclass(frozen=True, slots=True)
class Float8:
    """A format. The last three are bits without the sign: of the least that is no finite number, of
    nan, and of what becomes of numbers that are too large."""

    mantissa: int  # bits
    bias: int
    special: int
    nan: int
    overflow: int

    @property
    def has_negative_zero(self) -> bool:
        """If not, its bits are the only nan, and the only ones that are no finite number."""
        return self.nan != NEGATIVE_ZERO

    @property
    def least(self) -> float:
        """The least number above 0."""
        return 2.0 ** (1 - self.bias - self.mantissa)


NEGATIVE_ZERO: Final = 0x80
_LAYOUTS: Final = {
    Type.F8E4M3FN: (3, 7, 0x7F, 0x7F),
    Type.F8E5M2: (2, 15, 0x7C, 0x7F),
    Type.F8E4M3FNUZ: (3, 8, NEGATIVE_ZERO, NEGATIVE_ZERO),
    Type.F8E5M2FNUZ: (2, 16, NEGATIVE_ZERO, NEGATIVE_ZERO),
}


@functools.cache
def float8(t: Type) -> Float8:
    """The format of this type."""
    return Float8(*_LAYOUTS[t], overflow=_overflow(t))


def _overflow(t: Type) -> int:
    beyond = torch.tensor(math.inf, dtype=torch.float32, device="cpu").to(t.dtype)
    return int(beyond.view(torch.uint8).item())
