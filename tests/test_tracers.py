"""Compiled code under other tracers and compilers: the original runs, and nothing is kept of it."""

import subprocess
import sys

import pytest
import torch
from torch import fx, nn
from torch._subclasses import FakeTensorMode
from torch.fx.experimental.proxy_tensor import make_fx
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.checkpoint import checkpoint

import pliant
from pliant.base import events

X = torch.arange(6.0).reshape(2, 3)
LONGER = torch.arange(12.0).reshape(4, 3)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.lin = nn.Linear(3, 3)

    def forward(self, x):
        return self.lin(x).relu() * x.shape[0]


class Around(nn.Module):
    def __init__(self, inner):
        super().__init__()
        self.inner = inner

    def forward(self, x):
        return self.inner(x) + 1


def function(x):
    return (x.sin() * x.shape[0]).relu() + 1


def in_place():
    return pliant.compile_module(Net())


CASES = {
    "function": lambda: pliant.compile(function),
    "module": lambda: pliant.compile(Net()),
    "submodule": lambda: Around(pliant.compile(Net())),
    "in place": in_place,
    "function in a module": lambda: Around(pliant.compile(function)),
}


@pytest.fixture(params=CASES)
def make(request):
    return CASES[request.param]


@pytest.fixture(params=["cold", "warm"])
def compiled(make, request):
    """Before the first call, and after calls of two sizes."""
    compiled = make()
    if request.param == "warm":
        compiled(X), compiled(LONGER)
    events.counters.reset()
    return compiled


def is_compiled_afterwards(compiled):
    """Whatever another tracer did, calls of its own are compiled."""
    assert events.counters["compilations"] == events.counters["fallbacks"] == 0
    compiled(X.clone().requires_grad_())
    assert events.counters["compilations"] == 1


@pytest.mark.filterwarnings("ignore")
def test_jit_trace(compiled):
    traced = torch.jit.trace(compiled, (X,), check_trace=False)
    assert "aten::relu" in str(traced.inlined_graph)
    is_compiled_afterwards(compiled)
    assert torch.equal(traced(LONGER), compiled(LONGER))  # sizes are not constants


@pytest.mark.filterwarnings("ignore")
def test_jit_trace_in_the_default_backend(make):
    with pliant.config.patch(raise_on_fallback=False):
        compiled = make()
        compiled(X)
        traced = torch.jit.trace(compiled, (X,))
        assert torch.equal(traced(LONGER), compiled(LONGER))
        assert events.counters["fallbacks"] == 0


@pytest.mark.filterwarnings("ignore")
def test_jit_script():
    for name in ("function", "module", "submodule"):
        compiled = CASES[name]()
        scripted = torch.jit.script(compiled)
        assert torch.equal(scripted(LONGER), compiled(LONGER))


def test_symbolic_trace(compiled):
    module = compiled if isinstance(compiled, nn.Module) else Around(compiled)
    traced = fx.symbolic_trace(module)
    assert "relu" in traced.code and "shape" in traced.code
    is_compiled_afterwards(compiled)
    assert torch.equal(traced(LONGER), module(LONGER))


def test_symbolic_trace_of_a_caller():
    compiled = pliant.compile(function)
    traced = fx.symbolic_trace(lambda x: compiled(x) * 2)
    assert "relu" in traced.code
    is_compiled_afterwards(compiled)
    assert torch.equal(traced(LONGER), compiled(LONGER) * 2)


def test_proxies_without_a_tracer(compiled):
    graph = fx.Graph()
    proxy = fx.Proxy(graph.placeholder("x"))
    compiled = compiled if not isinstance(compiled, nn.Module) else pliant.compile(function)
    graph.output(compiled(proxy).node)
    assert "relu" in str(graph)
    is_compiled_afterwards(compiled)


def test_proxies_in_containers():
    compiled = pliant.compile(lambda pair: pair["x"][0].relu() + 1)
    graph = fx.Graph()
    compiled({"x": [fx.Proxy(graph.placeholder("x"))]})
    assert "relu" in str(graph)
    assert events.counters["compilations"] == 0


@pytest.mark.parametrize("mode", ["real", "fake", "symbolic"])
def test_make_fx(compiled, mode):
    traced = make_fx(compiled, tracing_mode=mode, _allow_non_fake_inputs=True)(X)
    assert "aten.relu" in traced.code
    assert events.counters["compilations"] == 0
    if mode == "symbolic":
        assert torch.equal(traced(LONGER), compiled(LONGER))
    assert torch.equal(traced(X), compiled(X))


def test_export(compiled):
    module = compiled if isinstance(compiled, nn.Module) else Around(compiled)
    size = torch.export.Dim("size", min=2)
    program = torch.export.export(module, (X,), dynamic_shapes=({0: size},), strict=False)
    assert "relu" in program.graph_module.code
    assert events.counters["compilations"] == events.counters["fallbacks"] == 0
    assert torch.equal(program.module()(LONGER), module(LONGER))


def test_fake_tensors(compiled):
    mode = FakeTensorMode(allow_non_fake_inputs=True)
    fake = mode.from_tensor(X)
    with mode:
        assert compiled(fake).fake_mode is mode
    assert compiled(fake).fake_mode is mode  # outside of the mode, too
    is_compiled_afterwards(compiled)


def test_transforms(compiled):
    expected = torch.func.vmap(getattr(compiled, "_orig_mod", compiled))(LONGER[None])
    assert torch.equal(torch.func.vmap(compiled)(LONGER[None]), expected)
    torch.func.grad(lambda x: compiled(x).sum())(X)
    torch.func.jvp(compiled, (X,), (X,))
    torch.func.jacrev(compiled)(X)
    assert events.counters["fallbacks"] == 0
    events.counters.reset()  # a graph is captured for transforms too
    is_compiled_afterwards(compiled)


