"""`except*` and the methods of exception groups."""

from __future__ import annotations

import pytest
import torch

from tests.support.against_eager import check

X = torch.ones(2)


def nested():
    inner = ExceptionGroup("inner", [ValueError(3), KeyError(4)])
    return ExceptionGroup("outer", [ValueError(1), TypeError(2), inner])


def caught_in_parts(x):
    caught = []
    try:
        raise nested()
    except* ValueError as group:
        caught.append((group.message, [repr(e) for e in group.exceptions]))
    except* (TypeError, KeyError) as group:
        caught.append([repr(e) for e in group.exceptions])
    return caught, x + 1


def rest_goes_on(x):
    try:
        try:
            raise nested()
        except* ValueError:
            x = x + 1
    except ExceptionGroup as group:
        return repr(group), x


def handler_raises(x):
    try:
        try:
            raise ExceptionGroup("g", [ValueError(1), TypeError(2)])
        except* ValueError:
            raise KeyError("new")  # noqa: B904
    except ExceptionGroup as group:
        return group.message, [repr(e) for e in group.exceptions], x + 1


def handler_raises_again(x):
    try:
        try:
            raise ExceptionGroup("g", [ValueError(1), TypeError(2)])
        except* ValueError:
            raise
    except ExceptionGroup as group:
        return repr(group), x + 1


def plain_exception(x):
    try:
        raise ValueError("q")
    except* ValueError as group:
        text = repr(group)
    return text, x + 1


def not_caught(x):
    try:
        raise ValueError("q")
    except* TypeError:
        x = x + 1
    return x


def part_leaves_the_function(x):
    try:
        raise ExceptionGroup("g", [ValueError(1), TypeError(2)])
    except* ValueError:
        pass


def nothing_raised(x):
    order = []
    try:
        y = x + 1
    except* ValueError:
        order.append("no")
    else:
        order.append("else")
    finally:
        order.append("finally")
    return order, y


def by_hand(x):
    group = nested()
    match, rest = group.split(ValueError)
    by_test = group.subgroup(lambda e: isinstance(e, TypeError))
    return repr(match), repr(rest), repr(by_test), group.derive([KeyError(1)]).message, x + 1


def refused_conditions(x):
    texts = []
    for condition in (3, int, [ValueError], (ValueError, 3)):
        try:
            nested().split(condition)
        except TypeError as error:
            texts.append(str(error))
    return x + 1, texts


@pytest.mark.parametrize(
    "program",
    [
        caught_in_parts, rest_goes_on, handler_raises, handler_raises_again, plain_exception,
        not_caught, part_leaves_the_function, nothing_raised, by_hand,
        refused_conditions,
    ],
)  # fmt: skip
def test_exception_groups(program):
    check(program, X)
