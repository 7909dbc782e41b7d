"""A smaller program with the same symptom.

Delta debugging over statements, calls, arguments, sizes and numbers: each candidate is an edited
copy, and it replaces the program if it still shows a finding of the same kind.
"""

from __future__ import annotations

import copy
import re
import time
from collections.abc import Callable, Iterator
from typing import Any

from tools.fuzzing.deadline import TimeUp
from tools.fuzzing.program import Argument, Program, Statement, written

Test = Callable[[Program], bool]
"""Whether a program has the symptom. It may raise `TimeUp`."""

Step = Callable[[Program], Iterator[Program]]

SECONDS = 40.0


def shrink(program: Program, test: Test, seconds: float = SECONDS) -> Program:
    """The smallest program found in the time."""
    deadline = time.monotonic() + seconds
    best = program
    improved = True
    try:
        while improved:
            improved = False
            for make_candidates in STEPS:
                for smaller in _improvements(best, make_candidates, test, deadline):
                    best, improved = smaller, True
    except TimeUp:  # of the whole campaign
        pass
    return best


def _improvements(
    best: Program, make_candidates: Step, test: Test, deadline: float
) -> Iterator[Program]:
    """Smaller and smaller programs by one step, which is begun anew on what it has made smaller,
    behind the last candidate."""
    tried = 0
    while time.monotonic() < deadline:
        candidate = _nth(make_candidates(best), tried)
        if candidate is None:
            break
        if candidate != best and test(candidate):
            best = candidate
            yield best
        else:
            tried += 1


def _nth(candidates: Iterator[Program], index: int) -> Program | None:
    for at, candidate in enumerate(candidates):
        if at == index:
            return candidate
    return None


def size(program: Program) -> int:
    return len(program.source())


def _edited(program: Program, **changes: Any) -> Program:
    new = copy.deepcopy(program)
    for name, value in changes.items():
        setattr(new, name, value)
    return new


# --------------------------------------------------------------------------------------------------
# Calls and settings


def _fewer_calls(program: Program) -> Iterator[Program]:
    count = len(program.calls)
    if count > 1:
        for index in range(count):
            yield _edited(program, calls=[program.calls[index]])
        for index in reversed(range(count)):
            yield _edited(program, calls=program.calls[:index] + program.calls[index + 1 :])


def _settings(program: Program) -> Iterator[Program]:
    for name, value in (("threads", 1), ("grad", False), ("dynamic", False), ("dynamic", None)):
        if getattr(program, name) != value and not (name == "dynamic" and program.dynamic is False):
            yield _edited(program, **{name: value})


def _same_calls(program: Program) -> Iterator[Program]:
    """The arguments of a call as in the one before it."""
    for index in range(1, len(program.calls)):
        for at in range(len(program.calls[0])):
            if program.calls[index][at] != program.calls[index - 1][at]:
                new = copy.deepcopy(program)
                new.calls[index][at] = copy.deepcopy(new.calls[index - 1][at])
                yield new


# --------------------------------------------------------------------------------------------------
# Statements

Path = tuple[int, ...]


def _paths(statements: list[Statement], at: Path = ()) -> Iterator[tuple[Path, Statement]]:
    """Where each statement is: its index, and then clause and index for inner ones."""
    for index, statement in enumerate(statements):
        yield (*at, index), statement
        if not isinstance(statement, str):
            for clause, (_, body) in enumerate(statement):
                yield from _paths(body, (*at, index, clause))


def _replaced(program: Program, path: Path, new: list[Statement]) -> Program:
    result = copy.deepcopy(program)
    body: Any = result.body
    for index, clause in zip(path[:-1:2], path[1:-1:2]):
        body = body[index][clause][1]
    body[path[-1] : path[-1] + 1] = copy.deepcopy(new)
    return result


def _halves(program: Program) -> Iterator[Program]:
    """Without a longer run of statements."""
    count = len(program.body) - 1
    length = count // 2
    while length > 1:
        for start in range(0, count, length):
            stop = min(start + length, count)
            yield _edited(program, body=program.body[:start] + program.body[stop:])
        length //= 2


def _without_statement(program: Program) -> Iterator[Program]:
    for path, statement in reversed(list(_paths(program.body))):
        if isinstance(statement, str) and statement.startswith("return") and len(path) == 1:
            continue
        yield _replaced(program, path, [])


def _substituted(program: Program) -> Iterator[Program]:
    """Without an assignment; what it was computed from stands for it."""
    for path, statement in reversed(list(_paths(program.body))):
        match = re.match(r"(\w+) = (.*)", statement) if isinstance(statement, str) else None
        if match is None:
            continue
        target, value = match.groups()
        others = dict.fromkeys(re.findall(r"\b(?:[abcd]|v\d*)\b(?!\()", value))
        for other in others:
            if other != target:
                yield _renamed(_replaced(program, path, []), target, other)


