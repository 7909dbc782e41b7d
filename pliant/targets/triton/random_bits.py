"""Random numbers (`Op.PHILOX`) as Triton source.

The one idea: one call of Philox gives four numbers, and where a thread of eager PyTorch's kernel
takes neighbours, these are four columns of a tile that lie next to each other. So the call is made
once for four columns, on a tile of a fourth of the columns (`fours`), and the results are
interleaved. Whether columns and elements begin together at a multiple of four is known to the
launcher at the latest: if they don't, each element has a call of its own.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Final

from pliant.loop.collapse import stride
from pliant.loop.ir import Loop, LoopValue, Op
from pliant.sym.expr import ONE, ZERO, Expr, mod, substitute, sum_of
from pliant.targets.triton.index_text import Text
from pliant.targets.triton.tiling import Pass

if TYPE_CHECKING:
    from pliant.targets.triton.printer import KernelPrinter

ELEMENT: Final = 2
"""Which argument of the operation is the number of the element."""
FOURS: Final = "tl.arange(0, (COLUMNS + 3) // 4)"


def drawn_elements(body: Iterable[LoopValue | Pass]) -> dict[LoopValue, bool]:
    """The numbers of elements in the body of a tile whose random bits are drawn, and whether that
    is all that they are for."""
    values: list[LoopValue] = []
    for item in body:
        values += item.body if isinstance(item, Pass) else (item,)
    elements = [value.args[ELEMENT] for value in values if value.op is Op.PHILOX]
    drawn = {element: _place_of(element) is not None for element in elements}
    for value in values:
        for at, arg in enumerate(value.args):
            if arg in drawn and (value.op is not Op.PHILOX or at != ELEMENT):
                drawn[arg] = False
    return drawn


def _place_of(element: LoopValue) -> Expr | None:
    """The number of an element as an expression; None if it is a constant, or data."""
    if element.op is not Op.IOTA or element.index is None or element.index.value is not None:
        return None
    return element.index


def random_bits(printer: KernelPrinter, value: LoopValue, columns: Loop | None) -> Text:
    """The numbers of a tile, whose columns are iterations of `columns` (None: of several loops)."""
    number, place = value.args[ELEMENT], _place_of(value.args[ELEMENT])
    uniform = [arg for at, arg in enumerate(value.args) if at != ELEMENT]
    seed, start, threads, width = [printer.text(arg).text for arg in uniform]
    for arg in uniform:
        if arg.op is Op.IOTA and arg.index is not None:
            printer.index.arguments.is_no_place(arg.index)
    if place is None:
        element = printer.text(number)
    elif not printer.index.is_natural(place):
        element = printer.index.write(place, wide=True)
    else:
        # With 32 bits if that is enough, which need not follow from what is in memory.
        printer.index.arguments.bounds[substitute(place, printer.index.extents)] = None
        element = printer.index.write(place)
    apart = None if columns is None or place is None else _apart(printer, place, columns)
    if columns is None or place is None or apart is None:
        numbers = f"{seed}, {start}, {element.text}, {threads}, {width}"
        return Text(f"bits_apart({numbers})", element.axes)
    names = printer.index.names
    column, names[columns.var] = names[columns.var], Text("fours", names[columns.var].axes)
    first = printer.index.write(place).text
    names[columns.var] = column
    together = f"{width} >= 4"
    if apart is not ZERO:
        together = f"({together}) & ({printer.index.write(apart).text} == 0)"
    numbers = f"{seed}, {start}, {element.text}, {first}, {together}, {threads}, {width}"
    return Text(f"bits_in_fours({numbers})", element.axes)


def _apart(printer: KernelPrinter, place: Expr, columns: Loop) -> Expr | None:
    """A number that is 0 if elements of columns that are multiples of four are such, too; None if
    neighbours in a row aren't neighbours in the tensor."""
    if stride(place, columns.var) is not ONE:
        return None
    variables = [var for var in printer.index.names if var in place.symbols]
    steps = [stride(place, var) for var in variables if var is not columns.var]
    if None in steps:
        return None
    first = substitute(place, dict.fromkeys(variables, ZERO))
    return sum_of([mod(step, 4) for step in (first, *steps) if step is not None])