def test_dispatch_mode(compiled):
    seen = []

    class Mode(TorchDispatchMode):
        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            seen.append(func)
            return func(*args, **(kwargs or {}))

    with Mode():
        compiled(X)
    assert torch.ops.aten.relu.default in seen
    is_compiled_afterwards(compiled)


def test_function_mode(compiled):
    seen = []

    class Mode(TorchFunctionMode):
        def __torch_function__(self, func, types, args=(), kwargs=None):
            seen.append(func)
            return func(*args, **(kwargs or {}))

    with Mode():
        compiled(X)
        again = len(seen)
        compiled(X)
    assert torch.Tensor.relu in seen and len(seen) == 2 * again


@pytest.mark.parametrize("reentrant", [False, True])
def test_checkpoint(make, reentrant):
    grads = []
    for _ in range(2):
        torch.manual_seed(0)
        compiled = make()
        x = X.clone().requires_grad_()
        for _ in range(3):
            if len(grads) < 3:
                y = checkpoint(compiled, x, use_reentrant=reentrant)
            else:
                y = getattr(compiled, "_orig_mod", compiled)(x)
            (y * y).sum().backward()
            grads.append(x.grad.clone())
    for mine, theirs in zip(grads[:3], grads[3:], strict=True):
        torch.testing.assert_close(mine, theirs)


# ---- torch.compile


class Seen:
    """A backend of torch.compile that notes what it is given."""

    def __init__(self, name):
        self.graphs = []
        self.compile = torch._dynamo.lookup_backend(name)

    def __call__(self, graph, inputs):
        self.graphs.append([node.name for node in graph.graph.nodes if "call" in node.op])
        return self.compile(graph, inputs)


@pytest.fixture(params=["eager", "aot_eager"])
def backend(request):
    torch._dynamo.reset()
    yield Seen(request.param)
    torch._dynamo.reset()


OWN_PARTS = {name: CASES[name] for name in ("function", "module", "submodule")}


class WithMethod(nn.Module):
    @pliant.compile
    def forward(self, x):
        return x.relu() * 2


OWN_PARTS["method"] = WithMethod


@pytest.mark.parametrize("name", OWN_PARTS)
def test_torch_compile_around(backend, name):
    compiled = OWN_PARTS[name]()

    def outer(x):
        y = x * 3
        return compiled(y) - 7

    expected = outer(X)
    events.counters.reset()
    pliant.reset()
    theirs = torch.compile(outer, backend=backend)
    for _ in range(3):
        torch.testing.assert_close(theirs(X), expected)
    assert backend.graphs[0] == ["y"] or backend.graphs[0] == ["mul"]
    assert "sub" in backend.graphs[-1]
    assert not any("relu" in name for graph in backend.graphs for name in graph)
    assert events.counters["compilations"] == 1 and events.counters["graph_breaks"] == 0


def test_torch_compile_of_the_compiled(backend):
    compiled = pliant.compile(Net())
    expected = compiled._orig_mod(X)
    theirs = torch.compile(compiled, backend=backend)
    assert torch.equal(theirs(X), expected) and torch.equal(theirs(X), expected)
    assert backend.graphs == [] and events.counters["compilations"] == 1


def test_errors_leave_torch_compile_on(backend):
    @pliant.compile
    def fails(x):
        raise ValueError("of the program")

    def outer(x):
        try:
            fails(x)
        except ValueError:
            pass
        return inner(x.cos())

    def inner(x):
        return x.sin()

    theirs = torch.compile(outer, backend=backend)
    assert torch.equal(theirs(X), X.cos().sin())
    assert any("sin" in graph for graph in backend.graphs)


@pytest.mark.parametrize("fullgraph", [False, True])
def test_around_torch_compile(backend, fullgraph):
    inner = torch.compile(function, backend=backend)
    module = torch.compile(Net(), backend=backend)
    mine = pliant.compile(lambda x: module(inner(x * 3)) - 7, fullgraph=fullgraph)
    expected = module._orig_mod(function(X * 3)) - 7
    for _ in range(2):
        assert torch.equal(mine(X), expected)
    assert events.counters["compilations"] == 1 and backend.graphs == []


def test_torch_compile_is_not_imported():
    code = "import sys, pliant; assert not {'torch._dynamo', 'torch._inductor'} & set(sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True)


# ---- tracers that a compiled function calls


def trace_with_fx(x):
    return len(fx.symbolic_trace(lambda a: a.sin() + 1).graph.nodes)


class OwnTracer(fx.Tracer):
    def is_leaf_module(self, m, module_qualified_name):
        return True


LINEAR = nn.Linear(2, 2)


def trace_with_a_subclass(x):
    return len(OwnTracer().trace(LINEAR).nodes)


def trace_with_make_fx(x):
    return make_fx(lambda a: a.sin() + 1)(x)(x)


@pytest.mark.parametrize("inner", [trace_with_fx, trace_with_a_subclass, trace_with_make_fx])
def test_what_follows_a_tracer_is_compiled(inner):
    def function(x):
        before = x.sin()
        result = inner(x)
        return before * 2, result

    compiled = pliant.compile(function)
    events.counters.reset()
    assert str(compiled(X)) == str(function(X))
    # One graph in front of it and one behind it.
    assert events.counters["graphs"] == 2
    assert events.counters["fallbacks"] == 0
