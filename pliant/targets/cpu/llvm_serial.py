"""Serial loops: one iteration after the other, with what they carry.

The one idea: an iteration that needs the result of the one before it waits for it, so that a loop
takes as long as the chain of its results and most of the processor is idle. Where rows are
independent, some of them run side by side, one element of each in turn.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pliant.loop.ir import Loop, LoopKind, LoopValue, Op
from pliant.targets.cpu import llvm_access as access
from pliant.targets.cpu.llvm_text import Reg

if TYPE_CHECKING:
    from pliant.targets.cpu.llvm import Writer

ROWS: Final = 4  # side by side
UNROLLED: Final = 4


def write(writer: Writer, loop: Loop) -> None:
    """A serial loop by itself."""
    code, carried = writer.code, _carried(loop)
    zero, end = code.number(0, "i64"), writer.extent(loop)
    around = writer.states
    writer.states = {v: (code.spread(writer.regs[v.args[0]], writer.lanes),) for v in carried}
    if carried and writer.lanes == 1:
        _unrolled(writer, loop, zero, end)
    else:
        writer.loop(loop, zero, end)
    writer.states = around


def _carried(loop: Loop) -> list[LoopValue]:
    return [v for v in loop.body if isinstance(v, LoopValue) and v.op is Op.CARRIED]


def _unrolled(writer: Writer, loop: Loop, low: Reg, high: Reg) -> None:
    """Write `UNROLLED` iterations at once, then the rest one by one: a short iteration takes no
    longer than the jump to the next."""
    access.start(writer, loop)

    def several(at: Reg) -> None:
        for i in range(UNROLLED):
            with writer.scope():
                writer.iteration(loop, at + i)

    middle = high & -UNROLLED
    writer.count(low, middle, UNROLLED, several)
    writer.count(middle, high, 1, lambda at: writer.iteration(loop, at))


def is_nest(writer: Writer, rows: Loop) -> bool:
    """Whether `rows` is a scalar loop whose iterations are independent scans: values, then one
    serial loop that carries something, without loops in it."""
    if (
        rows.kind is not LoopKind.PARALLEL
        or writer.lanes > 1
        or rows in writer.plan
        or not rows.body
    ):
        return False
    *before, inner = rows.body
    if not isinstance(inner, Loop) or inner.kind is not LoopKind.SERIAL or not _carried(inner):
        return False
    return not any(isinstance(item, Loop) for item in (*before, *inner.body))


def side_by_side(writer: Writer, rows: Loop, low: Reg, high: Reg) -> None:
    """Write the loop over rows `ROWS` at a time, their elements in turn, then the rest of the rows
    one by one. Each row has its own registers and states, in `copies` and `states`."""
    code = writer.code
    *before, inner = rows.body
    assert isinstance(inner, Loop)
    carried, end = _carried(inner), writer.extent(inner)

    def several(at: Reg) -> None:
        around = writer.states, writer.origins
        copies = []
        # Each row is one chain of dependent operations. Several chains keep the processor busy.
        for i in range(ROWS):
            with writer.scope():
                writer.origins = dict(writer.origins)
                writer.bind(rows.var, at + i)
                for value in before:
                    assert isinstance(value, LoopValue)
                    writer.statement(value)
                access.start(writer, inner)
                copies.append((writer.regs, writer.symbols, writer.origins))
        states = {(v, i): (copies[i][0][v.args[0]],) for v in carried for i in range(ROWS)}

        def element(at: Reg) -> None:
            all_states = writer.states
            for i, (regs, symbols, origins) in enumerate(copies):
                with writer.scope():
                    writer.regs, writer.symbols = dict(regs), dict(symbols)
                    writer.origins = origins
                    writer.states = {v: all_states[v, i] for v in carried}  # type: ignore[index]
                    writer.iteration(inner, at)
                    all_states.update({(v, i): writer.states[v] for v in carried})  # type: ignore[misc]
            writer.states = all_states

        writer.states = states  # type: ignore[assignment]
        writer.count(code.number(0, "i64"), end, 1, element)
        writer.states, writer.origins = around

    in_groups = code.intrinsic("smax", (high - low) & -ROWS, 0)
    writer.count(low, low + in_groups, ROWS, several)
    writer.plain_loop(rows, low + in_groups, high)
