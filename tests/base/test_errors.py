import inspect
import pickle

import pytest

from pliant.base import errors
from pliant.base.errors import PliantError, closest, explain
from pliant.base.position import Position

CLASSES = [
    cls for _, cls in inspect.getmembers(errors, inspect.isclass) if issubclass(cls, PliantError)
]


@pytest.mark.parametrize("cls", CLASSES, ids=lambda cls: cls.__name__)
def test_each_class_has_a_help_page_and_survives_pickling(cls):
    assert cls.__doc__ and cls.__name__ in errors.__all__
    error = cls("it broke", why="because", remedy="mend it", position=Position("a.py", 3), code="x")
    copy = pickle.loads(pickle.dumps(error))
    assert type(copy) is cls and str(copy) == str(error) and copy.position == error.position


def test_message_says_what_where_why_and_what_to_do():
    error = errors.GraphBreakError(
        "a break",
        why="reason",
        remedy="remedy",
        position=Position("a.py", 3, "f"),
        code="some-code",
    )
    assert str(error).split("\n") == [
        "a break [some-code]",
        "  at a.py:3 in f",
        "  why: reason",
        "  what to do: remedy",
    ]


def test_what_alone():
    assert str(errors.PliantError("just this")) == "just this"


def test_stack_is_shown_from_the_inside_out():
    stack = (Position("a.py", 1, "outer"), Position("b.py", 2, "middle"))
    text = explain("what", position=Position("c.py", 3, "inner"), stack=stack)
    order = [text.index(name) for name in ("inner", "middle", "outer")]
    assert order == sorted(order)


def test_further_lines_keep_their_shape():
    assert explain("what", remedy="write\n    x = 1").endswith("write\n          x = 1")


def test_builtin_families():
    assert issubclass(errors.NotCallableError, TypeError)
    assert issubclass(errors.UnknownBackendError, ValueError)
    assert issubclass(errors.UnknownOptionError, AttributeError)


def test_closest():
    assert (
        closest("recompile_limt", ["mode", "recompile_limit"]) == "did you mean 'recompile_limit'?"
    )
    assert closest("zzz", ["mode"]) == ""


def test_warning_points_at_the_users_line():
    with pytest.warns(errors.PliantWarning) as caught:
        errors.warn("careful", Position("user.py", 12, "f"))
    assert (caught[0].filename, caught[0].lineno) == ("user.py", 12)
