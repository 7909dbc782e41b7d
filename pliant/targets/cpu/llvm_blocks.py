"""Blocks of a transposed access: read along memory, turned in registers.

The one idea: where one tensor is read across the lanes and close along the rows of a block, a whole
block of it is as many vectors that are close in memory. Turned by shuffles they are the rows; that
is some instructions for each row, where a gather is one load for each element. A block that is
not whole is left to the ordinary loops.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pliant.loop.collapse import stride
from pliant.loop.ir import Loop, LoopKind, LoopValue, Op
from pliant.loop.types import Type
from pliant.sym.expr import ONE, ZERO
from pliant.targets.cpu.llvm_memory import ElementPlace
from pliant.targets.cpu.llvm_text import Code, Reg, vector
from pliant.targets.cpu.tile import SIDE

if TYPE_CHECKING:
    from pliant.targets.cpu.llvm import Writer


def across(writer: Writer, rows: Loop) -> list[LoopValue]:
    """The loads of a block that are close along the rows and scattered in the lanes: those to turn
    in registers. `rows` is the serial loop over the rows of a block that `tile` has made; for any
    other loop there are none."""
    if rows.kind is not LoopKind.SERIAL or len(rows.body) != 1:
        return []
    columns = rows.body[0]
    if not isinstance(columns, Loop) or SIDE % writer.plan.get(columns, SIDE + 1):
        return []
    # Indices that are read from data differ from element to element.
    computed = {v.index for v in columns.body if isinstance(v, LoopValue) and v.op is Op.AS_INDEX}
    return [
        value
        for value in columns.body
        if isinstance(value, LoopValue)
        and value.op is Op.LOAD
        and not value.args
        and value.type is not Type.BOOL
        and value.index is not None
        and computed.isdisjoint(value.index.symbols)
        and stride(value.index, columns.var) not in (ZERO, ONE, None)
        and stride(value.index, rows.var) is ONE
    ]


def write(writer: Writer, rows: Loop, loads: list[LoopValue], low: Reg, high: Reg) -> None:
    """Write the loop over the rows `low` to `high` of a block: by shuffles if the block is whole,
    which is known at run time, else by the loops as they are."""
    code = writer.code
    columns = rows.body[0]
    assert isinstance(columns, Loop)
    is_full = (high - low).compare("eq", SIDE) & writer.extent(columns).compare("eq", SIDE)
    once = code.convert("zext", is_full, "i64")
    zero = code.number(0, "i64")

    def block(at: Reg) -> None:
        lanes = writer.plan[columns]
        for row in range(0, SIDE, lanes):
            for column in range(0, SIDE, lanes):
                with writer.scope():
                    _square(writer, rows, columns, loads, row, column)

    # A branch as a loop of one or no iteration, because `count` takes the states along.
    writer.count(zero, once, 1, block)
    writer.count(once, code.number(1, "i64"), 1, lambda at: writer.plain_loop(rows, low, high))


def _square(
    writer: Writer, rows: Loop, columns: Loop, loads: list[LoopValue], row: int, column: int
) -> None:
    code, lanes = writer.code, writer.plan[columns]
    # For each load, the block as vectors along memory, and its transpose: a vector for each row.
    turned: dict[LoopValue, list[Reg]] = {}
    for value in loads:
        rows_out: list[Reg] = []
        for lane in range(lanes):
            writer.bind(rows.var, code.number(row, "i64"))
            writer.bind(columns.var, code.number(column + lane, "i64"))
            assert value.index is not None and value.buffer is not None
            index = writer.index(value.index + value.buffer.base)
            place = ElementPlace(value.buffer, writer.memory.pointers[value.buffer], index, lanes)
            rows_out.append(writer.memory.load(place, None))
        turned[value] = transposed(code, rows_out)
    for lane in range(lanes):
        writer.bind(rows.var, code.number(row + lane, "i64"))
        with writer.scope(), writer.vector(columns.var, lanes):
            writer.bind(columns.var, code.number(column, "i64"))
            writer.in_lanes = code.number(column, "i64") + code.numbers(lanes)
            for item in columns.body:
                assert isinstance(item, LoopValue)
                if item in turned:
                    writer.regs[item] = turned[item][lane]
                else:
                    writer.statement(item)


def transposed(code: Code, rows: list[Reg]) -> list[Reg]:
    """The transpose of a square of `lanes` vectors of `lanes` lanes, in log2(lanes) rounds: they
    exchange the off-diagonal quarters of all squares of 2, 4, 8, ... lanes. ([a b] and [c d] become
    [a c] and [b d] by two shuffles.)"""
    lanes, distance = len(rows), 1
    while distance < lanes:
        exchanged = list(rows)
        for i in range(lanes):
            if not i & distance:
                a, b = rows[i], rows[i + distance]
                low = [k if not k & distance else lanes + k - distance for k in range(lanes)]
                high = [k + distance if not k & distance else lanes + k for k in range(lanes)]
                exchanged[i], exchanged[i + distance] = (
                    _picked(code, a, b, low),
                    _picked(code, a, b, high),
                )
        rows, distance = exchanged, 2 * distance
    return rows


def _picked(code: Code, a: Reg, b: Reg, lanes: list[int]) -> Reg:
    """The lanes with these numbers, of both vectors counted through."""
    mask = ", ".join([f"i32 {lane}" for lane in lanes])
    text = f"shufflevector {vector(a.type, a.lanes)} {a.text}, {vector(b.type, b.lanes)} {b.text}"
    return code.define(f"{text}, <{len(lanes)} x i32> <{mask}>", a.type, a.lanes)
