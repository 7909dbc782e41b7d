"""Stops a real frame before any instruction, reads its stack, and continues it elsewhere.

The value stack of a frame is not visible from Python; it is read from memory, at the offsets where
CPython happens to keep it. That makes the interpreter itself the oracle: whatever it
holds before an instruction, a resume function given the same must come to the same end.
"""

from __future__ import annotations

import ctypes
import itertools
import sys
import threading
import types

import pytest

from pliant.bytecode import (
    OPCODES,
    ResumePoint,
    StackItem,
    closure_names,
    decode,
    resume_code,
    resume_generator_code,
)
from tests.bytecode.offsets import index_at

NULL = object()
_FRAME_POINTER = 24
_SLOTS = 72 if sys.version_info < (3, 14) else 80
_BORROWED, _NUMBER = 1, 3  # tags of 3.14, in the lowest bits


def _slot(frame, number):
    base = ctypes.c_void_p.from_address(id(frame) + _FRAME_POINTER).value
    pointer = ctypes.c_void_p.from_address(base + _SLOTS + 8 * number).value
    if sys.version_info >= (3, 14) and pointer is not None:
        if pointer & _NUMBER == _NUMBER:
            return pointer >> 2
        pointer = pointer & ~_BORROWED or None
    return NULL if pointer is None else ctypes.cast(pointer, ctypes.py_object).value


def entry_kinds(code):
    """Before each instruction: which entries of the stack stand for an exception being handled."""
    decoded = decode(code)
    kinds, pending = {}, [(0, ())]
    while pending:
        index, before = pending.pop()
        if index in kinds:
            continue
        kinds[index] = before
        instruction = decoded.instructions[index]
        info = OPCODES[instruction.op]
        if info.falls_through:
            pending.append((index + 1, _after(instruction, info, before, False)))
        if instruction.target is not None:
            pending.append((instruction.target, _after(instruction, info, before, True)))
        if entry := decoded.handler(index):
            pending.append((entry.target, before[: entry.depth] + (False,) * (1 + entry.lasti)))
    return kinds


def _after(instruction, info, before, jump):
    stack = list(before)
    if instruction.op == "PUSH_EXC_INFO":
        return (*stack[:-1], True, False)
    if instruction.op == "SWAP":
        stack[-1], stack[-instruction.arg] = stack[-instruction.arg], stack[-1]
        return tuple(stack)
    if instruction.op == "POP_EXCEPT":
        if not stack.pop() and True in stack:  # a copy was popped: the original is stale now
            stack[len(stack) - 1 - stack[::-1].index(True)] = False
        return tuple(stack)
    pops, pushes = info.stack(instruction.arg, jump)
    kept = len(stack) - pops + min(pops, pushes)
    return (*stack[:kept], *[False] * (pushes - min(pops, pushes)))


class Peek:
    """A frame before one of its instructions, as the parts of a resume point."""

    def __init__(self, frame, index, depth, handled=None):
        self.code = frame.f_code
        self.decoded = decode(self.code)
        self.index = index
        self.frame = frame
        variables = self.decoded.variables
        self.slots = {name: _slot(frame, number) for number, name in enumerate(variables)}
        self.stack = [_slot(frame, len(variables) + number) for number in range(depth)]
        kinds = entry_kinds(self.code)[index][:depth]
        # Each of these entries holds the exception handled before: the next one's own.
        places = [place for place, kind in enumerate(kinds) if kind]
        current = [self.stack[place] for place in places[1:]] + [handled or sys.exception()]
        self.items = [StackItem.NULL if value is NULL else StackItem.VALUE for value in self.stack]
        for place, exception in zip(places, current if places else ()):
            self.items[place], self.stack[place] = StackItem.HANDLED, exception

    def closure(self):
        cells = [self.slots[name] for name in closure_names(self.code)]
        return tuple(
            cell if isinstance(cell, types.CellType) else types.CellType() for cell in cells
        )

    def point(self, index, depth, live_at, **inner):
        in_closure = {n for n in closure_names(self.code) if type(self.slots[n]) is types.CellType}
        live = self.decoded.live_before(live_at) - in_closure
        names = tuple(n for n, v in self.slots.items() if n in live and v is not NULL)
        point = ResumePoint(self.code, index, tuple(self.items[:depth]), names, **inner)
        values = [v for v in self.stack[:depth] if v is not NULL] + [self.slots[n] for n in names]
        return point, values

    def function(self, code):
        return types.FunctionType(code, self.frame.f_globals, closure=self.closure() or None)

    def resume(self):
        point, values = self.point(self.index, len(self.stack), self.index)
        return self.function(resume_code(point))(*values)

    def resume_generator(self, primed=False):
        # What the handler of the yield needs counts too, if something is thrown into it.
        point, values = self.point(self.index, len(self.stack), self.index - primed)
        return self.function(resume_generator_code(point, primed))(*values)

    def resume_after_call(self):
        """Continue behind the call that is about to happen, the call being the inner one."""
        count = self.decoded.instructions[self.index].arg
        call = self.index + (self.decoded.instructions[self.index].op == "PRECALL")
        function, *arguments = (v for v in self.stack[-count - 2 :] if v is not NULL)
        point, values = self.point(
            call + 1, len(self.stack) - count - 2, call, inner=len(arguments), call_index=call
        )
        return self.function(resume_code(point))(*values, function, *arguments)


