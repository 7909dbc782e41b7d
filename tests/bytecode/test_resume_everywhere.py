"""Resume functions against the interpreter: continue sample programs anywhere, end the same."""

import contextlib

import pytest

from pliant.bytecode import OPCODES

LIMIT = 3
FRAME_READERS = ("super", True), ("locals", True)


def arithmetic(a, b, log):
    c = a + b * 2 - a
    d = (c, a)[a > b and c < 9]
    return c if d else -c + a**2


def loops(n, log):
    total = 0
    for i in range(n):
        for j, k in zip(range(i), "abcdef"):
            if j == 2:
                continue
            total += j
            log.append((i, j, k))
        else:
            log.append("else")
        if total > 10:
            break
    while n > 0:
        n -= 2
    return total, n


def unpacking(a, log, *rest, key=1, **more):
    first, *middle, last = [a, *rest, *more]
    log.extend([*middle, {**more, "key": key}])
    return dict(first=first, last=last, **more)


@contextlib.contextmanager
def noted(log, swallow=()):
    log.append("enter")
    try:
        yield len(log)
    except swallow as error:
        log.append(repr(error))
    finally:
        log.append("exit")


def with_blocks(n, log):
    with noted(log) as a, noted(log, ValueError) as b:
        log.append(a + b)
        if n:
            raise ValueError(n)
        return a
    return -1


def with_block_raises(log):
    with noted(log):
        raise KeyError("through")


