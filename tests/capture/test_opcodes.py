"""Every opcode of the running Python version has a handler or a meaning that is followed."""

import dis
import sys

import pytest
import torch

import pliant
import pliant.capture.capture  # noqa: F401  fills the table
from pliant.base import events
from pliant.bytecode.tables import OPCODES
from pliant.capture.interpreter import HANDLERS
from pliant.capture.opcodes.meanings import follow_meaning, meaning

BY_MEANING = [name for name, handler in HANDLERS.items() if handler.run is follow_meaning]


def test_no_opcode_is_missing():
    replaced = {name for name, info in OPCODES.items() if _is_replaced(name, info)}
    assert sorted(set(OPCODES) - set(HANDLERS)) == sorted(replaced)


def _is_replaced(name, info):
    """Whether others are decoded in its place."""
    return info.parts is not None and name not in dict(info.parts(0))


@pytest.mark.parametrize("name", BY_MEANING)
def test_a_meaning_is_said_in_other_opcodes(name):
    count, _ = OPCODES[name].stack(3)
    code = meaning(name, count).code
    assert name not in {each.opname for each in dis.get_instructions(code)}


class Slow:
    """Looking at its attribute breaks the graph."""

    __match_args__ = ("size", "kind")
    kind = "slow"

    @property
    def size(self):
        pliant.graph_break()
        return 3

    def __format__(self, spec):
        pliant.graph_break()
        return f"slow{spec}"


def class_patterns(x, item):
    y = x + 1
    match item:
        case Slow(4):
            return y - 1
        case Slow(3, kind="slow" | "fast" as kind):
            return y * len(kind)
        case int(n) | float(n):
            return y + n
        case Slow(1, 2, 3):
            return y
    return y * 7


def texts(x, item):
    y = x + 1
    text = f"{item}, {item!r:>6.4} and {x.size(0)}{item:>3}"
    return y * 2, text


ITEMS = [Slow(), 3, 2.5, "a"]


@pytest.mark.parametrize("function", [class_patterns, texts])
@pytest.mark.parametrize("item", ITEMS, ids=lambda item: type(item).__name__)
def test_breaks_inside_a_meaning(function, item, seen):
    if function is texts and not isinstance(item, Slow):
        item = str(item)
    compiled = pliant.compile(function)
    for size in (2, 3):
        x = torch.arange(size) * 1.5
        assert run(compiled, x, item) == run(function, x, item)
    assert seen(events.GraphCaptured) and not seen(events.RanOriginal)


def run(function, *args):
    try:
        return repr(function(*args))
    except TypeError as error:
        return str(error)


@pytest.mark.skipif(sys.version_info < (3, 14), reason="template strings came with Python 3.14")
def test_template_strings():
    namespace = {}
    exec("def function(x, n): y = x + 1; return y * 2, t'{n} of {y.size(0)!r:>{n}}!'", namespace)
    function = namespace["function"]
    (y, template), (expected_y, expected) = (
        each(torch.ones(2), 3) for each in (pliant.compile(function), function)
    )
    torch.testing.assert_close(y, expected_y)
    assert template.strings == expected.strings
    assert repr(template) == repr(expected)
