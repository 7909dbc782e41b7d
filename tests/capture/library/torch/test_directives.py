"""What a program says to the compiler, in pliant's words and in PyTorch's."""

import importlib
import inspect
import operator

import pytest
import torch
import torch._dynamo as dynamo

import pliant
from pliant.capture import directives
from tests.support.against_eager import check

X = torch.tensor([[1.0, -2.0], [0.5, 3.0]])


def refused(function, *args):
    with pytest.raises(pliant.errors.GraphBreakError) as error:
        pliant.compile(function, fullgraph=True)(*args)
    return error.value.code


# ---- in the graph as they are


def opaque(x, options):
    scale = {"a": 2, "b": 3}[options["key"]]
    return {"out": x * scale, "both": [x, x + 1]}


@pytest.mark.parametrize(
    "mark",
    [
        pliant.allow_in_graph,
        pliant.nonstrict_trace,
        torch.compiler.allow_in_graph,
        dynamo.nonstrict_trace,
    ],
)
def test_a_function_called_by_the_graph(mark):
    def inner(x, options):
        pliant.graph_break()  # would break the graph if it were followed
        return opaque(x, options)

    marked = mark(inner)
    graphs = []

    def backend(graph, inputs):
        graphs.append(graph)
        return graph

    compiled = pliant.compile(
        lambda x: marked(x, {"key": "a"})["out"] + 1, fullgraph=True, backend=backend
    )
    assert torch.equal(compiled(X), X * 2 + 1)
    assert len([node for node in graphs[0].graph.nodes if node.op == "call_function"]) == 3
    assert torch.equal(marked(X, {"key": "b"})["out"], X * 3)


def test_a_module_given_to_one():
    model = torch.nn.Linear(2, 2)

    @pliant.nonstrict_trace
    def run(model, x):
        return model(x) * 2

    compiled = pliant.compile(lambda x: run(model, x), fullgraph=True)
    compiled(X).sum().backward()
    expected = torch.full((2, 2), 2.0) * X.sum(0)
    torch.testing.assert_close(model.weight.grad, expected)


def test_marks_refuse_what_cannot_be_called():
    for mark in (pliant.allow_in_graph, pliant.nonstrict_trace, pliant.assume_constant_result):
        with pytest.raises(pliant.errors.NotCallableError):
            mark(3)


@pytest.mark.parametrize(
    "mark", [pliant.assume_constant_result, torch.compiler.assume_constant_result]
)
def test_a_constant_result(mark):
    calls = []

    @mark
    def size():
        calls.append("called")
        return 5

    compiled = pliant.compile(lambda x: x + size(), fullgraph=True)
    assert torch.equal(compiled(X), X + 5) and torch.equal(compiled(X), X + 5)
    assert calls == ["called"]


def test_a_substitute(monkeypatch):
    monkeypatch.setattr(directives, "SUBSTITUTES", {})  # other tests call the function, too

    @pliant.substitute_in_graph(operator.length_hint, skip_signature_check=True)
    def length_hint(obj, default=0):
        return 40 + len(obj)

    compiled = pliant.compile(lambda x: x + operator.length_hint([1, 2]), fullgraph=True)
    assert torch.equal(compiled(X), X + 42)
    assert length_hint([1, 2]) == 2  # called from outside, it is the original


# ---- errors at breaks


@pytest.mark.parametrize("strict", [pliant.error_on_graph_break, dynamo.error_on_graph_break])
def test_breaks_are_errors_in_parts(strict):
    def function(x, inside, outside):
        if outside:
            pliant.graph_break()
        with strict(True):
            x = x + 1
            if inside == 1:
                pliant.graph_break()
            with strict(False):
                if inside == 2:
                    pliant.graph_break()
                x = x * 2
            if inside == 3:
                pliant.graph_break()
        return x

    compiled = pliant.compile(function)
    for inside, fails in ((0, False), (1, True), (2, False), (3, True)):
        for outside in (False, True):
            if fails:
                with pytest.raises(pliant.errors.GraphBreakError):
                    compiled(X, inside, outside)
            else:
                assert torch.equal(compiled(X, inside, outside), (X + 1) * 2)
    assert refused(function, X, 2, False) == "user"  # fullgraph wins


def test_breaks_are_errors_around_a_call():
    compiled = pliant.compile(lambda x: (pliant.graph_break(), x + 1)[1])
    with pytest.raises(pliant.errors.GraphBreakError), pliant.error_on_graph_break(True):
        compiled(X)
    assert torch.equal(compiled(X), X + 1)

    @pliant.error_on_graph_break(True)
    def strict(x):
        pliant.graph_break()
        return x

    with pytest.raises(pliant.errors.GraphBreakError):
        pliant.compile(strict)(X)


# ---- stances


@pytest.fixture(autouse=True)
def default_stance():
    yield
    pliant.set_stance("default")


