from importlib.metadata import EntryPoint

import pytest
import torch
from torch._dynamo.backends.debugging import ExplainWithBackend

import pliant
from pliant.backends import registry
from pliant.backends.eager import eager
from pliant.backends.registry import (
    accepts,
    backend_name,
    call_backend,
    list_backends,
    lookup,
    register_backend,
    with_options,
)
from pliant.base.errors import (
    BackendError,
    BackendNameTakenError,
    NotCallableError,
    UnknownBackendError,
)


@pytest.fixture(autouse=True)
def own_table(monkeypatch):
    monkeypatch.setattr(registry, "_registered", {})


def with_entry_points(monkeypatch, **targets):
    entries = {name: EntryPoint(name, value, "a_group") for name, value in targets.items()}
    monkeypatch.setattr(registry, "_installed", lambda: entries)


def sin_graph():
    graph = torch.fx.Graph()
    graph.output((graph.call_function(torch.sin, (graph.placeholder("x"),)),))
    return torch.fx.GraphModule(torch.nn.Module(), graph)


def test_eager_runs_the_graph():
    x = torch.randn(3)
    compiled = call_backend(lookup("eager"), sin_graph(), [x])
    assert torch.equal(compiled(x)[0], x.sin())


def test_default_and_functions():
    assert lookup(None) is lookup("eager") is eager

    def mine(gm, example_inputs): ...

    assert lookup(mine) is mine


def test_register_with_and_without_a_name():
    @register_backend
    def plain(gm, example_inputs): ...

    @register_backend(name="other")
    def named(gm, example_inputs): ...

    register_backend(plain, "third")
    assert lookup("plain") is plain is lookup("third") and lookup("other") is named
    assert {"eager", "inductor", "plain", "other", "third"} <= set(list_backends())
    assert list_backends() == sorted(list_backends())


def test_a_name_is_taken_once():
    with pytest.raises(BackendNameTakenError):
        register_backend(lambda gm, inputs: gm, name="eager")
    register_backend(eager, name="mine")
    register_backend(eager, name="mine")
    with pytest.raises(BackendNameTakenError):
        register_backend(print, name="mine")
    assert lookup("mine") is eager


def test_the_same_definition_may_be_run_again():
    def define():
        @register_backend
        def cell(gm, example_inputs): ...

        return cell

    define()
    second = define()
    assert lookup("cell") is second


def test_what_can_not_be_a_backend():
    for refused in (3, ["eager"]):
        with pytest.raises(NotCallableError, match="eager"):
            lookup(refused)
    with pytest.raises(NotCallableError):
        register_backend("eager")


def test_unknown_name():
    with pytest.raises(UnknownBackendError, match="did you mean 'eager'.*inductor"):
        lookup("eagr")


def test_entry_points(monkeypatch):
    with_entry_points(monkeypatch, dumped="json:dumps", broken="no_such_module:f")
    assert "dumped" in list_backends()
    import json

    assert lookup("dumped") is json.dumps
    with pytest.raises(BackendError, match="no_such_module") as caught:
        lookup("broken")
    assert isinstance(caught.value.__cause__, ImportError)


def test_torchs_entry_points_are_read(monkeypatch):
    asked = []
    monkeypatch.setattr(registry, "entry_points", lambda group: asked.append(group) or ())
    registry._installed.cache_clear()
    list_backends()
    registry._installed.cache_clear()
    assert asked == ["pliant_backends", "torch_dynamo_backends"]


def test_a_backend_that_raises():
    def bad(gm, example_inputs):
        raise ZeroDivisionError("oh")

    with pytest.raises(BackendError, match="'bad' failed(.|\n)*ZeroDivisionError: oh") as caught:
        call_backend(bad, None, [])
    assert isinstance(caught.value.__cause__, ZeroDivisionError)


def test_a_backend_that_returns_something_else():
    with pytest.raises(BackendError, match="returned None"):
        call_backend(lambda gm, inputs: None, None, [])


def test_a_backend_gets_a_list_of_inputs():
    inputs = (1, 2)
    assert call_backend(lambda gm, got: lambda: got, None, inputs)() == [1, 2]


def test_mode_and_options_reach_a_backend_that_takes_them():
    def takes(gm, example_inputs, *, mode=None, options=None):
        return lambda: (mode, options)

    def does_not(gm, example_inputs):
        return lambda: "plain"

    given = with_options(takes, "max-autotune", {"a": 1})
    assert call_backend(given, None, [])() == ("max-autotune", {"a": 1})
    assert backend_name(given) == "takes"
    assert with_options(takes, "default", None) is takes
    assert with_options(does_not, "max-autotune", {"a": 1}) is does_not
    assert accepts(lambda gm, inputs, **rest: None, "mode") and not accepts(does_not, "mode")


@pytest.mark.long
def test_inductor():
    x = torch.randn(8, requires_grad=True)
    compiled = call_backend(lookup("inductor"), sin_graph(), [x])
    (y,) = compiled(x)
    torch.testing.assert_close(y, x.sin())
    y.sum().backward()
    torch.testing.assert_close(x.grad, x.cos())


def test_a_graph_says_why_it_ends():
    reasons = []

    def backend(gm, example_inputs):
        reasons.append(gm.compile_subgraph_reason)
        return gm.forward

    def program(x):
        y = x + 1
        pliant.graph_break()
        return y * 2

    pliant.compile(program, backend=backend)(torch.ones(3))
    broken, returned = reasons
    assert broken.graph_break and "graph_break" in broken.reason
    assert broken.user_stack[-1].lineno == program.__code__.co_firstlineno + 2
    assert not returned.graph_break and not returned.user_stack


def test_a_backend_of_pytorch_that_explains():
    explaining = ExplainWithBackend("eager")
    compiled = pliant.compile(lambda x: (x + 1).relu(), backend=explaining)
    assert compiled(torch.zeros(3)).tolist() == [1, 1, 1]
    assert explaining.output().graph_count == 1
