"""Byte offsets, which `dis` and frames count in, as indices of instructions."""

import dis

from pliant.bytecode import OPCODES, Decoded


def index_at(decoded: Decoded, offset: int) -> int:
    """The instruction that the byte at `offset` belongs to: its prefixes and caches count."""
    opcodes = decoded.code.co_code
    for instruction in decoded.instructions:
        # Not those of the decoded instruction, which may be a part of what is there.
        caches = OPCODES[dis.opname[opcodes[instruction.offset]]].caches
        if offset < instruction.offset + 2 + 2 * caches:
            return instruction.index
    return len(decoded.instructions)
