"""Rounding to bfloat16, as little of it as there has to be.

The one idea: an operator on bfloat16 computes in float and rounds its result, but of many results
something is known. What only chooses between bfloat16 numbers, or changes their sign, is one
already: the lower half of its bits is 0. And what is computed from them by plain arithmetic can be
a nan only with zeros in its lower half, the only kind which rounding as an integer leaves a nan
(the upper half of another, 0x7F800001 for instance, is an infinity).
"""

from __future__ import annotations

import struct
from typing import Final

from pliant.loop.ir import LoopValue, Op
from pliant.loop.types import Type
from pliant.targets.cpu.llvm_ops import to_bfloat16
from pliant.targets.cpu.llvm_text import Code, Reg, rounded

_CHOICES: Final = frozenset({Op.MAXIMUM, Op.MINIMUM, Op.FMAX, Op.FMIN, Op.NEG, Op.ABS, Op.SELECT})
_PLAIN: Final = _CHOICES | {Op.ADD, Op.SUB, Op.MUL, Op.DIV, Op.FMA, Op.SQRT}


class Halves:
    """What is known of the floats of a kernel. `note` is called with each value before it is
    written, in order; a value without entries may be anything."""

    def __init__(self) -> None:
        self.short: set[LoopValue] = set()  # their lower half is 0
        self.plain: set[LoopValue] = set()  # their lower half is 0 if they are nan

    def note(self, value: LoopValue) -> None:
        """Work out from its operands what is known of a value."""
        if value.type is not Type.F32:
            return
        floats = [arg for arg in value.args if arg.type is not Type.BOOL]
        if _is_short(value) or (value.op in _CHOICES and self.short.issuperset(floats)):
            self.short.add(value)
        if value in self.short or (value.op in _PLAIN and self.plain.issuperset(floats)):
            self.plain.add(value)

    def rounded(self, code: Code, value: LoopValue, reg: Reg) -> Reg:
        """The float rounded to bfloat16, by as few instructions as what is known of it allows."""
        if value in self.short:
            return code.convert("trunc", code.binary("lshr", code.bits(reg), 16), "i16")
        return to_bfloat16(code, reg, value in self.plain)

    def before_rounding(self, value: LoopValue) -> LoopValue | None:
        """The float that a bfloat16 was cast from, if rounding didn't change it: casting back to
        float can use it as it is."""
        # A cast to any other type, such as an integer, may change it.
        if value.op is Op.CAST and value.type is Type.BF16 and value.args[0] in self.short:
            return value.args[0]
        return None


def _is_short(value: LoopValue) -> bool:
    """Whether a float was a bfloat16, or is a constant that is one."""
    if value.op is Op.CAST:
        return value.args[0].type is Type.BF16
    if value.op is not Op.CONSTANT or value.constant is None:
        return False
    (bits,) = struct.unpack("<I", struct.pack("<f", rounded(value.constant)))
    return bits & 0xFFFF == 0
