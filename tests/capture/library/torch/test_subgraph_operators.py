"""Higher-order operators that call one function: it is a graph of its own inside of the graph."""

import pytest
import torch
from torch._higher_order_ops import invoke_quant
from torch._higher_order_ops.cond import cond_op
from torch._higher_order_ops.hints_wrap import hints_wrapper
from torch._higher_order_ops.wrap import wrap

import pliant
from pliant.base import events
from tests.support.against_eager import check

X = torch.tensor([[1.0, -2.0, 0.5], [0.5, 3.0, -1.0]])
around = torch.tensor([1.0, 2.0, 3.0])
MODEL = torch.nn.Linear(3, 3)


@torch.compiler.nested_compile_region
def region(x, scale=1.0):
    return x.sin() * scale


def regions_made_inside(x):
    @torch.compiler.nested_compile_region
    def inner(t):
        return t.sin() + x

    marked = torch.compiler.nested_compile_region(region)
    return inner(x) + inner(x * 2) + marked(x)


PROGRAMS = {
    "regions made inside": regions_made_inside,
    "one result": lambda x: wrap(lambda t: t.sin(), x),
    "free variables": lambda x: wrap(lambda t: t + around, x),
    "keyword arguments": lambda x: wrap(lambda t, *, by=1: t * by, x, by=3),
    "a structure": lambda x: wrap(lambda t: {"a": t + 1, "b": [t * 2, (t.sum(), 7, None)]}, x),
    "no result but a number": lambda x: wrap(lambda t: (t.shape[0], t + 1), x),
    "an argument returned": lambda x: (wrap(lambda t: (t, t + 1), x)[0] is x, x * 2),
    "nested": lambda x: wrap(lambda t: t.cos() + wrap(MODEL, t), x),
    "a list of its own": lambda x: wrap(lambda t: [t.sin(), *[t.cos()]][-1], x),
    "a region": lambda x: region(region(x), scale=2.0),
    "a size": lambda x: wrap(lambda t, n: t.reshape(n), x, x.numel()),
    "a write": lambda x: wrap(lambda t: t.add_(1) * 2, x),
    "random numbers": lambda x: wrap(lambda t: t + torch.rand(3), x),
}


@pytest.mark.parametrize("name", PROGRAMS)
@pytest.mark.parametrize("dynamic", [False, True])
def test_same_as_eager(name, dynamic):
    check(PROGRAMS[name], X.clone(), dynamic=dynamic, fullgraph=True)


@pytest.mark.parametrize("name", ["free variables", "a structure", "nested", "a region"])
def test_gradients(name):
    def loss(x):
        y = PROGRAMS[name](x)
        return (y["a"] + y["b"][0]).sum() if isinstance(y, dict) else y.sum()

    one, other = X.clone().requires_grad_(), X.clone().requires_grad_()
    loss(one).backward()
    pliant.compile(loss, fullgraph=True)(other).backward()
    torch.testing.assert_close(other.grad, one.grad)


def graph_of(function, *args):
    graphs = []

    def backend(gm, examples):
        graphs.append(gm)
        return gm.forward

    pliant.compile(function, backend=backend, fullgraph=True)(*args)
    return graphs[0]


def node_of(gm, target):
    return next(node for node in gm.graph.nodes if node.target is target)


def test_the_node_takes_the_graph_and_what_it_uses():
    gm = graph_of(lambda x: wrap(lambda t: t + around, x) * 2, X)
    node = node_of(gm, wrap)
    body = getattr(gm, node.args[0].target)
    assert len(node.args) == 3
    assert len(body.graph.find_nodes(op="placeholder")) == 2
    assert not list(body.parameters())


def test_graphs_are_named_after_their_operator():
    gm = graph_of(lambda x: wrap(lambda t: wrap(lambda u: u + 1, t), x), X)
    names = [name for name, _ in gm.named_modules()]
    assert names == ["", "wrap_body_1", "wrap_body_1.wrap_body_0"]


def test_branches_are_named_after_their_side():
    def program(x):
        inner = lambda t: torch.cond(t.sum() > 9, torch.sin, torch.cos, (t,))  # noqa: E731
        return torch.cond(x.sum() > 0, lambda t: t + 1, inner, (x,))

    names = {name for name, _ in graph_of(program, X).named_modules()}
    assert names == {
        *("", "cond_true_1", "cond_false_1"),
        *("cond_false_1.cond_true_0", "cond_false_1.cond_false_0"),
    }


