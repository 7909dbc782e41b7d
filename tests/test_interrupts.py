"""Interrupts and a lack of memory during compilation: they reach the caller, nothing global is left
changed, and the next call compiles."""

import contextlib
import faulthandler
import gc
import os
import random
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest
import torch

import pliant
from pliant._native import isolated
from pliant.capture.value import Break
from pliant.graph.functionalize import NotFunctionalized
from pliant.sym.env import ShapeEnv
from pliant.sym.node import SymNode
from tests.support.global_state import changes, global_state
from tests.support.injection import Injector
from tests.support.interrupted_programs import PROGRAMS

ROOT = Path(__file__).parents[1]
DRAWN = ("random numbers",)


def attempt(program, kind, at):
    """Interrupt the last call of a program at a line; what is wrong then, or None."""
    compiled = program.warmed()
    args = program.last()
    injector = Injector(kind("injected"), at)
    before = global_state()
    assert before["lock"] is None, "taken by an earlier test"
    raised = None
    try:
        injector.call(compiled, *args)
    except BaseException as error:
        raised = error
        error.__traceback__ = None
    changed = changes(before)
    if raised is None or not injector.compiling:
        for name in DRAWN:
            changed.pop(name, None)  # the program's own, as far as it came
    where = f"{kind.__name__} at {at}, {injector.where}"
    if changed:
        return f"{where}: {changed}"
    if injector.where and raised is None and not injector.lost and kind is not MemoryError:
        return f"{where}: swallowed"
    if raised is not None and raised is not injector.error:
        return f"{where}: became {raised!r}"
    return wrong_afterwards(program, compiled, where)


def wrong_afterwards(program, compiled, where):
    if type(torch.ones(2) + 1) is not torch.Tensor:
        return f"{where}: eager PyTorch doesn't work"
    expected = program.make()(*program.last())
    found = compiled(*program.last())
    try:
        torch.testing.assert_close(found, expected)
    except AssertionError as error:
        return f"{where}: {error}"
    dispatcher = getattr(compiled, "_dispatcher", compiled)
    if dispatcher.mode or len(dispatcher.entries) < len(program.arguments):
        return f"{where}: not compiled afterwards"
    return None


@contextlib.contextmanager
def alarm(seconds):
    """End the process, with a traceback of all threads, instead of waiting for ever."""
    faulthandler.dump_traceback_later(seconds, exit=True)
    try:
        yield
    finally:
        faulthandler.cancel_dump_traceback_later()


SAMPLED = 6  # lines of each program and exception


def sample(total, seed):
    """Lines from all parts of a compilation."""
    chosen = random.Random(seed)
    step = total / SAMPLED
    return [int(i * step + chosen.random() * step) for i in range(SAMPLED)]


@pytest.mark.own_default
@pytest.mark.parametrize("kind", [KeyboardInterrupt, MemoryError, SystemExit])
@pytest.mark.parametrize("name", PROGRAMS)
def test_at_some_lines(name, kind):
    program = PROGRAMS[name]
    lines = sample(program.count(), f"{name} {kind}")
    attempt(program, kind, lines[0])  # what is loaded once stays
    before = objects()
    for at in lines:
        assert attempt(program, kind, at) is None
    assert objects() - before == Counter()


@pytest.mark.own_default
@pytest.mark.parametrize("name", PROGRAMS)
def test_where_a_with_ends(name):
    """Python reports its line once more before it calls `__exit__`: a lock would stay taken, and
    the exception by which it is left would stay the one that is handled."""
    program = PROGRAMS[name]
    ends = program.ends_of_with()
    before = objects()
    for at in ends:
        with alarm(60):
            assert attempt(program, KeyboardInterrupt, at) is None
    assert objects() - before == Counter()


def objects():
    """How many there are of what an exception that stays alive would keep."""
    for _ in range(3):
        gc.collect()
    kinds = (ShapeEnv, KeyboardInterrupt, NotFunctionalized, Break)
    return Counter(o.__name__ for o in map(type, gc.get_objects()) if o in kinds)


class Left(Exception):
    """By which a `with` is left."""


