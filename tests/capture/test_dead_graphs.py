"""Operations whose results nobody needs, and changes of the gradient mode that do nothing."""

import pytest
import torch

import pliant
from pliant.base import events
from tests.support.against_eager import check

X = torch.tensor([[1.0, -2.0], [0.5, 3.0]])


def shape_only(x):
    return torch.sin(x @ x).shape


def picked(x):
    return (x, x + 1, torch.zeros(2) + x)[0]


def nothing(x):
    torch.ones(3, 4) + 1


@pytest.fixture
def graphs():
    return []


@pytest.fixture
def backend(graphs):
    def record(gm, example_inputs):
        graphs.append(gm)
        return gm.forward

    return record


def calls(gm):
    return [node for node in gm.graph.nodes if node.op.startswith("call_")]


@pytest.mark.parametrize("program", [shape_only, picked, nothing])
def test_a_backend_is_given_what_nobody_needs(program, graphs, backend) -> None:
    compiled = pliant.compile(program, backend=backend, fullgraph=True)
    for _ in range(2):
        result, expected = compiled(X), program(X)
        assert type(result) is type(expected)
        assert result is X if program is picked else result == expected
    [gm] = graphs
    gm.graph.lint()
    assert calls(gm)


@pytest.mark.parametrize("program", [shape_only, picked, nothing])
def test_generated_code_has_no_part_for_it(program) -> None:
    before = events.counters["graphs"]
    pliant.compile(program, backend="llvm", fullgraph=True)(X)
    assert events.counters["graphs"] == before


def test_dead_operations_beside_live_ones_are_dropped(graphs, backend) -> None:
    def program(x):
        return torch.sin(x).shape, x * 2

    pliant.compile(program, backend=backend)(X)
    assert len(calls(graphs[0])) == 1


def test_only_inputs_make_no_graph(graphs, backend) -> None:
    assert pliant.compile(lambda x: (x, x.shape), backend=backend)(X)[0] is X
    assert not graphs


# ---- the gradient mode


def several_modes(x):
    torch.set_grad_enabled(False)
    torch.set_grad_enabled(True)
    torch.set_grad_enabled(False)
    y = x * 2
    torch.set_grad_enabled(True)
    return y, torch.is_grad_enabled()


def empty_blocks(x):
    with torch.no_grad():
        pass
    y = x * 3
    with torch.no_grad():
        with torch.enable_grad():
            torch.is_grad_enabled()
    return y


def mode_that_stays(x):
    y = x + 1
    torch.set_grad_enabled(False)
    return y


@pytest.mark.parametrize(
    ("program", "count"), [(several_modes, 3), (empty_blocks, 1), (mode_that_stays, 2)]
)
def test_redundant_changes_of_the_mode(program, count, graphs, backend) -> None:
    leaf = X.clone().requires_grad_()
    with torch.enable_grad():
        expected = program(leaf)
        mode = torch.is_grad_enabled()
    with torch.enable_grad():
        result = pliant.compile(program, backend=backend, fullgraph=True)(leaf)
        assert torch.is_grad_enabled() is mode
    first, wanted = (r[0] if isinstance(r, tuple) else r for r in (result, expected))
    assert torch.equal(first, wanted) and first.requires_grad == wanted.requires_grad
    assert len(calls(graphs[0])) == count
    with torch.no_grad():  # guarded, so that nothing is left out that matters here
        result = pliant.compile(program, backend=backend)(leaf)
        torch.set_grad_enabled(False)
        again = program(leaf)
    first, wanted = (r[0] if isinstance(r, tuple) else r for r in (result, again))
    assert first.requires_grad == wanted.requires_grad


@pytest.mark.parametrize("enabled", [False, True])
def test_a_break_inside_a_mode_needs_no_graph_for_it(enabled, graphs, backend) -> None:
    def program(x):
        with torch.set_grad_enabled(not enabled):
            pliant.graph_break()
            return x * 2, torch.is_grad_enabled()

    leaf = X.clone().requires_grad_()
    with torch.set_grad_enabled(enabled):
        compiled = pliant.compile(program, backend=backend)
        for _ in range(2):
            result, inside = compiled(leaf)
            assert result.requires_grad is inside is not enabled
            assert torch.is_grad_enabled() is enabled
    assert len(graphs) == 1


def test_a_mode_is_put_back_where_the_program_raises() -> None:
    def program(x):
        with torch.no_grad():
            pliant.graph_break()
            raise ValueError(str(torch.is_grad_enabled()))

    check(program, X, breaks=1)
    assert torch.is_grad_enabled()
