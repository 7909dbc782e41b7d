"""Code objects as data, and functions that continue a function in its middle."""

from pliant.bytecode.decode import Decoded, ExceptionEntry, Instruction, Positions, decode
from pliant.bytecode.resume import (
    ResumePoint,
    StackItem,
    closure_names,
    original_point,
    raised,
    resume_code,
    resume_generator_code,
)
from pliant.bytecode.tables import OPCODES, Operand, OpInfo

__all__ = [
    "OPCODES",
    "Decoded",
    "ExceptionEntry",
    "Instruction",
    "OpInfo",
    "Operand",
    "Positions",
    "ResumePoint",
    "StackItem",
    "closure_names",
    "decode",
    "original_point",
    "raised",
    "resume_code",
    "resume_generator_code",
]
