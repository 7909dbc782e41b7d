"""A program, eagerly and compiled."""

from __future__ import annotations

import contextlib
import linecache
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

import pliant
from pliant.base import events
from pliant.base.errors import PliantError
from tools.fuzzing.compare import Outcome, compare
from tools.fuzzing.generate import quiet
from tools.fuzzing.memory import is_exhausted, limited
from tools.fuzzing.program import Program
from tools.fuzzing.rounding import Rounding
from tools.fuzzing.scope import new_scope

OPTIONS = {"recompile_limit": 100, "accumulated_recompile_limit": 5000, "check_ir": True}


@dataclass(frozen=True)
class Finding:
    """A difference, at a call of a program. `place` is where in pliant something went wrong."""

    kind: str
    text: str
    call: int
    place: str = ""


class Invalid(Exception):
    """The arguments of a call can't be made, or the memory is not enough: no program."""


Compile = Callable[..., Any]
Stage = Callable[[str], None]


class Side:
    """A program on its own globals, with its function as it is or compiled."""

    def __init__(self, program: Program, wrap: Callable[[Any], Any] | None = None) -> None:
        self.program = program
        self.scope = new_scope()
        source = program.source()
        name = f"<fuzz {program.seed}>"
        linecache.cache[name] = (len(source), None, source.splitlines(True), name)
        exec(compile(source, name, "exec"), self.scope)
        self.function = self.scope["f"] if wrap is None else wrap(self.scope["f"])

    def call(self, index: int, context: Any = None) -> Outcome:
        try:
            args = self.scope[f"arguments_{index}"]()
        except Exception as error:
            raise Invalid(str(error)) from error
        torch.manual_seed(0)
        result, error = None, None
        seen = self.scope.get("SEEN", [])
        with torch.set_grad_enabled(self.program.grad):
            before = torch.is_grad_enabled()
            try:
                with context or contextlib.nullcontext():
                    result = self.function(*args)
            except Exception as raised:
                error = raised
            after = torch.is_grad_enabled() == before
        return Outcome(result, error, args, list(seen), torch.get_rng_state(), after)


def check(
    program: Program, compile: Compile = pliant.compile, stage: Stage = lambda name: None
) -> Finding | None:
    """The first difference between eager PyTorch and the compiled program."""
    threads = torch.get_num_threads()
    torch.set_num_threads(program.threads)
    try:
        with quiet():
            return _check(program, compile, stage)
    finally:
        torch.set_num_threads(threads)


def _check(program: Program, compile: Compile, stage: Stage) -> Finding | None:
    stage("eager")
    eager_side = Side(program)
    with limited():
        expected = [eager_side.call(index) for index in range(len(program.calls))]
    for eager in expected:
        if is_exhausted(eager.error):
            raise Invalid(str(eager.error)) from eager.error
    stage("pliant")
    failures: list[events.FellBack] = []

    def listen(event: events.Event) -> None:
        if isinstance(event, (events.FellBack, events.KernelFailed)):
            failures.append(event)

    side = Side(
        program,
        lambda f: compile(f, backend=program.backend, dynamic=program.dynamic, options=OPTIONS),
    )
    with events.listening(listen):
        for index, eager in enumerate(expected):
            with limited():
                ours = side.call(index)
            if failures:
                return _failure(failures[0], index)
            if isinstance(ours.error, PliantError):
                return Finding("pliant error", repr(ours.error), index, _place(ours.error))

            def rerun(seed: int, index: int = index) -> Outcome:
                return _rounded(program, index, seed)

            difference = compare(ours, eager, rerun)
            if difference is not None and _is_defined(program, index, eager):
                return Finding(difference.kind, difference.text, index, difference.place)
    return None


def _rounded(program: Program, index: int, seed: int | None = None) -> Outcome:
    """The call once more, eagerly, after those before it; with other rounding if there is a
    seed for it."""
    side = Side(program)
    for earlier in range(index):
        side.call(earlier)
    return side.call(index, None if seed is None else Rounding(seed))


def _is_defined(program: Program, index: int, eager: Outcome) -> bool:
    """Whether eager PyTorch gives this result each time: not if it reads memory that nobody wrote,
    which this mode fills with NaN."""
    torch.use_deterministic_algorithms(True, warn_only=True)
    try:
        again = _rounded(program, index)
    finally:
        torch.use_deterministic_algorithms(False)
    return compare(again, eager, lambda seed: eager) is None


def _failure(event: Any, index: int) -> Finding:
    error = event.error
    text = event.reason
    kind = "fallback" if isinstance(event, events.FellBack) else "failed kernel"
    return Finding(kind, text[:2000], index, _place(error))


def _place(error: BaseException | None) -> str:
    """The innermost line of pliant in the traceback, and of what caused it."""
    while error is not None and error.__cause__ is not None:
        error = error.__cause__
    frames = traceback.extract_tb(error.__traceback__) if error is not None else []
    ours = [frame for frame in frames if "/pliant/" in frame.filename]
    if not ours:
        return ""
    path = ours[-1].filename.rpartition("/pliant/")[2]
    return f"{path}:{ours[-1].name}"