def leaves_with_interrupted():
    """Ends as if a tracer raised where a `with` is left: another exception stays handled."""

    def leave():
        with contextlib.nullcontext():
            raise Left

    injector = Injector(KeyboardInterrupt("injected"))
    with contextlib.suppress(Left):
        injector.call(leave)
    last = max((n, at) for at, n in injector.last.items() if at[0] is leave.__code__)
    again = Injector(KeyboardInterrupt("injected"), last[0])
    again.call(leave)


def test_the_handled_exception_is_that_of_the_caller():
    def outcome():
        try:
            isolated(None, [], leaves_with_interrupted)
        except KeyboardInterrupt:
            pass
        return sys.exc_info()[1]

    assert outcome() is None
    try:
        raise ValueError("of the caller")
    except ValueError as error:
        assert outcome() is error

        def generator():
            yield outcome()
            yield sys.exc_info()[1]

        steps = generator()
        assert next(steps) is error
    assert next(steps) is None


@pytest.mark.long
@pytest.mark.own_default
@pytest.mark.parametrize("kind", [KeyboardInterrupt, MemoryError])
@pytest.mark.parametrize("name", PROGRAMS)
def test_at_every_line(name, kind):
    program = PROGRAMS[name]
    wrong = [attempt(program, kind, at) for at in program.each_line()]
    assert [each for each in wrong if each] == []


# ---- where Python code is called from C


class Owner:
    """Its property is read by a guard, and interrupted when told so."""

    def __init__(self):
        self.error = None

    @property
    def scale(self):
        if self.error is not None:
            raise self.error
        return 2.0


@pytest.mark.parametrize("kind", [KeyboardInterrupt, MemoryError, SystemExit])
def test_in_a_guard(kind):
    owner = Owner()
    compiled = pliant.compile(lambda x, owner: x * owner.scale)
    x = torch.ones(2)
    compiled(x, owner)
    owner.error = kind("in a property")
    with pytest.raises(kind, match="in a property"):
        compiled(x, owner)
    owner.error = None
    assert torch.equal(compiled(x, owner), x * 2)


def interrupted_operator(error):
    @torch.library.custom_op("pliant_tests::interrupted", mutates_args=())
    def interrupted(x: torch.Tensor) -> torch.Tensor:
        if error:
            raise error.pop()
        return x + 1

    interrupted.register_fake(lambda x: torch.empty_like(x))
    return interrupted


@pytest.mark.parametrize("backend", ["eager", "llvm"])
@pytest.mark.parametrize("kind", [KeyboardInterrupt, MemoryError, SystemExit])
def test_in_an_operator_of_the_compiled_code(kind, backend):
    """The graph could be run again by Python: not after this."""
    errors = []
    operator = interrupted_operator(errors)

    def step(x):
        return operator(x * 2) * 3

    compiled = pliant.compile(step, backend=backend)
    x = torch.ones(4)
    expected = compiled(x)
    before = global_state()
    errors.append(kind("in an operator"))
    with pytest.raises(kind, match="in an operator"):
        compiled(x)
    assert changes(before) == {} and errors == []
    assert torch.equal(compiled(x), expected)


def autocast():
    return torch.autocast("cpu", dtype=torch.bfloat16)


MODES = {
    "inference": [torch.inference_mode],
    "autocast around inference": [autocast, torch.inference_mode],
    "inference around autocast": [torch.inference_mode, autocast],
    "inference in inference": [torch.inference_mode, lambda: torch.inference_mode(False)],
    "all": [torch.no_grad, autocast, torch.inference_mode, autocast, torch.enable_grad],
}


@pytest.mark.parametrize("backend", ["eager", "llvm"])
@pytest.mark.parametrize("kind", [KeyboardInterrupt, ValueError])
@pytest.mark.parametrize("name", MODES)
def test_under_modes_that_the_compiled_code_sets(name, kind, backend):
    """They are left at once, though the exception is alive, and its traceback."""
    errors, modes = [], MODES[name]
    operator = interrupted_operator(errors)

    def step(x):
        with contextlib.ExitStack() as stack:
            for mode in modes:
                stack.enter_context(mode())
            return operator(x @ x)

    compiled = pliant.compile(step, backend=backend)
    x = torch.ones(4, 4)
    compiled(x)
    before = global_state()
    errors[:] = [kind("in an operator"), kind("and where eager is asked")]
    with pytest.raises(kind) as caught:
        compiled(x)
    assert changes(before) == {}
    assert compiled.mode == 0 and len(compiled.entries) == 1
    del caught
    assert changes(before) == {}


