"""Pairs of bfloat16 in words: two vectors of floats out of one by a shift and a mask.

The one idea: where all that a loop loads and stores is bfloat16, the order of the lanes is nobody's
business. Words of 32 bits hold two numbers; the lower ones, shifted up, are the first half of the
lanes, and the upper ones, with zeros below, the second. To widen numbers in their order takes twice
as many instructions, and to narrow them three times as many.
"""

from __future__ import annotations

from pliant.loop.collapse import stride
from pliant.loop.ir import MEMORY, REDUCTIONS, Loop, LoopKind, LoopValue, Op
from pliant.loop.types import Type
from pliant.sym.expr import ONE, ZERO, Expr
from pliant.targets.cpu.llvm_text import Code, Reg


def in_pairs(loop: Loop) -> bool:
    """Whether the lanes of the loop can be in the order of pairs: it loads bfloat16, and all its
    accesses in lanes are close and of bfloat16."""
    if loop.kind is not LoopKind.PARALLEL:
        return False
    # Without a load of bfloat16 there is nothing to gain.
    halves = False
    for value in loop.body:
        if not isinstance(value, LoopValue) or not _fits(value, loop.var):
            return False
        halves = halves or (value.op is Op.LOAD and value.type is Type.BF16)
    return halves


def _fits(value: LoopValue, var: Expr) -> bool:
    if value.op in REDUCTIONS or value.op is Op.AS_INDEX or value.type is Type.F16:
        return False
    loaded = [arg for arg in value.args if arg.op is Op.LOAD and arg.type is Type.BF16]
    if loaded and not (value.op is Op.CAST and value.type is Type.F32):
        return False
    if value.op is Op.IOTA:
        return value.index is not None and var not in value.index.symbols
    if value.op not in MEMORY:
        return value.type is not Type.BF16 or value.op is Op.CAST
    assert value.index is not None
    by = stride(value.index, var)
    if by is ZERO:
        return value.op is Op.LOAD
    stored = value.op is Op.LOAD or value.args[0].op is Op.CAST
    return by is ONE and value.type is Type.BF16 and len(value.args) < 2 and stored and not loaded


def apart(code: Code, x: Reg) -> Reg:
    """The floats of a vector of bfloat16: those with even numbers, then those with odd ones."""
    # A bfloat16 is the upper half of the float with the same value.
    words = code.cast_lanes(x, "i32", x.lanes // 2)
    low, high = [code.convert("bitcast", w, "float") for w in (words << 16, words & -0x10000)]
    return code.shuffled(low, high, range(x.lanes))


def together(code: Code, x: Reg) -> Reg:
    """The inverse of `apart`, for bits of bfloat16: puts them back into the order of memory."""
    low, high = [code.convert("zext", code.half(x, upper), "i32") for upper in (False, True)]
    return code.cast_lanes(low | (high << 16), "i16", x.lanes)