def handlers(n, log):
    try:
        try:
            log.append(10 // n)
            raise KeyError(n)
        except ZeroDivisionError as error:
            log.append(str(error))
            raise ValueError("other") from error
        finally:
            log.append("finally")
    except (ValueError, KeyError) as error:
        log.append((repr(error), repr(error.__context__)))
        try:
            raise
        except LookupError:
            return "lookup"
        except ValueError:
            log.append("value")
    else:
        return "else"
    return "end"


def reraises(log):
    try:
        raise ValueError(1)
    except ValueError:
        log.append("seen")
        try:
            {}["x"]
        except KeyError:
            log.append("inner")
        raise


def return_in_finally(log):
    for x in (1, 2, 3):
        try:
            if x == 2:
                raise OSError
            log.append(x)
        except OSError:
            continue
        finally:
            log.append(-x)
            if x == 3:
                return "finally"


def exception_groups(log):
    try:
        raise ExceptionGroup("g", [ValueError(1), TypeError(2), KeyError(3)])
    except* ValueError as group:
        log.append(len(group.exceptions))
    except* (TypeError, KeyError):
        log.append("two")
    return "done"


def cells(n, log):
    count = 0

    def step(by):
        nonlocal count
        count += by + n
        return count

    for i in range(3):
        log.append(step(i))
        count *= 2
    n += 1
    return step(1), [lambda: i + n for _ in range(2)][1]()


def make_free():
    shared = [1]

    def free(n, log):
        nonlocal shared
        shared = shared[:1] + [n]
        m = n

        def inner():
            return shared + [m]

        log.append(inner())
        return inner() + shared

    return free


def make_free_like_comprehension():
    i, j = 1, [2]

    def free(n, log):
        nonlocal j
        squares = [i * i for i in range(n)]
        lambdas = [lambda: (i, j[:1]) for i in range(n)]
        log.extend([i, j[:1]])
        nested = [[i + j for j in range(2)] for i in squares]
        j = j[:1] + [n]
        return squares, [f() for f in lambdas], nested, i, j[:1]

    return free


def matching(value, log):
    match value:
        case {"kind": str(kind), **others}:
            log.append(others)
            return kind
        case [int(a), *_, b] if a != b:
            return a, b
        case complex(real=r) | float(r):
            return r
        case _:
            return "nothing"


def comprehensions(n, log):
    i = 5
    squares = [i * i for i in range(n) if i % 2]
    table = {k: [j + k for j in range(k)] for k in squares}
    calls = [lambda: i + k for k in range(2)]
    flat = {x for row in table.values() for x in row}
    return squares, table, sorted(flat), i, [f() for f in calls], sum(y for y in squares)


def comprehension_cells(n, log):
    functions = [lambda: log.append(item) or item for item in range(n)]
    item = "mine"
    more = [[lambda: (item, other) for other in "ab"] for item in functions]
    return [f() for f in functions], item, more[0][1]()[1]


def walrus_and_delete(n, log):
    if (half := n // 2) > 1:
        log.append(half)
    del half
    x = y = n
    del y
    try:
        return y  # noqa: F821
    except UnboundLocalError:
        log.append("unbound")
    return x, "half" in locals(), f"{x!r:>5}{n}"


def calls(log, *, key=LIMIT):
    def target(*args, **kwargs):
        log.append((args, kwargs))
        return len(args)

    target(1, target(2), key=target(*[3, 4], **{"z": key}))
    log.append(max([1, 2], key=lambda v: -v))
    return "a b".split(" ", maxsplit=1)[::-1], [1, 2, 3][1:], log[-1]


def slices_and_attributes(log):
    box = type("Box", (), {})()
    box.items = [1, 2, 3, 4]
    box.items[1:3] = [9]
    box.items[0] += 5
    del box.items[-1]
    assert box.items, "never"
    return box.items, 1 < len(box.items) < 3, not box, log is None or 2 in box.items


def imports(log):
    import os.path as path
    from math import floor, pi

    return floor(pi), path.join("a", "b")


def asserts(log):
    try:
        assert not log, log
        log.append(1)
        assert not log, log
    except AssertionError as error:
        return error.args


class Base:
    def method(self, n, log):
        return n + 1


class Derived(Base):
    def method(self, n, log):
        first = super().method(n, log)
        add = lambda v: v + first
        bound = super
        second = add(n) if n > 100 else super(Derived, self).method(first, log)
        parent = super()
        return second + parent.method(1, log) + super().method(1, log), bound is super

    def in_cell(self, n, log):
        def inner():
            return self

        return super().method(n, log), inner() is self


SAMPLES = {
    "arithmetic": (arithmetic, lambda: (3, 4, [])),
    "arithmetic 2": (arithmetic, lambda: (4, 1, [])),
    "loops": (loops, lambda: (5, [])),
    "with": (with_blocks, lambda: (0, [])),
    "with, swallowed": (with_blocks, lambda: (1, [])),
    "with, raises": (with_block_raises, lambda: ([],)),
    "handlers, error": (handlers, lambda: (0, [])),
    "handlers, lookup": (handlers, lambda: (1, [])),
    "reraise": (reraises, lambda: ([],)),
    "return in finally": (return_in_finally, lambda: ([],)),
    "exception groups": (exception_groups, lambda: ([],)),
    "cells": (cells, lambda: (2, [])),
    "free variables": (make_free(), lambda: (2, [])),
    "free variables in comprehensions": (make_free_like_comprehension(), lambda: (2, [])),
    "match mapping": (matching, lambda: ({"kind": "k", "x": 1}, [])),
    "match sequence": (matching, lambda: ([1, 2, 3], [])),
    "match class": (matching, lambda: (2.5, [])),
    "match nothing": (matching, lambda: ([1, 1], [])),
    "comprehensions": (comprehensions, lambda: (6, [])),
    "comprehension cells": (comprehension_cells, lambda: (2, [])),
    "walrus and del": (walrus_and_delete, lambda: (9, [])),
    "calls": (calls, lambda: ([],)),
    "slices": (slices_and_attributes, lambda: ([],)),
    "imports": (imports, lambda: ([],)),
    "assert": (asserts, lambda: ([],)),
    "super": (Derived.method, lambda: (DERIVED, 1, [])),
    "super, self in a cell": (Derived.in_cell, lambda: (DERIVED, 1, [])),
    "star arguments": (unpacking, lambda: (1, [], 2, 3)),
}
DERIVED = Derived()


@pytest.mark.parametrize("name", SAMPLES)
def test_continues_before_every_instruction(name, check_everywhere):
    function, make_arguments = SAMPLES[name]
    checked = check_everywhere(function, make_arguments, lambda peek: peek.resume())
    assert len(checked) > 10


@pytest.mark.parametrize("name", SAMPLES)
def test_continues_after_every_call(name, check_everywhere):
    function, make_arguments = SAMPLES[name]
    start = "PRECALL" if "PRECALL" in OPCODES else "CALL"

    def resume(peek):
        before, call = peek.decoded.instructions[peek.index - 1 : peek.index + 1]
        # Keywords are not on the stack; super() and locals() look at the frame that calls them.
        by_itself = before.op != "KW_NAMES" and before.value not in FRAME_READERS
        if call.op == start and by_itself:
            return peek.resume_after_call()

    check_everywhere(function, make_arguments, resume)