def suspended(generator, handled=None):
    """A generator at its yield, as the parts of a resume point: without the value sent."""
    frame = generator.gi_frame
    decoded = decode(frame.f_code)
    index = index_at(decoded, frame.f_lasti)
    index += decoded.instructions[index].op == "YIELD_VALUE"
    return Peek(frame, index, decoded.depth_before(index) - 1, handled)


@pytest.fixture
def peek_generator():
    return suspended


class _Stop(BaseException):
    pass


def outcome(function, *arguments):
    try:
        return "returned", function(*arguments)
    except Exception as error:
        return "raised", repr(error), repr(error.__cause__), repr(error.__context__)


def in_own_thread(function):
    """Call it where no exception is being handled.

    A trace function runs where one may be, and raising from it at the wrong moment leaves one
    behind, for the rest of the thread.
    """
    results = []
    thread = threading.Thread(target=lambda: results.append(function()))
    thread.start()
    thread.join()
    return results[0]


def stop_at(function, arguments, step, action):
    """Run until the step-th instruction and do ``action`` there; False if there is none."""
    code, seen = function.__code__, 0
    decoded = decode(code)

    def trace(frame, event, _):
        nonlocal seen
        if frame.f_code is not code:
            return None
        frame.f_trace_opcodes = True
        if event == "opcode":
            seen += 1
            if seen == step:
                index = index_at(decoded, frame.f_lasti)
                action(Peek(frame, index, decoded.depth_before(index)))
                raise _Stop
        return trace

    sys._getframe().f_trace_opcodes = True  # 3.12 looks for this when tracing starts
    sys.settrace(trace)
    try:
        function(*arguments)
    except (_Stop, Exception):
        pass
    finally:
        sys.settrace(None)
    return seen >= step


@pytest.fixture
def check_everywhere():
    """Check that ``resume`` ends like the original, from every instruction it runs through.

    ``resume(peek)`` continues the frame, or returns None where it has nothing to say. Gives the
    instructions that were checked.
    """

    def check(function, make_arguments, resume, steps=None):
        arguments = make_arguments()
        expected = in_own_thread(lambda: outcome(function, *arguments)), arguments
        checked = {}

        def compare(peek, arguments):
            if peek.index < first_index(peek.decoded):
                return
            actual = in_own_thread(lambda: outcome(resume, peek))
            if actual != ("returned", None):
                assert (actual, arguments) == expected, peek.decoded.instructions[peek.index]
                checked[peek.index] = peek.decoded.instructions[peek.index]

        for step in steps or itertools.count(1):
            arguments = make_arguments()
            failures = []

            def action(peek):
                try:
                    compare(peek, arguments)
                except BaseException as failure:
                    failures.append(failure)

            stopped = in_own_thread(lambda: stop_at(function, arguments, step, action))
            if failures:
                raise failures[0]
            if not stopped:
                break
        return checked

    return check


def first_index(decoded):
    return next(each.index for each in decoded.instructions if each.op == "RESUME")