def test_hints_reach_the_backend():
    gm = graph_of(lambda x: hints_wrapper(lambda t: t + 1, (x,), {}, hints={"width": 8}), X)
    assert node_of(gm, hints_wrapper).kwargs == {"hints": {"width": 8}}


def test_options_of_the_base_class_reach_the_backend():
    def program(x):
        return invoke_quant(lambda t: t * 2, x, scheme="nf4")

    assert node_of(graph_of(program, X), invoke_quant).kwargs == {"scheme": "nf4"}
    torch.testing.assert_close(pliant.compile(program, fullgraph=True)(X), X * 2)


def test_generated_code_has_no_call_of_the_operator():
    seen = []
    with events.listening(seen.append):
        pliant.compile(lambda x: wrap(lambda t: t.sin() + 1, x), backend="llvm")(X)
    (generated,) = [event for event in seen if isinstance(event, events.CodeGenerated)]
    assert not generated.called


@pytest.mark.parametrize("pred", [torch.zeros(1), torch.ones(1), torch.tensor([True])])
def test_cond_takes_any_tensor_of_one_element(pred):
    def program(pred, x):
        return torch.cond(pred, lambda: x + 1, lambda: x - 1)

    result = pliant.compile(program, fullgraph=True)(pred, X)
    torch.testing.assert_close(result, X + 1 if pred else X - 1)


def test_cond_operator_takes_keywords():
    def program(pred, x):
        return cond_op(pred=pred, true_fn=torch.sin, false_fn=torch.cos, operands=(x,))

    compiled = pliant.compile(program, fullgraph=True)
    torch.testing.assert_close(compiled(torch.tensor(True), X), X.sin())
    torch.testing.assert_close(compiled(torch.tensor(False), X), X.cos())


def test_a_function_that_changes_objects_around_it_is_not_captured():
    seen = []

    def program(x):
        return wrap(lambda t: (seen.append(1), t + 1)[1], x)

    with pytest.raises(pliant.errors.GraphBreakError, match="body-effect"):
        pliant.compile(program, fullgraph=True)(X)
    torch.testing.assert_close(pliant.compile(program)(X), X + 1)
    assert seen == [1]


CONDITIONS = {
    "loops": (lambda t: t.relu() + 1, lambda t: (t * 2).abs()),
    "a structure": (lambda t: {"a": [t + 1, t * 2]}, lambda t: {"a": [t - 1, t.abs()]}),
    "another dtype": (lambda t: t > 1, lambda t: t < 1),
}
CALLED = {
    "a reduction": (lambda t: t.sum(0), lambda t: t[0] + 1),
    "random numbers": (lambda t: t + torch.rand(3), lambda t: t * 2),
    "transposed": (lambda t: t.T + 1, lambda t: t.T * 2),
    "other strides": (lambda t: (t.T + 1).T, lambda t: t * 2),
}


@pytest.mark.parametrize("name", [*CONDITIONS, *CALLED])
@pytest.mark.parametrize("dynamic", [False, True])
def test_a_condition_of_loops_stays_in_the_kernel(name, dynamic):
    true, false = {**CONDITIONS, **CALLED}[name]

    def program(x):
        y = x * 2
        return torch.cond(x.sum() > 0, lambda: true(y), lambda: false(y))

    seen = []
    with events.listening(seen.append):
        check(program, X.clone(), fullgraph=True, dynamic=dynamic, backend="llvm")
        check(program, -X, fullgraph=True, dynamic=dynamic, backend="llvm")
    called = [event.called for event in seen if isinstance(event, events.CodeGenerated)]
    assert bool(name in CALLED) is any("cond" in str(names) for names in called)


def test_nan_of_the_other_side_does_not_reach_gradients():
    def program(x):
        return torch.cond(x.min() < 0, lambda: x * 2, lambda: x.sqrt()).sum()

    x = X.clone().requires_grad_()
    pliant.compile(program, fullgraph=True, backend="llvm")(x).backward()
    torch.testing.assert_close(x.grad, torch.full_like(X, 2.0))
