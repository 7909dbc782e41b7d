"""What pliant has of `torch.compiler` and `torch._dynamo` besides `compile` itself."""

import numpy
import pytest
import torch

import pliant

X = torch.ones(3)


def test_isolated_functions_have_limits_of_their_own():
    options = {"recompile_limit": 1, "dynamic": False, "isolate_recompiles": True}
    first, second = (pliant.compile(torch.sin, fullgraph=True, **options) for _ in range(2))
    first(torch.ones(3))
    second(torch.ones(4))
    with pytest.raises(pliant.errors.RecompileLimitError):
        first(torch.ones(4))


def test_recompile_limit_of_one_function():
    function = pliant.compile(lambda x: x + 1, recompile_limit=1, dynamic=False)
    with pytest.warns(pliant.errors.PliantWarning, match="recompile_limit"):
        for size in (3, 4, 5):
            torch.testing.assert_close(function(torch.ones(size)), torch.ones(size) + 1)
    with pytest.raises(pliant.errors.InvalidOptionError):
        pliant.compile(lambda x: x, recompile_limit=-1)


def test_errors_of_compilations_are_runtime_errors():
    for name in ("GraphBreakError", "RecompileError", "RecompileLimitError", "BackendError"):
        assert issubclass(getattr(pliant.errors, name), RuntimeError)


def test_callbacks_around_compilations():
    told = []
    pliant.on_compile_start(lambda event: told.append("start"))
    pliant.on_compile_end(lambda event: told.append("end"))
    function = pliant.compile(lambda x: x + 1)
    function(X)
    function(X)
    assert told == ["start", "end"]


def test_wrap_numpy():
    def program(a, scale):
        return {"a": numpy.sin(a) * scale, "n": a.shape[0]}

    wrapped = pliant.wrap_numpy(program)
    for function in (wrapped, pliant.compile(wrapped)):
        result = function(X, 2.0)
        torch.testing.assert_close(result["a"], X.sin() * 2)


def test_a_region_is_a_subgraph():
    @pliant.nested_compile_region
    def region(x):
        return x.sin()

    graphs = []

    def backend(gm, examples):
        graphs.append(gm)
        return gm.forward

    result = pliant.compile(lambda x: region(x) + 1, backend=backend, fullgraph=True)(X)
    torch.testing.assert_close(result, X.sin() + 1)
    assert len(list(graphs[0].children())) == 1
    torch.testing.assert_close(region(X), X.sin())


def test_config_is_patched_for_a_while():
    with pliant.patch_config(recompile_limit=3):
        assert pliant.config.recompile_limit == 3
    assert pliant.config.recompile_limit == 8

    def program(x):
        with pliant.disable_nested_graph_breaks(), pliant.dont_skip_tracing():
            return x + 1

    torch.testing.assert_close(pliant.compile(program)(X), X + 1)


def test_a_compiled_function_keeps_its_promise_inside_of_another():
    @pliant.compile(fullgraph=True)
    def inner(x):
        pliant.graph_break()
        return x + 1

    with pytest.raises(pliant.errors.GraphBreakError):
        pliant.compile(lambda x: inner(x) + 1)(X)


def test_error_on_graph_break_takes_a_flag():
    with pytest.raises(TypeError, match="True or False"):
        pliant.error_on_graph_break("yes")


def test_the_first_call_of_eager_then_compile_is_seen():
    graphs = []

    def backend(gm, examples):
        graphs.append(gm)
        return gm.forward

    @pliant.compile(backend=backend)
    def program(x, scale, more):
        x = x.sin()
        return x.cos() * scale * more[0]

    with pliant.set_stance("eager_then_compile"):
        for size in (2, 3, 4):
            x, more = torch.rand(size), {0: torch.rand(size)}
            torch.testing.assert_close(program(x, size, more), x.sin().cos() * size * more[0])
    assert len(graphs) == 1


def test_nonstrict_trace_inside_of_a_compiled_function():
    @pliant.compile(fullgraph=True)
    def program(x):
        return pliant.nonstrict_trace(traceable_fn=hides)(x) + 1

    torch.testing.assert_close(program(X), X + 3)


def hides(x):
    pliant.graph_break()
    return x + 2
