"""Floats of 8 bits as LLVM IR: casts from and to `F32`, by integers.

The one idea: a processor knows nothing of them. Above the least normal number the bits of a format
are the upper bits of an `F32` with another bias; below it they count multiples of the least number.
"""

from __future__ import annotations

from typing import Final

from pliant.loop.float8 import Float8
from pliant.targets.cpu.llvm_text import Code, Reg

MANTISSA: Final = 23  # of an F32
BIAS: Final = 127
INFINITY: Final = 0x7F800000
NAN: Final = 0x7FC00000


def from_float8(code: Code, x: Reg, fmt: Float8) -> Reg:
    """The bits of a number as a float."""
    bits = code.convert("zext", x, "i32")
    size = bits & 0x7F
    below = code.convert("sitofp", size, "float") * fmt.least
    above = (size << (MANTISSA - fmt.mantissa)) + ((BIAS - fmt.bias) << MANTISSA)
    result = code.select(size.compare("lt", 1 << fmt.mantissa), code.bits(below), above)
    if fmt.has_negative_zero:
        result = code.select(size.compare("lt", fmt.special), result, above | INFINITY)
    result = result | ((bits & 0x80) << 24)
    if not fmt.has_negative_zero:
        result = code.select(bits.compare("eq", fmt.nan), NAN, result)
    return code.convert("bitcast", result, "float")


def to_float8(code: Code, x: Reg, fmt: Float8) -> Reg:
    """The bits of the nearest number, halves to even."""
    bits = code.bits(x)
    size = bits & 0x7FFFFFFF
    # The last place of the sum is the least number: the addition rounds to its multiples.
    shifted = code.convert("bitcast", size, "float") + fmt.least * 2.0**MANTISSA
    below = code.bits(shifted) - code.bits(x.like(fmt.least * 2.0**MANTISSA))
    shift = MANTISSA - fmt.mantissa
    # Half a unit less one bit, and one more if the last bit that stays is 1.
    nearest = size + ((size >> shift) & 1) + ((1 << (shift - 1)) - 1)
    above = (nearest - ((BIAS - fmt.bias) << MANTISSA)) >> shift
    result = code.select(size.compare("lt", (BIAS + 1 - fmt.bias) << MANTISSA), below, above)
    result = code.select(result.compare("gt", fmt.overflow), fmt.overflow, result)
    result = code.select(size.compare("gt", INFINITY), fmt.nan, result)
    sign = (bits >> 24) & 0x80
    if not fmt.has_negative_zero:  # 0 and nan have no sign
        sign = code.select((result & 0x7F).compare("eq", 0), 0, sign)
    return code.convert("trunc", result | sign, "i8")
