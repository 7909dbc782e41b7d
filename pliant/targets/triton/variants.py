"""What a kernel is compiled for, as data: nothing here needs Triton.

The one idea: a variant is a tile, the width of indices, and which arguments are such multiples that
threads load 16 bytes at a time. It is made when a call first needs it, and kept.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from pliant.base.values import dataclass, replace
from pliant.targets.triton.blocks import Blocks
from pliant.targets.triton.expressions import POINTERS
from pliant.targets.triton.kernel_source import PrintedKernel

AT_ONCE: Final = 16  # bytes that a thread loads


@dataclass(frozen=True, slots=True)
class KernelVariant:
    """What machine code is for. `multiples`: for each tensor and number what its address or value
    is known to be a multiple of."""

    blocks: Blocks
    wide: bool  # indices of 64 bits
    multiples: tuple[int, ...]


def variant_of(
    printed: PrintedKernel, blocks: Blocks, wide: bool, fulfilled: Sequence[bool]
) -> KernelVariant:
    """The variant with a tile; `fulfilled`: for each tensor and number, whether it is a multiple of
    what matters."""
    known = multiples(printed, fulfilled)
    if blocks.depth and not is_described(printed, fulfilled):
        blocks = replace(blocks, suffix="_pointers")
    return KernelVariant(blocks, wide, known)


def is_described(printed: PrintedKernel, fulfilled: Sequence[bool]) -> bool:
    """Whether descriptors can be made of the operands of a product."""
    return printed.described is not None and all(fulfilled[at] for at in printed.described)


def number_multiple(printed: PrintedKernel) -> int:
    """What lengths and strides, which count elements, have to be multiples of so that rows begin
    where 16 bytes do: 4 if all elements have 32 bits."""
    smallest = min([buffer.type.bits for buffer in printed.buffers])
    return 8 * AT_ONCE // max(smallest, 8)


def multiples(printed: PrintedKernel, fulfilled: Sequence[bool]) -> tuple[int, ...]:
    """For each tensor and number what it is known to be a multiple of, from whether it is one of
    what matters."""
    possible = [AT_ONCE] * len(printed.buffers)
    possible += [number_multiple(printed) if a.aligned else 1 for a in printed.arguments]
    return tuple([n if holds else 1 for n, holds in zip(possible, fulfilled, strict=True)])


def constants(variant: KernelVariant) -> dict[str, int | str]:
    """The constants of a kernel: numbers, and the name of a type."""
    blocks, index = variant.blocks, "int64" if variant.wide else "int32"
    depth = {"DEPTH": blocks.depth} if blocks.depth else {}
    return {"ROWS": blocks.rows, "COLUMNS": blocks.columns, **depth, "INDEX": index}


def signature(printed: PrintedKernel, variant: KernelVariant) -> dict[str, str]:
    """The types of its arguments."""
    types = {buffer.name: POINTERS[buffer.type] for buffer in printed.buffers}
    for argument in printed.arguments:
        types[argument.name] = "i64" if variant.wide or argument.wide else "i32"
    return types


def options(printed: PrintedKernel, variant: KernelVariant) -> dict[str, Any]:
    """How Triton is to compile it."""
    return {
        "num_warps": variant.blocks.warps,
        "num_stages": variant.blocks.stages,
        "enable_fp_fusion": False,  # floats are rounded after each operation, as in eager PyTorch
        "enable_reflect_ftz": False,  # nor are small numbers made 0
        "debug": printed.asserts,  # or Triton drops assertions
        "sanitize_overflow": False,
    }
