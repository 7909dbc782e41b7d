"""The symbolic interpreter's loop: takes operands, calls the opcode's handler, pushes the results.

Handlers never touch the stack. The operands stay on it until the handler has returned, so that a
graph break finds the frame as it was before the instruction, without any rollback.

For `BINARY_OP +` with `[…, x, y]` on the stack, `_step` reads `x` and `y` (so that lazy values
become known, with guards), calls the handler as `run(trace, frame, instruction, x, y)`, and
replaces the two entries by the value that it returns.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from pliant.base.errors import DataDependentError
from pliant.base.values import dataclass
from pliant.bytecode.tables import OPCODES, VERSIONS
from pliant.capture.frame import Frame
from pliant.capture.trace import NO_BREAKS, Trace
from pliant.capture.value import NONE, Break, Const, Lazy, NotConstant, Raised, Value
from pliant.capture.values.objects import ExceptionValue
from pliant.capture.values.tracebacks import Traceback

Result = Value | tuple[Value, ...] | None


@dataclass(frozen=True, slots=True)
class Opcode:
    """How an instruction is followed.

    `run(trace, frame, instruction, *operands)` returns what is pushed: one value, several, or None
    for nothing. A handler that jumps sets `frame.next`. `pops` is the number of operands, or a
    function from the instruction's argument to it.
    """

    run: Callable[..., Result]
    pops: int | Callable[[int], int]
    lazy: bool  # only moves its operands: they need not be read


HANDLERS: dict[str, Opcode] = {}

# A loop that ends only by an error in the data has no end for capture. These are several times
# what a program may have that is worth compiling, and reached in half a minute.
MOST_OPERATIONS = 100_000
MOST_STEPS = 10_000_000
STEPS_BETWEEN_CHECKS = 1024


def opcode(*names: str, lazy: bool = False) -> Callable[[Any], Any]:
    """Register the handler of opcodes; names must exist in one of the Python versions known."""

    def register(run: Callable[..., Result]) -> Callable[..., Result]:
        for name in names:
            if name in HANDLERS:
                raise ValueError(f"opcode {name} has a handler already")
            if not any(name in version.OPCODES for version in VERSIONS.values()):
                raise ValueError(f"there is no opcode {name}")
            # None for an opcode of another Python version: then there is nothing to handle.
            info = OPCODES.get(name)
            if info is not None:
                HANDLERS[name] = Opcode(run, info.pops, lazy)
        return run

    return register


def run_frame(trace: Trace, frame: Frame) -> Value:
    """Follow `frame` until it returns or, for a generator, until it yields; the value that comes
    out.

    Exceptions of the program (`Raised`) go to the handler that covers the instruction, or leave the
    frame. Breaks, and questions that can't be answered, end in `on_break`.
    """
    # The frame of a generator comes here again after each yield.
    frame.returned = None
    # It stays the same activation then, with the number it got first.
    if not frame.number:
        frame.number = next(trace.graph.call_numbers)
    frame.first_step = trace.steps
    trace.frames.append(frame)
    try:
        # An exception of the program either continues at a handler in this frame, or leaves the
        # loop and is handled by the caller's loop, which is further out on Python's own stack.
        while frame.returned is None:
            try:
                _step(trace, frame)
            except Raised as raised:
                note_raised(trace, frame, raised)
                if not enter_handler(trace, frame, raised.value):
                    raise
            # `on_break` never returns: it ends the capture, or restarts it with a break elsewhere.
            except Break as cause:
                trace.on_break(frame, cause)
            except DataDependentError as error:  # a handler asked for a size
                trace.on_break(frame, Break("data-dependent-number", error.what, error=error))
            except NotConstant:
                trace.on_break(frame, Break("not-constant", "a value that is not known here"))
        # Only generators with cleanup need to know which references are gone, so most programs skip
        # this.
        if trace.suspended:
            _drop_variables(trace, frame)
        return frame.returned
    finally:
        trace.frames.pop()


def _drop_variables(trace: Trace, frame: Frame) -> None:
    """Tell the values of a finished frame's variables that a reference to them is gone: a generator
    that only this frame had runs its `finally` now. The value returned is still referred to."""
    assert frame.returned is not None
    if frame.finished:
        variables = [*frame.locals.values(), *(cell.contents for cell in frame.cells.values())]
        frame.locals, frame.cells, frame.stack = {}, {}, [frame.returned]
        for value in variables:
            if value is not None:
                value.dropped(trace)


def _step(trace: Trace, frame: Frame) -> None:
    """Follow one instruction: break if an earlier attempt asked for it, else run its handler."""
    instruction = frame.instructions[frame.index]
    handler = HANDLERS[instruction.op]
    # Steps are numbered over all frames. A capture is deterministic, so a number names the same
    # instruction when it is restarted.
    trace.steps = frame.step = trace.steps + 1
    frame.changes = trace.changes  # to see at a break whether the instruction had begun to act
    if frame.step in trace.break_at and trace.break_at[frame.step] not in NO_BREAKS:
        raise trace.break_at[frame.step]
    # Not at every step: this function is where capture spends much of its time.
    if not frame.step % STEPS_BETWEEN_CHECKS:
        _check_length(trace)
    pops = handler.pops
    count = pops if isinstance(pops, int) else pops(instruction.arg or 0)
    stack = frame.stack
    frame.next = frame.index + 1
    if count:
        operands = stack[-count:]
        if not handler.lazy:
            operands = [trace.read(v) if isinstance(v, Lazy) else v for v in operands]
        result = handler.run(trace, frame, instruction, *operands)
        del stack[-count:]  # only now: a break in the handler finds the stack as it was
        # The stack has given them up. `dropped` looks whether a variable or an object has them.
        if trace.suspended and result is None:
            for operand in operands:
                operand.dropped(trace)
    else:
        result = handler.run(trace, frame, instruction)
    if result is not None:
        if type(result) is tuple:
            stack.extend(result)
        else:
            stack.append(result)  # type: ignore[arg-type]
    # A frame that has returned stays at its return; a generator goes on behind its yield.
    if not frame.finished:
        frame.index = frame.next


def _check_length(trace: Trace) -> None:
    """Break where capture would run for minutes: a loop without an end of its own, or a very long
    graph."""
    operations = len(trace.graph.graph.nodes)
    if operations > MOST_OPERATIONS:
        raise Break("too-long", f"a graph of more than {MOST_OPERATIONS:,} operations")
    if trace.steps > MOST_STEPS:
        raise Break("too-long", f"more than {MOST_STEPS:,} instructions of Python")


def note_raised(trace: Trace, frame: Frame, raised: Raised) -> None:
    """An exception comes out of the present instruction: extend its traceback and its chain."""
    exception = raised.value
    if isinstance(exception, ExceptionValue):
        if not raised.has_context:
            exception.set_context(trace, current_exception(trace))
        if not raised.again and not frame.internal:
            outer = [outer_frame for outer_frame in trace.frames[:-1] if not outer_frame.internal]
            exception.trail = Traceback(frame, outer, exception.trail or NONE)
            trace.tracebacks.append(exception.trail)
    # In the frames further out it is the same raise: they extend the traceback only.
    raised.has_context, raised.again = True, False


def current_exception(trace: Trace) -> Value | None:
    """The exception being handled, in this frame or one that called it."""
    for frame in reversed(trace.frames):
        if frame.handled:
            return frame.handled[-1]
    return None


def enter_handler(trace: Trace, frame: Frame, exception: Value) -> bool:
    """Move `frame` to the handler that covers its instruction, as CPython does: look it up in the
    exception table, cut the stack to the handler's depth, and push the exception. False: there is
    none."""
    entry = frame.decoded.handler(frame.index)
    if entry is None:
        return False
    # Entries above the handler's depth are operands of calls that will not be made.
    given_up = frame.stack[entry.depth :] if trace.suspended else []
    del frame.stack[entry.depth :]
    for value in given_up:
        value.dropped(trace)
    # `lasti` of the exception table: the offset of the instruction that raised. RERAISE takes it,
    # to give the exception the line on which it was first raised.
    if entry.lasti:
        frame.stack.append(Const(frame.instruction.offset))
    frame.stack.append(exception)
    frame.keyword_names = ()  # of a call that did not return
    frame.index = entry.target
    return True
