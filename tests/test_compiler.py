"""What pliant has of `torch.compiler` and `torch._dynamo` besides `compile` itself."""

import dataclasses

import numpy
import pytest
import torch
from torch.utils import _pytree as pytree

import pliant
from tests.support.against_eager import check

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
    before = pliant.config.recompile_limit
    with pliant.patch_config(recompile_limit=3):
        assert pliant.config.recompile_limit == 3
    assert pliant.config.recompile_limit == before != 3

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


@pytest.mark.parametrize("breaks", [False, True])
def test_the_first_call_of_eager_then_compile_is_seen(breaks):
    graphs = []

    def backend(gm, examples):
        graphs.append(gm)
        return gm.forward

    @pliant.compile(backend=backend)
    def program(x, scale, more):
        x = x.sin()
        if breaks:
            pliant.graph_break()
        return x.cos() * scale * more[0]

    with pliant.set_stance("eager_then_compile"):
        for size in (2, 3, 4):
            x, more = torch.rand(size), {0: torch.rand(size)}
            torch.testing.assert_close(program(x, size, more), x.sin().cos() * size * more[0])
    assert len(graphs) == 1 + breaks


def test_nonstrict_trace_inside_of_a_compiled_function():
    @pliant.compile(fullgraph=True)
    def program(x):
        return pliant.nonstrict_trace(traceable_fn=hides)(x) + 1

    torch.testing.assert_close(program(X), X + 3)


def hides(x):
    pliant.graph_break()
    return x + 2


def test_run_compiles_nothing_more():
    before = pliant.counters["compilations"]
    function = pliant.compile(lambda x: x + 1)
    used = pliant.run(function)
    for size in (2, 3):
        torch.testing.assert_close(used(torch.ones(size)), torch.ones(size) + 1)
    assert pliant.counters["compilations"] == before
    function(X)
    torch.testing.assert_close(pliant.run()(function)(X), X + 1)
    torch.testing.assert_close(pliant.compile(lambda x: used(x) * 2, fullgraph=True)(X), X * 4)


def test_compiled_modules_have_torchs_name_too():
    assert isinstance(pliant.compile(torch.nn.ReLU()), pliant.OptimizedModule)


def test_a_function_allowed_in_the_graph_is_called_for_its_effects():
    told = []

    @pliant.allow_in_graph
    def tells():
        told.append(torch.are_deterministic_algorithms_enabled())

    @pliant.compile(fullgraph=True)
    def program(x):
        tells()
        torch.use_deterministic_algorithms(True)
        tells()
        return x + 1

    try:
        program(X)
        torch.use_deterministic_algorithms(False)
        told.clear()
        program(X)
        assert told == [False, True]
        assert torch.are_deterministic_algorithms_enabled()
    finally:
        torch.use_deterministic_algorithms(False)


@dataclasses.dataclass(frozen=True)
class Pair:
    x: torch.Tensor
    y: torch.Tensor


class Registered:
    def __init__(self, pair, factor):
        self.pair = pair
        self.factor = factor


pytree.register_pytree_node(
    Registered, lambda r: ((r.pair, r.factor), None), lambda items, _: Registered(*items)
)


@pliant.allow_in_graph
def reads(record):
    pliant.graph_break()
    return record.pair.x * record.pair.y * record.factor


def test_objects_made_in_the_program_are_arguments_of_such_functions():
    def program(x, y):
        record = Registered(Pair(x, y), 2)
        record.factor += 1
        return reads(record), record.factor

    result, factor = pliant.compile(program, fullgraph=True)(X, X + 1)
    torch.testing.assert_close(result, X * (X + 1) * 3)
    assert factor == 3


def test_a_compiled_backward():
    class Double(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x + x)
            return x + x

        @staticmethod
        @pliant.compile(fullgraph=True)
        def backward(ctx, gradient):
            (saved,) = ctx.saved_tensors
            return gradient * saved.sin() if ctx.needs_input_grad[0] else None

    x = torch.rand(3, requires_grad=True)
    Double.apply(x).sum().backward()
    torch.testing.assert_close(x.grad, (x + x).sin().detach())


def test_questions_about_other_modes():
    def program(x):
        if torch.onnx.is_in_onnx_export() or torch._C._are_functorch_transforms_active():
            return x
        for row in x.__iter__():
            x = x + torch.jit.annotate(torch.Tensor, row)
        return x

    check(program, torch.ones(2, 2), fullgraph=True)
