"""The checker of captures names each invariant that is broken."""

import dataclasses

import pytest

from pliant.base.deferred import made
from pliant.base.external import External
from pliant.driver import check as checker
from pliant.driver.check import MalformedCaptureError, check
from pliant.guards.guard import Guard, GuardKind
from pliant.guards.source import Fixed, Local
from pliant.stages import Captured, CapturedParts, NodeRef
from pliant.sym.expr import symbol
from tests.support.captures import compiled

NOWHERE = External(10_000, "<nothing>")


PARTS = {field.name for field in dataclasses.fields(CapturedParts)}


def replace(value, **changes):
    """As that of the standard library, also for the parts of a capture."""
    if isinstance(value, Captured) and PARTS & changes.keys():
        changes = {"parts": made(replace(value.parts(), **changes))}
    return dataclasses.replace(value, **changes)


def broken(name, change):
    one = compiled(name)[3][0]
    check(one.captured, one.bindings)
    captured = change(one.captured)
    with pytest.raises(MalformedCaptureError) as error:
        check(captured, one.bindings)
    return str(error.value)


def graph(captured, **changes):
    return replace(captured, graph=replace(captured.graph, **changes))


def node(captured, op, **changes):
    """The first node of a kind, changed."""
    at = next(i for i, n in enumerate(captured.graph.nodes) if n.op == op)
    nodes = list(captured.graph.nodes)
    nodes[at] = replace(nodes[at], **changes)
    return graph(captured, nodes=tuple(nodes))


def guards(captured, *more):
    return replace(captured, guards=(*captured.guards[len(more) :], *more))


def shape(captured):
    at = next(i for i, g in enumerate(captured.guards) if g.kind is GuardKind.SHAPE)
    guard = captured.guards[at]
    changed = replace(guard, expected=replace(guard.expected, loads=()))
    return replace(captured, guards=(*captured.guards[:at], changed, *captured.guards[at + 1 :]))


def resume(captured, **changes):
    first, *rest = captured.resumes
    return replace(captured, resumes=(replace(first, **changes), *rest))


BROKEN = {
    "placeholder l_x has no source": ("plain", lambda c: graph(c, inputs=())),
    "the input L['x'] is no slot": ("plain", lambda c: replace(c, slots=())),
    "0 layouts for 1 placeholders": ("plain", lambda c: graph(c, layouts=())),
    "L['y'] is not reachable, there is no such parameter": (
        "plain",
        lambda c: guards(c, Guard(GuardKind.LENGTH, Local(3, "y"), 2)),
    ),
    "its root is no object of the table": (
        "plain",
        lambda c: guards(c, Guard(GuardKind.LENGTH, Fixed(NOWHERE, "G"), 2)),
    ),
    "L['z'] is not reachable": (
        "plain",
        lambda c: guards(c, Guard(GuardKind.SAME, c.slots[0], (Local(1, "z"),))),
    ),
    "a slot: L['w'] is not reachable": ("plain", lambda c: replace(c, slots=(Local(1, "w"),))),
    "not as many guards are bound": ("plain", lambda c: replace(c, guards=c.guards[1:])),
    "not as many slots are bound": ("plain", lambda c: replace(c, slots=c.slots * 2)),
    "there is a graph in one of": ("plain", lambda c: replace(c, graph=None)),
    "graph_of_plain in the residual code is not bound": (
        "plain",
        lambda c: replace(c, graph_name="another"),
    ),
    "does not call the graph": ("plain", lambda c: replace(c, graph_line=1)),
    "no_such_name in the residual code is not bound": (
        "plain",
        lambda c: replace(c, residual=c.residual.replace("return ", "return no_such_name, ")),
    ),
    "2 slots for 1 parameters": ("plain", lambda c: replace(c, slots=c.slots * 2)),
    "the residual code has no line 99": ("plain", lambda c: replace(c, lines={99: ()})),
    "extra stands for no object": ("plain", lambda c: replace(c, namespace={"extra": NOWHERE})),
    "calls inner, which is not made before it": (
        "break",
        lambda c: resume(c, inner=("inner",)),
    ),
    "<nothing> is no object of the table": ("break", lambda c: resume(c, namespace=NOWHERE)),
    "later is not defined before it": (
        "plain",
        lambda c: node(c, "call_function", args=(NodeRef("later"), [NodeRef("later")])),
    ),
    "there is no such attribute": (
        "control flow",
        lambda c: graph(c, attributes={}),
    ),
    "symbol s77 is not defined": (
        "plain",
        lambda c: graph(
            c, layouts=(replace(c.graph.layouts[0], sizes=(symbol("s77") * 2, symbol("s77") + 1)),)
        ),
    ),
    "symbols, 0 loads": ("dynamic", shape),
}


@pytest.mark.parametrize("message", BROKEN)
def test_each_broken_invariant_is_named(message):
    assert message in broken(*BROKEN[message])


def test_captures_are_checked_in_tests(monkeypatch):
    seen = []
    monkeypatch.setattr(checker, "check", lambda *args: seen.append(args))
    compiled("break")
    assert len(seen) == 2  # the function and its resume function


def test_captures_are_not_checked_otherwise(monkeypatch):
    from pliant.base.options import config

    monkeypatch.setattr(checker, "check", lambda *args: 1 / 0)
    with config.patch(check_ir=False):
        compiled("plain")
