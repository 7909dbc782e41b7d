"""How often graph breaks make pliant compile, what it reports, and what `fullgraph=True`
refuses."""

import contextlib
import types

import pytest
import torch

import pliant
from pliant.base import events
from tests.support.against_eager import check
from tests.support.programs import note

X = torch.arange(6.0).reshape(2, 3)


def compilations(function, *args):
    compiled = pliant.compile(function)
    events.counters.reset()
    result = compiled(*args)
    return events.counters["compilations"], result


# ---- loops


def over_layers(x, layers, log):
    for layer in layers:
        x = layer(x)
        note(log, "layer")
    return x


def test_one_compilation_for_all_layers():
    counts = []
    for number in (2, 5, 9):
        layers = [torch.nn.Linear(3, 3) for _ in range(number)]
        count, result = compilations(over_layers, X, layers, [])
        torch.testing.assert_close(result, over_layers(X, layers, []))
        counts.append(count)
    assert counts[0] >= counts[1] == counts[2] <= 4


def for_range(x, n, log):
    for _ in range(n):
        x = x + 1
        note(log, "step")
    return x


def in_a_callee(x, n, log):
    def step(y):
        z = y + 1
        note(log, "step")
        return z

    for _ in range(n):
        x = step(x)
    return x


def under_with(x, n, log):
    with torch.no_grad():
        for _ in range(n):
            x = x + 1
            note(log, "step")
    return x


def in_try(x, n, log):
    for _ in range(n):
        try:
            x = x + 1
            note(log, "step")
        finally:
            x = x * 1
    return x


def with_closure(x, n, log):
    total = x

    def add(y):
        nonlocal total
        total = total + y

    for _ in range(n):
        add(1)
        note(log, "step")
    return total


def while_on_data(x, n, log):
    while x[0, 0] < n:
        x = x + 1
        log.append("step")
    return x


def tail_recursive(x, n, log):
    def loop(y):
        for _ in range(n):
            y = y + 1
            note(log, "step")
        return y

    return loop(x)


LOOPS = [for_range, in_a_callee, under_with, in_try, with_closure, while_on_data, tail_recursive]


@pytest.mark.parametrize("function", LOOPS)
def test_many_iterations(function):
    log = []
    count, result = compilations(function, X, 2000, log)
    assert torch.equal(result, X + 2000)
    assert len(log) == 2000
    few, _ = compilations(function, X, 8, [])
    assert count <= few <= 8


# ---- callees


def ten_breaks(x, log):
    for i in range(10):
        x = x + 1
        note(log, i)
    note(log, "a")
    x = x * 2
    note(log, "b")
    x = x * 2
    note(log, "c")
    x = x * 2
    note(log, "d")
    x = x * 2
    note(log, "e")
    x = x * 2
    note(log, "f")
    x = x * 2
    note(log, "g")
    x = x * 2
    note(log, "h")
    x = x * 2
    note(log, "i")
    return x * 2


def calls_ten_breaks(x, log):
    y = x + 1
    return ten_breaks(y, log) + y


def test_many_breaks_in_a_callee_are_no_recompilations():
    compiled = pliant.compile(calls_ten_breaks)
    events.counters.reset()
    log = []
    assert torch.equal(compiled(X, log), calls_ten_breaks(X, []))
    assert events.counters["limit_reached"] == 0
    before = events.counters["compilations"]
    compiled(X, [])
    assert events.counters["compilations"] == before


def graphs_of(function, *args):
    graphs = []

    def keep(gm, inputs):
        graphs.append(gm)
        return gm.forward

    result = pliant.compile(function, backend=keep)(*args)
    expected = function(*args)
    torch.testing.assert_close(result, expected)
    return [[node.target for node in gm.graph.nodes if node.op.startswith("call")] for gm in graphs]


def leaf(x, log):
    y = torch.sin(x)
    note(log, "leaf")
    return torch.cos(y)


def middle(x, log):
    y = torch.exp(x)
    return torch.tan(leaf(y, log))


