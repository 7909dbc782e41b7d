"""Comparisons of the position of a lane with a number, as in `cat`, `pad` and `tril`.

The one idea: positions are 64 bits wide and next to each other. What a comparison of them needs is
only how far the number is from the first lane, which is the same for all lanes; from there on it is
about 0, 1, 2, ..., in the narrow type of most data.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pliant.loop.collapse import stride
from pliant.loop.ir import LoopValue, Op
from pliant.sym.expr import ONE
from pliant.targets.cpu.llvm_text import Reg

if TYPE_CHECKING:
    from pliant.targets.cpu.llvm import Writer

_WORDS: Final = {
    Op.LT: ("lt", "gt"),
    Op.LE: ("le", "ge"),
    Op.GT: ("gt", "lt"),
    Op.GE: ("ge", "le"),
    Op.EQ: ("eq", "eq"),
    Op.NE: ("ne", "ne"),
}
"""A comparison, and the one with its sides exchanged."""


def compared(writer: Writer, value: LoopValue) -> Reg | None:
    """Write the value if it compares the positions of lanes with a number that is the same in all
    of them; None if it is anything else."""
    words = _WORDS.get(value.op)
    if words is None or writer.lane_var is None:
        return None
    for word, position, other in zip(words, value.args, reversed(value.args)):
        number = writer.regs[other]
        if position.op is Op.IOTA and number.lanes == 1 and writer.regs[position].lanes > 1:
            assert position.index is not None
            if stride(position.index, writer.lane_var) is ONE:
                return _compared(writer, word, number - writer.index(position.index))
    return None


def _compared(writer: Writer, word: str, distance: Reg) -> Reg:
    code, lanes = writer.code, writer.lanes
    # Beyond the lanes on either side all comparisons come out the same, so 32 bits are enough.
    near = code.intrinsic("smax", code.intrinsic("smin", distance, lanes), -1)
    narrow = code.convert("trunc", near, "i32")
    return code.numbers(lanes, "i32").compare(word, narrow)
