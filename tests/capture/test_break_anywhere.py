"""The programs of the other tests, with the graph broken where nothing forces it to break.

A break is a rollback to before an instruction, the instruction as residual code, and a resume
function behind it. Here that happens at every instruction that residual code can stand for, or at
any single one.
"""

import copy
import importlib

import pytest

import pliant
from pliant.base.options import config
from pliant.capture import finish, interpreter, residual_ops
from pliant.capture.value import Break, Const, Unread
from tests.support.against_eager import run, same_outcome

MODULES = (
    "breaks", "breaks_in_python", "exceptions", "exceptions_and_breaks", "generators", "with",
)  # fmt: skip
PROGRAMS = [
    pytest.param(*case.values[:2], id=f"{module}-{case.id}")
    for module in MODULES
    for case in importlib.import_module(f"tests.capture.test_{module}").program.cases
]
# The beginning of a resume function moves its arguments about: it can't be resumed in its middle.
MOVING = ("POP_TOP", "STORE_FAST", "DELETE_FAST")
ASKS_FRAME = (locals, globals)
STEP, BROKE = interpreter._step, finish.Finisher.broke


class Breaker:
    """Breaks the graph at the instruction counted `at`, or at every one."""

    def __init__(self, at=None):
        self.at = at
        self.armed = True
        self.steps = 0  # in the first capture

    def wants(self, trace, frame):
        operation = frame.instruction.op
        if operation not in residual_ops.WRITERS or operation in MOVING or frame.internal:
            return False
        targets = frame.stack[-frame.operands :][:2] if operation == "CALL" else []
        known = [t.real for t in targets if type(t) is Unread]
        known += [t.value for t in targets if type(t) is Const]
        return not any(each is asked for each in known for asked in ASKS_FRAME)

    def follow(self, trace, frame):
        number = trace.steps + 1
        if self.armed and number not in trace.break_at:
            self.steps = max(self.steps, number)
            if (self.at is None or self.at == number) and self.wants(trace, frame):
                raise Break("user", "the test asks for it")
        STEP(trace, frame)

    def note_broke(self, captured, frames, cause):
        self.armed = self.at is None  # one break, or one after the other
        return BROKE(captured, frames, cause)


@pytest.fixture
def compare(monkeypatch, capsys):
    """`compare(function, args, at)`: break there; gives the number of instructions followed."""

    def compare(function, args, at=None):
        breaker = Breaker(at)
        monkeypatch.setattr(interpreter, "_step", breaker.follow)
        monkeypatch.setattr(finish.Finisher, "broke", lambda *about: breaker.note_broke(*about))
        expected = run(function, copy.deepcopy(args))
        with config.patch(recompile_limit=10**6, accumulated_recompile_limit=10**6):
            compiled = pliant.compile(function)
            for _ in range(2):
                same_outcome(run(compiled, copy.deepcopy(args)), expected)
        return breaker.steps

    return compare


@pytest.mark.parametrize(("function", "args"), PROGRAMS)
def test_broken_at_every_instruction(compare, function, args):
    compare(function, args)


@pytest.mark.parametrize(("function", "args"), PROGRAMS[:: len(PROGRAMS) // 12])
def test_broken_at_any_instruction(compare, function, args):
    count = compare(function, args, at=0)
    for at in range(1, min(count, 300) + 1):
        compare(function, args, at)