def _renamed(program: Program, old: str, new: str) -> Program:
    pattern = re.compile(rf"\b{old}\b")

    def change(statements: list[Statement]) -> list[Statement]:
        return [
            pattern.sub(new, statement)
            if isinstance(statement, str)
            else [[pattern.sub(new, head), change(body)] for head, body in statement]
            for statement in statements
        ]

    return _edited(program, body=change(program.body))


def _unwrapped(program: Program) -> Iterator[Program]:
    """The body of a clause instead of a compound statement; fewer clauses."""
    for path, statement in list(_paths(program.body)):
        if isinstance(statement, str):
            continue
        for _, body in statement:
            yield _replaced(program, path, body)
        if len(statement) > 1 and statement[0][0].startswith("if"):
            yield _replaced(program, path, [statement[:1]])


def _returned(program: Program) -> Iterator[Program]:
    last = program.body[-1] if program.body else ""
    if not isinstance(last, str) or not last.startswith("return "):
        return
    value = last.removeprefix("return ")
    if value != "None":
        yield _edited(program, body=[*program.body[:-1], "return None"])
    names = re.findall(r"\b(?:[abcdnr]|v\d+)\b", value)
    for name in dict.fromkeys(names) if value not in names else ():
        yield _edited(program, body=[*program.body[:-1], f"return {name}"])
    for name in dict.fromkeys(names) if len(names) > 2 else ():
        rest = ", ".join(other for other in names if other != name)
        yield _edited(program, body=[*program.body[:-1], f"return {rest}"])


def _simpler_text(program: Program) -> Iterator[Program]:
    """Numbers nearer to 0, and fewer suffixes."""
    for path, statement in list(_paths(program.body)):
        if not isinstance(statement, str):
            continue
        for match in re.finditer(r"(?<![\w.])\d+(?:\.\d+)?(?:e-?\d+)?(?![\w.])", statement):
            for simple in ("0", "1", "2"):
                if len(simple) < len(match.group()) or simple < match.group():
                    text = statement[: match.start()] + simple + statement[match.end() :]
                    yield _replaced(program, path, [text])
        for match in re.finditer(r"\.(?:to\(torch\.\w+\)|clone\(\)|detach\(\))", statement):
            text = statement[: match.start()] + statement[match.end() :]
            yield _replaced(program, path, [text])


# --------------------------------------------------------------------------------------------------
# Arguments


def _fewer_arguments(program: Program) -> Iterator[Program]:
    for at in reversed(range(len(program.parameters))):
        if len(program.parameters) > 1:
            new = copy.deepcopy(program)
            for call in new.calls:
                del call[at]
            yield new


def _smaller_sizes(program: Program) -> Iterator[Program]:
    """A size by a smaller one, wherever it is in one call, or in one argument."""
    for index, call in enumerate(program.calls):
        for old in sorted({n for a in call for n in a.shape if n > 1}, reverse=True):
            for smaller in [n for n in (0, 1, 2, 3, 4, 5, 8) if n < old]:
                new = copy.deepcopy(program)
                for argument in new.calls[index]:
                    argument.shape = [smaller if n == old else n for n in argument.shape]
                yield new


def _fewer_dims(program: Program) -> Iterator[Program]:
    for at, argument in enumerate(program.calls[0]):
        for dim in range(len(argument.shape)):
            new = copy.deepcopy(program)
            for call in new.calls:
                if call[at].kind == "tensor" and dim < len(call[at].shape):
                    del call[at].shape[dim]
            yield new


SIMPLER: dict[str, list[Any]] = {
    "requires_grad": [False],
    "layout": ["plain"],
    "values": ["ones", "arange", "small"],
    "dtype": ["float32", "int64"],
    "seed": [0],
}


def _simpler_arguments(program: Program) -> Iterator[Program]:
    for at, argument in enumerate(program.calls[0]):
        for name, choices in SIMPLER.items():
            yield from _with_field(program, at, name, choices)
        if argument.kind == "code" and argument.code not in ("0", "1", "2"):
            for simple in ("0", "1", "2"):
                new = copy.deepcopy(program)
                for call in new.calls:
                    call[at] = Argument(argument.name, "code", simple)
                yield new


def _with_field(program: Program, at: int, name: str, choices: list[Any]) -> Iterator[Program]:
    """In all calls, and then in each call alone."""
    for calls in [range(len(program.calls)), *([i] for i in range(len(program.calls)))]:
        current = [getattr(program.calls[i][at], name) for i in calls]
        for value in choices:
            if value in current:
                break
            new = copy.deepcopy(program)
            for index in calls:
                setattr(new.calls[index][at], name, value)
            yield new


STEPS: list[Step] = [
    _fewer_calls,
    _halves,
    _without_statement,
    _settings,
    _returned,
    _unwrapped,
    _substituted,
    _fewer_arguments,
    _same_calls,
    _smaller_sizes,
    _fewer_dims,
    _simpler_arguments,
    _simpler_text,
]


def statements_of(program: Program) -> list[str]:
    return [line.strip() for line in written(program.body)]
