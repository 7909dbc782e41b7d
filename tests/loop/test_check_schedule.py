"""Each invariant of a schedule, broken by hand: the checker names it."""

from dataclasses import replace

import pytest

from pliant.base.malformed import MalformedStageError
from pliant.loop.check_schedule import check_scheduled
from pliant.loop.define import Computed, Definition, contiguous
from pliant.loop.fuse import ExternCall, FusionGroup, group_of, probe
from pliant.loop.ir import Op
from pliant.loop.scheduled import ScheduledCall, ScheduledGroup, plan_schedule
from pliant.loop.types import Type
from pliant.sym.expr import symbol

N = symbol("s0")


def given(name, type=Type.F32, **more):
    return Definition(name, (N,), contiguous((N,)), type, **more)


def doubled(name, of, type=Type.F32, **more):
    def at(body, index):
        value = body.read(of, of.place(index))
        return body(Op.ADD, value, value)

    return Definition(name, (N,), contiguous((N,)), type, Computed(at), **more)


def called(name, *reads):
    made = given(name)
    return made, ExternCall(reads, (made,), "aten.mm", fresh=True)


def chain():
    """in0 -> a -> a call -> b -> c, of which b takes the memory of what the call made."""
    x = given("in0")
    a = doubled("a", x)
    made, call = called("r", a)
    b = doubled("b", made)
    other, second = called("q", b)
    c = doubled("c", other)
    return x, plan_schedule([a, call, b, second, c], [x], [], {c}, {})


X, GOOD = chain()
A, CALL, B, SECOND, C = GOOD.items
(OF_A,), (OF_B,), (OF_C,) = A.group.members, B.group.members, C.group.members
R = CALL.call.makes[0]


def test_buffers_are_reused():
    assert B.reuse == {OF_B: R} and check_scheduled(GOOD) is GOOD


def with_items(*items):
    return replace(GOOD, items=items)


def two_devices():
    group = FusionGroup((N,), None)
    for member in (doubled("d", X), doubled("e", X, device="cuda")):
        group.add(member, probe(member))
    return ScheduledGroup(group, frozenset(group.members), {}, (), False)


def twice_in_a_group():
    group = group_of(OF_A)
    group.members.append(OF_A)
    return replace(A, group=group)


LATE = ScheduledCall(ExternCall((R,), (), "aten.late"), False)
WRITE = doubled("w", X, into=given("elsewhere"))
BROKEN = {
    "aten.mm reads a before it is stored": with_items(CALL, A, B, SECOND, C),
    "b reads r before it is stored": with_items(A, B, CALL, SECOND, C),
    "aten.late reads r, whose memory b has taken": with_items(A, CALL, B, LATE, SECOND, C),
    "a is stored twice": with_items(A, A, CALL, B, SECOND, C),
    "the caller reads c before it is stored": with_items(A, CALL, B, SECOND),
    "the caller reads r, whose memory b has taken": replace(GOOD, kept=frozenset((R,))),
    "c is stored by a group that does not compute it": with_items(
        replace(A, stored=frozenset((OF_A, OF_C))), CALL, B, SECOND, C
    ),
    "a is in its group twice": with_items(twice_in_a_group(), CALL, B, SECOND, C),
    "e is on cuda, unlike its group": with_items(*GOOD.items, two_devices()),
    "b is not stored, and has the memory of r": with_items(
        A, CALL, replace(B, stored=frozenset()), SECOND, C
    ),
    "takes the memory of in0, which belongs to the caller": with_items(
        replace(A, reuse={OF_A: X}), CALL, B, SECOND, C
    ),
    "of another type": with_items(
        A, CALL, replace(B, reuse={OF_B: given("k", Type.I64)}), SECOND, C
    ),
    "the write of w reads elsewhere before": with_items(
        *GOOD.items, ScheduledGroup(group_of(WRITE), frozenset((WRITE,)), {}, (), False)
    ),
}


@pytest.mark.parametrize("problem", BROKEN)
def test_what_is_wrong_with_a_schedule(problem):
    with pytest.raises(MalformedStageError, match=problem):
        check_scheduled(BROKEN[problem])


def test_text():
    lines = str(GOOD).splitlines()
    assert lines[0] == "scheduled(in0: f32[s0])"
    assert "    a: f32[s0] = computed from in0 in memory" in lines
    assert "    b: f32[s0] = computed from r in the memory of r" in lines
    assert "  r = call aten.mm(a)" in lines and lines[-1] == "  keep c"
