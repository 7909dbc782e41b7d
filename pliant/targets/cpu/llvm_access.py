"""Where the loads and stores of a loop are.

The one idea: what a loop does in each iteration should be the work and nothing else. Before it,
there is a pointer for each access to where it is at the variable 0 (`start`), and what is the same
in all iterations is computed once (`fixed`). Inside, a place is that pointer and a multiple of the
variable, which is all that an instruction can add by itself.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from pliant.base.values import dataclass
from pliant.loop.collapse import stride
from pliant.loop.ir import MEMORY, REDUCTIONS, Access, Buffer, Loop, LoopValue, Op
from pliant.loop.kernel_arguments import kernel_arguments
from pliant.sym.expr import ONE, ZERO, Expr, substitute
from pliant.targets.cpu.llvm_lanes import near
from pliant.targets.cpu.llvm_memory import ElementPlace
from pliant.targets.cpu.llvm_pairs import together
from pliant.targets.cpu.llvm_text import Reg

if TYPE_CHECKING:
    from pliant.targets.cpu.llvm import Writer


@dataclass(frozen=True, slots=True)
class Origin:
    """Where an access of a loop is: `step * var + more` elements behind `pointer`."""

    pointer: Reg
    var: Expr
    step: Expr
    more: int


def start(writer: Writer, loop: Loop) -> None:
    """Write the pointers of the accesses in a loop that is about to start (strength reduction).
    Accesses whose index isn't linear in the variable, or differs from lane to lane, get none."""
    pointers: dict[tuple[Buffer, Expr], Reg] = {}
    for value in loop.body:
        if not isinstance(value, LoopValue) or value.op not in MEMORY or value.index is None:
            continue
        buffer = value.buffer
        assert buffer is not None
        index = value.index + buffer.base
        is_scalar = all(s is loop.var or _is_scalar(writer, s) for s in kernel_arguments(index))
        step = stride(index, loop.var) if is_scalar else None
        if step is None:
            continue
        first = substitute(index, {loop.var: ZERO})
        # Accesses that differ by a constant share a pointer: the constant becomes part of the
        # instruction.
        offset = first - first.const
        pointer = writer.memory.pointers[buffer]
        if offset is not ZERO:
            if (buffer, offset) not in pointers:
                pointers[buffer, offset] = writer.memory.moved(
                    buffer, pointer, writer.index(offset)
                )
            pointer = pointers[buffer, offset]
        writer.origins[value] = Origin(pointer, loop.var, step, first.const)


def _is_scalar(writer: Writer, symbol: Any) -> bool:
    reg = writer.symbols.get(symbol)
    return reg is not None and reg.lanes == 1


def place(writer: Writer, value: LoopValue) -> ElementPlace:
    assert value.index is not None and value.buffer is not None
    buffer, index = value.buffer, value.index + value.buffer.base
    origin = writer.origins.get(value)
    pointer = writer.memory.pointers[buffer] if origin is None else origin.pointer
    if writer.lane_var is None:
        return ElementPlace(buffer, pointer, _first(writer, index, origin), 1)
    step = stride(index, writer.lane_var)
    computed = [s for s in kernel_arguments(index) if writer.symbols[s].lanes > 1]
    # Places that were read from memory, as in a gather.
    if step is None or computed:
        at = writer.index(index, in_lanes=True)
        return ElementPlace(buffer, writer.memory.pointers[buffer], at, at.lanes)
    at = _first(writer, index, origin)
    if step is ZERO or step is ONE:
        return ElementPlace(buffer, pointer, at, 1 if step is ZERO else writer.lanes)
    if near(step):
        return ElementPlace(buffer, pointer, at, writer.lanes, step.value or 1)
    at = at + writer.code.numbers(writer.lanes) * writer.index(step)
    return ElementPlace(buffer, pointer, at, writer.lanes)


def _first(writer: Writer, index: Expr, origin: Origin | None) -> Reg:
    """The index of the first lane, from the pointer of the access."""
    if origin is None:
        return writer.index(index)
    return writer.index(origin.var * origin.step + origin.more)


def _mask(writer: Writer, place: ElementPlace, masks: Sequence[LoopValue]) -> Reg | None:
    """The mask of an access: that of the statement, and that of the lanes before the end of the
    loop. An access that is uniform needs the second only if its own mask isn't."""
    mask = writer.regs[masks[0]] if masks else None
    if writer.mask is None or (place.lanes == 1 and (mask is None or mask.lanes == 1)):
        return mask
    return writer.mask if mask is None else mask & writer.mask


def load(writer: Writer, value: LoopValue) -> None:
    address = place(writer, value)
    writer.regs[value] = writer.memory.load(address, _mask(writer, address, value.args))


def store(writer: Writer, value: LoopValue) -> None:
    address, stored = place(writer, value), writer.regs[value.args[0]]
    if stored.lanes > address.lanes:
        address = address.scatter(stored.lanes)
    if stored.lanes > 1 and writer.in_pairs:
        stored = together(writer.code, stored)
    writer.memory.store(address, stored, _mask(writer, address, value.args[1:]))


def fixed(loop: Loop) -> list[LoopValue]:
    """The statements that do the same in all iterations of a parallel loop; none if there are loops
    in it. They are written once, in front of the loop."""
    # What differs from iteration to iteration, found in one pass: values stand after their
    # operands.
    varying: set[object] = {loop.var}
    masks = []
    for value in loop.body:
        if not isinstance(value, LoopValue):
            return []
        parts = {*value.args, *(value.index.symbols if value.index is not None else ())}
        # Of AS_INDEX, `index` is what it defines, not what it reads.
        parts.discard(value.index if value.op is Op.AS_INDEX else None)
        if value.op in REDUCTIONS or not varying.isdisjoint(parts) or _written(value):
            varying |= {value, value.index} if value.op is Op.AS_INDEX else {value}
        else:
            masks.append(value)
    return masks


def _written(value: LoopValue) -> bool:
    """Whether it accesses memory that the kernel both reads and writes: a load may give something
    else after a store."""
    buffer = value.buffer if value.op in MEMORY else None
    return buffer is not None and buffer.access is Access.READ_WRITE
