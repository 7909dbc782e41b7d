"""Branches on data whose outcome can be told in advance with some confidence.

The one idea: a loop of few rounds is seldom left early (`if done.all(): break`), and a flag that a
module keeps in a buffer is what it was. So that way is followed, and the graph tests at run time
that it was the right one. The first time that it was not, the function is compiled anew, and then
the branch breaks the graph.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from pliant.bytecode.decode import Instruction
from pliant.bytecode.tables import Role, opcodes_with
from pliant.capture.assertion_branches import add_test, is_test
from pliant.capture.frame import Frame
from pliant.capture.trace import Trace
from pliant.capture.value import Value
from pliant.capture.values.iterators import (
    ConstantIterator,
    Enumerate,
    Iterator,
    ReversedSequence,
    SequenceIterator,
)
from pliant.capture.values.tensors import TensorValue
from pliant.guards.source import DictItem

DISCARDS = opcodes_with(Role.DISCARDS)
ROUNDS = 8  # at most, that a loop has left

REMAINING: dict[type[Iterator], Callable[[Any], int]] = {
    SequenceIterator: lambda it: 0 if it.sequence is None else len(it.sequence.items) - it.index,
    ReversedSequence: lambda it: it.index + 1,
    ConstantIterator: lambda it: len(it.obj) - it.done,
    Enumerate: lambda it: remaining(it.iterator),
}


def remaining(value: Value) -> int:
    """How many items an iterator has left; more than any number of rounds if unknown."""
    count = REMAINING.get(type(value)) if isinstance(value, Iterator) else None
    return ROUNDS + 1 if count is None else count(value)


def speculated_way(
    trace: Trace, frame: Frame, ins: Instruction, value: Value, jump_on: bool
) -> bool | None:
    """Whether to jump, where a tensor decides and its outcome can be told. None: not so."""
    if trace.graph_effects.speculated is None or not is_test(trace, value):
        return None
    assert isinstance(value, TensorValue)
    jumps = _stays_in_loop(frame, ins)
    if jumps is None and _is_flag(trace, value):
        assert value.real is not None
        jumps = bool(value.real) is jump_on
    if jumps is None:
        return None
    position = trace.stack()[-1]
    about = f"the truth value of a tensor at {position.file}:{position.line}"
    # Recorded in any case: `recovery` needs to know which ones were speculated on, and which no
    # more.
    good = trace.graph_effects.speculated[about] = trace.sizes.env.answers.get(about, True)
    if not good:
        return None
    add_test(trace, frame, value, jumps is jump_on, about)
    return jumps


def _stays_in_loop(frame: Frame, ins: Instruction) -> bool | None:
    """Whether the jump is the way that goes on with a loop of few rounds, where the other one
    leaves it at once. None: neither does."""
    if len(frame.stack) < 2 or remaining(frame.stack[-2]) > ROUNDS:  # below what decides
        return None
    # The first thing that `break` does is to drop the iterator.
    stays, jumps = (frame.instructions[to].op in DISCARDS for to in (frame.index + 1, ins.value))
    return None if stays is jumps else stays


def _is_flag(trace: Trace, value: TensorValue) -> bool:
    """Whether this is a buffer of a module, as it was when the function was called."""
    table = value.source.parent if isinstance(value.source, DictItem) else None
    if value.real is None or not isinstance(table, DictItem) or table.key != "_buffers":
        return False
    written = value.fake.untyped_storage()._cdata in trace.graph_effects.memory
    return not written and type(value.real) is torch.Tensor and not value.real.is_meta
