"""Assertions of `unittest` and `pytest`, and mocks, are followed like other Python code."""

import re
import unittest
import warnings
from unittest import mock

import pytest
import torch

import pliant
from pliant.capture import directives
from tests.support.against_eager import check

X = torch.arange(6.0).reshape(2, 3)


class Case(unittest.TestCase):
    value = 1


CASE = Case()
MOCK = mock.MagicMock(return_value=3)


def fails(message):
    raise ValueError(message)


def plain_assertions(x):
    CASE.assertTrue(x.dim() == 2)
    CASE.assertIs(x, x)
    CASE.assertIsNone(None, "a message")
    CASE.assertIsInstance([x], list)
    CASE.assertIn("a", {"a": x})
    CASE.assertLess(1, x.shape[0])
    CASE.assertAlmostEqual(1.0, 1.0 + 1e-12)
    CASE.assertRegex("abc", "b.")
    return x + 1


def assertions_of_containers(x):
    CASE.assertEqual([1, (2, 3)], [1, (2, 3)])
    CASE.assertEqual({"a": 1}, {"a": 1})
    CASE.assertEqual({1, 2}, {2, 1})
    CASE.assertEqual("one\ntwo", "one\ntwo")
    CASE.assertCountEqual([1, 2], [2, 1])
    CASE.assertNotEqual((1,), (2,))
    return x + 1


def expected_exception(x):
    with CASE.assertRaises(ValueError) as context:
        fails("because")
    CASE.assertRaises(ValueError, fails, "again")
    return x + len(str(context.exception)), context.exception.args


def expected_text(x):
    with CASE.assertRaisesRegex(ValueError, "bec.*"):
        fails("because")
    with pytest.raises(ValueError, match="bec") as info:
        fails("because")
    return x + 1, str(info.value)


def expected_warning(x):
    with CASE.assertWarns(UserWarning):
        warnings.warn("look", UserWarning, stacklevel=1)
    return x + 1


def parts(x):
    for number in range(2):
        with CASE.subTest(number=number):
            CASE.assertLess(number, 2)
    return x + 1


def patched(x):
    with mock.patch.object(CASE, "value", 5):
        return x * CASE.value


@pytest.mark.parametrize(
    "function",
    [
        plain_assertions,
        assertions_of_containers,
        expected_exception,
        expected_text,
        expected_warning,
        parts,
        patched,
    ],
)
def test_assertions_do_not_break(function):
    check(function, X, graphs=1)


def test_calls_of_mocks_are_recorded_outside_of_the_graph():
    def function(x):
        return x * MOCK(2)

    compiled = check(function, X, breaks=1, compilations=2)
    for _ in range(3):
        compiled(X)
    assert pliant.counters["compilations"] == 2
    assert MOCK.call_count == 2 + 2 + 3


def missing_exception(x):
    with CASE.assertRaises(ValueError):
        x = x + 1
    return x


@pytest.mark.parametrize(
    "function",
    [
        lambda x: CASE.assertEqual([1, 2, x.dim()], [1, 2, 3], "three"),
        lambda x: CASE.assertEqual({"a": 1}, {"a": 2}),
        lambda x: CASE.assertIn(3, [1, 2]),
        lambda x: CASE.assertRaisesRegex(ValueError, "other", fails, "because"),
        missing_exception,
    ],
)
def test_failing_assertions_say_the_same(function):
    with pytest.raises(AssertionError) as eager:
        function(X)
    with pytest.raises(AssertionError, match=re.escape(str(eager.value))):
        check(function, X)  # it has compared both; it raises no more than that
        function(X)


def test_code_that_reads_files_is_not_followed():
    assert directives.is_followed(CASE.assertEqual.__func__)
    assert not directives.is_followed(__import__("traceback").format_exc)
    assert not directives.is_followed(__import__("tempfile").mkdtemp)