@pytest.mark.parametrize("kind", [KeyboardInterrupt, MemoryError, SystemExit])
@pytest.mark.parametrize("when", ["backend", "graph"])
def test_in_a_backend(kind, when):
    errors = [kind("in the backend")]

    def backend(gm, examples):
        def graph(*args):
            if when == "graph" and errors:
                raise errors.pop()
            return gm(*args)

        if when == "backend" and errors:
            torch._C._set_grad_enabled(False)
            gc.disable()
            raise errors.pop()
        return graph

    compiled = pliant.compile(lambda x: x * 2 + 1, backend=backend)
    before = global_state()
    with pytest.raises(kind, match="in the backend"):
        compiled(torch.ones(2))
    assert changes(before) == {}
    assert torch.equal(compiled(torch.ones(2)), torch.full((2,), 3.0))
    assert compiled.mode == 0 and len(compiled.entries) == 1


def test_an_error_of_the_program_without_memory():
    """It is the program's own, and handles it."""

    def step(x):
        try:
            [0] * (1 << 60)
        except MemoryError:
            return x + 1
        return x

    assert torch.equal(pliant.compile(step)(torch.ones(2)), torch.full((2,), 2.0))


# ---- signals

SIGNALLED = """
import random, signal, sys, time
import torch
import pliant
from tests.support.global_state import changes, global_state
from tests.support.interrupted_programs import PROGRAMS

pliant.config.raise_on_fallback = True
program = PROGRAMS[sys.argv[1]]
chosen = random.Random(sys.argv[1])
program.warmed()(*program.last())
start = time.perf_counter()
program.warmed()(*program.last())
longest = time.perf_counter() - start
expected = program.make()(*program.last())
signal.signal(signal.SIGALRM, signal.default_int_handler)
hits = 0
for _ in range(25):
    compiled, args = program.warmed(), program.last()
    before = global_state()
    try:
        signal.setitimer(signal.ITIMER_REAL, chosen.uniform(1e-5, longest))
        compiled(*args)
        time.sleep(longest + 0.1)
    except KeyboardInterrupt:
        hits += 1
    changed = changes(before)
    changed.pop("random numbers", None)
    assert not changed, changed
    torch.testing.assert_close(compiled(*program.last()), expected)
    dispatcher = getattr(compiled, "_dispatcher", compiled)
    assert dispatcher.mode == 0 and dispatcher.entries
assert hits >= 20  # Python itself drops what is raised in destructors
"""


@pytest.mark.parametrize("name", PROGRAMS)
def test_signals(name):
    done = subprocess.run(
        [sys.executable, "-c", SIGNALLED, name],
        capture_output=True,
        text=True,
        timeout=300,
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), *sys.path])},
    )
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("backend", ["eager", "llvm"])
@pytest.mark.parametrize("raised", [KeyboardInterrupt, SystemExit])
def test_interrupts_in_questions_of_pytorch(monkeypatch, raised, backend):
    """PyTorch's argument parser makes a TypeError of what a symbolic number raises, or, while it
    looks for the signature that fits, takes it for a no: only that one is lost."""

    def function(x):
        return x.new_zeros(x.shape[0], 3) + x.sum()

    asked, seen = SymNode.is_int, []
    for after in range(0, 33, 3):
        compiled = pliant.compile(function, dynamic=True, backend=backend)
        questions = iter(range(after))

        def is_int(self, questions=questions, ended=[]):
            if next(questions, None) is None and not ended:
                ended.append(True)
                raise raised
            return asked(self)

        monkeypatch.setattr(SymNode, "is_int", is_int)
        try:
            compiled(torch.ones(4))
        except raised:
            seen.append(after)
        monkeypatch.setattr(SymNode, "is_int", asked)
        torch.testing.assert_close(compiled(torch.ones(4)), function(torch.ones(4)))
    assert len(seen) >= 8
