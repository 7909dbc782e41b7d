"""C functions and methods called with too many, too few or misnamed arguments raise what Python
raises, inside the graph's program."""

import math

import pytest
import torch

from tests.support.against_eager import check

X = torch.arange(3.0)


class Dictionary(dict):
    pass


class Items(list):
    pass


class Tags(set):
    pass


CALLS = [
    "Dictionary(a=x).clear(1)", "Dictionary().get()", "{}.pop()", "{}.items(1)", "{}.setdefault()",
    "{}.update(1, 2)", "dict.fromkeys()", "dict.get(3)", "Items([x]).append()", "[].append(1, x)",
    "[x].index()", "[].insert(1)", "[].pop(1, 2)", "[].sort(1)", "list.append(1, 2)", "[].extend()",
    "Tags().copy(1)", "frozenset().copy(x)", "{1}.isdisjoint()", "{1}.add()", "{1}.pop(1)",
    "(1, x).count()", "'a'.upper(1)", "'a'.join()", "(1).bit_length(3)", "len()", "len(x, 2)",
    "isinstance(x)", "iter()", "next()", "abs()", "hash()", "sum()", "getattr(x)",
    "setattr(x, 'a')", "pow(1)", "round()", "divmod(1)", "all()", "max()", "sorted()",
    "sorted([1], foo=1)", "zip(1)",
    "reversed()", "range()", "enumerate()", "list(1, 2)", "set(1, 2)", "int(1, 2, 3)",
]  # fmt: skip


@pytest.mark.parametrize("call", CALLS)
def test_python_says_what_is_wrong(call):
    function = eval(f"lambda x: (x + 1, {call})")  # the names are of this module
    check(function, X)

    def caught(x):
        try:
            function(x)
        except TypeError as error:
            return x + 1, str(error)

    check(caught, X, graphs=1)


class NotAnInteger:
    def __index__(self):
        return "a"


def outcome(action):
    try:
        return action()
    except Exception as error:
        return type(error).__name__, str(error)


def wrong_indices(x):
    bad = NotAnInteger()
    actions = (
        lambda: range(bad), lambda: [1][bad], lambda: (1, 2)[bad:], lambda: hex(bad),
        lambda: slice(bad).indices(3), lambda: [1].pop(bad), lambda: [1].insert(bad, 2),
    )  # fmt: skip
    return x + 1, [outcome(action) for action in actions]


def wrong_exceptions(x):
    made = []

    class NoException:
        def __init__(self):
            made.append(1)

    class NotItself(Exception):
        def __new__(cls):
            return 5

    def throw(error, *causes):
        if causes:
            raise error from causes[0]
        raise error

    texts = [outcome(lambda e=e: throw(e)) for e in (NoException, int, 3, "a")]
    texts += [outcome(lambda e=e: throw(ValueError(), e)) for e in (NoException, 3, "a")]
    return x + 1, texts, made, outcome(lambda: throw(NotItself))[0]


def missing_attributes(x):
    notes = []
    for obj in ({}, [], (), {1}, "a", 3, x):
        try:
            obj.foo  # noqa: B018
        except AttributeError as error:
            notes.append((error.name, error.obj is obj))
    return x + 1, notes


@pytest.mark.parametrize("program", [wrong_indices, wrong_exceptions, missing_attributes])
def test_what_errors_say(program):
    check(program, X)


def returning(name, value):
    return type("Odd", (), {name: lambda self, *args: value})


ODD = [
    returning("__bool__", 3), returning("__bool__", None), returning("__len__", -1),
    returning("__len__", "a"), returning("__len__", 2**70), returning("__complex__", 2),
    returning("__float__", 1), returning("__bytes__", "a"), returning("__trunc__", "b"),
    returning("__index__", 2), object,
]  # fmt: skip
ASKED = {
    "bool": bool, "not": lambda odd: not odd, "if": lambda odd: 1 if odd else 2, "len": len,
    "any": lambda odd: any([odd]), "complex": complex, "float": float, "bytes": bytes,
    "trunc": math.trunc, "sqrt": math.sqrt, "text": lambda odd: "a" + [odd],
    "twice": lambda odd: b"a" * {1: odd}, "filter": lambda odd: len(list(filter(None, [odd]))),
}  # fmt: skip


@pytest.mark.parametrize("name", ASKED)
def test_special_methods_that_return_something_else(name):
    asked = ASKED[name]
    check(lambda x: (x + 1, [outcome(lambda cls=cls: asked(cls())) for cls in ODD]), X)
