"""The order of kernels and calls: what frees memory first, as far as results allow."""

import pytest

from pliant.loop.define import Computed, Definition, contiguous
from pliant.loop.early_release import MOST_CALLS, release_early
from pliant.loop.fuse import ExternCall, group_of
from pliant.loop.ir import Op
from pliant.loop.types import Type
from pliant.sym.expr import integer


def sizes(count):
    return (integer(count),)


def given(name, count=8):
    return Definition(name, sizes(count), contiguous(sizes(count)), Type.F32, None)


def product(name, *operands, count=8, **more):
    def at(body, index):
        value, *rest = [body.read(of, of.place(index)) for of in operands]
        for other in rest:
            value = body(Op.MUL, value, other)
        return value

    body = Computed(at)
    return Definition(name, sizes(count), contiguous(sizes(count)), Type.F32, body, **more)


def call(name, *reads, count=8, **more):
    made = given(name, count)
    return made, ExternCall(reads, (made,), name, fresh=True, **more)


def size(definition):
    return 4 * definition.sizes[0].value


def ordered(plan, kept, donated):
    names = []
    for item in release_early(plan, kept, donated, size):
        names.append(item.what if isinstance(item, ExternCall) else str(item.members[0]))
    return names


X, SAVED, OTHER = given("x"), given("saved"), given("other")
ARRIVING, FIRST = call("arriving", X)
WEIGHT, SECOND = call("weight", X, OTHER)
ACTIVATION = product("activation", ARRIVING, SAVED)
LAST, THIRD = call("last", ACTIVATION)


def test_the_gradient_of_an_activation_comes_before_that_of_a_weight():
    plan = [FIRST, SECOND, group_of(ACTIVATION), THIRD]
    names = ordered(plan, {WEIGHT, LAST}, {SAVED})
    assert names == ["arriving", "activation", "weight", "last"]


def test_what_the_caller_keeps_frees_nothing():
    plan = [FIRST, SECOND, group_of(ACTIVATION), THIRD]
    assert ordered(plan, {WEIGHT, LAST}, ())[:2] == ["arriving", "weight"]
    assert ordered(plan, {WEIGHT, LAST, SAVED}, {SAVED})[:2] == ["arriving", "weight"]


def test_what_is_read_later_frees_nothing():
    again, fourth = call("again", SAVED)
    plan = [FIRST, SECOND, group_of(ACTIVATION), THIRD, fourth]
    assert ordered(plan, {WEIGHT, LAST, again}, {SAVED})[:2] == ["arriving", "weight"]


def test_kernels_that_are_launched_together_stay_together():
    small = product("small", X, count=1)
    plan = [FIRST, SECOND, group_of(small), group_of(ACTIVATION), THIRD]
    names = ordered(plan, {WEIGHT, LAST, small}, {SAVED})
    assert names == ["arriving", "small", "activation", "weight", "last"]


def test_what_depends_on_the_call_stays_behind_it():
    behind = product("behind", WEIGHT)
    after = product("after", behind, SAVED)
    plan = [FIRST, SECOND, group_of(behind), group_of(after)]
    names = ordered(plan, {ARRIVING, after}, {SAVED})
    assert names == ["arriving", "weight", "behind", "after"]


@pytest.mark.parametrize("what", ["writes", "finds"])
def test_order_that_matters(what):
    second, activation = SECOND, ACTIVATION
    if what == "writes":
        activation = product("activation", ARRIVING, SAVED, into=given("elsewhere"))
    else:
        second = ExternCall(SECOND.reads, SECOND.makes, "weight", finds=("u0",), fresh=True)
    plan = [FIRST, second, group_of(activation), THIRD]
    assert ordered(plan, {WEIGHT, LAST}, {SAVED})[:2] == ["arriving", "weight"]


def test_it_passes_some_calls_only():
    made = [call(f"weight{i}", X) for i in range(MOST_CALLS + 2)]
    plan = [FIRST, *[c for _, c in made], group_of(ACTIVATION), THIRD]
    names = ordered(plan, {LAST, *[d for d, _ in made]}, {SAVED})
    assert names.index("activation") == 3
    assert sorted(names) == sorted(["arriving", "activation", "last", *[str(d) for d, _ in made]])
