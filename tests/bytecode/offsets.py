"""Byte offsets, which `dis` and frames count in, as indices of instructions."""

from pliant.bytecode import OPCODES, Decoded


def index_at(decoded: Decoded, offset: int) -> int:
    """The instruction that the byte at `offset` belongs to: its prefixes and caches count."""
    for instruction in decoded.instructions:
        if offset < instruction.offset + 2 + 2 * OPCODES[instruction.op].caches:
            return instruction.index
    return len(decoded.instructions)
