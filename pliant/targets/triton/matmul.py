"""Products of matrices as Triton source.

The one idea: a program computes tiles of the result one after the other, and what follows the
product is printed as in any pointwise kernel, for elements that are in registers already:

    left = tl.make_tensor_descriptor(b0, [s0, 768], [768, 1], [ROWS, DEPTH])
    right = tl.make_tensor_descriptor(b1, [50257, 768], [768, 1], [COLUMNS, DEPTH])
    for tile in tile_range(tl.program_id(0), row_tiles * column_tiles, tl.num_programs(0), ...):
        row, column = place_of_tile(tile, row_tiles, column_tiles)
        sum0 = tl.full([ROWS, COLUMNS], 0.0, tl.float32)
        for inner in range(0, 768, DEPTH):
            sum0 = tl.dot(left.load([row * ROWS, inner]), right.load(...).T, sum0)
        i0 = row.to(INDEX) * ROWS + tl.arange(0, ROWS)[:, None]
        ...

There are two functions. With descriptors (`_blocks`), hardware copies whole blocks, for which
they have to begin where 16 bytes do; with pointers (`_pointers`), rows may begin anywhere.
"""

from __future__ import annotations

from typing import Final

from pliant.loop.ir import Kernel, LoopValue
from pliant.sym.expr import ONE, Expr
from pliant.targets.triton.index_text import KernelArguments, Text
from pliant.targets.triton.printer import COLUMNS, ROWS, KernelPrinter
from pliant.targets.triton.tiling import Factor, MatrixProduct, Tiling

CONSTANTS: Final = ("ROWS", "COLUMNS", "DEPTH", "INDEX")


class ProductPrinter(KernelPrinter):
    """Prints a product of matrices, and what is computed from its elements."""

    constants = CONSTANTS

    def __init__(self, kernel: Kernel, tiling: Tiling, arguments: KernelArguments) -> None:
        super().__init__(kernel, tiling, arguments)
        assert tiling.product is not None and tiling.rows is not None
        assert tiling.columns is not None
        self.product: MatrixProduct = tiling.product
        self.sides = (
            (self.product.left, "left", "row", "ROWS", tiling.rows.extent),
            (self.product.right, "right", "column", "COLUMNS", tiling.columns),
        )

    def body(self) -> None:
        self.operands()
        for _, _, name, size, extent in self.sides:
            self.line(f"{name}_tiles = {self._blocks(extent, size)}")
        tiles = "row_tiles * column_tiles"
        # Flat, so that operands of a tile are loaded while the one before it is finished.
        ends = f"tl.program_id(0), {tiles}, tl.num_programs(0)"
        self.line(f"for tile in tile_range({ends}, flatten=True):")
        self._indented(self._tile)

    def _tile(self) -> None:
        self.line("row, column = place_of_tile(tile, row_tiles, column_tiles)")
        self._rows_at("row")
        self._columns_at("column")
        name = self.new_name(self.product.result)
        self.line(f"{name} = tl.full([ROWS, COLUMNS], 0.0, tl.float32)")
        self.line(f"for inner in range(0, {self._number(self.product.loop.extent)}, DEPTH):")
        self._indented(lambda: self.line(f"{name} = tl.dot({self.blocks()}, {name})"))
        self.names[self.product.result] = Text(name, ROWS | COLUMNS)
        for item in self.tiling.body:
            assert isinstance(item, LoopValue)
            self.value(item)

    def operands(self) -> None:
        """Write what of the operands is the same for all tiles."""

    def blocks(self) -> str:
        """A block of each operand."""
        raise NotImplementedError

    def _number_of(self, expr: Expr) -> str:
        return self.index.write(expr).text

    def _pointer(self, factor: Factor) -> str:
        assert factor.load.buffer is not None
        first = self._number_of(factor.first)
        return factor.load.buffer.name + ("" if first == "0" else f" + {first}")


class DescribedProduct(ProductPrinter):
    """Prints a product whose operands are copied block by block, by descriptors."""

    suffix = "_blocks"

    def operands(self) -> None:
        depth = self._number(self.product.loop.extent)
        for factor, name, _, size, extent in self.sides:
            shape, block = [self._number(extent), depth], [size, "DEPTH"]
            stride = factor.along
            if factor.inner is not ONE:
                shape, block, stride = shape[::-1], block[::-1], factor.inner
            listed = [", ".join(texts) for texts in (shape, [self._number_of(stride), "1"], block)]
            text = f"{self._pointer(factor)}, [{listed[0]}], [{listed[1]}], [{listed[2]}]"
            self.line(f"{name} = tl.make_tensor_descriptor({text})")

    def blocks(self) -> str:
        texts = []
        for factor, name, tile, size, _ in self.sides:
            place = [f"{tile} * {size}", "inner"]
            by_rows = factor.inner is ONE
            block = f"{name}.load([{', '.join(place if by_rows else place[::-1])}])"
            # The block of the left operand has its rows first, that of the right one its columns
            # last.
            texts.append(block if by_rows is (name == "left") else f"{block}.T")
        return ", ".join(texts)


class PointedProduct(ProductPrinter):
    """Prints a product whose operands are loaded element by element."""

    suffix = "_pointers"

    def blocks(self) -> str:
        depth = self._number(self.product.loop.extent)
        for factor, name, tile, _, _ in self.sides:
            left = name == "left"
            loop = self.tiling.rows if left else self.tiling.column_loop
            assert loop is not None
            along = self.index.names[loop.var].text
            inner = f"inner_{name}"
            axis = "[None, :]" if left else "[:, None]"
            self.line(f"{inner} = inner + tl.arange(0, DEPTH){axis}")
            steps = [(along, factor.along), (inner, factor.inner)]
            place = [text if by is ONE else f"{text} * {self._number_of(by)}" for text, by in steps]
            mask = f"mask=in_{tile}s & ({inner} < {depth}), other=0"
            self.line(f"{name} = tl.load({' + '.join([self._pointer(factor), *place])}, {mask})")
        return "left, right"


def described(product: MatrixProduct) -> tuple[Expr, ...]:
    """The strides and offsets that have to be multiples of 16 bytes for descriptors."""
    factors = (product.left, product.right)
    strides = [f.along if f.inner is ONE else f.inner for f in factors]
    return (*strides, *[f.first for f in factors])
