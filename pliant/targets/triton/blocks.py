"""How large a tile is, and how many warps work on it.

The one idea: a tile has about `ELEMENTS` elements, so that each thread loads 16 bytes at a time,
several times. Its shape depends on how long rows are, by powers of two: kernels are compiled for a
few shapes, never for one size.
"""

from __future__ import annotations

from typing import Final

from pliant.base.values import dataclass
from pliant.targets.triton.tiling import Tiling

ELEMENTS: Final = 1024
WHOLE: Final = 8192  # columns of a row that are in registers all at once
LONG: Final = 4096  # columns of a block of a row that is longer
SIDE: Final = 32  # of a tile that is read along both sides
MOST_ROWS: Final = 64
FEW_ROWS: Final = 4096  # fewer than that would leave processors idle, `MOST_ROWS` at a time
MUCH_SHARED: Final = 20  # instructions that rows of a tile share: one transcendental function
SHARING: Final = 4  # rows that do
FEW_AT_ONCE: Final = 8  # rows of a tile if there are few: what memory gives at once


@dataclass(frozen=True, slots=True)
class Blocks:
    """The shape of a tile, the warps that work on it, and the ending of the function's name. Of
    products of matrices also how much is multiplied at a time (`depth`), how many such blocks are
    loaded ahead (`stages`), and how many programs share a processor (`resident`): they compute all
    tiles, one after the other. Other kernels have a program for each tile."""

    suffix: str
    rows: int
    columns: int
    warps: int
    depth: int = 0
    stages: int = 3
    resident: int = 0


PRODUCT: Final = Blocks("_blocks", 128, 256, 8, depth=64, resident=1)
FEW_PRODUCT: Final = Blocks("_blocks", 64, 128, 4, depth=64, stages=4, resident=2)
PRODUCTS: Final = (
    *(PRODUCT, FEW_PRODUCT),
    Blocks("_blocks", 128, 128, 4, depth=64, resident=2),
    Blocks("_blocks", 128, 128, 8, depth=64, stages=4, resident=1),
    Blocks("_blocks", 256, 128, 8, depth=64, resident=1),
    Blocks("_blocks", 64, 256, 4, depth=64, resident=2),
)
"""What is tried for a product where kernels are measured."""


def power_of_two(number: int) -> int:
    """The smallest power of two that is at least `number`."""
    return 1 << max(number - 1, 0).bit_length()


def blocks_for(tiling: Tiling, columns: int, whole: int = WHOLE, few: bool = False) -> Blocks:
    """The tile for rows of so many columns. `whole`: rows of up to that many are in a tile as a
    whole. `few`: there are less than `FEW_ROWS` rows."""
    size = power_of_two(columns)
    if tiling.product is not None:
        return FEW_PRODUCT if few else PRODUCT
    if tiling.by_rows:
        return _for_rows(tiling, size, whole, few)
    if tiling.columns is None:
        return Blocks("", 1, 1, 1)
    if tiling.rows is None:
        return Blocks("", 1, ELEMENTS, 4)
    if tiling.across:
        return Blocks("", SIDE, SIDE, 4)
    if tiling.shared_work >= MUCH_SHARED and not few:
        # Several rows in a tile share the values that depend on columns alone.
        size = min(size, ELEMENTS // 2)
        return Blocks("", max(ELEMENTS // size, SHARING), size, 4)
    size = min(size, ELEMENTS)
    # Short rows share a tile, so that no thread is idle.
    return Blocks("", ELEMENTS // size, size, 4)


def _for_rows(tiling: Tiling, size: int, whole: int, few: bool) -> Blocks:
    if tiling.across:  # rows are next to each other in memory, columns aren't
        if size <= min(SIDE, whole):
            return Blocks("_whole", MOST_ROWS, size, 4)
        if few:
            return Blocks("_looped", FEW_AT_ONCE, min(4 * SIDE, size), 4)
        return Blocks("_looped", MOST_ROWS, min(SIDE, size), 8)
    if size <= whole:
        rows = min(max(ELEMENTS // size, 1), MOST_ROWS)
        return Blocks("_whole", rows, size, _warps(rows * size))
    block = min(size, LONG)
    return Blocks("_looped", 1, block, _warps(block))


def _warps(elements: int) -> int:
    return min(max(elements // 256, 1), 16)
