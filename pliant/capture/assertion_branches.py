"""Branches on data of which one way only raises: `assert x.all()`, `if x.isnan().any(): raise …`.

The one idea: the other way is followed, and the graph tests at run time that it was the right one.
Where it was not, the function is run again by Python, which raises what the program says.
"""

from __future__ import annotations

from pliant.base.checks import check_truth
from pliant.bytecode.decode import Instruction
from pliant.bytecode.tables import JUMPS, Role, opcodes_with
from pliant.capture import scalars
from pliant.capture.frame import Frame
from pliant.capture.trace import Trace
from pliant.capture.value import Break, Value
from pliant.capture.values.tensors import TensorValue

LONGEST = 40  # instructions of a statement that raises
RAISES = opcodes_with(Role.RAISES)
GOES_ELSEWHERE = JUMPS | opcodes_with(Role.RETURNS | Role.YIELDS)


def way_past_assertion(
    trace: Trace, frame: Frame, ins: Instruction, value: Value, jump_on: bool
) -> bool | None:
    """Whether the conditional jump `ins` jumps, if one of its ways does nothing but raise: the
    other one is taken, and the graph tests that it was right. None for other branches."""
    if not is_test(trace, value):
        return None
    stays, jumps = (only_raises(frame, to) for to in (frame.index + 1, ins.value))
    if stays is jumps:
        return None
    truth = jump_on if stays else not jump_on
    add_test(trace, frame, value, truth, f"{trace.stack()[-1].line}: the way that raises")
    return stays


def is_test(trace: Trace, value: Value) -> bool:
    """Whether this is a tensor of one element whose truth value only the graph will know, and can
    test."""
    if not isinstance(value, TensorValue) or scalars.scalar(trace, value) is not value:
        return False
    # The truth value of a tensor with other than one element is an error, which Python must raise.
    symbolic = value.fake._has_symbolic_sizes_strides
    return not symbolic and value.fake.numel() == 1 and not trace.graph.in_body


def add_test(trace: Trace, frame: Frame, value: Value, expected: bool, text: str) -> None:
    """Add a node that raises, with this text, unless the truth value of `value` is `expected`."""
    assert isinstance(value, TensorValue)
    note_assertion(trace, frame, Break("data-dependent-branch", "the truth value of a tensor"))
    trace.graph.operation(check_truth, (value.node, expected, text), {}, trace.stack(), True)


def note_assertion(trace: Trace, frame: Frame, cause: Break) -> None:
    """Note that the graph tests something here, after whose failure the function is run again. If
    that turns out to be impossible, `cause` becomes a break at this instruction."""
    effects = trace.graph_effects
    effects.guard()
    branches = effects.late_assertions if effects.final else effects.assertion_branches
    branches.append((frame.step, cause.at(trace.stack())))


def only_raises(frame: Frame, index: int) -> bool:
    """Whether the code from instruction `index` on raises an exception before it jumps or returns:
    within `LONGEST` instructions, without following jumps."""
    for ins in frame.instructions[index : index + LONGEST]:
        if ins.op in RAISES:
            return True
        if ins.op in GOES_ELSEWHERE:
            return False
    return False
