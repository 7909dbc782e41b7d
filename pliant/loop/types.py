"""The types of elements: one enum, with width and kind.

The one idea: values of the half-width floats (`F16`, `BF16`) and of those of 8 bits are only moved,
selected and cast. Arithmetic is on the others; who lowers an operation on halves writes the casts
to `F32` and back, so that where a result is rounded stands in the loop and not in each emitter.
"""

from __future__ import annotations

from enum import Enum
from typing import Final

import torch


class Type(Enum):
    """An element type: its PyTorch dtype, its bits in memory and its kind."""

    BOOL = ("bool", torch.bool, 8, "bool")
    I8 = ("i8", torch.int8, 8, "signed")
    I16 = ("i16", torch.int16, 16, "signed")
    I32 = ("i32", torch.int32, 32, "signed")
    I64 = ("i64", torch.int64, 64, "signed")
    U8 = ("u8", torch.uint8, 8, "unsigned")
    U16 = ("u16", torch.uint16, 16, "unsigned")
    U32 = ("u32", torch.uint32, 32, "unsigned")
    U64 = ("u64", torch.uint64, 64, "unsigned")
    F8E4M3FN = ("f8e4m3fn", torch.float8_e4m3fn, 8, "float")
    F8E5M2 = ("f8e5m2", torch.float8_e5m2, 8, "float")
    F8E4M3FNUZ = ("f8e4m3fnuz", torch.float8_e4m3fnuz, 8, "float")
    F8E5M2FNUZ = ("f8e5m2fnuz", torch.float8_e5m2fnuz, 8, "float")
    F16 = ("f16", torch.float16, 16, "float")
    BF16 = ("bf16", torch.bfloat16, 16, "float")
    F32 = ("f32", torch.float32, 32, "float")
    F64 = ("f64", torch.float64, 64, "float")

    def __init__(self, text: str, dtype: torch.dtype, bits: int, kind: str) -> None:
        self.text = text
        self.dtype = dtype
        self.bits = bits
        self.kind = kind

    def __repr__(self) -> str:
        return self.text

    __str__ = __repr__


BY_DTYPE: Final[dict[torch.dtype, Type]] = {t.dtype: t for t in Type}
"""The types of tensors that loops can compute with; complex and quantised ones aren't here."""

SIGNED: Final = frozenset({Type.I8, Type.I16, Type.I32, Type.I64})
UNSIGNED: Final = frozenset({Type.U8, Type.U16, Type.U32, Type.U64})
INTEGER: Final = SIGNED | UNSIGNED
FLOAT8: Final = frozenset({Type.F8E4M3FN, Type.F8E5M2, Type.F8E4M3FNUZ, Type.F8E5M2FNUZ})
HALF: Final = frozenset({Type.F16, Type.BF16})
FLOAT: Final = frozenset({Type.F32, Type.F64})  # those that are computed with
NUMBER: Final = INTEGER | FLOAT
BITS: Final = INTEGER | {Type.BOOL}
COMPUTED: Final = NUMBER | {Type.BOOL}
ANY: Final = frozenset(Type)


def smallest(t: Type) -> int:
    """The least integer of the type."""
    return -(1 << (t.bits - 1)) if t in SIGNED else 0


def largest(t: Type) -> int:
    """The greatest integer of the type."""
    return (1 << (t.bits - 1)) - 1 if t in SIGNED else (1 << t.bits) - 1


def wrapped(value: int, t: Type) -> int:
    """The integer of the type that is congruent: what is left after an overflow."""
    value &= (1 << t.bits) - 1
    return value - (1 << t.bits) if t in SIGNED and value >> (t.bits - 1) else value
