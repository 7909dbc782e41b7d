"""Speculation on branches on data whose outcome is likely.

The one idea: a loop of few rounds is seldom left early, a flag that a module keeps in a buffer is
what it was, numbers are finite, and what is selected by data is more than one element. So that way
is followed, and the graph tests at run time that it was the right one. The first time it was not,
the function is compiled anew, and then the branch breaks the graph.

    for layer in layers:
        x = layer(x)
        if done.all(): break           # speculates on staying in the loop
    if self.initialized: ...           # a buffer: as it is now
    if loss.isnan(): return            # speculates on False
    if not math.isfinite(loss.item()): # the same
    if chosen.numel() == 0: continue   # speculates on False
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable
from typing import Any, Final

import torch
from torch import fx

from pliant.bytecode.decode import Instruction
from pliant.bytecode.tables import BACKWARD_JUMPS, Role, opcodes_with
from pliant.capture.assertion_branches import add_test, is_test, note_assertion
from pliant.capture.frame import Frame
from pliant.capture.trace import Trace
from pliant.capture.value import Break, Value
from pliant.capture.values.iterators import (
    ConstantIterator,
    Enumerate,
    Iterator,
    ReversedSequence,
    SequenceIterator,
)
from pliant.capture.values.tensors import TensorValue
from pliant.guards.source import DictItem
from pliant.sym.cond import Cond
from pliant.sym.expr import BaseExpr

DISCARDS = opcodes_with(Role.DISCARDS)
ITERATES = opcodes_with(Role.ITERATES)
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
    """Whether the conditional jump `ins` jumps, by speculation, and a test of it in the graph.
    None: the branch is none that is speculated on, or an earlier speculation on it has failed.

    `value` is the tensor that decides, `jump_on` the truth value on which the instruction jumps.
    """
    if trace.graph_effects.speculated is None or not is_test(trace, value):
        return None
    assert isinstance(value, TensorValue)
    jumps = _stays_in_loop(frame, ins)
    if jumps is None and _is_flag(trace, value):
        assert value.real is not None
        jumps = bool(value.real) is jump_on
    truth = truth_if_finite(value.node) if jumps is None else None
    if truth is not None:
        jumps = truth is jump_on
    # Behind effects that can't be undone, a failed test could not run the function again.
    if jumps is None or trace.graph_effects.final:
        return None
    position = trace.stack()[-1]
    about = f"the truth value of a tensor at {position.file}:{position.line}"
    # Recorded in any case: `recovery` needs to know which ones were speculated on, and which no
    # more.
    good = trace.graph_effects.speculated[about] = trace.sizes.env.answers.get(about, True)
    if not good:
        return None
    add_test(trace, frame, value, jumps is jump_on, about)
    if truth is not None:
        trace.graph_effects.finite[about] = trace.graph_effects.assertion_branches[-1]
    return jumps


def _stays_in_loop(frame: Frame, ins: Instruction) -> bool | None:
    """Whether the jump stays in a `for` loop of few rounds that not jumping would leave at once
    (True), or the other way round (False). None: neither leaves the loop."""
    if len(frame.stack) < 2 or remaining(frame.stack[-2]) > ROUNDS:  # below what decides
        return None
    # The first thing that `break` does is to drop the iterator.
    stays, jumps = (frame.instructions[to].op in DISCARDS for to in (frame.index + 1, ins.value))
    return None if stays is jumps else stays


def _is_flag(trace: Trace, value: TensorValue) -> bool:
    """Whether this is a buffer of a module that has not been written to since the function was
    called."""
    # The path is `module.__dict__['_buffers'][name]`.
    table = value.source.parent if isinstance(value.source, DictItem) else None
    if value.real is None or not isinstance(table, DictItem) or table.key != "_buffers":
        return False
    written = value.fake.untyped_storage()._cdata in trace.graph_effects.memory
    return not written and type(value.real) is torch.Tensor and not value.real.is_meta


IF_FINITE: Final = {
    "isfinite": True, "isnan": False, "isinf": False, "isposinf": False, "isneginf": False,
}  # fmt: skip
COMBINED: Final[dict[str, Callable[..., bool]]] = {
    "any": bool, "all": bool,
    "logical_not": operator.not_, "bitwise_not": operator.not_, "invert": operator.not_,
    "logical_or": operator.or_, "bitwise_or": operator.or_, "or_": operator.or_,
    "logical_and": operator.and_, "bitwise_and": operator.and_, "and_": operator.and_,
}  # fmt: skip


def truth_if_finite(node: Any) -> bool | None:
    """The outcome of a test of whether numbers are finite, if they are: True for `isfinite`, False
    for `isnan`. Tests may be combined by `any`, `logical_or` and the like. None for any other
    condition."""
    if not isinstance(node, fx.Node):
        return None
    name = node.target if isinstance(node.target, str) else getattr(node.target, "__name__", "")
    if name not in COMBINED:
        return IF_FINITE.get(name)
    operands = [truth_if_finite(operand) for operand in node.all_input_nodes]
    return None if None in operands else COMBINED[name](*operands)


# ---- numbers that are read from data


def speculated_truth(
    trace: Trace, frame: Frame, ins: Instruction, cond: Cond
) -> tuple[bool, str] | None:
    """The likely answer to a question about numbers that depend on data, by which the jump `ins` is
    made, and the text by which a failure is known. None if there is none, or if an earlier
    speculation on it has failed."""
    env, effects = trace.sizes.env, trace.graph_effects
    if effects.speculated is None or effects.final or trace.graph.in_body:
        return None
    if _may_end_loop(frame, ins):
        return None
    if env.known(cond) is not None or env.hint(cond) is not None:
        return None
    finite = if_finite(cond)
    likely = env.if_large(cond) if finite is None else finite
    if likely is None:
        return None
    # Several questions on one line, as in the rounds of a loop, have answers of their own.
    position = trace.stack()[-1]
    place = f"{position.file}:{position.line}"
    number = sum(place in about for about in effects.speculated)
    if number > MOST_ROUNDS:
        return None
    about = f"question {number} about a number at {place}"
    good = effects.speculated[about] = env.answers.get(about, True)
    if not good:
        return None
    note_assertion(trace, frame, Break("data-dependent-number", f"the program asks whether {cond}"))
    kind = effects.nonempty if finite is None else effects.finite
    kind[about] = effects.assertion_branches[-1]
    return likely, about


MOST_ROUNDS: Final = 256  # of a loop, in each of which there is a question


def _may_end_loop(frame: Frame, ins: Instruction) -> bool:
    """Whether the answer may decide how often a loop is run, more than a few times: the likely one
    would never end it."""
    around = [
        (jump.value, at)
        for at, jump in enumerate(frame.instructions)
        if jump.op in BACKWARD_JUMPS and jump.value <= frame.index <= at
    ]
    if not around:
        return False
    start, end = max(around)
    if frame.instructions[start].op not in ITERATES:
        return True
    ways = (frame.index + 1, ins.value)
    leaves = [not start <= to <= end or frame.instructions[to].op in DISCARDS for to in ways]
    return any(leaves) and (len(frame.stack) < 2 or remaining(frame.stack[-2]) > ROUNDS)


def if_finite(cond: Cond) -> bool | None:
    """The outcome of a test of whether floats are finite, if they are; None for any other
    condition."""
    if cond.op in ("and", "or", "not"):
        parts = [if_finite(part) for part in cond.args]
        if None in parts:
            return None
        return not parts[0] if cond.op == "not" else OF_PARTS[cond.op](parts)
    if cond.op not in COMPARISONS:
        return None
    one, other = cond.args
    if one is other:  # `x != x`
        return COMPARISONS[cond.op](0.0, 0.0)
    if not any(map(_is_infinite, (one, other))):
        return None
    return COMPARISONS[cond.op](*[n.value if _is_infinite(n) else 0.0 for n in (one, other)])


OF_PARTS: Final[dict[str, Callable[[Any], bool]]] = {"and": all, "or": any}
COMPARISONS: Final[dict[str, Callable[..., bool]]] = {
    "flt": operator.lt, "fle": operator.le, "feq": operator.eq, "fne": operator.ne,
}  # fmt: skip


def _is_infinite(number: BaseExpr) -> bool:
    value = getattr(number, "value", None)
    return isinstance(value, float) and math.isinf(value)
