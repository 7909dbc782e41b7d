"""`skip_frame` and `step_unsupported`: a function, or the rest of it, runs in plain Python."""

import pytest
import torch

import pliant

X = torch.ones(3)


def compiled(function):
    """The compiled function, and the operations of its graphs, graph by graph."""
    graphs = []

    def backend(gm, examples):
        graphs.append(sum(node.op == "call_function" for node in gm.graph.nodes))
        return gm.forward

    return pliant.compile(function, backend=backend), graphs


def test_a_skipped_function_has_no_graph():
    def program(x):
        x = x + 1
        pliant.skip_frame()
        return x + 1

    function, graphs = compiled(program)
    for _ in range(2):
        torch.testing.assert_close(function(X), X + 2)
    assert graphs == []


def test_what_comes_before_a_break_is_not_skipped():
    def program(x):
        x = x + 1
        pliant.graph_break()
        x = x + 1
        pliant.skip_frame()
        return x + 1

    function, graphs = compiled(program)
    for _ in range(2):
        torch.testing.assert_close(function(X), X + 3)
    assert graphs == [1]


def skips(x):
    x = x + 1
    pliant.skip_frame()
    return x + 1


def test_the_caller_of_a_skipped_function_is_compiled_around_it():
    function, graphs = compiled(lambda x: skips(x * 2) * 3)
    for _ in range(2):
        torch.testing.assert_close(function(X), X * 12)
    assert graphs == [1, 1]


def test_fullgraph_refuses_both():
    for directive in (pliant.skip_frame, pliant.step_unsupported):
        with pytest.raises(pliant.errors.GraphBreakError, match=directive.__name__):
            pliant.compile(lambda x, d=directive: (d(), x + 1)[1], fullgraph=True)(X)


def test_the_rest_of_a_function_runs_in_python():
    def program(x):
        x = x + 1 + 2
        pliant.step_unsupported()
        assert not pliant.is_compiling()
        return x + 4

    function, graphs = compiled(program)
    for _ in range(2):
        torch.testing.assert_close(function(X), X + 7)
    assert graphs == [2]


def test_callers_go_on_in_a_graph():
    def inner(x):
        pliant.step_unsupported()
        assert not torch.is_grad_enabled()
        return x + 1

    def program(x):
        with torch.no_grad():
            return inner(x + 8) * 2 + 16

    function, graphs = compiled(program)
    x = X.clone().requires_grad_()
    for _ in range(2):
        result = function(x)
        torch.testing.assert_close(result, (X + 9) * 2 + 16)
        assert not result.requires_grad
    assert len(graphs) == 2
    assert torch.is_grad_enabled()


def test_a_stack_that_is_not_empty():
    def inner(x):
        x = x + 1
        pliant.step_unsupported()
        return x

    def program(x):
        x = x + 1
        pair = (x, inner(x))
        return x, pair

    function, _ = compiled(program)
    for _ in range(2):
        x, pair = function(X)
        assert pair[0] is x
        torch.testing.assert_close(pair[1], X + 2)


def test_uncompiled_they_do_nothing():
    torch.testing.assert_close(skips(X), X + 2)
    assert pliant.step_unsupported() is None