@pytest.fixture
def probe():
    """A compiled function that says whether it ran compiled."""
    return pliant.compile(lambda x: (x + 1, pliant.is_compiling()), dynamic=False)


def test_force_eager(probe):
    assert probe(X)[1] is True
    with pliant.set_stance("force_eager"):
        assert probe(X)[1] is False
    assert probe(X)[1] is True

    @pliant.set_stance("force_eager")
    def eager(x):
        return probe(x)[1]

    assert (eager(X), probe(X)[1]) == (False, True)


def test_eager_on_recompile(probe):
    probe(X)
    with pliant.set_stance("eager_on_recompile"):
        assert probe(X)[1] is True
        assert probe(X[:1])[1] is False
    assert probe(X[:1])[1] is True


def test_fail_on_recompile(probe):
    probe(X)
    pliant.set_stance("fail_on_recompile")
    assert probe(X)[1] is True
    varied = r"L\['x'\].size\(\)\[0\] was 2 and is now 1"
    with pytest.raises(pliant.errors.RecompileError, match=varied):
        probe(X[:1])


def test_eager_then_compile(probe):
    with pliant.set_stance("eager_then_compile"):
        assert [probe(X)[1] for _ in range(3)] == [False, True, True]


def test_eager_then_compile_counts_its_own_calls(probe):
    with pliant.set_stance("eager_on_recompile"):
        probe(X)
    with pliant.set_stance("eager_then_compile"):
        assert [probe(X)[1] for _ in range(2)] == [False, True]


def test_forced_backend():
    used = []

    def backend(graph, inputs):
        used.append(graph)
        return graph

    with pliant.set_stance("default", force_backend=backend):
        pliant.compile(lambda x: x + 1)(X)
    assert len(used) == 1


def test_stances_that_do_not_exist():
    for bad in ({"stance": "force"}, {"stance": "force_eager", "force_backend": "eager"}):
        with pytest.raises(pliant.errors.InvalidOptionError):
            pliant.set_stance(**bad)


# ---- PyTorch's own words in a program


def test_words_that_mean_nothing_here():
    def function(x):
        dynamo.mark_static(x)
        dynamo.maybe_mark_dynamic(x, 0)
        torch.compiler.cudagraph_mark_step_begin()
        return x + 1

    assert torch.equal(pliant.compile(function, fullgraph=True)(X), X + 1)


def test_what_torch_compile_gave_is_followed():
    inner = torch.compile(lambda x: x * 2, backend="eager")
    model = torch.compile(torch.nn.Linear(2, 2), backend="eager")
    check(lambda x: inner(x) + 1, X)
    check(lambda x: model(x) + 1, X)
    check(lambda x: torch.compile(lambda t: t * 3, backend="eager")(x) + 1, X)
    check(lambda x: pliant.compile(lambda t: t * 3)(x) + 1, X)


@pytest.mark.parametrize("package", directives.NOT_FOLLOWED)
def test_modules_that_are_not_followed(package):
    """No package is listed inside another one, and the exceptions from it exist."""
    assert not any(package.startswith(f"{other}.") for other in directives.NOT_FOLLOWED)
    reason, followed = directives.NOT_FOLLOWED[package]
    assert reason
    for name in followed:
        module = importlib.import_module(f"{package}.{name}")
        functions = [f for f in vars(module).values() if inspect.isfunction(f)]
        own = [f for f in functions if f.__module__ == module.__name__]
        assert all(map(directives.is_followed, own))


@pytest.mark.parametrize("backend", ["eager", "llvm"])
def test_functions_allowed_in_graphs_are_called_for_what_they_do(backend):
    """With the state that PyTorch is in there, and if nothing needs the result."""
    log = []

    @pliant.allow_in_graph
    def note(x=None):
        flags = torch.are_deterministic_algorithms_enabled(), torch.is_grad_enabled()
        log.append((*flags, None if x is None else x.dim()))
        return x if x is None else x + 1

    def function(x):
        note()
        torch.use_deterministic_algorithms(False)
        with torch.no_grad():
            note(x)
        return x + 1

    def called(fn):
        log.clear()
        torch.use_deterministic_algorithms(True)
        try:
            fn(X)
        finally:
            torch.use_deterministic_algorithms(False)
        return list(log)

    compiled = pliant.compile(function, fullgraph=True, backend=backend)
    called(compiled)  # is also run on fakes
    assert called(compiled) == called(function) == [(True, True, None), (False, False, X.dim())]


def test_questions_of_torchscript_and_onnx():
    def function(x):
        y = torch.jit.annotate(torch.Tensor, x + 1)
        if torch.onnx.is_in_onnx_export() or not torch.jit.isinstance(x, torch.Tensor):
            y = y + 1
        return y

    check(function, X)