def top(x, log):
    y = torch.neg(x)
    return torch.abs(middle(y, log))


def test_callers_and_callees_share_graphs():
    first, second = graphs_of(top, X, [])
    assert first == [torch.neg, torch.exp, torch.sin]
    assert second == [torch.cos, torch.tan, torch.abs]


def test_dead_operations_in_try_stay():
    def is_positive(x):
        try:
            torch.linalg.cholesky(x)
        except RuntimeError:
            return x * 0
        return x + 1

    check(is_positive, torch.eye(3), breaks=0)
    check(is_positive, -torch.eye(3), breaks=0)


# ---- reports


def test_break_is_reported_where_it_is(seen):
    pliant.compile(top)(X, [])
    (broke,) = seen(events.GraphBroke)
    assert broke.code == "disabled"
    assert broke.position.source_line() == 'note(log, "leaf")'
    assert [position.function for position in broke.stack] == ["top", "middle"]


def test_break_in_a_callback_is_reported_where_it_is(seen):
    def sorts(x, log):
        return [x + v for v in sorted([2, 1], key=lambda v: note(log, v))]

    pliant.compile(sorts)(X, [])
    first = seen(events.GraphBroke)[0]
    assert first.position.function.endswith("<lambda>")


def after_a_break(x, log):
    note(log, 1)
    y = x + 1
    note(log, 2)
    return y


def test_parts_of_a_function_have_its_name(seen):
    pliant.compile(after_a_break)(X, [])
    for broke in seen(events.GraphBroke):
        assert broke.position.function == "after_a_break"


# ---- fullgraph


def refused(function, *args):
    with pytest.raises(pliant.errors.GraphBreakError) as caught:
        pliant.compile(function, fullgraph=True)(*args)
    return caught.value


def test_fullgraph_names_the_place_the_cause_and_the_remedy():
    log = []
    error = refused(top, X, log)
    assert log == []
    assert error.code == "disabled"
    assert error.position.source_line() == 'note(log, "leaf")'
    for part in ("leaf", "[disabled]", "test_compile_counts_at_breaks.py:", "why:", "what to do:"):
        assert part in str(error)


def test_fullgraph_refuses_branches_on_data():
    def branches(x):
        return x + 1 if x.sum() > 0 else x

    assert refused(branches, X).code == "data-dependent-branch"


def test_fullgraph_can_be_tried_again():
    def breaks(x, flag):
        if flag:
            pliant.graph_break()
        return x + 1

    compiled = pliant.compile(breaks, fullgraph=True)
    for _ in range(2):
        with pytest.raises(pliant.errors.GraphBreakError):
            compiled(X, True)
        assert torch.equal(compiled(X, False), X + 1)


def test_fullgraph_lets_the_users_exceptions_through():
    def raises(x):
        raise KeyError("mine")

    def wrong_shapes(x):
        return x @ x

    def unpacks(x):
        a, b, c = x
        return a

    def bad_call(x):
        return raises(x, 1, 2)

    for function in (raises, wrong_shapes, unpacks, bad_call):
        check(function, X, breaks=None, fullgraph=True)


# ---- what can't be captured


def test_function_that_cannot_be_captured_runs_as_it_is():
    def suspended(x, log):
        frame_like = types.SimpleNamespace(x=x)
        note(log, "a")
        with contextlib.ExitStack() as stack:
            stack.callback(note, log, "left")
            frame_like.x = frame_like.x + 1
            note(log, "in")
        return frame_like.x, locals().keys()

    check(suspended, X, [], breaks=None)


async def coroutine(x):
    return x + 1


def test_coroutine():
    made = pliant.compile(coroutine)(X)
    with pytest.raises(StopIteration) as stop:
        made.send(None)
    assert torch.equal(stop.value.value, X + 1)


def test_class_definition():
    def defines(x):
        class Scale:
            factor = 3

            def __call__(self, y):
                return y * self.factor

        return Scale()(x) + 1

    check(defines, X, breaks=None)
